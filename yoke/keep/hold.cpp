#include "yoke/keep/hold.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>

#include "yoke/base/moment.h"
#include "yoke/base/process.h"
#include "yoke/base/text.h"
#include "yoke/device/process/info.h"
#include "yoke/keep/detail/keeping.h"
#include "yoke/program/child_error.h"

namespace yoke::keep {
namespace {

struct Adopted {
  UniqueFd fd;  ///< A pidfd.
  int64_t start_ticks = 0;
};

Adopted open_adopted(int64_t pid) {
  Adopted result;
  if (pid > 0) result.fd = open_process(pid);
  const auto info = device::describe_process(pid);  // after the pidfd, so that both are about one process
  if (!result.fd || !info.start_ticks) throw Error(ErrorCode::kNotFound, "there is no process {}", pid);
  if (geteuid() != 0 && info.uid != int64_t{geteuid()}) {
    throw Error(ErrorCode::kPermissionDenied, "process {} belongs to {}; only that user or root may claim for it", pid,
                printable(info.user));
  }
  result.start_ticks = *info.start_ticks;
  return result;
}

/// "process 4121 holds device 2 until 14:05; `yoke release 4121` gives it back"
std::string holding_text(const Acquired& acquired, const std::optional<int64_t>& adopted_pid) {
  const auto& ids = acquired.allocation.ids;
  const auto& until = acquired.allocation.claim->note().until;
  const auto end = until         ? " until " + moment_text(*until)
                   : adopted_pid ? fmt::format(" until process {} ends", *adopted_pid)
                                 : "";
  return fmt::format("process {0} holds {1} {2}{3}; `yoke release {0}` gives {4} back", getpid(),
                     ids.size() == 1 ? "device" : "devices", fmt::join(ids, ", "), end,
                     ids.size() == 1 ? "it" : "them");
}

/// How the holder and the process that started it talk. The holder reports what it holds, after '+', or an error, after
/// '-'; the other one answers with a byte when the user has been told.
struct HolderTalk {
  UniqueFd report, answer;

  void send(const std::string& text) {
    write_all(report.value(), text, "the report of the holder");
    report.reset();
  }
};

/// Runs in the holder. Returns its exit status.
int keep_devices(AcquireOptions options, const ClaimSite& site, const Environment& environment, const Tell& tell,
                 const std::function<std::string(const Acquired&)>& report, HolderTalk& talk) {
  const auto& adopted_pid = options.adopted_pid;
  Adopted adopted;
  if (adopted_pid) adopted = open_adopted(*adopted_pid);
  auto& note = options.request.note;
  note.is_holder = true;
  options.device.in_child = [&talk] { talk = {}; };  // or the end of the report would not be seen
  if (note.purpose.empty() && adopted_pid) {
    const auto command = device::describe_process(*adopted_pid).command;
    const auto words = words_of(command);
    note.purpose = purpose_of({words.begin(), words.end()});
  }
  auto acquired = acquire(options, site, environment, tell);
  if (acquired.status != 0) return acquired.status;
  if (adopted_pid) {
    auto& claim = *acquired.allocation.claim;
    auto changed = claim.note();
    changed.program_pid = *adopted_pid;
    changed.program_start_ticks = adopted.start_ticks;
    claim.write(changed);
  }
  program::SignalMessages messages;
  const auto text = report(acquired);
  tell(Told::kNews, holding_text(acquired, adopted_pid));
  leave_terminal("yoke-claim");
  talk.send("+" + text);
  // Nobody learns what a claim is for whose words were lost, so it ends.
  char byte = 0;
  while (read(talk.answer.value(), &byte, 1) < 0 && errno == EINTR) {
  }
  talk.answer.reset();
  if (byte != 0) hold(acquired, messages, adopted.fd, tell);
  return 0;
}

}  // namespace

void hold(Acquired& acquired, program::SignalMessages& messages, const UniqueFd& process, const Tell& tell) {
  acquired.end_wait();
  auto& claim = *acquired.allocation.claim;
  UseWatch watch(claim, acquired.watch);
  ClaimEnd end(claim);
  const auto& purpose = claim.note().purpose;
  const auto which = purpose.empty() ? "" : fmt::format(" ({})", printable(purpose));
  auto why = "the time of the claim is over" + which;
  while (!end.is_over()) {
    // poll() ignores a descriptor of -1
    pollfd news[] = {{messages.fd(), POLLIN, 0}, {process.value(), POLLIN, 0}, {watch.fd(), POLLIN, 0}};
    if (poll(news, 3, sooner(end.milliseconds_left(), watch.milliseconds_left())) == 0) claim.beat();
    if (news[1].revents != 0) {
      why.clear();
      break;
    }
    const auto step = watch.look();
    if (step == claim::IdleStep::kWarn) tell_everywhere(tell, watch.warning());
    if (step == claim::IdleStep::kEnd) {
      why = watch.farewell();
      break;
    }
    bool is_ended = false;
    while (const auto message = messages.next()) {
      if (message->signal == SIGCHLD) continue;
      is_ended = true;
      // Whoever releases a claim of his own knows that.
      const auto whom = by_whom(*message);
      why = whom.empty() ? "" : "the claim was released" + whom + which;
    }
    if (is_ended) break;
  }
  claim.release();
  if (why.empty()) return;
  const auto* const it = claim.note().keys.size() == 1 ? "it" : "them";
  tell_everywhere(
      tell, fmt::format("{}; others may have {} now, although programs of a shell that was given {} still see {}", why,
                        watch.devices(), it, it));
}

void Holder::confirm() {
  constexpr char kTold = 1;
  [[maybe_unused]] const auto count = write(answer.value(), &kTold, 1);
  answer.reset();
}

Holder start_holder(AcquireOptions options, const ClaimSite& site, const Environment& environment, const Tell& tell,
                    const std::function<std::string(const Acquired&)>& report) {
  auto from_holder = make_pipe(), to_holder = make_pipe();
  const pid_t parent = getpid();
  const pid_t holder = fork();
  if (holder < 0) throw system_error(errno, "starting the process that holds the devices");
  if (holder == 0) {
    from_holder.read_end.reset();
    to_holder.write_end.reset();
    setsid();
    prctl(PR_SET_PDEATHSIG, SIGTERM);  // until it holds the devices
    if (getppid() != parent) _exit(1);
    HolderTalk talk{std::move(from_holder.write_end), std::move(to_holder.read_end)};
    int status = 0;
    const auto error = program::error_in_child(
        [&] { status = keep_devices(std::move(options), site, environment, tell, report, talk); });
    if (!error.empty() && talk.report) program::error_in_child([&] { talk.send("-" + error); });
    _exit(status);
  }
  from_holder.write_end.reset();
  to_holder.read_end.reset();
  program::SignalMessages messages;  // an interrupted command has a status for the shell, too
  std::string text;
  for (bool is_open = true; is_open;) {
    pollfd news[] = {{from_holder.read_end.value(), POLLIN, 0}, {messages.fd(), POLLIN, 0}};
    poll(news, 2, -1);
    while (const auto message = messages.next()) {
      if (message->signal != SIGCHLD) return {.status = 128 + message->signal};  // the holder ends with this process
    }
    if (news[0].revents == 0) continue;
    char buffer[4096];
    const auto count = read(from_holder.read_end.value(), buffer, sizeof buffer);
    if (count > 0) text.append(buffer, static_cast<size_t>(count));
    is_open = count > 0 || (count < 0 && errno == EINTR);
  }
  while (const auto message = messages.next()) {
    if (message->signal != SIGCHLD) return {.status = 128 + message->signal};
  }
  if (text.starts_with('+')) return {.report = text.substr(1), .answer = std::move(to_holder.write_end)};
  const int status = wait_for_child(holder);
  if (text.starts_with('-')) program::throw_child_error(std::string_view(text).substr(1));
  return {.status = status};
}

std::string purpose_of(const std::vector<std::string>& command) {
  const auto end = std::ranges::find_if(command, [](const auto& word) { return word.starts_with('-'); });
  return fmt::format("{}", fmt::join(command.begin(), end, " "));
}

}  // namespace yoke::keep
