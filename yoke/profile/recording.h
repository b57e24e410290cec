// yoke/profile/recording.h -- decides which ranks record which steps, and when the recording is complete. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "yoke/contract/profile_protocol.h"

namespace yoke::profile {

struct RecordingOptions {
  std::string folder;  ///< The folder to which ranks write.
  int64_t wait = 5, warmup = 2, active = 6;
  ProfileDetail detail = ProfileDetail::kOperations;
  /// The number of running programs that are asked to record. After all of them have said hello, they get the same
  /// steps. 0 if a program is being started; its first rank says how many ranks there are.
  size_t num_asked = 0;
};

/// The ranks that record, identified by the number of their connection.
class Recording {
 public:
  explicit Recording(const RecordingOptions& options) : options_(options) {}

  /// What to send, or to do, after a hello.
  struct Answer {
    int64_t connection = 0;
    std::optional<ProfileRequest> request;  ///< nullopt: close the connection.
  };

  /// A rank of a restarted job replaces all ranks of earlier attempts. If a rank's program has ended without a trace,
  /// the next connection with the same rank number replaces it. Any other connection with an existing rank number is
  /// refused.
  std::vector<Answer> on_hello(int64_t connection, const ProfileHello& hello);
  void on_news(int64_t connection, const ProfileNews& news);
  void on_closed(int64_t connection);
  void fail(const std::string& reason);

  bool has_rank() const { return !ranks_.empty(); }
  /// Whether all ranks have written their traces.
  bool is_complete() const;
  /// The traces that have been written, in the order of ranks.
  std::vector<std::string> traces() const;
  /// Why there will be no report: the first rank that failed, and its reason. If running programs were asked
  /// (num_asked), a rank that ended without a trace counts as failed too.
  const std::optional<std::string>& failure() const { return failure_; }
  /// Returns what has happened until now, as part of a sentence: "rank 1 has ended 7 of 13 steps".
  std::string progress() const;

 private:
  struct Rank {
    ProfileHello hello;
    bool is_closed = false;
    std::optional<ProfileRequest> request;
    std::optional<std::string> trace;
  };

  ProfileRequest request_after(int64_t num_steps) const;
  std::vector<Answer> answer_all();

  const RecordingOptions options_;
  std::map<int64_t, Rank> ranks_;  ///< By connection.
  std::optional<std::string> failure_;
};

}  // namespace yoke::profile
