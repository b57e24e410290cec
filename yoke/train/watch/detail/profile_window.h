// yoke/train/watch/detail/profile_window.h -- records some steps of this process with Kineto, libtorch's profiler.
//
// Kineto has one profiler in a process and many conditions: it must be prepared before it is enabled, only the thread
// that enabled it may disable it, a trace can be saved once, and a trace that cannot be written is a line on standard
// error. This class is the only user of Kineto in yoke and meets all of them.
#pragma once

#include <ATen/record_function.h>

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "yoke/base/profile_protocol.h"

namespace yoke::train::detail {

struct ProfileWindowOptions {
  ProfileRequest request;
  int64_t rank = 0;
  int64_t world_size = 1;
};

class ProfileWindow {
 public:
  /// Errors  kInvalidArgument: a count is negative or nothing is recorded. As errno says: no file can be made in the
  ///         folder.
  explicit ProfileWindow(const ProfileWindowOptions& options);
  ProfileWindow(const ProfileWindow&) = delete;
  ProfileWindow& operator=(const ProfileWindow&) = delete;
  ~ProfileWindow();

  /// Called when step number `step` begins, which ends the one before. Saves the trace after the last step.
  /// Errors  kFailedPrecondition: Kineto is in use already, or this is not the thread that began to record. As errno
  ///         says: the trace cannot be written. Then the window is over.
  void begin_step(int64_t step);

  bool is_over() const { return is_over_; }  ///< After the last step, or an error.
  /// The trace, which exists if has_trace().
  const std::filesystem::path& trace() const { return trace_; }
  bool has_trace() const { return has_trace_; }

  /// Stops Kineto and drops what it has recorded. Returns false if another thread has to do that: until then, Kineto
  /// goes on to record.
  bool discard();

 private:
  enum class Kineto { kIdle, kPrepared, kEnabled };

  void advance(int64_t step);
  void prepare();
  void start();
  void mark(int64_t step);
  void save();
  bool is_own_thread() const;
  void require_own_thread() const;

  ProfileWindowOptions options_;
  std::filesystem::path trace_;
  Kineto kineto_ = Kineto::kIdle;
  bool is_over_ = false, has_trace_ = false;
  int64_t num_recorded_ = 0;
  int64_t stalled_us_ = 0;  ///< The system's memory stalls when the recording began.
  std::thread::id thread_;
  pid_t process_ = 0;
  std::optional<at::RecordFunction> step_;
  std::shared_ptr<std::atomic<ProfileWindow*>> self_;  ///< For the end of the thread; null after this object's end.
};

}  // namespace yoke::train::detail
