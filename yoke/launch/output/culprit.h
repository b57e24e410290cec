// yoke/launch/output/culprit.h -- decides which rank has made an attempt fail: the earliest cause, which need not be
// the rank that ended first. Pure.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "yoke/contract/error_file.h"

namespace yoke::launch {

/// What a rank that had not ended was doing when the first rank failed.
struct RankState {
  char state = 'R';                    ///< As in ps(1).
  std::chrono::milliseconds lasts{0};  ///< For how long it had been stopped, or had waited in the kernel.
};

/// What is known about the failures in one attempt. All maps have the rank as the key.
struct FailureFacts {
  int64_t first_exited = 0;  ///< The rank that failed first, as far as the launcher saw.
  /// When the launcher saw the first failure.
  std::optional<std::chrono::system_clock::time_point> first_failure_at = {};
  std::map<int64_t, ErrorReport> reports;     ///< Only of ranks that wrote an error file.
  std::map<int64_t, std::string> logs;        ///< The file with its standard error, if it has one.
  std::map<int64_t, int> wait_statuses;       ///< Only of ranks that ended.
  std::map<int64_t, std::string> last_lines;  ///< What a rank without a report printed last.
  std::map<int64_t, RankState> states;
  std::map<int64_t, std::chrono::milliseconds> left;  ///< How long before the failure a rank ended with status 0.
  /// The ranks that ended after the first failure by a SIGKILL that the launcher had not sent, and why the kernel sent
  /// it, as far as known. A rank with much memory takes seconds to end, and others that lose it end before.
  std::map<int64_t, std::string> killed = {};
  int64_t num_running = 0;  ///< How many ranks have not ended, so that more will be known.
};

/// Returns the rank that failed first: the one that ended first, unless the error file of another has an earlier time.
/// Times are compared in whole seconds, as error files have them. The other ranks usually fail because of this rank,
/// but may end before it. A rank that was killed has no error file, and those that lost it have. So a report of a lost
/// connection or of a timeout is the cause only of the rank that ended first, and if no rank has written an error of
/// its own by the second after it. Of a rank without a report, the exception that it printed last counts. What a rank
/// reports that was stopped at the first failure is no cause: it was continued to be ended.
int64_t root_cause(const FailureFacts& facts);

struct Culprit {
  std::vector<int64_t> ranks;  ///< Mostly one.
  std::string what;            ///< What they did, to follow their names; empty: they ended first, as the launcher saw.
  bool was_killed = false;     ///< It is one of FailureFacts::killed.
};

/// Returns root_cause(), unless it failed because of another rank: one that is stopped, waits in the kernel, has ended
/// too early, has crashed, or that the report of the failure names. If others have the same error of their own, returns
/// all of these.
Culprit find_culprit(const FailureFacts& facts);

/// Returns the rank whose report says most about the failure: root_cause(), or, if that repeats what it knows of
/// another rank, that one, if it has a report.
int64_t rank_to_show(const FailureFacts& facts);

}  // namespace yoke::launch
