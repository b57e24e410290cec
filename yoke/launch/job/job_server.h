// yoke/launch/job/job_server.h -- answers questions about this job, from its own user and from root on this machine.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <list>
#include <optional>
#include <string>
#include <string_view>

#include "yoke/base/file.h"
#include "yoke/launch/job/job.h"
#include "yoke/launch/job/rank_policy.h"
#include "yoke/launch/loop/event_loop.h"
#include "yoke/launch/output/recent_lines.h"

namespace yoke::launch {

/// Listens on an abstract socket, "\0yoke/UID/PID/RANDOM" (docs/jobs.md). The socket is not a file, so none is left
/// after SIGKILL. Any user may connect, but only the owner and root get answers (the kernel reports the user).
///
/// Never blocks the loop. Clients use bounded resources: there are few at a time (a new client displaces the one that
/// was silent longest), questions are short, and an answer has at most 64 KiB, except for the job's description.
class JobServer : public EventSource {
 public:
  /// `job` and `lines` must outlive the server. handle() calls `stop`. A machine without abstract sockets has no
  /// server.
  JobServer(const Job& job, const RecentLines& lines, std::function<void(StopHow how)> stop);

  void add_to(WaitSet& waits) override;
  /// Answers clients, and sends new lines to clients that follow them.
  void handle(LoopTime now) override;

  /// Called when the job is over. Sends the last lines to clients that follow them, within `limit`.
  void finish(std::chrono::milliseconds limit);

  /// Closes the sockets. A forked child calls this, because it must not answer.
  void close();

 private:
  struct Client {
    UniqueFd fd;
    bool is_ready = false;
    std::string question, answer;
    size_t num_sent = 0;
    std::optional<RecentLines::Cursor> cursor;  ///< Set while the client reads lines.
    /// The number of lines that were overwritten before the client began to read; sent with the first line.
    uint64_t num_gone = 0;
    bool is_following = false;
    uint64_t last_seen = 0;
  };
  void accept_some();
  bool serve(Client& client);
  bool read_question(Client& client);
  void obey(Client& client, std::string_view question);
  void add_lines(Client& client) const;
  bool send_answer(Client& client);

  const Job& job_;
  const RecentLines& lines_;
  std::function<void(StopHow how)> stop_;
  UniqueFd listener_;
  std::list<Client> clients_;
  bool is_called_ = false;  ///< Whether a client waits to be accepted.
  bool is_finishing_ = false;
  uint64_t num_acts_ = 0;  ///< The number of requests and answers so far. Shows which client was silent longest.
};

}  // namespace yoke::launch
