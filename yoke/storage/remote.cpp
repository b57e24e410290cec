#include "yoke/storage/remote.h"

#include <dirent.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <grp.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>

#include "yoke/base/file.h"
#include "yoke/base/held_signals.h"
#include "yoke/base/process.h"
#include "yoke/base/sysfs.h"
#include "yoke/base/text.h"
#include "yoke/device/process/signal.h"
#include "yoke/storage/detail/sshfs_process.h"

namespace yoke::storage {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

std::string home_of(const Environment& environment) {
  const auto home = environment.value_or("HOME", "");
  if (!home.starts_with('/')) {
    throw Error(ErrorCode::kFailedPrecondition, "HOME is not set to a folder, so give the folder to mount on");
  }
  return home;
}

/// `word` as an absolute path without "." and "..". Links are not looked up.
std::string absolute(const std::string& word) {
  auto path = fs::absolute(word).lexically_normal().string();
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path;
}

/// Asks for a file that does not exist, because sshfs remembers the answers about those that do. Returns '+' and the
/// time until the answer in seconds, or '-' and why there is none. Runs in a child.
std::string ask(const RemoteMount& mount) {
  // Root may not look at other users' mounts, and nobody but their owners should reach the server by them.
  if (geteuid() == 0 && mount.uid != 0) {
    const auto gid = parse_int(option_value(mount.mount.super_options, "group_id").value_or(""));
    if (setgroups(0, nullptr) != 0 || setgid(static_cast<gid_t>(gid.value_or(mount.uid))) != 0 ||
        setuid(static_cast<uid_t>(mount.uid)) != 0) {
      throw system_error(errno, "becoming the owner of the mount");
    }
  }
  const auto path = fmt::format("{}/.yoke-{}", mount.mount.point, random_digits(16));
  struct stat status {};
  const auto begin = std::chrono::steady_clock::now();
  const bool has_answer = lstat(path.c_str(), &status) == 0 || errno == ENOENT || errno == EACCES;
  const int error_number = errno;
  if (has_answer) return fmt::format("+{}", Seconds(std::chrono::steady_clock::now() - begin).count());
  if (error_number == ENOTCONN) return "-its sshfs has ended";
  return fmt::format("-{}: sshfs cannot reach the server now", std::strerror(error_number));
}

/// How many folders prepare_point() would make. Runs in a child.
std::string count_missing(const std::string& point) {
  int num_missing = 0;
  std::error_code error;
  for (fs::path missing = point; !missing.empty() && !fs::exists(missing, error); missing = missing.parent_path()) {
    ++num_missing;
  }
  return std::to_string(num_missing);
}

/// Makes the folder and those above it, unless they exist, and checks that it can be mounted on. Returns the path
/// without links. Runs in a child.
std::string prepare_point(const std::string& point) {
  struct stat status {};
  if (stat(point.c_str(), &status) != 0) {
    if (errno != ENOENT) throw system_error(errno, point);
    std::error_code error;
    fs::create_directories(point, error);
    if (error) throw system_error(error.value(), fmt::format("making {}", point));
    if (stat(point.c_str(), &status) != 0) throw system_error(errno, point);
  }
  if (!S_ISDIR(status.st_mode)) {
    throw Error(ErrorCode::kFailedPrecondition, "{} is not a folder; give another one", point);
  }
  if (geteuid() != 0 && (status.st_uid != geteuid() || access(point.c_str(), W_OK) != 0)) {
    throw Error(ErrorCode::kPermissionDenied, "{} is not yours to mount on; give a folder of your own", point);
  }
  if (!fs::is_empty(point)) {
    throw Error(ErrorCode::kFailedPrecondition,
                "{} is not empty, and its files would be hidden; give an empty folder, or one that does not exist",
                point);
  }
  return fs::canonical(point).string();
}

FuseFacts fuse_facts(const Environment& environment) {
  FuseFacts facts;
  facts.has_sshfs = find_tool("sshfs", environment).has_value();
  const auto fusermount = find_tool("fusermount3", environment);
  facts.has_fusermount = fusermount.has_value();
  struct stat status {};
  if (fusermount && stat(fusermount->c_str(), &status) == 0) {
    facts.fusermount_is_setuid = status.st_uid == 0 && (status.st_mode & S_ISUID) != 0;
  }
  facts.is_root = geteuid() == 0;
  facts.device_error = access_error("/dev/fuse");
  facts.config = text_of(fs::path("/etc/fuse.conf"));
  const auto mounts = read_mounts();
  facts.num_mounts = std::ranges::count_if(mounts, [](const Mount& mount) {
    return mount.type == "fuse" || mount.type == "fuseblk" || mount.type.starts_with("fuse.");
  });
  return facts;
}

std::string last_lines(const std::string& text) {
  std::vector<std::string> lines;
  for (auto line : lines_of(text)) {
    if (line.ends_with('\r')) line.remove_suffix(1);  // ssh ends its lines for a terminal
    if (!words_of(line).empty()) lines.push_back(printable(line));
  }
  if (lines.size() > 4) lines.erase(lines.begin(), lines.end() - 4);
  return fmt::format("{}", fmt::join(lines, "; "));
}

/// A program that was started, and its messages.
struct Running {
  pid_t pid = -1;
  UniqueFd messages;
  std::string text;
  std::optional<int> status;

  /// Waits for its end, for at most `limit`, and keeps what it says.
  bool wait(milliseconds limit) {
    const Deadline deadline{Seconds(limit)};
    for (;;) {
      int result = 0;
      if (!status && waitpid(pid, &result, WNOHANG) == pid) status = shell_status(result);
      pollfd news{messages.value(), POLLIN, 0};
      const auto pause = status ? milliseconds(0) : std::min(deadline.left(), milliseconds(10));
      while (poll(&news, 1, static_cast<int>(pause.count())) > 0 && news.revents != 0) {
        char buffer[4096];
        const ssize_t count = read(messages.value(), buffer, sizeof buffer);
        if (count <= 0) {
          messages.reset();
          break;
        }
        text.append(buffer, static_cast<size_t>(count));
        news.fd = messages.value();
      }
      if (!messages && !status) poll(nullptr, 0, static_cast<int>(pause.count()));
      if (status || deadline.left().count() == 0) return status.has_value();
    }
  }
};

Running start_program(const std::vector<std::string>& argv) {
  auto pipe = make_pipe();
  Running running;
  running.pid = spawn({.argv = argv,
                       .in = kNullStream,
                       .out = kNullStream,
                       .err = pipe.write_end.value(),
                       .new_session = true,
                       .blocked_signals = BlockedSignals::kNone,
                       .before_exec = [] { [[maybe_unused]] const int result = chdir("/"); }});
  if (running.pid < 0) throw system_error(errno, fmt::format("starting {}", argv.front()));
  running.messages = std::move(pipe.read_end);
  return running;
}

/// Runs fusermount3. Returns what it says against it; nullopt: it is unmounted.
std::optional<std::string> fusermount(const char* option, const std::string& point, milliseconds limit) {
  const auto program = find_tool("fusermount3", Environment::of_process());
  if (!program) {
    throw Error(ErrorCode::kFailedPrecondition, "there is no program fusermount3 here; install the package fuse3");
  }
  auto running = start_program({program->string(), option, "--", point});
  if (!running.wait(limit)) {
    kill(-running.pid, SIGKILL);
    return "fusermount3 got no answer";
  }
  if (*running.status == 0) return std::nullopt;
  return running.text.empty() ? fmt::format("fusermount3 ended with status {}", *running.status)
                              : last_lines(running.text);
}

bool is_mounted(int64_t id) {
  const auto mounts = read_mounts();
  return std::ranges::any_of(mounts, [&](const Mount& mount) { return mount.id == id; });
}

/// The mount that is on `point` now, if it is of sshfs and not one of those before.
std::optional<RemoteMount> new_mount_on(const std::string& point, const std::vector<RemoteMount>& before) {
  for (auto& mount : find_remote_mounts(geteuid())) {
    const bool is_old =
        std::ranges::any_of(before, [&](const RemoteMount& other) { return other.mount.id == mount.mount.id; });
    if (!is_old && mount.mount.point == point) return mount;
  }
  return std::nullopt;
}

/// Removes the folder of a mount that has ended, and the `num_made - 1` folders above it, as far as they exist and are
/// empty. A program that still writes there would otherwise fill this machine's disk.
void remove_point(const std::string& point, int64_t num_made, const Deadline& deadline) {
  const auto work = [&] {
    fs::path folder = point;
    for (int64_t i = 0; i < num_made && (rmdir(folder.c_str()) == 0 || errno == ENOENT); ++i)
      folder = folder.parent_path();
    return std::string();
  };
  in_children({work}, deadline);
}

std::string users_text(const std::vector<MountUser>& users) {
  std::vector<std::string> words;
  for (const auto& user : users) words.push_back(fmt::format("{} (pid {})", printable(user.name), user.pid));
  constexpr size_t kMost = 5;
  if (words.size() > kMost) {
    const auto rest = words.size() - kMost;
    words.resize(kMost);
    words.push_back(fmt::format("{} more", rest));
  }
  return fmt::format("{}", fmt::join(words, ", "));
}

/// Ends sshfs, its ssh and its fusermount3 when a mount did not come about.
void abandon(Running& running, const std::string& point) {
  const Deadline deadline(Seconds(5));
  if (!running.status) kill(-running.pid, SIGKILL);
  running.wait(deadline.left());
  // fusermount3 may be in mount(2), which SIGKILL does not interrupt. Its process group exists until it has ended.
  while (kill(-running.pid, 0) == 0 && deadline.left().count() > 0) poll(nullptr, 0, 5);
  for (const auto& mount : find_remote_mounts(geteuid())) {
    if (mount.mount.point == point && !mount.process) fusermount("-uz", point, milliseconds(5000));
  }
}

Error refusal(const Running& running, const MountRequest& request) {
  const auto said = last_lines(running.text);
  return {ErrorCode::kUnavailable, "{} could not be mounted: {}; {}", printable(source_of(request.remote)),
          said.empty() ? "sshfs ended without a message" : said, printable(advice_after(request.remote, said))};
}

/// sshfs mounts first, and then connects.
MountResult wait_for_answer(Running& running, const std::string& point, const std::vector<RemoteMount>& before,
                            const MountRequest& request, const Deadline& deadline, const HeldSignals& signals) {
  while (deadline.left().count() > 0) {
    signals.check();
    if (running.wait(milliseconds(10))) throw refusal(running, request);
    const auto mount = new_mount_on(point, before);
    if (!mount) continue;
    const auto condition = check({*mount}, deadline, [&] { signals.check(); }).front();
    signals.check();  // the last chance to undo it
    if (condition.state == MountState::kAlive) return {*mount, condition};
    if (running.wait(milliseconds(condition.state == MountState::kDead ? 500 : 0))) throw refusal(running, request);
    break;
  }
  const auto said = last_lines(running.text);
  throw Error(ErrorCode::kTimeout, "{} gave no answer in {}{}{}; is the host up? --timeout waits longer",
              printable(source_of(request.remote)), seconds_text(deadline.limit()), said.empty() ? "" : ": ", said);
}

}  // namespace

std::string_view name(MountState state) {
  switch (state) {
    case MountState::kAlive: return "alive";
    case MountState::kStalled: return "stalled";
    case MountState::kDead: return "dead";
  }
  return "?";
}

std::vector<RemoteMount> find_remote_mounts(const std::optional<int64_t>& uid) {
  std::vector<RemoteMount> found;
  for (auto& mount : read_mounts()) {
    if (mount.type != "fuse.sshfs") continue;
    const auto owner = parse_int(option_value(mount.super_options, "user_id").value_or(""));
    if (!owner || (uid && *owner != *uid)) continue;
    RemoteMount remote{.uid = *owner};
    try {
      remote.remote = parse_remote(mount.source);
    } catch (const Error&) {  // named differently by -o fsname
      remote.remote.host = mount.source;
    }
    remote.mount = std::move(mount);
    found.push_back(std::move(remote));
  }
  find_processes(found);
  return found;
}

std::vector<Condition> check(const std::vector<RemoteMount>& mounts, const Deadline& deadline,
                             const std::function<void()>& on_wait) {
  std::vector<Work> works;
  for (const auto& mount : mounts) works.push_back([&mount] { return ask(mount); });
  const auto outcomes = in_children(works, deadline, on_wait);
  std::vector<Condition> conditions;
  for (const auto& outcome : outcomes) {
    Condition condition;
    if (!outcome) {
      condition.reason = fmt::format("no answer in {}", seconds_text(deadline.limit()));
    } else if (outcome->text && outcome->text->starts_with('+')) {
      condition = {MountState::kAlive, "", Seconds(std::stod(outcome->text->substr(1)))};
    } else {
      condition.state = MountState::kDead;
      condition.reason = outcome->text ? outcome->text->substr(1) : outcome->message;
    }
    conditions.push_back(std::move(condition));
  }
  return conditions;
}

MountResult mount_remote(const MountRequest& request, const Environment& environment, const Deadline& deadline) {
  const auto wanted = request.point ? absolute(*request.point)
                                    : absolute(home_of(environment) + "/mnt/" + default_name(request.remote));
  SshfsRequest sshfs{request.remote, wanted, request.options, {}};
  if (request.config) sshfs.config = absolute(*request.config);
  if (const auto obstacle = obstacle_to(sshfs, fuse_facts(environment))) {
    throw Error(ErrorCode::kFailedPrecondition, "{}", *obstacle);
  }
  const auto before = find_remote_mounts(geteuid());
  if (auto there = find_by_point(before, wanted, deadline)) {
    const auto condition = check({*there}, deadline).front();
    const bool is_alive = condition.state == MountState::kAlive, is_same = there->remote == request.remote;
    const auto argv = there->process ? argv_of(there->process->pid) : std::vector<std::string>();
    const auto difference = is_same ? difference_to(sshfs, there->mount.options, argv) : std::nullopt;
    if (is_same && is_alive && !difference) return {*there, condition, false};
    const auto why = !is_alive    ? fmt::format(", and is {}", name(condition.state))
                     : difference ? fmt::format(", but {}", *difference)
                                  : "";
    throw Error(ErrorCode::kFailedPrecondition, "{} is mounted on {} already{}; end that first: `yoke unmount {}`",
                printable(is_same ? source_of(request.remote) : there->mount.source), printable(wanted), printable(why),
                printable(wanted));
  }
  const HeldSignals signals;  // they act when nothing is left of a mount that did not come about
  const auto check_signals = [&] { signals.check(); };
  int64_t num_made = 0;
  std::optional<Running> running;
  try {
    const auto what = fmt::format("{}:", wanted);
    num_made = parse_int(in_child([&] { return count_missing(wanted); }, deadline, what, check_signals)).value_or(0);
    sshfs.point = in_child([&] { return prepare_point(wanted); }, deadline, what, check_signals);
    auto argv = sshfs_command(sshfs);
    argv.front() = find_tool("sshfs", environment).value().string();
    running = start_program(argv);
    return wait_for_answer(*running, sshfs.point, before, request, deadline, signals);
  } catch (const Error&) {
    if (running) abandon(*running, sshfs.point);
    remove_point(wanted, num_made, Deadline(Seconds(5)));
    throw;
  }
}

UnmountResult unmount_remote(const RemoteMount& mount, bool force, const Deadline& deadline) {
  const auto& point = mount.mount.point;
  // Half of the time is for the question, so that enough is left to act on the answer.
  const auto condition = check({mount}, Deadline(deadline.left() / 2)).front();
  UnmountResult result{.state = condition.state};
  const bool is_alive = condition.state == MountState::kAlive;
  const auto users = users_of(point);
  if (!users.empty() && !force) {
    throw Error(ErrorCode::kFailedPrecondition, "{} is in use by {}{}; end them, or use --force{}", printable(point),
                users_text(users), is_alive ? "" : fmt::format(", and is {}", name(condition.state)),
                is_alive ? ", after which they keep it until they end" : ", after which they lose what is not written");
  }
  auto complaint = users.empty() ? fusermount("-u", point, std::min(deadline.left() / 2, milliseconds(2000)))
                                 : std::optional<std::string>("processes use it");
  if (complaint && !is_alive && mount.process) {
    kill_sshfs(*mount.process);  // whoever waits for the server gets an error now
    complaint = users.empty() ? fusermount("-u", point, deadline.left() / 2) : complaint;
  }
  if (complaint && (force || !is_alive)) {
    complaint = fusermount("-uz", point, deadline.left());
    result.is_detached = is_alive && !users.empty();
  }
  if (complaint && is_mounted(mount.mount.id)) {
    throw Error(deadline.left().count() == 0 ? ErrorCode::kTimeout : ErrorCode::kFailedPrecondition,
                "{} is still mounted: {}{}", printable(point), *complaint, force ? "" : "; --force detaches it");
  }
  if (mount.process && !result.is_detached) {
    try {
      const device::ProcessHandle sshfs(mount.process->pid, mount.process->start_ticks);
      if (!sshfs.wait_for_end(std::min(deadline.left(), milliseconds(2000)))) kill_sshfs(*mount.process);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kNotFound) throw;
    }
  }
  const auto home = Environment::of_process().value_or("HOME", "");
  if (!home.empty() && is_within(point, home + "/mnt")) remove_point(point, 1, Deadline(Seconds(1)));
  return result;
}

std::optional<RemoteMount> find_by_point(const std::vector<RemoteMount>& mounts, const std::string& word,
                                         const Deadline& deadline) {
  auto path = absolute(word);
  // The last one is on top of the others.
  const auto find = [&]() -> std::optional<RemoteMount> {
    for (auto mount = mounts.rbegin(); mount != mounts.rend(); ++mount) {
      if (mount->mount.point == path) return *mount;
    }
    return std::nullopt;
  };
  if (auto found = find()) return found;
  const fs::path given = path;
  // Only the folder above is looked at: the last part may be the mount itself.
  const auto resolve = [&] {
    std::error_code error;
    const auto parent = fs::canonical(given.parent_path(), error);
    return error ? std::string() : (parent / given.filename()).string();
  };
  path = in_child(resolve, deadline, fmt::format("looking at {}:", given.parent_path().string()));
  return find();
}

}  // namespace yoke::storage
