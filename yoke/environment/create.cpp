#include "yoke/environment/create.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <map>
#include <span>

#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/held_signals.h"
#include "yoke/base/text.h"
#include "yoke/environment/step.h"
#include "yoke/environment/store.h"

namespace yoke::environment {
namespace {

namespace fs = std::filesystem;

bool asks_for(const CreateOptions& options, Framework framework) {
  return std::ranges::any_of(options.with, [&](const auto& word) { return word.starts_with(name(framework)); });
}

/// What is known of the machine; nullopt if nothing depends on it.
std::optional<Drivers> drivers_for(const CreateOptions& options) {
  const bool chooses_torch = asks_for(options, Framework::kTorch) && options.index_url.empty();
  if (!chooses_torch && !asks_for(options, Framework::kTensorflow)) return std::nullopt;
  return options.read_drivers();
}

/// Completes `request` with what is asked for by --with. What the file of requirements decides is left to it.
void choose_packages(CreateRequest& request, const CreateOptions& options, const std::optional<Drivers>& drivers,
                     const PipFacts& facts) {
  request.packages.clear();
  request.names.clear();
  request.has_hashes = facts.has_hashes;
  for (const auto framework : {Framework::kTorch, Framework::kTensorflow}) {
    if (!asks_for(options, framework)) continue;
    const bool is_torch = framework == Framework::kTorch;
    if (find_decided(facts, name(framework)) != nullptr) {
      for (const auto& word : options.with) {
        if (word.starts_with(name(framework))) request.names.push_back(word);
      }
      continue;
    }
    auto packages = is_torch && !options.index_url.empty() ? torch_from(options.index_url)
                                                           : packages_for(framework, *drivers, facts.torch_minors);
    if (!options.index_url.empty()) packages.index_url = options.index_url;
    for (const char* const extra : {"torchvision", "torchaudio"}) {
      if (is_torch && std::ranges::find(options.with, extra) != options.with.end()) {
        packages.requirements.push_back({extra, ""});
      }
    }
    add_versions(packages, facts);
    request.packages.push_back(std::move(packages));
  }
}

/// Says what was chosen, why, and what does not count.
void tell_choice(const CreateRequest& request, const CreateOptions& options, const PipFacts& facts) {
  const auto tell = [&](const std::string& text) { options.tell(Told::kNews, printable(text)); };
  const auto ignored = ignored_settings(facts.settings);
  if (!ignored.empty()) {
    tell(fmt::format("pip's settings do not count that say what is installed or where: {}", fmt::join(ignored, ", ")));
  }
  if (!facts.unread.empty())
    tell(fmt::format("the requirements were not read before pip reads them: {}", facts.unread));
  for (const auto& packages : request.packages) {
    std::vector<std::string> texts;
    for (const auto& requirement : packages.requirements) texts.push_back(requirement.text());
    tell(fmt::format("{} for {}: {}", fmt::join(texts, ", "),
                     packages.index_url.empty() ? "pip's own index" : packages.index_url, packages.reason));
  }
  for (const auto framework : {Framework::kTorch, Framework::kTensorflow}) {
    const auto is_line = [&](const Named& one) { return one.package == name(framework); };
    const auto* const decided = find_decided(facts, name(framework));
    const auto line = std::ranges::find_if(facts.named, is_line);
    if (asks_for(options, framework) && decided != nullptr) {
      tell(
          fmt::format("{} decides which {} is installed, because {}; without that, --with {} takes the build for this "
                      "machine",
                      decided->where, name(framework), decided->decided, name(framework)));
    } else if (!asks_for(options, framework) && line != facts.named.end()) {
      tell(
          fmt::format("{} and pip's index decide which build of {} is installed; --with {} takes the one for this "
                      "machine",
                      line->where, name(framework), name(framework)));
    }
  }
}

/// An environment that is being made.
struct Begun {
  UniqueFd lock;
  bool is_made = false;  ///< The folder was not there.
};

/// Makes the folder of a new environment with its mark, and locks it; or locks one that is incomplete.
Begun begin_environment(const fs::path& folder, Mark& mark) {
  std::error_code error;
  fs::create_directories(folder.parent_path(), error);
  if (error) throw system_error(error.value(), "making the folder " + folder.parent_path().string());
  const bool is_made = fs::create_directory(folder, error);
  const bool is_new = is_made || (fs::is_directory(folder) && fs::is_empty(folder, error));
  if (error) throw system_error(error.value(), "making the folder " + folder.string());
  auto lock = lock_folder(folder);
  if (!is_new) {
    const auto before = read_mark(folder);
    if (!before) {
      throw Error(ErrorCode::kFailedPrecondition,
                  "{} exists, and `yoke env create` has not made it; give another name or an empty folder",
                  folder.string());
    }
    if (before->stage == Stage::kReady) {
      throw Error(ErrorCode::kFailedPrecondition, "the environment {} exists; `yoke env remove` removes it",
                  folder.string());
    }
  }
  write_mark(folder, mark);
  return {std::move(lock), is_made};
}

/// After a signal: removes an environment that has nothing in it yet, or says what can be done with it.
void leave_environment(const Begun& begun, const CreateOptions& options, const fs::path& folder, bool has_packages) {
  if (begun.is_made && !has_packages) return remove_locked(begun.lock, folder);
  options.tell(
      Told::kNews,
      fmt::format("interrupted; the same command goes on with what is in {0}, and `yoke env remove {1}` removes it",
                  printable(folder.string()), printable(options.target)));
}

/// What pip has been told, for --print, which makes no environment whose pip could be asked.
PipFacts facts_for_print(const CreateOptions& options, const CreateRequest& request) {
  if (request.requirements.empty()) return {};
  try {
    return ask_python({request.python, options.script, options.environment}, {"--settings", request.requirements});
  } catch (const Error& error) {
    return {.unread = error.what()};
  }
}

/// What pip was asked for, for `yoke env list`.
void set_packages(Mark& mark, const CreateRequest& request) {
  mark.packages = request.names;
  for (const auto& packages : request.packages) {
    for (const auto& requirement : packages.requirements) mark.packages.push_back(requirement.text());
    if (!packages.index_url.empty()) mark.index_url = packages.index_url;
  }
  if (!request.requirements.empty()) mark.packages.push_back("-r " + request.requirements);
}

/// Runs the steps after the first one, and checks what they leave.
/// Returns  the versions that were promised, as the environment's own Python has them at the end.
std::map<std::string, std::string> install_packages(const CreateRequest& request, const PipFacts& facts,
                                                    const CreateOptions& options) {
  const auto folder = request.folder.string();
  const PythonToAsk asked{python_of(request.folder).string(), options.script, options.environment};
  const auto steps = steps_of(request);
  std::map<std::string, std::string> chosen;
  for (size_t i = 1; i < steps.size(); ++i) {
    options.tell(Told::kNews, fmt::format("step {} of {}: {}", i + 1, steps.size(), steps[i].purpose));
    run_step(steps[i], folder, pip_environment(options.environment, facts.settings, steps[i].indices), options.copy_to);
    if (i > request.packages.size()) continue;
    chosen = ask_python(asked, {}).versions;
    check_build(request.packages[i - 1], chosen, folder);
    std::string lines;
    for (const auto& [package, version] : chosen) lines += fmt::format("{}=={}\n", package, version);
    replace_file(constraints_of(request.folder),
                 [&](int fd) { write_all(fd, std::as_bytes(std::span(lines)), "the constraints"); });
  }
  const auto words = request.requirements.empty() ? std::vector<std::string>() : std::vector{request.requirements};
  const auto at_end = ask_python(asked, words);
  check_kept(request, chosen, at_end);
  return at_end.versions;
}

void make_venv(const CreateRequest& request, const CreateOptions& options) {
  const auto steps = steps_of(request);
  options.tell(Told::kNews, fmt::format("step 1 of {}: {}", steps.size(), steps[0].purpose));
  run_step(steps[0], request.folder.string(), options.environment, options.copy_to);
  if (is_program(python_of(request.folder))) return;
  throw Error(ErrorCode::kFailedPrecondition,
              "{} ended without an error, and made no {}, so it is not a Python; name another one by --python, and "
              "remove the rest by `yoke env remove {}`",
              printable(request.python), python_of(request.folder).string(), printable(options.target));
}

/// Installs what was asked for. Returns what it has at the end: ", with torch 2.14.0+cu126".
std::string fill_environment(CreateRequest& request, const CreateOptions& options,
                             const std::optional<Drivers>& drivers, Mark& mark) {
  if (steps_of(request).size() == 1) return "";
  std::vector<std::string> words = {"--settings"};
  if (!request.requirements.empty()) words.push_back(request.requirements);
  const auto facts = ask_python({python_of(request.folder).string(), options.script, options.environment}, words);
  choose_packages(request, options, drivers, facts);
  tell_choice(request, options, facts);
  set_packages(mark, request);
  std::string promised;
  for (const auto& [package, version] : install_packages(request, facts, options)) {
    promised += fmt::format("{}{} {}", promised.empty() ? ", with " : ", ", package, version);
  }
  return promised;
}

/// What is asked for, before a package is chosen.
CreateRequest request_for(const CreateOptions& options) {
  const auto folder = folder_of(options.target, options.environment);
  const auto python = find_program(options.python, options.environment);
  if (!python || !is_program(*python)) {
    throw Error(ErrorCode::kNotFound, "there is no Python {}; install python3, or name one by --python",
                options.python);
  }
  if (!options.requirements.empty() && access(options.requirements.c_str(), R_OK) != 0) {
    throw system_error(errno, "reading the requirements in " + options.requirements);
  }
  CreateRequest request{.folder = folder, .python = python->string()};
  if (!options.requirements.empty()) request.requirements = fs::absolute(options.requirements).string();
  return request;
}

}  // namespace

CreateRequest plan_environment(const CreateOptions& options) {
  auto request = request_for(options);
  const auto drivers = drivers_for(options);
  const auto facts = facts_for_print(options, request);
  choose_packages(request, options, drivers, facts);
  tell_choice(request, options, facts);
  return request;
}

Created create_environment(const CreateOptions& options) {
  auto request = request_for(options);
  const auto drivers = drivers_for(options);
  const auto& folder = request.folder;
  choose_packages(request, options, drivers, {});  // what fails for every version fails before anything is made
  Mark mark{.created = std::time(nullptr)};
  set_packages(mark, request);
  const HeldSignals signals;  // they act when it is said or undone what was begun
  const auto begun = begin_environment(folder, mark);
  std::string promised;
  bool has_packages = false;
  try {
    make_venv(request, options);
    signals.check();
    has_packages = true;
    promised = fill_environment(request, options, drivers, mark);
    signals.check();
  } catch (const Error&) {
    if (signals.has_come()) leave_environment(begun, options, folder, has_packages);
    throw;
  }
  mark.stage = Stage::kReady;
  write_mark(folder, mark);
  return {folder, promised};
}

}  // namespace yoke::environment
