// yoke/claim/ledger.h -- takes, shows and gives back devices, by locks that end with the processes that hold them.
//
// Each device has a file that is never deleted, and whoever holds flock(2) on it holds the device. A claim also has a
// file of its user's own (a note), which the same process locks. The kernel ends both with the last process that has
// them open, so there are no stale claims. docs/claim.md describes the files.
//
// A device is given only if its lock is free and no held note names it. The second condition matters if a lock file was
// removed and made anew while somebody held it.
//
// Those who look and take do so one after the other, by a lock that all share, for a few milliseconds. A process that
// keeps this lock for longer is passed by. So whoever has taken devices looks once more whether somebody else has, too,
// or whether it was late itself, and then gives them back and begins anew. Nobody tries the lock of a device but by
// taking it, and the locks of notes are tried by LOCK_SH, so that looking never disturbs others, even if a process is
// stopped meanwhile.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "yoke/base/file.h"
#include "yoke/claim/folder.h"
#include "yoke/claim/note.h"

namespace yoke::claim {

/// A note that some process holds.
struct HeldNote {
  std::string name;            ///< Of its file.
  int64_t uid = 0;             ///< The owner of the file, from the kernel.
  pid_t locker = 0;            ///< Who locked it, says the kernel; the process may have ended. 0: not known.
  std::optional<Note> note;    ///< nullopt: its text is not a note.
  std::optional<int64_t> pid;  ///< A process of `uid` that holds it: the one that the note names, or else the locker.
};

/// A device whose lock is held, or that a held note names. A device that several claims share has one for each.
struct Holding {
  std::string key;
  bool is_locked = true;       ///< False: only a note names it, so its lock file was replaced.
  std::optional<int64_t> uid;  ///< Of the holder; nullopt: not known.
  std::optional<int64_t> pid;  ///< nullopt: not known, or the process that locked it has ended.
  std::optional<size_t> note;  ///< Position in Survey::notes; nullopt: it was locked by something else than yoke.
  /// What a claim that shares the device says that it uses. nullopt: nobody else may have the device.
  std::optional<int64_t> share_bytes = {};
  std::string doubt = {};  ///< What is known of a locker that cannot be named: "by process 4121, which has ended ...".
};

/// A request that waits. The order of Survey::tickets is that of their arrival.
struct Ticket {
  std::string name;
  int64_t uid = 0;          ///< The owner of the file, from the kernel.
  pid_t pid = 0;            ///< Who locked it; 0: not known.
  Time since = {};          ///< The file's change time, which a user can make later, but not earlier.
  bool is_stopped = false;  ///< Its process does not run, so it could not start now, and holds back nobody.
  QueuedRequest request;
};

struct Survey {
  std::vector<HeldNote> notes;
  std::vector<Holding> holdings;  ///< In order of their keys.
  std::vector<Ticket> tickets;
  std::map<int64_t, int64_t> reserved;     ///< Devices that each user has reserved for now, and has not taken yet.
  std::map<std::string, Time> dead_notes;  ///< Of claims that were killed: when their users last touched them.

  const Holding* find(const std::string& key) const;
  std::vector<const Holding*> find_all(const std::string& key) const;
  /// When a device becomes free, and not before `now`; nullopt: somebody who holds it does not say.
  std::optional<Time> free_from(const std::string& key, Time now) const;
  /// When devices become free, as far as those who hold them say; ascending, and not before `now`. A shared device
  /// becomes free with its last claim.
  std::vector<Time> known_ends(Time now) const;
  /// Whether every holder is known. Without the kernel's list, one is if a single note names the device.
  bool knows_holders() const;
};

/// A process needs the lock that all share for some milliseconds. After this time, others go on without waiting for it,
/// and it must not carry out what it has decided.
inline constexpr std::chrono::seconds kLockPatience(1);

/// While an object exists, Ctrl-Z and other stop signals wait until its end, because other processes wait for this one.
class StopDelay {
 public:
  StopDelay();
  StopDelay(StopDelay&& other) noexcept;
  StopDelay& operator=(StopDelay&&) = delete;
  ~StopDelay();

 private:
  sigset_t before_;
  bool is_active_ = false;
};

/// How long to wait for the lock that all share.
struct LockWait {
  std::chrono::milliseconds limit = std::chrono::seconds(10);
  /// After this time, this process goes on without waiting for the holder.
  std::chrono::milliseconds patience = kLockPatience;
  /// For how long this process may decide. It is longer than the patience of others for one that was late again and
  /// again, as on a machine where looking up groups takes seconds.
  std::chrono::milliseconds term = kLockPatience;
};

class NoteLock;
struct AllocationLock;

/// The process that gives something back when an object ends: neither one that has moved it away, nor a child.
class OwnerProcess {
 public:
  explicit OwnerProcess(pid_t pid = getpid()) : pid_(pid) {}
  OwnerProcess(OwnerProcess&& other) noexcept : pid_(std::exchange(other.pid_, 0)) {}
  OwnerProcess& operator=(OwnerProcess&& other) noexcept {
    pid_ = std::exchange(other.pid_, 0);
    return *this;
  }
  bool is_this_process() const { return pid_ == getpid(); }

 private:
  pid_t pid_;
};

/// Devices that this process holds. The destructor gives them back, unless this process has forked and is the child.
class Claim {
 public:
  Claim(Claim&&) noexcept = default;
  Claim& operator=(Claim&& other) noexcept;
  ~Claim();

  const Note& note() const { return note_; }
  const std::string& name() const { return name_; }
  /// The descriptors that hold the locks. A program that inherits them keeps the devices until it ends, even if this
  /// process is killed.
  std::vector<int> fds() const;

  /// Writes what the claim says about itself, whatever others write. Returns false if the text could not be written, as
  /// on a full disk.
  bool write(const Note& note);
  /// Replaces the note by what `change` makes of it. Without effect if another process writes into it for `limit`.
  void change(const std::function<void(Note&)>& change, std::chrono::milliseconds limit);
  /// The text as it is now, since `yoke extend` may have changed it.
  Note read() const;

  /// Writes what a look at the devices has found. Without effect if another process writes into the note.
  void record_use(const std::vector<std::optional<bool>>& used, Time now);

  /// Writes which program the claim is for.
  void set_program(pid_t program);

  /// Shows that the claim still runs: if this process and the claim are killed, its end is said to be now. Call it
  /// every minute.
  void beat() const noexcept;
  /// Whether the begin of the claim could be written to the history.
  bool is_recorded() const { return !history_file_.empty(); }

  /// Gives the devices back, even if other processes have inherited the descriptors, unless some of them are heirs:
  /// these keep the claim until the last one has released it.
  void release() noexcept;

  /// Whether this process is an heir (Ledger::inherited()), and not the one that took the devices.
  bool is_shared() const { return is_shared_; }
  /// The heirs that live, except this process.
  std::vector<Heir> living_heirs() const;
  /// For an heir, when the process that took the devices has ended: writes this process into the note, with the
  /// program that it keeps. Returns false if the claim ended at the moment when this process became an heir.
  bool succeed(pid_t program);

 private:
  friend class Ledger;
  Claim(const LockFolder& folder, std::string name, UniqueFd note_fd, std::vector<UniqueFd> locks);
  bool leave_to_heirs() noexcept;
  std::optional<NoteLock> lock_note(std::chrono::milliseconds limit) const;
  std::optional<NoteLock> lock_note_if_possible() const noexcept;

  const LockFolder* folder_;
  std::string name_;
  bool is_shared_ = false;
  Note note_;
  UniqueFd note_fd_;
  /// The note again, for NoteLock, since `note_fd_` is shared with the program. It is kept open, because each time that
  /// a file is closed after writing, those who wait look.
  mutable UniqueFd writer_fd_;
  std::vector<UniqueFd> locks_;
  OwnerProcess owner_;
  const LockFolder* records_ = nullptr;
  std::string history_file_;
  std::optional<int64_t> idle_seconds_;  ///< For how long no process has computed on the devices, for the history.
};

/// A place in the queue. The destructor leaves it.
class Place {
 public:
  Place(Place&&) noexcept = default;
  Place& operator=(Place&&) = delete;
  ~Place();

  const std::string& name() const { return name_; }
  /// Closes the descriptor in a child, so that the child does not keep the place.
  void forget() { fd_.reset(); }

 private:
  friend class Ledger;
  Place(const LockFolder& folder, std::string name, UniqueFd fd);

  const LockFolder* folder_;
  std::string name_;
  UniqueFd fd_;
  OwnerProcess owner_;
};

class Ledger {
 public:
  /// `records`: a folder for the history and for reservations that survives restarts; without one they are with the
  /// locks.
  explicit Ledger(LockFolder folder, std::optional<LockFolder> records = std::nullopt)
      : folder_(std::move(folder)), records_(std::move(records)) {}

  const LockFolder& folder() const { return folder_; }
  const LockFolder& records() const { return records_ ? *records_ : folder_; }

  /// Whether devices may be taken. Those who only look wait for the same lock, so that they do not see a claim that is
  /// half taken.
  enum class Access { kLook, kTake };
  class Session;

  /// Errors  kUnavailable: somebody held the lock for `wait.limit`; the message says who. Those of LockFolder.
  Session open(Access access, const LockWait& wait = {}) const;

  /// Makes this process an heir of a claim of inherited(), for the devices that `choose` picks, as positions in
  /// Note::keys, when it is told which other heirs live. nullopt: the claim has ended.
  /// Errors  kFailedPrecondition: it has kMostHeirs heirs; kUnavailable: another process writes into its note for 10 s,
  ///         or there is no space; those of `choose`.
  std::optional<std::vector<int64_t>> share(
      Claim& claim, const std::function<std::vector<int64_t>(const std::vector<Heir>&)>& choose) const;

  /// Puts off the end of a claim. Errors  kNotFound: it has ended; kFailedPrecondition: it has no end;
  /// kPermissionDenied: it belongs to somebody else; kUnavailable: another process writes into its note for 10 s.
  void extend(const HeldNote& held, Time until) const;

  /// Writes that the claim is to be ended with all of its processes (Note::is_forced). Errors  those of extend().
  void force(const HeldNote& held) const;

  /// Whether some process still holds the claim.
  bool is_held(const HeldNote& held) const;

  /// The claim under which this process runs: the descriptors were inherited, and the claim has not ended. Of several,
  /// the one that was taken last. This process only looks at it until share().
  std::optional<Claim> inherited() const;

  /// What /proc/locks shows, without the lock that all share.
  Survey look_without_lock() const;
  /// What held notes say, without that lock: Session::Owners::kOfNotes.
  Survey look_at_notes() const;

 private:
  /// Replaces the note of a running claim by what `change` makes of it. Errors  those of extend().
  void rewrite(const HeldNote& held, const std::function<void(Note&)>& change) const;

  LockFolder folder_;
  std::optional<LockFolder> records_;
};

/// While it exists, no other process takes devices or looks, except those that have waited for longer than a second.
class Ledger::Session {
 public:
  /// Whether to ask the kernel who holds the locks, which can take as long as 15 ms. Otherwise only the owners of the
  /// notes are known, and nobody's process is (Survey::knows_holders).
  enum class Owners { kAll, kOfNotes };
  /// Removes notes and tickets of this user's processes that were killed, and looks at the others.
  Survey survey(Owners owners = Owners::kAll);

  /// Takes all of these devices, or none: nullopt, with the one that somebody holds in `held`. If `held` is empty, the
  /// last survey() is not true any more, because another process took devices or this one was late. REQUIRES: kTake.
  /// `note` gets its keys and its process here. With Note::share_bytes, others may share the devices.
  std::optional<Claim> take(const std::vector<std::string>& keys, Note note, std::string& held) const;

  /// Whether others may have passed by this process, so that what it knows is old.
  bool is_late() const;
  /// Whether this process has passed by another one that holds the lock.
  bool has_passed_by() const { return has_passed_by_; }

  /// Joins the queue. REQUIRES: kTake.
  Place join(const QueuedRequest& request) const;

 private:
  friend class Ledger;
  Session(const Ledger& ledger, AllocationLock lock, Access access, std::chrono::milliseconds term);
  bool is_as_surveyed(const std::string& own_note) const;

  const Ledger* ledger_;
  std::chrono::steady_clock::time_point until_;  ///< When this process must have finished.
  StopDelay delay_;  ///< Declared before the lock, so that it ends after the lock is released.
  UniqueFd lock_;    ///< Empty: the session goes on without the lock.
  bool has_passed_by_;
  Access access_;
  std::optional<std::set<std::string>> seen_notes_;  ///< The held ones at the last survey().
};

/// The part of a lock's name that lock_name() derives from the key.
std::string key_in_name(const std::string& key);

/// The name of the lock of a device. Errors  kInvalidArgument: `key` is empty, or has other characters than UUIDs and
/// bus ids.
std::string lock_name(const std::string& key);

}  // namespace yoke::claim
