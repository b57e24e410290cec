#include "yoke/container/image.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "yoke/base/error.h"
#include "yoke/base/json.h"
#include "yoke/base/text.h"
#include "yoke/container/detail/engines.h"

namespace yoke::container {
namespace {

/// podman's storage is locked while another of its processes writes a layer.
constexpr std::chrono::seconds kStorageTime{30};

/// The vendors' images that have a short name.
struct VendorImage {
  std::string_view short_name;  ///< "ngc/pytorch"
  std::string_view image;       ///< "nvcr.io/nvidia/pytorch"
  bool has_latest = false;      ///< Whether the registry has a tag `latest`.
  std::string_view example;     ///< Of a tag.
};
// nvcr.io has no tag `latest` for these (catalog.ngc.nvidia.com); docker.io/rocm has.
constexpr VendorImage kVendorImages[] = {
    {"ngc/pytorch", "nvcr.io/nvidia/pytorch", false, "25.05-py3"},
    {"ngc/tensorflow", "nvcr.io/nvidia/tensorflow", false, "25.02-tf2-py3"},
    {"ngc/jax", "nvcr.io/nvidia/jax", false, "25.04-py3"},
    {"ngc/nemo", "nvcr.io/nvidia/nemo", false, "25.04"},
    {"ngc/tritonserver", "nvcr.io/nvidia/tritonserver", false, "25.05-py3"},
    {"ngc/cuda", "nvcr.io/nvidia/cuda", false, "12.9.0-devel-ubuntu24.04"},
    {"ngc/nvhpc", "nvcr.io/nvidia/nvhpc", false, "25.5-devel-cuda12.9-ubuntu24.04"},
    {"rocm/pytorch", "docker.io/rocm/pytorch", true, "latest"},
    {"rocm/tensorflow", "docker.io/rocm/tensorflow", true, "latest"},
    {"rocm/jax", "docker.io/rocm/jax", true, "latest"},
    {"rocm/vllm", "docker.io/rocm/vllm", true, "latest"},
    {"rocm/dev-ubuntu-24.04", "docker.io/rocm/dev-ubuntu-24.04", true, "latest"},
};

std::vector<std::string> words_at(const SortedJson& json, const char* key) {
  std::vector<std::string> words;
  if (!json.is_object() || !json.contains(key)) return words;
  for (const auto& word : json.at(key)) {
    if (word.is_string()) words.push_back(word.get<std::string>());
  }
  return words;
}

}  // namespace

size_t tag_of(std::string_view name) {
  const auto slash = name.rfind('/');
  return name.find_first_of(":@", slash == name.npos ? 0 : slash);
}

std::string full_image_name(const std::string& name) {
  const auto tag = tag_of(name);
  const auto base = name.substr(0, tag);
  for (const auto& known : kVendorImages) {
    if (base != known.short_name) continue;
    if (tag != name.npos) return std::string(known.image) + name.substr(tag);
    if (known.has_latest) return std::string(known.image) + ":latest";
    throw Error(ErrorCode::kInvalidArgument, "{} needs a tag, such as {}:{}; https://catalog.ngc.nvidia.com lists them",
                name, name, known.example);
  }
  if (!base.starts_with("ngc/")) return name;
  std::string known_names;
  for (const auto& known : kVendorImages) {
    if (known.short_name.starts_with("ngc/")) known_names += fmt::format(" {}", known.short_name);
  }
  throw Error(ErrorCode::kInvalidArgument,
              "{} is not among the short names{}; give the whole name, such as nvcr.io/nvidia/{}", printable(base),
              known_names, printable(base.substr(4)));
}

bool names_file(std::string_view image) {
  if (image.find("://") != image.npos) return false;
  constexpr std::string_view kEnds[] = {".sif", ".simg", ".img", ".sqsh"};
  return image.starts_with('/') || image.starts_with('.') ||
         std::ranges::any_of(kEnds, [&](std::string_view end) { return image.ends_with(end); });
}

std::string image_for(EngineKind engine, const std::string& name) {
  std::error_code ignored;
  const bool exists = std::filesystem::exists(name, ignored);
  if (names_file(name)) {
    if (!exists) throw Error(ErrorCode::kNotFound, "{}: there is no such image file or folder", printable(name));
    if (engine == EngineKind::kApptainer) return name;
    throw Error(ErrorCode::kInvalidArgument,
                "{} is a file of Apptainer, and {} takes names of images; choose apptainer", printable(name),
                container::name(engine));
  }
  if (engine != EngineKind::kApptainer || exists || name.find("://") != name.npos) return name;
  return "docker://" + name;
}

ImageFacts parse_image_facts(const std::string& json) {
  auto parsed = SortedJson::parse(json, nullptr, false);
  if (parsed.is_array() && parsed.size() == 1) parsed = SortedJson(parsed[0]);
  if (!parsed.is_object()) throw Error(ErrorCode::kDataLoss, "the engine's description of the image is not JSON");
  const auto config = parsed.value("Config", SortedJson::object());
  return {words_at(config, "Entrypoint"), words_at(config, "Cmd"), words_at(config, "Env")};
}

bool says_no_image(std::string_view error) {
  // "Error: No such image: x" of docker; "Error: inspecting object: x: image not known" and "no such image x" of
  // podman.
  const auto text = lower_case(error);
  return text.find("no such image") != text.npos || text.find("image not known") != text.npos;
}

std::string reason_in(std::string_view error) {
  std::string reason;
  for (const auto line : lines_of(error)) {
    const bool is_advice = (line.starts_with("Run '") || line.starts_with("See '")) && line.find("--help") != line.npos;
    if (!line.empty() && !is_advice) reason = line;
  }
  return reason;
}

std::optional<ImageFacts> find_image(const Engine& engine, const std::string& image, const Environment& environment) {
  if (engine.kind == EngineKind::kApptainer) return ImageFacts{};
  if (!engine.is_installed) return std::nullopt;
  const auto answer =
      ask({engine.program, "image", "inspect", "--format", "{{json .}}", image}, environment, kStorageTime);
  if (answer.status == 0) return parse_image_facts(answer.out);
  if (says_no_image(answer.err)) return std::nullopt;
  // With a name like ada/train, a download could fetch the image of a stranger.
  throw Error(
      ErrorCode::kUnavailable, "{} does not tell whether the image {} is on this machine: {}", name(engine.kind),
      printable(image),
      answer.err.empty() ? fmt::format("its exit status is {}", answer.status) : printable(reason_in(answer.err)));
}

void pull_image(const Engine& engine, const std::string& image, const Environment& environment) {
  const int status = run_visibly({engine.program, "pull", image}, environment);
  if (status == 0) return;
  throw Error(ErrorCode::kUnavailable, "{} could not get the image {}; its message is above", name(engine.kind),
              printable(image));
}

std::vector<std::string> program_of(const Engine& engine, const ImageFacts& facts,
                                    const std::vector<std::string>& command) {
  if (engine.kind == EngineKind::kApptainer) {
    if (!command.empty()) return command;
    return {"/.singularity.d/runscript"};
  }
  auto program = facts.entrypoint;
  const auto& rest = command.empty() ? facts.command : command;
  program.insert(program.end(), rest.begin(), rest.end());
  if (program.empty()) {
    throw Error(ErrorCode::kInvalidArgument, "the image has no command of its own; give one after the image's name");
  }
  return program;
}

}  // namespace yoke::container
