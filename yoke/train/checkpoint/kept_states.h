// yoke/train/checkpoint/kept_states.h -- the last states of a training, in memory, from which all ranks go on after
// some were lost.
//
//     train::KeptStates kept(world, state);
//     if (world.needs_recovery()) {            // this process takes the place of a lost rank
//       world.recover();
//       step = kept.restore().step;
//     }
//     while (step < num_steps) {
//       try {
//         kept.keep(step);
//         ... a step ...
//         ++step;
//       } catch (const dist::RanksLost&) {
//         world.recover();
//         step = kept.restore().step;
//       }
//     }
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace yoke::dist {
class World;
}

namespace yoke::train {

class TrainState;

/// Keeps copies of the two last states: two, because a rank may be a step ahead when another one is lost, so that all
/// ranks have one of its two in common. What DistributedDataParallel and ZeRO-1 keep equal is in the memory of each
/// rank. All else is in two files that the launcher names and that outlive the rank: generators, the sums of meters,
/// buffers, the rank's part of what ZeRO-1 and FSDP divide, and tensors of which nobody knows whether the ranks have
/// them alike.
///
/// If spare hosts wait for lost ones (`yoke run --replace --spares`), each rank also sends what is in its files to a
/// rank of the next host, which keeps the copies of two states in memory. That happens while the ranks compute.
/// Constructor and keep() are collective then.
///
/// Job      nothing is kept, and keep() returns at once, unless lost ranks are replaced (World::is_replaceable).
/// Memory   two copies of the tensors in the state. The kernel has the files in memory, too, and also writes them to
/// the
///          disk now and then if $TMPDIR is on one.
/// Time     a copy of these tensors for each keep().
/// Lifetime `world` and `state` outlive it. The parts are added to the state before the first keep().
class KeptStates {
 public:
  /// Collective, if spare hosts wait. Errors  as errno says: the files cannot be read.
  KeptStates(dist::World& world, TrainState& state);
  /// From here on, the launcher does not replace this rank.
  ~KeptStates();
  KeptStates(const KeptStates&) = delete;
  KeptStates& operator=(const KeptStates&) = delete;

  /// All ranks keep the states of the same steps; collective only if spare hosts wait. `step`: the number of steps
  /// made; a state of this step that is the newest one already is left as it is. `note` comes back with it. Errors  as
  /// errno says: a file cannot be written, because the file system is full. RanksLost, if spare hosts wait.
  /// Nothing is kept while an optimizer of yoke::train in the state has gradients that no step has used, as between the
  /// batches of one step: a loss then leads back to the first of them.
  void keep(int64_t step, const std::string& note = {});
  /// Whether spare hosts wait.
  bool has_copies() const;

  struct Restored {
    int64_t step = 0;
    std::string note;
  };
  /// Collective, after World::recover(). Loads the newest state that all ranks have, and returns its step. Gradients of
  /// modules become undefined.
  /// Errors  RanksLost: a rank was lost meanwhile; recover and restore again. kUnavailable: there is no state that all
  ///         ranks have, or another host for them, because none was kept before a rank was lost, or too many ranks or
  ///         hosts were lost at once.
  Restored restore();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace yoke::train
