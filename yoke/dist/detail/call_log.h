// yoke/dist/detail/call_log.h -- what the last collectives of a group were, for messages about ranks that wait in
// different ones.
#pragma once

#include <c10/core/ScalarType.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "yoke/dist/arrivals.h"

namespace yoke::dist {

/// Keeps the last collectives that this rank has entered in a group. The text is made only when another rank's calls
/// are compared with it, so a collective pays for a lock that nobody else wants and a few assignments.
///
/// Collectives that libtorch starts itself, as the buckets of DistributedDataParallel, are not added. They are known by
/// the activity in which they happen.
///
/// Threads  any.
class CallLog {
 public:
  /// `number` is the group's sequence number after the collective was started. `num_elements` is negative if it may
  /// differ between ranks.
  void add(uint64_t number, const char* name, int64_t num_elements = -1, at::ScalarType dtype = at::kFloat);

  /// Until end(), collectives have the name `activity`. Returns false, and does nothing, within another activity.
  /// `activity` lives until the process ends. `now` is the group's sequence number.
  bool begin(const char* activity, uint64_t now);
  void end(uint64_t now);

  /// For a group that is formed again. An activity that an error has left open, as in a backward, is over.
  void forget();

  /// The last calls that are known, by number. REQUIRES: `now` is a sequence number that the group has had.
  std::vector<Call> last(uint64_t now) const;

 private:
  struct Entry {
    uint64_t number = 0;  ///< Collectives are counted from 1; 0: empty.
    const char* name = nullptr;
    int64_t num_elements = -1;
    at::ScalarType dtype = at::kFloat;
  };
  void push(Entry entry);

  mutable std::mutex mutex_;
  std::array<Entry, 8> entries_;  ///< A ring; `next_` is the oldest.
  size_t next_ = 0;
  const char* activity_ = nullptr;
  uint64_t activity_begin_ = 0;  ///< The sequence number before the activity.
};

}  // namespace yoke::dist
