// yoke/train/watch/detail/profile_window.h -- records some steps of this process with Kineto, libtorch's profiler.
//
// A process has one Kineto profiler, with many conditions. The profiler must be prepared before it is enabled; only the
// thread that enabled it may disable it; a trace can be saved once; and if a trace cannot be written, Kineto only
// prints a line to standard error. This class is the only user of Kineto in yoke and meets all of these conditions.
#pragma once

#include <ATen/record_function.h>

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <thread>

#include "yoke/contract/profile_protocol.h"

namespace yoke::train::detail {

struct ProfileWindowOptions {
  ProfileRequest request;
  int64_t rank = 0;
  int64_t world_size = 1;
};

class ProfileWindow {
 public:
  /// Errors  kInvalidArgument: a count is negative, or no step is to be recorded. As errno says: no file can be created
  ///         in the folder.
  explicit ProfileWindow(const ProfileWindowOptions& options);
  ProfileWindow(const ProfileWindow&) = delete;
  ProfileWindow& operator=(const ProfileWindow&) = delete;
  ~ProfileWindow();

  /// Called when step number `step` begins, which ends the previous step. Saves the trace after the last step.
  /// Errors  kFailedPrecondition: Kineto is in use already, or a different thread began the recording. As errno says:
  ///         the trace cannot be written. After an error the window is over.
  void begin_step(int64_t step);

  bool is_over() const { return is_over_; }  ///< True after the last step, and after an error.
  /// Path of the trace. The file exists if has_trace().
  const std::filesystem::path& trace() const { return trace_; }
  bool has_trace() const { return has_trace_; }

  /// Stops Kineto and drops the recording. Returns false if only another thread can stop Kineto; Kineto continues to
  /// record until that thread calls this.
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
  int64_t stalled_us_ = 0;  ///< Total memory stall time of the system when the recording began, in microseconds.
  std::thread::id thread_;
  pid_t process_ = 0;
  std::optional<at::RecordFunction> step_;
  std::shared_ptr<std::atomic<ProfileWindow*>>
      self_;  ///< Tells the recording thread, when it exits, whether the window still exists.
};

}  // namespace yoke::train::detail
