// yoke/environment/store.h -- the environments of a user: where they are, and which ones yoke has made.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "yoke/base/environment.h"
#include "yoke/base/file.h"

namespace yoke::environment {

/// The user's folder for the data of programs: $XDG_DATA_HOME, or ~/.local/share (XDG Base Directory Specification).
/// Errors  kFailedPrecondition: neither it nor HOME is set.
std::filesystem::path data_home(const Environment& environment);

/// The folder that has all environments with a name.
std::filesystem::path environments_folder(const Environment& environment);

/// The folder of an environment: `word` is a name, or a folder (is_folder()).
/// Errors  kInvalidArgument: it is neither.
std::filesystem::path folder_of(const std::string& word, const Environment& environment);

enum class Stage { kCreating, kReady };

/// The file `yoke-environment.json` in the folder of an environment. Only folders with this file are ever removed.
struct Mark {
  Stage stage = Stage::kCreating;
  int64_t created = 0;                ///< Unix time in seconds.
  std::vector<std::string> packages;  ///< What pip was asked for.
  std::string index_url;
};
/// Returns nullopt if `folder` is not an environment that yoke has made for its owner.
std::optional<Mark> read_mark(const std::filesystem::path& folder);
void write_mark(const std::filesystem::path& folder, const Mark& mark);

/// Locks the folder of an environment while a command makes or removes it. The kernel ends the lock with the command.
/// Errors  kUnavailable: another command works on it; kNotFound: there is no such folder.
UniqueFd lock_folder(const std::filesystem::path& folder);

enum class State { kReady, kCreating, kIncomplete, kBroken };
std::string_view name(State state);

struct Listed {
  std::string name;
  std::filesystem::path folder;
  State state = State::kReady;
  std::string python;  ///< The version; empty if it is not known.
  Mark mark;
};
/// The environments in the folder of all environments, by name. Folders that yoke has not made are left out.
std::vector<Listed> list_environments(const Environment& environment);

/// Removes an environment. If it is interrupted, a later call finishes the work. Nothing is written, so it also works
/// on a full disk. Errors  kNotFound: there is no such folder; kFailedPrecondition: yoke has not made it, so it stays;
/// kUnavailable: another command works on it.
void remove_environment(const std::filesystem::path& folder);

/// Does so for the folder that `lock` holds, even if something else lies at the path `folder` by now. Root needs that
/// in the folders of others.
void remove_locked(const UniqueFd& lock, const std::filesystem::path& folder);

}  // namespace yoke::environment
