#include "yoke/environment/store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "yoke/base/error.h"
#include "yoke/base/host.h"
#include "yoke/base/json.h"
#include "yoke/base/process.h"
#include "yoke/base/sysfs.h"
#include "yoke/base/text.h"
#include "yoke/environment/plan.h"

namespace yoke::environment {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMarkName = "yoke-environment.json";
constexpr std::array<const char*, 2> kStages = {"creating", "ready"};

/// Whether `folder` is a folder, not a link, of this user. Root acts for all users.
bool is_own_folder(const fs::path& folder) {
  struct stat facts = {};
  return lstat(folder.c_str(), &facts) == 0 && S_ISDIR(facts.st_mode) && (geteuid() == 0 || facts.st_uid == geteuid());
}

/// The version that venv has written into pyvenv.cfg, as "version = 3.11.2".
std::string python_version(const fs::path& folder) {
  const auto text = read_text(folder / "pyvenv.cfg").value_or("");
  for (const auto line : lines_of(text)) {
    const auto words = words_of(line);
    if (words.size() == 3 && words[0] == "version" && words[1] == "=") return std::string(words[2]);
  }
  return "";
}

bool is_locked(const fs::path& folder) {
  try {
    lock_folder(folder);
    return false;
  } catch (const Error& error) {
    return error.code() == ErrorCode::kUnavailable;
  }
}

State state_of(const fs::path& folder, const Mark& mark) {
  if (mark.stage == Stage::kReady) return is_program(python_of(folder)) ? State::kReady : State::kBroken;
  return is_locked(folder) ? State::kCreating : State::kIncomplete;
}

}  // namespace

fs::path data_home(const Environment& environment) {
  if (const auto data = user_folder(UserFolder::kData, environment)) return *data;
  throw Error(ErrorCode::kFailedPrecondition,
              "HOME is not set, so there is no folder for environments; set HOME or XDG_DATA_HOME, or give a folder");
}

fs::path environments_folder(const Environment& environment) { return data_home(environment) / "yoke" / "env"; }

fs::path folder_of(const std::string& word, const Environment& environment) {
  if (!is_folder(word)) {
    check_name(word);
    return environments_folder(environment) / word;
  }
  auto folder = fs::absolute(word).lexically_normal();
  if (folder.filename().empty()) folder = folder.parent_path();  // of "dir/"
  return folder;
}

std::optional<Mark> read_mark(const fs::path& folder) {
  if (!is_own_folder(folder)) return std::nullopt;
  try {
    const auto json = Json::parse(read_regular_file(folder / kMarkName, 65'536));
    const auto stage = std::find(kStages.begin(), kStages.end(), json.at("stage").get<std::string>());
    if (json.at("yoke_environment") != 1 || stage == kStages.end()) return std::nullopt;
    return Mark{.stage = static_cast<Stage>(stage - kStages.begin()),
                .created = json.at("created"),
                .packages = json.at("packages"),
                .index_url = json.at("index_url")};
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  } catch (const Error&) {
    return std::nullopt;
  }
}

void write_mark(const fs::path& folder, const Mark& mark) {
  const Json json = {{"yoke_environment", 1},
                     {"stage", kStages[static_cast<size_t>(mark.stage)]},
                     {"created", mark.created},
                     {"packages", mark.packages},
                     {"index_url", mark.index_url}};
  replace_file(folder / kMarkName, json.dump(2) + "\n");
}

UniqueFd lock_folder(const fs::path& folder) {
  UniqueFd fd(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!fd) throw system_error(errno, "opening the folder " + folder.string());
  if (flock(fd.value(), LOCK_EX | LOCK_NB) == 0) return fd;
  if (errno != EWOULDBLOCK) throw system_error(errno, "locking the folder " + folder.string());
  throw Error(ErrorCode::kUnavailable, "another command is making or removing {}; try again when it has ended",
              folder.string());
}

std::string_view name(State state) {
  constexpr std::array<std::string_view, 4> kNames = {"ready", "being made", "incomplete", "broken"};
  return kNames[static_cast<size_t>(state)];
}

std::vector<Listed> list_environments(const Environment& environment) {
  std::vector<Listed> result;
  for (const auto& folder : entries_of(environments_folder(environment))) {
    if (auto mark = read_mark(folder)) {
      const auto state = state_of(folder, *mark);
      result.push_back({folder.filename().string(), folder, state, python_version(folder), std::move(*mark)});
    }
  }
  return result;
}

void remove_environment(const fs::path& folder) { remove_locked(lock_folder(folder), folder); }

void remove_locked(const UniqueFd& lock, const fs::path& folder) {
  // By the descriptor, which stays the folder that was looked at, whatever its owner puts at the path meanwhile. The
  // dot makes it a folder and not a link.
  const fs::path held = fmt::format("/proc/self/fd/{}/.", lock.value());
  if (!read_mark(held)) {
    throw Error(
        ErrorCode::kFailedPrecondition,
        "{} is not an environment that `yoke env create` has made for you, so it stays; remove it by hand if you "
        "want that",
        folder.string());
  }
  const auto remove = [&](const fs::path& name) {
    std::error_code error;
    fs::remove_all(held / name, error);  // libstdc++ follows no link below it
    if (error) throw system_error(error.value(), "removing " + (folder / name).string());
  };
  // Nothing is written, as the disk may be full. Without its Python the environment is broken; the mark goes last, so
  // that an interrupted removal can be finished.
  remove("bin");
  std::vector<fs::path> names;
  for (const auto& entry : fs::directory_iterator(held)) names.push_back(entry.path().filename());
  for (const auto& name : names) {
    if (name != kMarkName) remove(name);
  }
  remove(kMarkName);
  const UniqueFd parent(openat(lock.value(), "..", O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!parent || unlinkat(parent.value(), folder.filename().c_str(), AT_REMOVEDIR) != 0) {
    throw system_error(errno, "removing " + folder.string());
  }
}

}  // namespace yoke::environment
