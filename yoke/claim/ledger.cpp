#include "yoke/claim/ledger.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <thread>

#include "yoke/base/environment.h"
#include "yoke/base/error.h"
#include "yoke/base/text.h"
#include "yoke/base/user_socket.h"
#include "yoke/claim/detail/survey.h"
#include "yoke/claim/history.h"
#include "yoke/claim/idle.h"
#include "yoke/device/process/info.h"

namespace yoke::claim {
namespace {

bool try_lock(int fd, int kind) {
  while (flock(fd, kind | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) return false;
    if (errno != EINTR) throw system_error(errno, "locking");
  }
  return true;
}

/// Finds out whether somebody holds the lock. REQUIRES: the session's lock is held, or the answer may disturb somebody
/// who locks.
void probe_lock(int fd, LockedFile& file) {
  file.is_held = !try_lock(fd, LOCK_EX);
  file.is_shared = file.is_held && try_lock(fd, LOCK_SH);
  if (!file.is_held || file.is_shared) flock(fd, LOCK_UN);
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

/// The files in which claims and those who wait are, by kind.
struct FoundFiles {
  std::vector<LockedFile> notes, devices, tickets;
};

std::vector<LockedFile> find_files(const LockFolder& folder, const std::vector<std::string>& names,
                                   std::string_view prefix, Probe probe) {
  const bool has_user = prefix != kDevicePrefix;
  std::vector<LockedFile> files;
  for (const auto& name : names) {
    if (!name.starts_with(prefix)) continue;
    LockedFile file{.name = name};
    const auto fd = folder.open_existing(name, 0, &file.status);
    if (!fd || (has_user && uid_in(name, prefix) != int64_t{file.status.st_uid})) continue;  // a name that pretends
    if (probe == Probe::kLocks) probe_lock(fd->value(), file);
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
  for (auto* kind : {&files.notes, &files.devices, &files.tickets}) {
    for (auto& file : *kind) {
      const auto device = session_device.empty() ? device_by_stat(file.status) : session_device;
      file.locker = locker_of(locks, device, file.status.st_ino);
      for (const auto& lock : locks) {
        if (lock.is_shared && lock.inode == file.status.st_ino && lock.device == device)
          file.sharers.push_back(lock.pid);
      }
      if (probe == Probe::kLocks) continue;
      file.is_held = file.locker != 0;
      file.is_shared = !file.sharers.empty();
    }
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

std::string locker_text(const LockFolder& folder) {
  const auto fd = folder.open_existing(std::string(kAllocationName));
  struct stat status {};
  if (!fd || fstat(fd->value(), &status) != 0) return "somebody";
  const auto pid = locker_of(read_locks(), device_by_stat(status), status.st_ino);
  const auto facts = process_facts(pid);
  if (!facts) return "a process that cannot be seen from here";
  return fmt::format("process {} of uid {}", pid, facts->effective_uid.value_or(-1));
}

/// The lock that protects looking and taking. The members end in the reverse order.
struct AllocationLock {
  StopDelay delay;
  UniqueFd fd;
};

/// nullopt: somebody holds it.
std::optional<AllocationLock> try_lock_allocation(const LockFolder& folder) {
  const std::string name(kAllocationName);
  auto fd = folder.open_shared(name);
  AllocationLock lock{StopDelay(), std::move(fd)};
  if (!try_lock(lock.fd.value(), LOCK_EX) || !folder.is_current(lock.fd.value(), name)) return std::nullopt;
  return lock;
}

/// Errors  kUnavailable: somebody held it for `limit`.
AllocationLock lock_allocation(const LockFolder& folder, std::chrono::milliseconds limit) {
  const auto until = std::chrono::steady_clock::now() + limit;
  for (;;) {
    if (auto lock = try_lock_allocation(folder)) return std::move(*lock);
    if (std::chrono::steady_clock::now() > until) break;
    std::this_thread::sleep_for(std::chrono::microseconds(500));
  }
  throw Error(ErrorCode::kUnavailable,
              "{} holds {} for longer than the few milliseconds that programs need it, so nobody can claim; ask its "
              "user to end it, or root",
              locker_text(folder), folder.path_of(std::string(kAllocationName)).string());
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
      is_shared_(other.is_shared_),
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
  is_shared_ = other.is_shared_;
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
    std::optional<AllocationLock> lock;
    try {
      lock.emplace(lock_allocation(*folder_, std::chrono::seconds(2)));
    } catch (const Error&) {  // somebody keeps the lock; two that end at the same time are less likely than that
    }
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

void Claim::set_program(pid_t program) {
  std::optional<AllocationLock> lock;
  try {
    lock.emplace(lock_allocation(*folder_, std::chrono::seconds(2)));
  } catch (const Error&) {  // somebody keeps the lock; another writer at the same moment is less likely than that
  }
  auto note = read();  // heirs and `yoke extend` write into it, too
  note.program_pid = program;
  note.program_start_ticks = start_ticks_of(program).value_or(0);
  write(note);
}

bool Claim::succeed(pid_t program) {
  const auto lock = lock_allocation(*folder_, std::chrono::seconds(10));
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

std::optional<Ledger::Session> Ledger::try_open(Access access) const {
  auto lock = try_lock_allocation(folder_);
  if (!lock) return std::nullopt;
  return Session(*this, std::move(lock->fd), access, std::move(lock->delay));
}

Ledger::Session Ledger::open(Access access, std::chrono::milliseconds limit) const {
  auto lock = lock_allocation(folder_, limit);
  return {*this, std::move(lock.fd), access, std::move(lock.delay)};
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
    claim.owner_ = 0;  // until it is shared
    claim.is_shared_ = true;
    claim.note_ = *note;
    result = std::move(claim);
  }
  return result;
}

bool Ledger::Session::share(Claim& claim, const std::vector<int64_t>& positions) const {
  if (!ledger_->folder().is_current(claim.note_fd_.value(), claim.name_)) return false;
  auto note = claim.read();
  note.heirs = claim.living_heirs();
  if (note.heirs.size() >= kMostHeirs) {
    throw Error(
        ErrorCode::kFailedPrecondition,
        "{} containers use the claim of process {} already, which is the most; wait until one has ended, or start "
        "this one outside of the claim",
        note.heirs.size(), note.pid);
  }
  note.heirs.push_back({getpid(), start_ticks_of(getpid()).value_or(0), positions});
  if (!claim.write(note)) {
    throw Error(ErrorCode::kUnavailable, "writing {}: no space is left; make room",
                ledger_->folder().path_of(claim.name_).string());
  }
  claim.owner_ = getpid();
  claim.records_ = &ledger_->records();
  claim.history_file_ = newest_history_file(ledger_->records()).value_or("");
  return true;
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

void Ledger::rewrite(const HeldNote& held, const std::function<void(Note&)>& change) const {
  if (geteuid() != 0 && int64_t{geteuid()} != held.uid) {
    throw Error(ErrorCode::kPermissionDenied, "the claim belongs to {}; only that user or root may change it",
                printable(device::user_name(held.uid)));
  }
  const auto session = open(Access::kTake);  // so that nobody else writes into the note meanwhile
  const auto fd = folder_.open_existing(held.name, O_RDWR);
  struct stat status {};
  if (!fd || fstat(fd->value(), &status) != 0 || int64_t{status.st_uid} != held.uid) {
    throw Error(ErrorCode::kNotFound, "the claim {} has ended", printable(held.name));
  }
  auto note = parse_note(read_text(fd->value()));
  if (!note) throw Error(ErrorCode::kFailedPrecondition, "the text of the claim cannot be read");
  change(*note);
  if (!write_text(fd->value(), to_text(*note))) {
    throw Error(ErrorCode::kUnavailable, "writing {}: no space is left", folder_.path_of(held.name).string());
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
  const auto session = open(Access::kLook);  // to find out whether a lock is held takes the lock for a moment
  struct stat status {};
  const auto fd = folder_.open_existing(held.name, 0, &status);
  if (!fd || int64_t{status.st_uid} != held.uid) return false;
  LockedFile file;
  probe_lock(fd->value(), file);
  return file.is_held;
}

Survey Ledger::look_without_lock() const {
  auto files = find_files(folder_, Probe::kKernelsList);
  find_lockers(files, Probe::kKernelsList, "");
  return survey_of(files);
}

Ledger::Session::Session(const Ledger& ledger, UniqueFd lock, Access access, StopDelay delay)
    : ledger_(&ledger), delay_(std::move(delay)), lock_(std::move(lock)), access_(access) {}

Survey Ledger::Session::survey(Owners owners) const {
  const auto& folder = ledger_->folder();
  auto files = find_files(folder, Probe::kLocks);
  const auto is_own_and_dead = [](const LockedFile& file) { return !file.is_held && file.status.st_uid == geteuid(); };
  if (access_ == Access::kTake) {
    for (const auto& note : files.notes) {
      if (is_own_and_dead(note)) record_end(ledger_->records(), note);
    }
    for (auto* kind : {&files.notes, &files.tickets}) {
      for (const auto& file : *kind) {
        if (is_own_and_dead(file)) folder.remove(file.name);
      }
      std::erase_if(*kind, is_own_and_dead);
    }
  }
  if (owners == Owners::kAll) find_lockers(files, Probe::kLocks, device_of_lock(lock_.value()));
  return survey_of(files);
}

std::optional<Claim> Ledger::Session::take(const std::vector<std::string>& keys, Note note, std::string& held) const {
  const auto& folder = ledger_->folder();
  auto sorted = keys;
  std::sort(sorted.begin(), sorted.end());
  std::vector<UniqueFd> locks;
  for (const auto& key : sorted) {
    const auto name = lock_name(key);
    auto fd = folder.open_shared(name);
    if (!try_lock(fd.value(), note.share_bytes ? LOCK_SH : LOCK_EX) || !folder.is_current(fd.value(), name)) {
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
    throw Error(ErrorCode::kUnavailable,
                "writing {}: no space is left in {}, too many files are there, or `ulimit -f` forbids it; make room",
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
