// yoke/train/watch/profiler.h -- records some steps of a training as a trace for `yoke profile`, Perfetto and Chrome.
//
//     train::Profiler profiler(world, {.folder = "traces"});   // steps 7 to 12 of the training
//     for (...) { ...; optimizer.step(); }                     // yoke profile --trace traces
//
// A program that runs needs no Profiler: `yoke profile --pid PID`, docs/profile.md.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>

namespace yoke::dist {
class Group;
}

namespace yoke::train {

struct ProfilerOptions {
  std::filesystem::path folder;  ///< Is made if it does not exist.
  int64_t wait = 5;              ///< Steps that are left out: the first ones allocate memory and choose kernels.
  int64_t warmup = 2;            ///< Steps in which the profiler is prepared.
  int64_t active = 6;            ///< Steps that are recorded.
  bool light = false;            ///< Records steps, loading, optimizers and collectives, but no operations.
  /// The program calls step() at the end of each step. Otherwise, steps end as end_step() says (step_end.h), which the
  /// optimizers of yoke call.
  bool steps_by_hand = false;
};

/// Writes `rank<N>.json` into the folder after the last step that it records; the file appears when it is complete.
///
/// Content  the steps as `ProfilerStep#N`, counted from 0 by this Profiler; the rank and the number of ranks; what
///          docs/profile.md calls "host". Operations of other threads of the program are not in it, except those of
///          autograd and of collectives.
/// Ranks    not collective, but all ranks make one at the same step, so that the steps of their traces match.
/// Threads  all steps from the warm-up on end on one thread.
/// Cost     nothing before and after the window; docs/profile.md has measurements of the steps in it. Writing takes
///          about 1 s for 300,000 operations.
/// Errors   kInvalidArgument: no step is recorded, or a number is negative. As errno says: the folder cannot be
///          written. Later errors come from step() if steps are ended by hand, and are a warning on standard error
///          otherwise.
class Profiler {
 public:
  Profiler(const dist::Group& world, const ProfilerOptions& options);
  Profiler(int64_t rank, int64_t world_size, const ProfilerOptions& options);
  Profiler(Profiler&&) noexcept;
  Profiler& operator=(Profiler&&) = delete;
  ~Profiler();  ///< A trace that is not complete is discarded, with a warning on standard error.

  /// Ends a step. Errors  kFailedPrecondition: without ProfilerOptions::steps_by_hand; the program uses libtorch's
  /// profiler itself; another thread ended the step before. As errno says: the trace cannot be written.
  void step();

  bool is_done() const;                        ///< The trace is written.
  const std::filesystem::path& trace() const;  ///< Its path.

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace yoke::train
