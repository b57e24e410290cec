// yoke/launch/job/job_client.h -- the jobs that run on this machine, and questions to them.
//
// Anybody may listen under any name. A socket is believed only if the kernel says that who listens is the process, and
// belongs to the user, that its name tells.
#pragma once

#include <chrono>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "yoke/base/file.h"
#include "yoke/launch/job/job.h"
#include "yoke/launch/output/recent_lines.h"

namespace yoke::launch {

/// A launcher's socket, as its name tells.
struct JobAddress {
  std::string name;  ///< "yoke/UID/PID/RANDOM"
  int64_t uid = 0;
  int64_t pid = 0;

  bool operator==(const JobAddress&) const = default;
};

/// Those in `text`, which is /proc/net/unix, of the user `uid`; of everybody for root (0). Pure.
std::vector<JobAddress> find_job_addresses(std::string_view text, int64_t uid);

using JobTime = std::chrono::steady_clock::time_point;

/// A conversation with a launcher. A launcher that stops answering (Ctrl-Z) is waited for no longer than `until`.
class JobConnection {
 public:
  /// nullopt: nobody is there, or not who the name tells.
  static std::optional<JobConnection> open(const JobAddress& address, JobTime until);

  /// Errors of all: kDataLoss when what comes is no answer of a launcher.
  void ask_job();
  void ask_stop(bool now);
  /// `last`: only so many lines of those that are there, of `rank` if that is given.
  void ask_logs(bool follow, std::optional<int64_t> last = {}, std::optional<int64_t> rank = {});
  std::optional<Job> read_job(JobTime until);  ///< nullopt: not until then, or it has hung up.
  /// nullopt: not until then, or there are no more (is_over()), or it has hung up.
  std::optional<RecentLines::Line> read_line(JobTime until);

  const JobAddress& address() const { return address_; }
  bool is_closed() const { return !fd_; }  ///< It has hung up: mostly because it has ended.
  bool is_over() const { return is_over_; }
  int fd() const { return fd_.value(); }
  void close();

  /// REQUIRES: who listens at the other end of `fd` has been looked at.
  JobConnection(JobAddress address, UniqueFd fd) : address_(std::move(address)), fd_(std::move(fd)) {}

 private:
  void ask(const nlohmann::ordered_json& question);
  bool receive(JobTime until);
  std::optional<std::string_view> first_line() const;
  std::optional<RecentLines::Line> take_line();

  JobAddress address_;
  UniqueFd fd_;
  std::string received_;
  size_t num_taken_ = 0;  ///< Of its bytes.
  bool is_over_ = false;
};

struct FoundJob {
  JobAddress address;
  std::optional<Job> job;  ///< nullopt: its launcher is there and does not answer.
};

/// This user's jobs, all users' for root, in order of their PIDs.
/// Errors  as errno says for /proc/net/unix.
std::vector<FoundJob> find_jobs(std::chrono::milliseconds patience = std::chrono::seconds(1));

/// The one that `name` means: a launcher's PID, else a run id; empty: the only one.
/// Errors  kNotFound, kInvalidArgument when it could be several; the message lists them.
const FoundJob& choose_job(const std::vector<FoundJob>& jobs, const std::string& name);

}  // namespace yoke::launch
