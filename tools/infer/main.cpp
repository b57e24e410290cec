// tools/infer/main.cpp -- predicts all samples of an input with a model. `yoke infer` starts a process of this program
// for each rank.
//
//   yoke-infer --model=PATH --input=PATH --out=FILE ...    see yoke/infer/request.h
//
// The network of a recipe's checkpoint is known to the recipe: its program takes this one's place.
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "yoke/base/error.h"
#include "yoke/base/process.h"
#include "yoke/base/text.h"
#include "yoke/contract/program.h"
#include "yoke/infer/run.h"
#include "yoke/train/run/run.h"

namespace yoke::infer {
namespace {

namespace fs = std::filesystem;

/// Becomes the program of the recipe that has written the checkpoint.
[[noreturn]] void become_recipe(const Request& request, const std::vector<std::string>& words) {
  auto name = request.recipe;
  if (name.empty()) {
    const auto checkpoint = open_checkpoint(request.model);
    const auto found = checkpoint.metadata.find(train::kRunName);
    if (found != checkpoint.metadata.end()) name = found->second;
    if (name.empty()) {
      throw Error(ErrorCode::kInvalidArgument,
                  "{} does not say which training wrote it, so its network is not known: give --recipe NAME, one of "
                  "`yoke train --list`",
                  printable(checkpoint.path.string()));
    }
  }
  const auto recipes = fs::read_symlink("/proc/self/exe").parent_path() / "recipes";
  const auto program = recipes / name / name;
  if (name.find('/') != name.npos || !is_program(program)) {
    throw Error(ErrorCode::kFailedPrecondition,
                "{} is a checkpoint of '{}', which is no recipe of `yoke train --list`, so its network is not known: "
                "call train::predict in the program that has the network, or save it as TorchScript",
                printable(request.model.string()), printable(name));
  }
  std::vector<std::string> argv = {program.string(), kInferWord};
  argv.insert(argv.end(), words.begin(), words.end());
  execv(argv[0].c_str(), exec_pointers(argv).data());
  throw system_error(errno, "starting " + program.string());
}

/// Some recipes leave the trained network and its tokenizer in the run folder's `model`, in Hugging Face's form.
/// Without the tokenizer's files, such as for bytes, the checkpoint says more.
fs::path network_folder(const fs::path& model) {
  const auto has = [&](const char* name) { return fs::exists(model / "model" / name); };
  const bool has_tokenizer = has("tokenizer.json") || has("vocab.txt") || has("vocab.json");
  return has("config.json") && has_tokenizer ? model / "model" : model;
}

Model open_model(const fs::path& path, ModelKind kind, c10::Device device) {
  switch (kind) {
    case ModelKind::kTorchScript: return open_torchscript(path, device);
    case ModelKind::kAotInductor: return open_aot_inductor(path, device);
    case ModelKind::kBert: return open_bert(path, device);
    case ModelKind::kGpt: return open_gpt(path, device);
    case ModelKind::kCheckpoint: break;
  }
  throw Error(ErrorCode::kInternal, "{} is a checkpoint", printable(path.string()));
}

}  // namespace
}  // namespace yoke::infer

int main(int argc, char** argv) {
  using namespace yoke::infer;
  const std::vector<std::string> words(argv + 1, argv + argc);
  ModelKind kind{};
  const int status = yoke::run_program("yoke infer", [&] {
    const auto request = request_of(words);
    kind = kind_of(network_folder(request.model));
    if (kind == ModelKind::kCheckpoint) become_recipe(request, words);
  });
  if (status != 0) return status;
  return main_of(words, [&](const Request& request, c10::Device device) {
    return open_model(network_folder(request.model), kind, device);
  });
}
