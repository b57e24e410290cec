// yoke/launch/job/log_reader.h -- reads what the ranks of a running job print: from its launcher, and from log files.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "yoke/base/tell.h"
#include "yoke/launch/job/job_client.h"

namespace yoke::launch {

struct JobLogOptions {
  bool follow = false;                    ///< Go on until the job ends.
  std::optional<int64_t> rank = {};       ///< Of this rank alone.
  std::optional<int64_t> num_lines = {};  ///< The last lines alone, and of a stream in a file the last of it.
  /// Called for each line, without its line feed. The rank is null if it does not belong to the present attempt.
  std::function<void(const JobRank* rank, LineStream stream, std::string_view text)> on_line;
  Tell tell;                      ///< What is not shown, and why.
  std::function<bool()> on_turn;  ///< Called after lines. Returns whether anybody still reads them.
};

/// Reads the lines that there are, and with `follow` the new ones. Returns whether everything was read.
/// Errors  those of JobConnection.
bool read_logs(Job job, JobConnection connection, const JobLogOptions& options);

/// Sentences about the streams that nobody can show, because neither the launcher nor a file keeps them.
std::vector<std::string> missing_logs(const Job& job, const JobLogOptions& options);

/// Null if the job has no such rank.
const JobRank* find_rank(const Job& job, int64_t rank);

}  // namespace yoke::launch
