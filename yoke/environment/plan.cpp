#include "yoke/environment/plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <optional>
#include <regex>

#include "yoke/base/error.h"
#include "yoke/base/text.h"

namespace yoke::environment {
namespace {

struct Cause {
  std::optional<Step::Kind> kind;  ///< nullopt: any.
  std::string_view sign;           ///< A part of the output.
  std::string_view advice;
};

// Messages of venv (CPython 3.9 to 3.13, Debian's included) and of pip 22 to 26.
constexpr auto kCauses = std::to_array<Cause>({
    {Step::Kind::kVenv, "ensurepip is not",
     "Debian and Ubuntu have venv in a package of its own: `sudo apt install python3-venv`, or the package that the "
     "message names; then run the same command again"},
    {Step::Kind::kVenv, "No module named venv",
     "this Python lacks the module venv: `sudo apt install python3-venv`, or choose another one by --python"},
    {Step::Kind::kVenv, "No module named ensurepip",
     "this Python lacks pip's installer: `sudo apt install python3-venv`, or choose another one by --python"},
    {Step::Kind::kCompile, "Could not find a package configuration file provided by \"yoke\"",
     "this yoke has no library: it was built without libtorch; where it came by pip, `pip install "
     "yoke-torch`, otherwise install one with it, or name its folder by CMAKE_PREFIX_PATH"},
    {Step::Kind::kCompile, "set yoke_FOUND to FALSE",
     "this yoke has no library for training: it was built without libtorch; where it came by pip, `pip install "
     "yoke-torch`, otherwise install one with it, or name its folder by CMAKE_PREFIX_PATH"},
    {Step::Kind::kCompile, "No space left on device", "make room on the disk of XDG_DATA_HOME, 200 MB"},
    {std::nullopt, "No space left on device",
     "make room on this disk, or give a folder on another one; then run the same command again"},
    {std::nullopt, "Disk quota exceeded",
     "your quota is used up (`quota -s`); remove files, or give a folder on another disk; then run the same command "
     "again"},
    {Step::Kind::kInstall, "NewConnectionError",
     "the index cannot be reached: is there a network, or must HTTPS_PROXY be set, PIP_INDEX_URL for a mirror of PyPI, "
     "or --index-url for one of PyTorch's index? Then run the same command again"},
    {Step::Kind::kInstall, "CERTIFICATE_VERIFY_FAILED",
     "the certificate of the index is not trusted: a proxy of your site may need PIP_CERT"},
    {Step::Kind::kInstall, "ResolutionImpossible",
     "two requirements contradict each other, as pip's lines above say; loosen one of them, or let your file name the "
     "version of torch that a package needs, and run the same command again"},
    {Step::Kind::kInstall, "No matching distribution found",
     "there is no such package for this version of Python: look for a misspelt name, or choose another version by "
     "--python"},
    {Step::Kind::kInstall, "Could not open requirements file", "give a file that exists to -r"},
    {Step::Kind::kInstall, "Invalid requirement", "correct the line of the requirements file that pip names"},
    {Step::Kind::kInstall, "Failed building wheel",
     "the package has no wheel for this Python and was compiled, which failed; another version of it, or of Python "
     "(--python), may have one"},
});

}  // namespace

bool is_folder(std::string_view word) { return word.find('/') != word.npos || word == "." || word == ".."; }

void check_name(std::string_view name) {
  static const std::regex kName("[A-Za-z0-9][A-Za-z0-9._-]{0,63}");
  if (std::regex_match(name.begin(), name.end(), kName)) return;
  throw Error(
      ErrorCode::kInvalidArgument,
      "'{}' cannot be the name of an environment: take at most 64 letters, digits, '.', '_' and '-', a letter or "
      "digit first; or give a folder, which has a slash: ./{}",
      printable(name), printable(name));
}

std::filesystem::path python_of(const std::filesystem::path& folder) { return folder / "bin" / "python"; }

std::filesystem::path constraints_of(const std::filesystem::path& folder) { return folder / "yoke-constraints.txt"; }

std::vector<Step> steps_of(const CreateRequest& request) {
  // With -I, neither PYTHONPATH nor a file pip.py of the working folder changes what Python runs.
  std::vector<Step> steps = {{.kind = Step::Kind::kVenv,
                              .purpose = "make the environment " + request.folder.string(),
                              .argv = {request.python, "-I", "-m", "venv", request.folder.string()}}};
  const auto python = python_of(request.folder).string();
  std::vector<std::string> install = {python, "-I", "-m", "pip", "install", "--disable-pip-version-check"};
  std::vector<std::string> sources, names;
  for (const auto& packages : request.packages) {
    auto argv = install;
    const bool has_index = !packages.index_url.empty();
    if (has_index) argv.insert(argv.end(), {"--index-url", packages.index_url});
    std::vector<std::string> texts;
    for (const auto& requirement : packages.requirements) texts.push_back(requirement.text());
    argv.insert(argv.end(), texts.begin(), texts.end());
    argv.insert(argv.end(), names.begin(), names.end());
    steps.push_back({.purpose = fmt::format("install {}{}{}", fmt::join(texts, ", "), has_index ? " from " : "",
                                            packages.index_url),
                     .argv = std::move(argv),
                     .indices = has_index ? Indices::kOnlyGiven : Indices::kAll});
    // Later steps name these packages again, so that pip keeps what they need, and take missing ones from their index.
    for (const auto& requirement : packages.requirements) names.push_back(requirement.package);
    if (has_index) sources.insert(sources.end(), {"--extra-index-url", packages.index_url});
    if (steps.size() == 2) install.insert(install.end(), {"-c", constraints_of(request.folder).string()});
  }
  if (!request.requirements.empty()) {
    auto argv = install;
    argv.insert(argv.end(), sources.begin(), sources.end());
    argv.insert(argv.end(), {"-r", request.requirements});
    names.insert(names.end(), request.names.begin(), request.names.end());
    if (!request.has_hashes) argv.insert(argv.end(), names.begin(), names.end());  // pip then demands a hash of each
    steps.push_back({.purpose = "install what " + request.requirements + " names", .argv = std::move(argv)});
  }
  return steps;
}

void check_kept(const CreateRequest& request, const std::map<std::string, std::string>& chosen,
                const PipFacts& at_end) {
  const auto folder = request.folder.string();
  for (const auto& [package, version] : chosen) {
    const auto found = at_end.versions.find(package);
    if (found != at_end.versions.end() && found->second == version) continue;
    throw Error(ErrorCode::kFailedPrecondition,
                "{} has {} at the end, and {} {} was chosen for this machine; pip's lines above say which requirement "
                "changed it",
                folder, found == at_end.versions.end() ? "no " + package : package + " " + found->second, package,
                version);
  }
  for (const auto& name : request.names) {
    if (at_end.versions.contains(name)) continue;
    throw Error(ErrorCode::kFailedPrecondition, "{} has no {}; name it in {}, which decides what is installed", folder,
                name, request.requirements);
  }
  if (at_end.unmet.empty()) return;
  throw Error(ErrorCode::kFailedPrecondition,
              "{} lacks what its requirements name, although pip ended without an error: {}", folder,
              fmt::join(at_end.unmet, ", "));
}

std::string advice_for(Step::Kind kind, std::string_view output) {
  for (const auto& cause : kCauses) {
    if (cause.kind.value_or(kind) == kind && output.find(cause.sign) != output.npos) return std::string(cause.advice);
  }
  if (kind == Step::Kind::kVenv) {
    return "this Python cannot make an environment; choose another one by --python, and run the same command again";
  }
  return "correct what the lines above say, and run the same command again";
}

Environment activated(Environment environment, const std::filesystem::path& folder) {
  const auto path = environment.value_or("PATH", "/usr/bin:/bin");
  environment.set("VIRTUAL_ENV", folder.string());
  environment.set("PATH", (folder / "bin").string() + ":" + path);
  environment.erase("PYTHONHOME");
  return environment;
}

}  // namespace yoke::environment
