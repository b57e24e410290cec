// Recognises models by their content.
#include <caffe2/serialize/inline_container.h>
#include <fmt/format.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <fstream>

#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/json.h"
#include "yoke/base/text.h"
#include "yoke/dist/error_text.h"
#include "yoke/infer/model.h"
#include "yoke/train/checkpoint/module_state.h"
#include "yoke/train/checkpoint/step_folder.h"
#include "yoke/train/checkpoint/stored_checkpoint.h"
#include "yoke/train/format/safetensors_reader.h"

namespace yoke::infer {
namespace {

namespace fs = std::filesystem;

constexpr auto kKinds =
    "a model is TorchScript (torch.jit.save), a package of AOTInductor (.pt2), a run folder or a checkpoint of a "
    "recipe (`yoke train`), or a folder of Hugging Face's BERT or GPT-2 (config.json and model.safetensors)";

[[noreturn]] void refuse_model(const fs::path& path, const std::string& why) {
  throw Error(ErrorCode::kInvalidArgument, "{} {}; {}", printable(path.string()), why, kKinds);
}

[[noreturn]] void refuse_weights(const fs::path& path) {
  throw Error(ErrorCode::kFailedPrecondition,
              "{} has weights without a network; save both in Python: torch.jit.trace(model.eval(), "
              "example).save(\"model.pt\")",
              printable(path.string()));
}

train::StepFolder steps_in(const fs::path& folder) { return train::StepFolder(folder, {}); }

ModelKind kind_of_folder(const fs::path& folder) {
  if (fs::exists(folder / "config.json")) {
    const auto json = SortedJson::parse(read_file(folder / "config.json"), nullptr, /*allow_exceptions=*/false);
    const auto type = json.is_object() ? json.value("model_type", std::string()) : std::string();
    if (type == "bert") return ModelKind::kBert;
    if (type == "gpt2") return ModelKind::kGpt;
    refuse_model(folder, fmt::format("has a config.json of model_type '{}'", printable(type)));
  }
  if (train::StepFolder::step_of(folder.filename().string()) || !steps_in(folder).steps().empty()) {
    return ModelKind::kCheckpoint;
  }
  refuse_model(folder, "is a folder without config.json and without checkpoints");
}

ModelKind kind_of_archive(const fs::path& path) {
  std::vector<std::string> records;
  try {
    records = caffe2::serialize::PyTorchStreamReader(path.string()).getAllRecords();
  } catch (const std::exception& error) {
    throw Error(ErrorCode::kDataLoss, "{} is a damaged archive: {}", printable(path.string()), reason_of(error));
  }
  const auto has = [&](std::string_view begin, std::string_view end) {
    return std::ranges::any_of(
        records, [&](const std::string& record) { return record.starts_with(begin) && record.ends_with(end); });
  };
  if (has("data/aotinductor/", ".so")) return ModelKind::kAotInductor;
  if (has("models/", ".json")) {
    throw Error(ErrorCode::kFailedPrecondition,
                "{} is a program of torch.export without compiled code, which needs Python; compile it there once: "
                "torch._inductor.aoti_compile_and_package(torch.export.load(\"{}\"), package_path=\"compiled.pt2\")",
                printable(path.string()), printable(path.filename().string()));
  }
  if (has("code/", ".py")) return ModelKind::kTorchScript;
  if (has("data.pkl", "")) refuse_weights(path);
  refuse_model(path, "is an archive without a network");
}

}  // namespace

ModelKind kind_of(const fs::path& path) {
  std::error_code error;
  const auto status = fs::status(path, error);
  if (!fs::exists(status)) {
    throw system_error(error ? error.value() : ENOENT, "reading the model " + printable(path.string()));
  }
  if (fs::is_directory(status)) return kind_of_folder(path);
  std::string begin(2, '\0');
  if (!std::ifstream(path, std::ios::binary).read(begin.data(), 2)) refuse_model(path, "cannot be read or is empty");
  if (begin == "PK") return kind_of_archive(path);
  if (path.extension() != ".safetensors") refuse_model(path, "is none of the kinds of models");
  const train::SafetensorsReader reader(path);
  const bool is_checkpoint =
      std::ranges::any_of(reader.metadata(), [](const auto& entry) { return entry.first.starts_with("yoke."); });
  if (!is_checkpoint) refuse_weights(path);
  return ModelKind::kCheckpoint;
}

train::StoredCheckpoint open_checkpoint(const fs::path& path) {
  if (!fs::is_directory(path) || train::StepFolder::step_of(path.filename().string())) {
    return train::read_checkpoint(path);
  }
  const auto folder = steps_in(path);
  const auto steps = folder.steps();
  if (steps.empty()) throw Error(ErrorCode::kNotFound, "{} has no checkpoint yet", printable(path.string()));
  return train::read_checkpoint(folder.path_of(steps.back()));
}

const std::string& fixed_value(const train::StoredCheckpoint& checkpoint, const std::string& name) {
  const auto found = checkpoint.metadata.find(name);
  if (found != checkpoint.metadata.end()) return found->second;
  throw Error(ErrorCode::kInvalidArgument, "{} does not say its '{}': another training wrote it",
              printable(checkpoint.path.string()), name);
}

void load_network(const train::StoredCheckpoint& checkpoint, torch::nn::Module& network, c10::Device device) {
  train::load_module(checkpoint.part("model"), network);
  network.to(device);
  network.eval();
}

std::string reason_of(const std::exception& error) {
  const std::string text = dist::error_text(error);
  // TorchScript's messages end with the error below the lines of Python at which it happened.
  constexpr std::string_view kError = "Error: ";
  const auto place = text.find("Traceback of TorchScript") == text.npos ? text.npos : text.rfind(kError);
  const auto from = place == text.npos ? text : text.substr(place + kError.size());
  return printable(from.substr(0, from.find('\n')));
}

}  // namespace yoke::infer
