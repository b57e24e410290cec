// yoke/launch/job/job_server.h -- answers questions about this job: of its own user and of root, on this machine.
#pragma once

#include <poll.h>
#include <sys/types.h>

#include <chrono>
#include <functional>
#include <list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "yoke/base/file.h"
#include "yoke/launch/job/group.h"
#include "yoke/launch/job/job.h"
#include "yoke/launch/output/recent_lines.h"

namespace yoke::launch {

/// Listens on an abstract socket, "\0yoke/UID/PID/RANDOM" (docs/jobs.md): no file, so nothing is left behind by
/// SIGKILL. Everybody may connect to it and the kernel says who did; others than owner and root are hung up on.
///
/// Owned by the supervisor's loop, which it never blocks: it polls what add_polls() asks for and hands the answers to
/// handle(). What a client may use is bounded: few at a time (the one that was silent longest makes room), short
/// questions, 64 KiB of answer beside the job's description.
class JobServer {
 public:
  /// `job` and `lines` outlive it; `stop` is called from handle(). A machine without such sockets has no server.
  JobServer(const Job& job, const RecentLines& lines, std::function<void(StopHow how)> stop);

  void add_polls(std::vector<pollfd>& polls) const;

  /// Also gives new lines to those who follow. REQUIRES: the entries that add_polls() appended, from `polls[first]` on.
  void handle(const std::vector<pollfd>& polls, size_t first);

  /// The job is over: those who follow its lines get the last ones, within `limit`.
  void finish(std::chrono::milliseconds limit);

  /// In a forked child that is not to answer.
  void close();

 private:
  struct Client {
    UniqueFd fd;
    std::string question, answer;
    size_t num_sent = 0;
    std::optional<RecentLines::Cursor> cursor;  ///< Of one who reads lines.
    uint64_t num_gone = 0;                      ///< To be told with the first line.
    bool is_following = false;
    uint64_t last_seen = 0;
  };
  void accept_some();
  bool serve(Client& client, bool can_read);
  bool read_question(Client& client);
  void obey(Client& client, std::string_view question);
  void add_lines(Client& client) const;
  bool send_answer(Client& client);

  const Job& job_;
  const RecentLines& lines_;
  std::function<void(StopHow how)> stop_;
  UniqueFd listener_;
  std::list<Client> clients_;
  uint64_t now_ = 0;  ///< Counts what clients did.
};

}  // namespace yoke::launch
