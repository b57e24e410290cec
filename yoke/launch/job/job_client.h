// yoke/launch/job/job_client.h -- finds the jobs that run on this machine, and asks them questions.
#pragma once

#include <chrono>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/rights.h"
#include "yoke/base/user_socket.h"
#include "yoke/launch/job/job.h"
#include "yoke/launch/output/recent_lines.h"

namespace yoke::launch {

/// The address of a launcher's socket.
using JobAddress = UserSocket;

using JobTime = std::chrono::steady_clock::time_point;

/// A connection to a launcher, which answers questions over it. A launcher may not answer, for example because Ctrl-Z
/// stopped it, so no function waits longer than `until`.
class JobConnection {
 public:
  /// Returns nullopt if no process listens, or if the listener's PID or user is not the one in the name.
  static std::optional<JobConnection> open(const JobAddress& address, JobTime until);

  /// Errors of all functions: kDataLoss if the answer is not a launcher's.
  void ask_job();
  void ask_stop(bool now);
  /// Asks for lines that the launcher keeps: all or the `last` ones, of all ranks or of `rank`.
  void ask_logs(bool follow, std::optional<int64_t> last = {}, std::optional<int64_t> rank = {});
  /// Returns nullopt if no answer came in time, or the launcher has closed the connection. Errors  also kDataLoss if
  /// the answer is longer than 8 MiB, which describe a job of ten thousand ranks, or nested deeply.
  std::optional<Job> read_job(JobTime until);
  /// Returns nullopt if no line came in time, no line follows (is_over()), or the launcher has closed the connection.
  std::optional<RecentLines::Line> read_line(JobTime until);

  const JobAddress& address() const { return address_; }
  const Rights& rights() const { return rights_; }  ///< Of the launcher, as the kernel says.
  bool is_closed() const { return !fd_; }           ///< By the launcher, usually because the launcher has ended.
  bool is_over() const { return is_over_; }
  size_t num_received() const { return received_.size(); }  ///< The bytes that are not parsed.
  int fd() const { return fd_.value(); }
  void close();

  /// REQUIRES: the caller has checked the credentials of the peer at the other end of `fd`.
  JobConnection(JobAddress address, UniqueFd fd);

 private:
  void ask(const nlohmann::ordered_json& question);
  bool receive(JobTime until);
  std::optional<std::string_view> first_line() const;
  std::optional<RecentLines::Line> take_line();

  JobAddress address_;
  UniqueFd fd_;
  Rights rights_;
  std::string received_;
  size_t num_taken_ = 0;  ///< The number of bytes of received_ that were parsed.
  bool is_over_ = false;
};

struct FoundJob {
  JobAddress address;
  std::optional<Job> job;  ///< nullopt if the launcher exists but does not answer, or not as launchers do.
};

/// Finds the jobs of this user, or of all users for root, sorted by PID. Any user can have many sockets that answer
/// without an end, so the bytes of each user are limited, users with few sockets come first, and the time is for all.
/// Errors  as errno says if /proc/net/unix cannot be read.
std::vector<FoundJob> find_jobs(std::chrono::milliseconds patience = std::chrono::seconds(1));

/// Returns the job that `name` means: a launcher's PID, a run id, or empty for the only job.
/// Errors  kNotFound; kInvalidArgument if several jobs match; the message lists them.
const FoundJob& choose_job(const std::vector<FoundJob>& jobs, const std::string& name);

/// A job and a connection to its launcher.
struct OpenJob {
  Job job;
  JobConnection connection;
};

/// Opens the job that choose_job() finds for `name`.
/// Errors  those of choose_job(); kNotFound: it has just ended; kTimeout: the launcher does not answer.
OpenJob open_job(const std::string& name);

/// Returns the error for a launcher that does not answer, with the reason if /proc shows one.
Error does_not_answer(int64_t launcher);

}  // namespace yoke::launch
