#include "yoke/claim/ledger.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <thread>

#include "yoke/base/error.h"
#include "yoke/base/text.h"
#include "yoke/base/user_socket.h"
#include "yoke/claim/detail/survey.h"
#include "yoke/claim/history.h"
#include "yoke/claim/idle.h"

namespace yoke::claim {
namespace {

bool try_lock(int fd, int kind) {
  while (flock(fd, kind | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) return false;
    if (errno != EINTR) throw system_error(errno, "locking");
  }
  return true;
}

/// Whether somebody holds the lock. REQUIRES: the session's lock is held, or the answer may disturb somebody who locks.
bool is_held_by_anybody(int fd) {
  if (!try_lock(fd, LOCK_EX)) return true;
  flock(fd, LOCK_UN);
  return false;
}

std::string read_text(int fd) {
  std::string text(kMostNoteBytes, '\0');
  ssize_t count = 0;
  while ((count = pread(fd, text.data(), text.size(), 0)) < 0 && errno == EINTR) {
  }
  text.resize(count > 0 ? static_cast<size_t>(count) : 0);
  return text;
}

/// Replaces the text of a file in place, since a new file would not have the lock. Blanks fill the rest, so that there
/// is no moment at which the text is shorter.
bool write_text(int fd, std::string text) {
  struct stat status {};
  if (fstat(fd, &status) != 0) return false;
  const auto before = static_cast<size_t>(std::clamp<off_t>(status.st_size, 0, kMostNoteBytes));
  if (text.size() < before) text.resize(before, ' ');
  return pwrite(fd, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size());
}

std::string new_name(std::string_view prefix) {
  uint64_t random = 0;
  if (getrandom(&random, sizeof random, 0) != sizeof random) throw system_error(errno, "getting a random number");
  return fmt::format("{}{}-{}-{:016x}", prefix, geteuid(), getpid(), random);
}

std::string device_by_stat(const struct stat& status) {
  return fmt::format("{:02x}:{:02x}", major(status.st_dev), minor(status.st_dev));
}

pid_t locker_of(const std::vector<KernelLock>& locks, const std::string& device, uint64_t inode) {
  for (const auto& lock : locks) {
    if (lock.inode == inode && lock.device == device) return lock.pid;
  }
  return 0;
}

enum class Probe { kLocks, kKernelsList };

/// The files whose names begin with `prefix`.
std::vector<LockedFile> find_files(const LockFolder& folder, std::string_view prefix, Probe probe, bool has_user,
                                   const std::string& session_device) {
  std::vector<LockedFile> files;
  for (const auto& name : folder.names(prefix)) {
    const auto fd = folder.open_existing(name);
    LockedFile file{.name = name};
    if (!fd || fstat(fd->value(), &file.status) != 0) continue;
    if (has_user && uid_in(name, prefix) != int64_t{file.status.st_uid}) continue;  // a name that pretends
    if (probe == Probe::kLocks) file.is_held = is_held_by_anybody(fd->value());
    if (has_user) file.text = read_text(fd->value());
    files.push_back(std::move(file));
  }
  const auto locks = read_locks();  // after the probes, so that a lock that was found is in the list
  for (auto& file : files) {
    const auto device = session_device.empty() ? device_by_stat(file.status) : session_device;
    file.locker = locker_of(locks, device, file.status.st_ino);
    if (probe == Probe::kKernelsList) file.is_held = file.locker != 0;
  }
  return files;
}

Survey survey_of(const LockFolder& folder, Probe probe, const std::string& device) {
  Survey survey;
  const Lookup lookup;
  const auto notes = find_files(folder, kNotePrefix, probe, true, device);
  survey.notes = held_notes(notes, lookup);
  for (const auto& file : notes) {
    if (!file.is_held) survey.dead_notes[file.name] = written_at(file.status);
  }
  survey.holdings = holdings_of(find_files(folder, kDevicePrefix, probe, false, device), survey.notes, lookup);
  survey.tickets = tickets_of(find_files(folder, kTicketPrefix, probe, true, device), lookup);
  return survey;
}

/// Writes the end of a claim of this user's that was killed to the history.
void record_end(const LockFolder& records, const LockedFile& note) {
  const auto history = newest_history_file(records);
  const auto text = parse_note(note.text);
  const auto idle = text ? idle_seconds_of(*text) : std::nullopt;
  if (history) append_end(records, *history, note.name, written_at(note.status), idle);
}

std::string locker_text(const LockFolder& folder) {
  const auto fd = folder.open_existing(std::string(kAllocationName));
  struct stat status {};
  if (!fd || fstat(fd->value(), &status) != 0) return "somebody";
  const auto pid = locker_of(read_locks(), device_by_stat(status), status.st_ino);
  const auto facts = process_facts(pid);
  if (!facts) return "a process that cannot be seen from here";
  return fmt::format("process {} of uid {}", pid, facts->effective_uid.value_or(-1));
}

}  // namespace

std::string lock_name(const std::string& key) {
  constexpr std::string_view kAllowed = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_.:/";
  constexpr size_t kLongest = 100;
  if (key.empty() || key.size() > kLongest || key.find_first_not_of(kAllowed) != key.npos) {
    throw Error(ErrorCode::kInvalidArgument, "the driver calls a device `{}`, which is not a UUID, so it has no lock",
                printable(key));
  }
  return std::string(kDevicePrefix) + key_in_name(key);
}

// ---- Claim ----------------------------------------------------------------------------------------------------------

Claim::Claim(const LockFolder& folder, std::string name, UniqueFd note_fd, std::vector<UniqueFd> locks)
    : folder_(&folder),
      name_(std::move(name)),
      note_fd_(std::move(note_fd)),
      locks_(std::move(locks)),
      owner_(getpid()) {}

Claim::Claim(Claim&& other) noexcept
    : folder_(other.folder_),
      name_(std::move(other.name_)),
      note_(std::move(other.note_)),
      note_fd_(std::move(other.note_fd_)),
      locks_(std::move(other.locks_)),
      owner_(std::exchange(other.owner_, 0)),
      records_(other.records_),
      history_file_(std::move(other.history_file_)),
      idle_seconds_(other.idle_seconds_) {}

Claim& Claim::operator=(Claim&& other) noexcept {
  if (this == &other) return *this;
  if (owner_ == getpid()) release();
  folder_ = other.folder_;
  name_ = std::move(other.name_);
  note_ = std::move(other.note_);
  note_fd_ = std::move(other.note_fd_);
  locks_ = std::move(other.locks_);
  owner_ = std::exchange(other.owner_, 0);
  records_ = other.records_;
  history_file_ = std::move(other.history_file_);
  idle_seconds_ = other.idle_seconds_;
  return *this;
}

Claim::~Claim() {
  if (owner_ == getpid()) release();
}

std::vector<int> Claim::fds() const {
  std::vector<int> result = {note_fd_.value()};
  for (const auto& lock : locks_) result.push_back(lock.value());
  return result;
}

bool Claim::write(const Note& note) {
  note_ = note;
  return write_text(note_fd_.value(), to_text(note));
}

Note Claim::read() const { return parse_note(read_text(note_fd_.value())).value_or(note_); }

void Claim::beat() const noexcept {
  futimens(note_fd_.value(), nullptr);
  if (!is_recorded()) return;
  const auto file = records_->open_existing(history_file_);
  if (file) futimens(file->value(), nullptr);
}

void Claim::release() noexcept {
  owner_ = 0;
  if (!note_fd_) return;
  // By LOCK_UN, because a descriptor that a grandchild inherited would keep the lock otherwise.
  for (auto& lock : locks_) flock(lock.value(), LOCK_UN);
  flock(note_fd_.value(), LOCK_UN);
  try {
    folder_->remove(name_);  // wakes those who wait
  } catch (...) {            // out of memory; the file stays, and is not held
  }
  locks_.clear();
  note_fd_.reset();
  // Last, so that nobody waits for it.
  if (is_recorded()) append_end(*records_, history_file_, name_, std::chrono::system_clock::now(), idle_seconds_);
}

// ---- Place ----------------------------------------------------------------------------------------------------------

Place::Place(const LockFolder& folder, std::string name, UniqueFd fd)
    : folder_(&folder), name_(std::move(name)), fd_(std::move(fd)), owner_(getpid()) {}

Place::Place(Place&& other) noexcept
    : folder_(other.folder_),
      name_(std::move(other.name_)),
      fd_(std::move(other.fd_)),
      owner_(std::exchange(other.owner_, 0)) {}

Place::~Place() {
  if (owner_ == getpid()) folder_->remove(name_);
}

// ---- Ledger ---------------------------------------------------------------------------------------------------------

Ledger::Session Ledger::open(Access access, std::chrono::milliseconds limit) const {
  const auto until = std::chrono::steady_clock::now() + limit;
  const std::string name(kAllocationName);
  for (;;) {
    auto fd = folder_.open_shared(name);
    bool is_locked = false;
    while (!(is_locked = try_lock(fd.value(), LOCK_EX))) {
      if (std::chrono::steady_clock::now() > until) break;
      std::this_thread::sleep_for(std::chrono::microseconds(500));
    }
    if (is_locked && folder_.is_current(fd.value(), name)) return Session(*this, std::move(fd), access);
    if (std::chrono::steady_clock::now() <= until) continue;  // the file was replaced meanwhile
    throw Error(ErrorCode::kUnavailable,
                "{} holds {} for longer than the few milliseconds that programs need it, so nobody can claim; ask its "
                "user to end it, or root",
                locker_text(folder_), folder_.path_of(name).string());
  }
}

void Ledger::record_use(Claim& claim, const std::vector<std::optional<bool>>& used, Time now,
                        std::chrono::milliseconds limit) const {
  try {
    const auto session = open(Access::kTake, limit);  // `yoke extend` writes into the note, too
    auto note = claim.read();
    note.activity = after_look(note, used, std::chrono::floor<std::chrono::seconds>(now));
    claim.write(note);
    claim.set_idle_seconds(idle_seconds_of(note));
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kUnavailable && error.code() != ErrorCode::kFailedPrecondition) throw;
  }
}

void Ledger::extend(const HeldNote& held, Time until) const {
  if (geteuid() != 0 && int64_t{geteuid()} != held.uid) {
    throw Error(ErrorCode::kPermissionDenied, "the claim belongs to uid {}; only that user or root may extend it",
                held.uid);
  }
  const auto session = open(Access::kTake);  // so that nobody else writes into the note meanwhile
  const auto fd = folder_.open_existing(held.name, O_RDWR);
  struct stat status {};
  if (!fd || fstat(fd->value(), &status) != 0 || int64_t{status.st_uid} != held.uid) {
    throw Error(ErrorCode::kNotFound, "the claim {} has ended", printable(held.name));
  }
  auto note = parse_note(read_text(fd->value()));
  if (!note || !note->until) {
    throw Error(ErrorCode::kFailedPrecondition, "the claim has no end that could be put off");
  }
  note->until = until;
  if (!write_text(fd->value(), to_text(*note))) {
    throw Error(ErrorCode::kUnavailable, "writing {}: no space is left", folder_.path_of(held.name).string());
  }
}

Survey Ledger::look_without_lock() const { return survey_of(folder_, Probe::kKernelsList, ""); }

Ledger::Session::Session(const Ledger& ledger, UniqueFd lock, Access access)
    : ledger_(&ledger), lock_(std::move(lock)), access_(access), device_(device_of_lock(lock_.value())) {}

Survey Ledger::Session::survey() const {
  const auto& folder = ledger_->folder();
  if (access_ == Access::kTake) {
    for (const auto prefix : {kNotePrefix, kTicketPrefix}) {
      for (const auto& file : find_files(folder, prefix, Probe::kLocks, true, device_)) {
        if (file.is_held || file.status.st_uid != geteuid()) continue;
        if (prefix == kNotePrefix) record_end(ledger_->records(), file);
        folder.remove(file.name);
      }
    }
  }
  return survey_of(folder, Probe::kLocks, device_);
}

std::optional<Claim> Ledger::Session::take(const std::vector<std::string>& keys, Note note, std::string& held) const {
  const auto& folder = ledger_->folder();
  auto sorted = keys;
  std::sort(sorted.begin(), sorted.end());
  std::vector<UniqueFd> locks;
  for (const auto& key : sorted) {
    const auto name = lock_name(key);
    auto fd = folder.open_shared(name);
    if (!try_lock(fd.value(), LOCK_EX) || !folder.is_current(fd.value(), name)) {
      held = key;
      return std::nullopt;
    }
    locks.push_back(std::move(fd));
  }
  const auto name = new_name(kNotePrefix);
  auto note_fd = folder.create(name);
  Claim claim(folder, name, std::move(note_fd), std::move(locks));
  if (!try_lock(claim.note_fd_.value(), LOCK_EX)) {
    throw Error(ErrorCode::kUnavailable, "{} was locked by somebody else right after it was made; try again",
                folder.path_of(name).string());
  }
  note.keys = keys;
  note.pid = getpid();
  note.start_ticks = start_ticks_of(getpid()).value_or(0);
  if (!claim.write(note)) {
    throw Error(ErrorCode::kUnavailable, "writing {}: no space is left in {}, or too many files are there; make room",
                folder.path_of(name).string(), folder.path().string());
  }
  claim.records_ = &ledger_->records();
  const Use use{.uid = geteuid(), .claim = name, .keys = keys, .since = note.since};
  claim.history_file_ = append_begin(*claim.records_, use).value_or("");
  return claim;
}

Place Ledger::Session::join(const Request& request) const {
  const auto& folder = ledger_->folder();
  const auto name = new_name(kTicketPrefix);
  Place place(folder, name, folder.create(name));
  if (!try_lock(place.fd_.value(), LOCK_EX) || !write_text(place.fd_.value(), to_text(request))) {
    throw Error(ErrorCode::kUnavailable, "writing {}: no space is left in {}; make room", folder.path_of(name).string(),
                folder.path().string());
  }
  return place;
}

}  // namespace yoke::claim
