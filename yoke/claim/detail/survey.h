// yoke/claim/detail/survey.h -- finds out who holds what from what the kernel says about files and locks.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "yoke/claim/folder.h"
#include "yoke/claim/kernel_locks.h"
#include "yoke/claim/ledger.h"

namespace yoke::claim {

inline constexpr std::string_view kDevicePrefix = "yoke-dev-", kNotePrefix = "yoke-claim-",
                                  kTicketPrefix = "yoke-ticket-", kAllocationName = "yoke-alloc",
                                  kSecondAllocationName = "yoke-alloc-2";

/// The device of a file, as /proc/locks usually writes it.
std::string device_by_stat(const struct stat& status);

/// Who has locked a file for itself alone; 0: not known, or nobody.
pid_t locker_of(const std::vector<KernelLock>& locks, const std::string& device, uint64_t inode);

/// When a file was last written to or touched, as its owner wants it.
Time written_at(const struct stat& status);

/// When a file was made or changed in any way, as the kernel says it.
Time changed_at(const struct stat& status);

/// How a file with a lock was found.
struct LockedFile {
  std::string name;
  struct stat status = {};
  bool is_held = false;             ///< For a device: whether the kernel lists its lock.
  pid_t locker = 0;                 ///< 0: not known.
  bool is_shared = false;           ///< Held by LOCK_SH, so by any number of processes.
  std::vector<pid_t> sharers = {};  ///< The processes that hold a shared lock, as far as the kernel tells.
  std::string text;                 ///< The content of a note or a ticket.
};

/// Who holds a lock that `locker` took, if no held note explains it. Pure but for what `facts` and `opens` look up.
struct Lookup {
  std::function<std::optional<ProcessFacts>(pid_t)> facts = process_facts;
  std::function<std::optional<bool>(pid_t, uint64_t)> opens = has_open;
};

/// The notes that are held, with the process that holds each.
std::vector<HeldNote> held_notes(const std::vector<LockedFile>& files, const Lookup& lookup);

/// The devices that are held. A note explains a lock only if the kernel says that the same process locked both files,
/// and if that process, while it lives, belongs to the owner of the note. Nobody tries the locks of devices, so those
/// that the kernel does not list here are held if a note says so whose lock is not listed, either.
std::vector<Holding> holdings_of(const std::vector<LockedFile>& devices, const std::vector<HeldNote>& notes,
                                 const Lookup& lookup);

/// In order of their arrival.
std::vector<Ticket> tickets_of(const std::vector<LockedFile>& files, const Lookup& lookup);

/// The user in the name of a note or ticket; nullopt: the name has a different form.
std::optional<int64_t> uid_in(std::string_view name, std::string_view prefix);

}  // namespace yoke::claim
