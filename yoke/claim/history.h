// yoke/claim/history.h -- who had which devices, and for how long: files that each user writes about himself.
//
// A user's files belong to him, says the kernel, so nobody can write anything about others. He can write anything about
// himself, and remove it. The end of a claim that was killed is when its user's process last touched its note, or else
// its file of the history; holders do so every minute.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "yoke/base/environment.h"
#include "yoke/claim/folder.h"
#include "yoke/claim/note.h"

namespace yoke::claim {

/// A claim that was, or is.
struct Use {
  int64_t uid = 0;
  std::string claim;              ///< The name of its note.
  std::vector<std::string> keys;  ///< Of its devices.
  Time since = {};
  std::optional<Time> end = {};  ///< nullopt: the claim runs, or its end was not written.
  /// The time in which no process computed on its devices; nullopt: not known.
  std::optional<int64_t> idle_seconds = {};
  Time last_sign = {};  ///< The latest moment at which its user's processes were seen.

  bool operator==(const Use&) const = default;
};

/// For how long the devices of a claim have been idle, in the mean; nullopt: nobody looks.
std::optional<int64_t> idle_seconds_of(const Note& note);

/// The lines of a file. Each begins with a line feed too, so that a line which a full disk cut off spoils no other.
std::string begin_text(const Use& use);
std::string end_text(const std::string& claim, Time end, const std::optional<int64_t>& idle_seconds);

/// What the files of one user say, oldest first. Lines that make no sense are passed over. Pure.
struct HistoryText {
  std::string text;
  Time written = {};  ///< When the file was last changed.
};
std::vector<Use> parse_history(int64_t uid, const std::vector<HistoryText>& files, Time now);

/// Appends the begin of a claim to the newest file of this user. A new file is begun when that one is full or older
/// than the machine's start, and the oldest ones are removed.
/// Returns the file's name; nullopt: it could not be written. REQUIRES: the session's lock is held.
std::optional<std::string> append_begin(const LockFolder& folder, const Use& use);

/// Appends the end of a claim. Returns whether it could be written.
bool append_end(const LockFolder& folder, const std::string& file, const std::string& claim, Time end,
                const std::optional<int64_t>& idle_seconds) noexcept;

/// The file of this user that has the begin of most recent claims; nullopt: there is none.
std::optional<std::string> newest_history_file(const LockFolder& folder);

/// What all users have used, as far as their files tell.
std::vector<Use> read_history(const LockFolder& folder, Time now);

/// The folder of the configuration that survives restarts of the machine; nullopt: it has none.
/// Errors  those of LockFolder, with the key.
std::optional<LockFolder> find_history_folder(const SiteConfig& config, const Environment& environment);

}  // namespace yoke::claim
