#include "yoke/claim/ledger.h"

#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <utility>

#include "yoke/base/environment.h"
#include "yoke/base/error.h"
#include "yoke/base/text.h"
#include "yoke/base/user_socket.h"
#include "yoke/claim/detail/allocation_lock.h"
#include "yoke/claim/detail/locked_text.h"
#include "yoke/claim/detail/survey.h"
#include "yoke/claim/history.h"
#include "yoke/claim/idle.h"
#include "yoke/device/process/info.h"

namespace yoke::claim {
namespace {

/// How to find out whether a note or a ticket is held.
enum class Probe { kLocks, kKernelsList };

/// The files in which claims and those who wait are, by kind.
struct FoundFiles {
  std::vector<LockedFile> notes, devices, tickets;
};

std::vector<LockedFile> find_files(const LockFolder& folder, const std::vector<std::string>& names,
                                   std::string_view prefix, Probe probe) {
  const bool has_user = prefix != kDevicePrefix;
  std::vector<LockedFile> files;
  // Nobody needs more requests. This bounds what is read of a user's own requests, and no other files.
  constexpr int64_t kMostTickets = 1000;
  std::map<int64_t, int64_t> num_tickets;
  for (const auto& name : names) {
    if (!name.starts_with(prefix)) continue;
    const auto uid = has_user ? uid_in(name, prefix) : std::nullopt;
    if (has_user && (!uid || num_tickets[*uid] >= kMostTickets)) continue;
    LockedFile file{.name = name};
    const auto fd = folder.open_existing(name, 0, &file.status);
    if (!fd || (has_user && *uid != int64_t{file.status.st_uid})) continue;  // a name that pretends
    if (prefix == kTicketPrefix) ++num_tickets[*uid];
    if (has_user && probe == Probe::kLocks) file.is_held = is_locked(fd->value());
    if (has_user) file.text = read_text(fd->value());
    files.push_back(std::move(file));
  }
  return files;
}

/// The folder is listed once, since others look at it at the same time.
FoundFiles find_files(const LockFolder& folder, Probe probe) {
  const auto names = folder.names(kFilePrefix);
  return {.notes = find_files(folder, names, kNotePrefix, probe),
          .devices = find_files(folder, names, kDevicePrefix, probe),
          .tickets = find_files(folder, names, kTicketPrefix, probe)};
}

/// Adds who holds the files. Reading the kernel's list takes milliseconds, because the kernel waits until no processor
/// changes a lock (fs/locks.c takes file_rwsem for writing, which takes a grace period of RCU).
void find_lockers(FoundFiles& files, Probe probe, const std::string& session_device) {
  const auto locks = read_locks();  // after the probes, so that a lock that was found is in the list
  const auto device_of = [&](const LockedFile& file) {
    return session_device.empty() ? device_by_stat(file.status) : session_device;
  };
  for (auto* kind : {&files.notes, &files.tickets}) {
    for (auto& file : *kind) {
      file.locker = locker_of(locks, device_of(file), file.status.st_ino);
      if (probe == Probe::kKernelsList) file.is_held = file.locker != 0;
    }
  }
  for (auto& file : files.devices) {
    const auto device = device_of(file);
    for (const auto& lock : locks) {
      if (lock.inode != file.status.st_ino || lock.device != device) continue;
      file.is_held = true;
      file.locker = lock.pid;
      if (lock.is_shared) file.sharers.push_back(lock.pid);
    }
    file.is_shared = !file.sharers.empty();
  }
}

Survey survey_of(const FoundFiles& files) {
  Survey survey;
  const Lookup lookup;
  survey.notes = held_notes(files.notes, lookup);
  for (const auto& file : files.notes) {
    if (!file.is_held) survey.dead_notes[file.name] = written_at(file.status);
  }
  survey.holdings = holdings_of(files.devices, survey.notes, lookup);
  survey.tickets = tickets_of(files.tickets, lookup);
  return survey;
}

/// Writes the end of a claim of this user's that was killed to the history.
void record_end(const LockFolder& records, const LockedFile& note) {
  const auto history = newest_history_file(records);
  const auto text = parse_note(note.text);
  const auto idle = text ? idle_seconds_of(*text) : std::nullopt;
  if (history) append_end(records, *history, note.name, written_at(note.status), idle);
}

/// The claim is then that of a process which is there.
void pass_to(Note& note, const Heir& heir) {
  note.pid = note.program_pid = heir.pid;
  note.start_ticks = note.program_start_ticks = heir.start_ticks;
  note.is_holder = false;
}

bool lives(int64_t pid, int64_t start_ticks) {
  return pid > 0 && start_ticks_of(static_cast<pid_t>(pid)) == start_ticks;
}

UniqueFd duplicate(int fd) {
  UniqueFd result(fcntl(fd, F_DUPFD_CLOEXEC, 3));
  if (!result) throw system_error(errno, "copying a descriptor");
  return result;
}

/// The files of the folder that this process has open, by name.
std::map<std::string, int> inherited_files(const LockFolder& folder) {
  std::map<std::string, int> files;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", error)) {
    const auto target = std::filesystem::read_symlink(entry.path(), error);
    const auto fd = parse_int(entry.path().filename().native());
    if (error || !fd || target.filename().native().rfind(kFilePrefix, 0) != 0) continue;
    const auto name = target.filename().native();
    if (folder.is_current(static_cast<int>(*fd), name)) files.emplace(name, static_cast<int>(*fd));
  }
  return files;
}

/// Locks the file of a device. nullopt: somebody holds it, or has put something in its way.
std::optional<UniqueFd> take_lock(const LockFolder& folder, const std::string& name, int kind) {
  try {
    auto fd = folder.open_shared(name);
    if (!try_lock(fd.value(), kind) || !folder.is_current(fd.value(), name)) return std::nullopt;
    return fd;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kFailedPrecondition) throw;
    return std::nullopt;
  }
}

/// How long another process may write into a note before that is an error.
constexpr std::chrono::seconds kLongestWrite(10);

Error blocked_by_writer(const std::string& name) {
  return {
      ErrorCode::kUnavailable,
      "another process of the same user, or of root, has been writing into the claim {} for seconds; continue it if "
      "it is stopped, or end it",
      printable(name)};
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

Claim::Claim(const LockFolder& folder, std::string name, UniqueFd note_fd, std::vector<UniqueFd> locks)
    : folder_(&folder), name_(std::move(name)), note_fd_(std::move(note_fd)), locks_(std::move(locks)) {}

Claim& Claim::operator=(Claim&& other) noexcept {
  if (this == &other) return *this;
  std::destroy_at(this);
  return *std::construct_at(this, std::move(other));
}

Claim::~Claim() {
  if (owner_.is_this_process()) release();
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
  owner_ = OwnerProcess(0);
  if (!note_fd_) return;
  if (leave_to_heirs()) {
    locks_.clear();
    note_fd_.reset();
    return;
  }
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

bool Claim::leave_to_heirs() noexcept {
  try {
    // Without a lock, because it usually has none. An heir that comes right now learns from succeed() that it is late.
    if (!is_shared_ && read().heirs.empty()) return false;
    const auto lock = lock_note_if_possible();
    auto note = read();
    note.heirs = living_heirs();
    const bool is_outer_alive = is_shared_ && note.pid != getpid() && lives(note.pid, note.start_ticks);
    const bool is_left = is_outer_alive || !note.heirs.empty();
    // Another heir writes its own program when it learns that the process of the claim has ended (succeed()); one that
    // knows that already does not write again.
    if (is_left && !is_outer_alive) pass_to(note, note.heirs.front());
    if (is_left) write(note);
    return is_left;
  } catch (...) {  // out of memory
    return false;
  }
}

std::vector<Heir> Claim::living_heirs() const {
  auto heirs = read().heirs;
  std::erase_if(heirs, [](const Heir& heir) { return heir.pid == getpid() || !lives(heir.pid, heir.start_ticks); });
  return heirs;
}

std::optional<NoteLock> Claim::lock_note(std::chrono::milliseconds limit) const {
  if (!writer_fd_) writer_fd_ = open_for_writing(note_fd_.value());
  return NoteLock::take(writer_fd_.value(), limit);
}

/// Writes without the lock if it cannot be had: it is more likely that a stopped process keeps the lock than that
/// another one writes at this moment.
std::optional<NoteLock> Claim::lock_note_if_possible() const noexcept {
  constexpr std::chrono::seconds kLimit(2);
  try {
    return lock_note(kLimit);
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

void Claim::record_use(const std::vector<std::optional<bool>>& used, Time now) {
  constexpr std::chrono::milliseconds kLimit(20);
  change(
      [&](Note& note) {
        note.activity = after_look(note, used, std::chrono::floor<std::chrono::seconds>(now));
        idle_seconds_ = idle_seconds_of(note);
      },
      kLimit);
}

void Claim::change(const std::function<void(Note&)>& change, std::chrono::milliseconds limit) {
  const auto lock = lock_note(limit);
  if (!lock) return;
  auto note = read();  // heirs and `yoke extend` write into it, too
  change(note);
  write(note);
}

void Claim::set_program(pid_t program) {
  const auto lock = lock_note_if_possible();
  auto note = read();
  note.program_pid = program;
  note.program_start_ticks = start_ticks_of(program).value_or(0);
  write(note);
}

bool Claim::succeed(pid_t program) {
  const auto lock = lock_note(kLongestWrite);
  if (!lock) throw blocked_by_writer(name_);
  if (!folder_->is_current(note_fd_.value(), name_)) return false;
  auto note = read();
  note.pid = getpid();
  note.start_ticks = start_ticks_of(getpid()).value_or(0);
  note.program_pid = program;
  note.program_start_ticks = start_ticks_of(program).value_or(0);
  note.is_holder = false;
  write(note);
  return true;
}

Place::Place(const LockFolder& folder, std::string name, UniqueFd fd)
    : folder_(&folder), name_(std::move(name)), fd_(std::move(fd)) {}

Place::~Place() {
  if (owner_.is_this_process()) folder_->remove(name_);
}

StopDelay::StopDelay() {
  sigset_t stops;
  sigemptyset(&stops);
  for (const int signal : {SIGTSTP, SIGTTIN, SIGTTOU}) sigaddset(&stops, signal);
  is_active_ = pthread_sigmask(SIG_BLOCK, &stops, &before_) == 0;
}

StopDelay::StopDelay(StopDelay&& other) noexcept
    : before_(other.before_), is_active_(std::exchange(other.is_active_, false)) {}

StopDelay::~StopDelay() {
  if (is_active_) pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

Ledger::Session Ledger::open(Access access, const LockWait& wait) const {
  return {*this, lock_allocation(folder_, wait), access, wait.term};
}

std::optional<Claim> Ledger::inherited() const {
  const auto fds = inherited_files(folder_);
  std::optional<Claim> result;
  for (const auto& [name, fd] : fds) {
    struct stat status {};
    if (!name.starts_with(kNotePrefix) || fstat(fd, &status) != 0 || status.st_uid != geteuid()) continue;
    const auto note = parse_note(read_text(fd));
    if (!note || (result && note->since < result->note_.since)) continue;
    std::vector<UniqueFd> locks;
    for (const auto& key : note->keys) {
      const auto lock = fds.find(lock_name(key));
      if (lock != fds.end()) locks.push_back(duplicate(lock->second));
    }
    if (locks.size() != note->keys.size()) continue;
    Claim claim(folder_, name, duplicate(fd), std::move(locks));
    claim.owner_ = OwnerProcess(0);  // until it is shared
    claim.is_shared_ = true;
    claim.note_ = *note;
    result = std::move(claim);
  }
  return result;
}

std::optional<std::vector<int64_t>> Ledger::share(
    Claim& claim, const std::function<std::vector<int64_t>(const std::vector<Heir>&)>& choose) const {
  const auto lock = claim.lock_note(kLongestWrite);
  if (!lock) throw blocked_by_writer(claim.name_);
  if (!folder_.is_current(claim.note_fd_.value(), claim.name_)) return std::nullopt;
  auto note = claim.read();
  note.heirs = claim.living_heirs();
  auto positions = choose(note.heirs);
  if (note.heirs.size() >= kMostHeirs) {
    throw Error(
        ErrorCode::kFailedPrecondition,
        "{} containers use the claim of process {} already, which is the most; wait until one has ended, or start "
        "this one outside of the claim",
        note.heirs.size(), note.pid);
  }
  note.heirs.push_back({getpid(), start_ticks_of(getpid()).value_or(0), positions});
  if (!claim.write(note)) {
    throw Error(ErrorCode::kUnavailable, "writing {}: no space is left; {}", folder_.path_of(claim.name_).string(),
                folder_.fullest());
  }
  claim.owner_ = OwnerProcess();
  claim.records_ = &records();
  claim.history_file_ = newest_history_file(records()).value_or("");
  return positions;
}

void Ledger::rewrite(const HeldNote& held, const std::function<void(Note&)>& change) const {
  if (geteuid() != 0 && int64_t{geteuid()} != held.uid) {
    throw Error(ErrorCode::kPermissionDenied, "the claim belongs to {}; only that user or root may change it",
                printable(device::user_name(held.uid)));
  }
  struct stat status {};
  const auto fd = folder_.open_existing(held.name, O_RDWR, &status);
  if (!fd || int64_t{status.st_uid} != held.uid) {
    throw Error(ErrorCode::kNotFound, "the claim {} has ended", printable(held.name));
  }
  const auto lock = NoteLock::take(fd->value(), kLongestWrite);
  if (!lock) throw blocked_by_writer(held.name);
  auto note = parse_note(read_text(fd->value()));
  if (!note) throw Error(ErrorCode::kFailedPrecondition, "the text of the claim cannot be read");
  change(*note);
  if (!write_text(fd->value(), to_text(*note))) {
    throw Error(ErrorCode::kUnavailable, "writing {}: no space is left; {}", folder_.path_of(held.name).string(),
                folder_.fullest());
  }
}

void Ledger::extend(const HeldNote& held, Time until) const {
  rewrite(held, [&](Note& note) {
    if (!note.until) throw Error(ErrorCode::kFailedPrecondition, "the claim has no end that could be put off");
    note.until = until;
  });
}

void Ledger::force(const HeldNote& held) const {
  rewrite(held, [](Note& note) { note.is_forced = true; });
}

bool Ledger::is_held(const HeldNote& held) const {
  struct stat status {};
  const auto fd = folder_.open_existing(held.name, 0, &status);
  return fd && int64_t{status.st_uid} == held.uid && is_locked(fd->value());
}

Survey Ledger::look_without_lock() const {
  auto files = find_files(folder_, Probe::kKernelsList);
  find_lockers(files, Probe::kKernelsList, "");
  return survey_of(files);
}

Survey Ledger::look_at_notes() const { return survey_of(find_files(folder_, Probe::kLocks)); }

Ledger::Session::Session(const Ledger& ledger, AllocationLock lock, Access access, std::chrono::milliseconds term)
    : ledger_(&ledger),
      until_(lock.begin + term),
      delay_(std::move(lock.delay)),
      lock_(std::move(lock.fd)),
      has_passed_by_(lock.has_passed_by),
      access_(access) {}

Survey Ledger::Session::survey(Owners owners) {
  const auto& folder = ledger_->folder();
  auto files = find_files(folder, Probe::kLocks);
  const auto is_own_and_dead = [](const LockedFile& file) { return !file.is_held && file.status.st_uid == geteuid(); };
  if (access_ == Access::kTake) {
    for (auto* kind : {&files.notes, &files.tickets}) {
      for (const auto& file : *kind) {
        if (!is_own_and_dead(file)) continue;
        remove_dead(folder, file.name, [&] {
          if (kind == &files.notes) record_end(ledger_->records(), file);
        });
      }
      std::erase_if(*kind, is_own_and_dead);
    }
  }
  if (owners == Owners::kAll) find_lockers(files, Probe::kLocks, lock_ ? device_of_lock(lock_.value()) : "");
  auto survey = survey_of(files);
  seen_notes_.emplace();
  for (const auto& note : survey.notes) seen_notes_->insert(note.name);
  return survey;
}

bool Ledger::Session::is_late() const { return std::chrono::steady_clock::now() > until_; }

/// Whether nobody else has taken devices since survey(), so that what was decided is still right. The note of this
/// process must be held already: of two that take at the same time, at least one then sees the note of the other.
bool Ledger::Session::is_as_surveyed(const std::string& own_note) const {
  if (is_late()) return false;
  if (!seen_notes_) return true;
  const auto& folder = ledger_->folder();
  for (const auto& name : folder.names(kNotePrefix)) {
    if (name == own_note || seen_notes_->contains(name)) continue;
    struct stat status {};
    const auto fd = folder.open_existing(name, 0, &status);
    if (fd && uid_in(name, kNotePrefix) == int64_t{status.st_uid} && is_locked(fd->value())) return false;
  }
  return !is_late();
}

std::optional<Claim> Ledger::Session::take(const std::vector<std::string>& keys, Note note, std::string& held) const {
  const auto& folder = ledger_->folder();
  auto sorted = keys;
  std::ranges::sort(sorted);
  std::vector<UniqueFd> locks;
  for (const auto& key : sorted) {
    auto fd = take_lock(folder, lock_name(key), note.share_bytes ? LOCK_SH : LOCK_EX);
    if (!fd) {
      held = key;
      return std::nullopt;
    }
    locks.push_back(std::move(*fd));
  }
  auto [name, note_fd] = create_locked(folder, kNotePrefix);
  Claim claim(folder, name, std::move(note_fd), std::move(locks));
  note.keys = keys;
  note.pid = getpid();
  note.start_ticks = start_ticks_of(getpid()).value_or(0);
  if (!claim.write(note)) {
    throw Error(ErrorCode::kUnavailable,
                "writing {}: no space is left in {}, too many files are there, or `ulimit -f` forbids it; {}",
                folder.path_of(name).string(), folder.path().string(), folder.fullest());
  }
  held.clear();
  if (!is_as_surveyed(name)) return std::nullopt;
  claim.records_ = &ledger_->records();
  const Use use{.uid = geteuid(), .claim = name, .keys = keys, .since = note.since};
  claim.history_file_ = append_begin(*claim.records_, use).value_or("");
  return claim;
}

Place Ledger::Session::join(const QueuedRequest& request) const {
  const auto& folder = ledger_->folder();
  auto [name, fd] = create_locked(folder, kTicketPrefix);
  Place place(folder, name, std::move(fd));
  if (!write_text(place.fd_.value(), to_text(request))) {
    throw Error(ErrorCode::kUnavailable, "writing {}: no space is left in {}; {}", folder.path_of(name).string(),
                folder.path().string(), folder.fullest());
  }
  return place;
}

}  // namespace yoke::claim
