// yoke/train/watch/profiler.h -- records some steps of a training as a trace for `yoke profile`, Perfetto and Chrome.
//
//     train::Profiler profiler(world, {.folder = "traces"});   // steps 7 to 12 of the training
//     for (...) { ...; optimizer.step(); }                     // yoke profile --trace traces
//
// To profile a program that is already running, no Profiler is needed: `yoke profile --pid PID`, docs/profile.md.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>

namespace yoke::dist {
class Group;
}

namespace yoke::train {

struct ProfilerOptions {
  std::filesystem::path folder;  ///< Created if it does not exist.
  int64_t wait = 5;    ///< Steps that are not recorded, because the first steps allocate memory and choose kernels.
  int64_t warmup = 2;  ///< Steps in which the profiler is prepared.
  int64_t active = 6;  ///< Steps that are recorded.
  bool light = false;  ///< Records steps, loading, optimizers and collectives, but no operations.
  /// If true, the program calls step() at the end of each step. Otherwise, steps end when yoke's optimizers call
  /// end_step() (step_end.h).
  bool steps_by_hand = false;
};

/// Writes `rank<N>.json` into the folder after the last recorded step. The file appears when it is complete.
///
/// Content  the steps as `ProfilerStep#N`, counted from 0 by this Profiler; the rank and the number of ranks; and the
///          "host" facts of docs/profile.md. Operations of the program's other threads are not recorded, except those
///          of autograd and of collectives.
/// Ranks    not collective, but all ranks make one at the same step, so that the steps of their traces match.
/// Threads  from the warm-up on, one thread ends all steps.
/// Cost     none before and after the recorded steps; docs/profile.md has measurements of the steps that are recorded.
///          Writing takes about 1 s for 300,000 operations.
/// Errors   kInvalidArgument: no step is recorded, or a number is negative. The code that errno gives: the
///          folder cannot be written. Later errors come from step() if steps are ended by hand, and are a warning on
///          standard error otherwise.
class Profiler {
 public:
  Profiler(const dist::Group& world, const ProfilerOptions& options);
  Profiler(int64_t rank, int64_t world_size, const ProfilerOptions& options);
  Profiler(Profiler&&) noexcept;
  Profiler& operator=(Profiler&&) = delete;
  ~Profiler();  ///< Discards an incomplete trace, with a warning on standard error.

  /// Ends a step. Errors  kFailedPrecondition: ProfilerOptions::steps_by_hand is false; the program uses libtorch's
  /// profiler itself; another thread ended the previous step. As errno says: the trace cannot be written.
  void step();

  bool is_done() const;                        ///< True if the trace has been written.
  const std::filesystem::path& trace() const;  ///< Path of the trace.

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace yoke::train
