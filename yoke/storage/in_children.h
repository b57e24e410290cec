// yoke/storage/in_children.h -- work that may hang, such as looking at a dead file system, under a deadline.
#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "yoke/base/error.h"

namespace yoke::storage {

using Seconds = std::chrono::duration<double>;

/// A point in time by which a command must have ended. Its steps share what is left.
class Deadline {
 public:
  explicit Deadline(Seconds limit)
      : limit_(limit), end_(std::chrono::steady_clock::now() + std::chrono::duration_cast<Clock::duration>(limit)) {}

  Seconds limit() const { return limit_; }
  std::chrono::milliseconds left() const {  ///< Zero if it has passed.
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end_ - Clock::now());
    return std::max(left, std::chrono::milliseconds(0));
  }

 private:
  using Clock = std::chrono::steady_clock;
  Seconds limit_;
  Clock::time_point end_;
};

/// What a piece of work has returned, or the Error that it threw.
struct Outcome {
  std::optional<std::string> text;
  ErrorCode code = ErrorCode::kInternal;
  std::string message;

  /// Returns the text. Errors  what the work threw.
  const std::string& value() const;
};

using Work = std::function<std::string()>;

/// Runs each piece of work in a child process of its own, all at the same time. A child has no standard streams. A
/// child that has not ended at the deadline gets SIGKILL, and nobody waits for it, because the kernel may hold it for
/// as long as its file system does not answer. `on_wait` is called ten times a second, and may throw. Returns  for each
/// piece its outcome; nullopt: it did not end in time. Errors  kUnavailable: no process can be started. REQUIRES: this
/// process has one thread.
std::vector<std::optional<Outcome>> in_children(const std::vector<Work>& works, const Deadline& deadline,
                                                const std::function<void()>& on_wait = {});

/// The same for one piece of work, whose text is returned. `what` names it in the message: "looking at /data".
/// Errors  what the work threw; kTimeout: it did not end in time.
std::string in_child(const Work& work, const Deadline& deadline, const std::string& what,
                     const std::function<void()>& on_wait = {});

/// "10 s", "0.5 s"
std::string seconds_text(Seconds seconds);

}  // namespace yoke::storage
