// yoke/launch/job/job_server.h -- answers questions about this job, from its own user and from root on this machine.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "yoke/base/file.h"
#include "yoke/launch/job/job.h"
#include "yoke/launch/job/rank_policy.h"
#include "yoke/launch/output/recent_lines.h"

namespace yoke::launch {

/// Listens on an abstract socket, "\0yoke/UID/PID/RANDOM" (docs/jobs.md). It is not a file, so SIGKILL leaves nothing
/// behind. Everybody may connect, the kernel says who did, and only the owner and root are answered.
///
/// It never blocks the loop. The resources of clients are bounded: there are few at a time (the one that was silent
/// longest makes room), questions are short, and an answer is 64 KiB beside the job's description.
class JobServer : public EventSource {
 public:
  /// `job` and `lines` outlive it; `stop` is called from handle(). A machine without such sockets has no server.
  JobServer(const Job& job, const RecentLines& lines, std::function<void(StopHow how)> stop);

  void add_to(WaitSet& waits) override;
  /// Also gives new lines to those who follow.
  void handle(LoopTime now) override;

  /// The job is over: those who follow its lines get the last ones, within `limit`.
  void finish(std::chrono::milliseconds limit);

  /// For a forked child that must not answer.
  void close();

 private:
  struct Client {
    UniqueFd fd;
    bool is_ready = false;
    std::string question, answer;
    size_t num_sent = 0;
    std::optional<RecentLines::Cursor> cursor;  ///< Set while the client reads lines.
    uint64_t num_gone = 0;                      ///< Lines that are gone; told with the first line.
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
  bool is_called_ = false;  ///< Somebody connects.
  bool is_finishing_ = false;
  uint64_t num_acts_ = 0;  ///< Counts what clients did.
};

}  // namespace yoke::launch
