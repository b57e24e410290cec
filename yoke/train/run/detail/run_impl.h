// yoke/train/run/detail/run_impl.h -- what a Run knows.
#pragma once

#include <cstdint>
#include <deque>
#include <exception>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "yoke/base/clock.h"
#include "yoke/dist/world.h"
#include "yoke/train/checkpoint/folder_lock.h"
#include "yoke/train/checkpoint/kept_states.h"
#include "yoke/train/detail/step_phases.h"
#include "yoke/train/run/detail/figures.h"
#include "yoke/train/run/detail/report.h"
#include "yoke/train/run/replica_check.h"
#include "yoke/train/run/run.h"
#include "yoke/train/watch/detail/memory_growth.h"
#include "yoke/train/watch/detail/slowdown.h"
#include "yoke/train/watch/detail/step_log.h"
#include "yoke/train/watch/tensorboard.h"

namespace yoke::train {

struct Run::Impl {
  const int num_exceptions = std::uncaught_exceptions();
  dist::World& world;
  RunOptions options;
  std::filesystem::path folder;
  std::optional<FolderLock> lock;  // only on rank 0
  CheckpointFolder checkpoints;
  std::optional<StoredCheckpoint> resumed;
  TrainState state;
  Figures figures;
  std::optional<ReplicaCheck> replica_check = {};
  std::optional<int64_t> last_compared = {};  // the step after which replicas were compared
  std::deque<std::string> fixed;              // the state keeps references to these

  detail::RunLoader loader;
  int64_t num_epochs = 0, steps_per_epoch = 0, step = 0;
  int64_t schedule_step = 0;                 // steps_per_epoch for each complete epoch, and the batches of this one
  int64_t epoch_number = 0;                  // of the loop over epochs, from 0; after its last batch, too
  bool has_empty_rest = false;               // the run was resumed in an epoch of which no batch is left
  LoaderPosition position;                   // of `step`
  LoaderPosition position_after;             // after the batch in use
  std::optional<LoaderPosition> resumed_at;  // until the loader knows it
  bool is_told = false, is_stopped = false, is_in_epoch = false, is_finishing = false;
  bool leaves_without_saving = false;
  bool has_said_not_finite = false, has_said_first_not_finite = false;
  bool is_save_due = false;           // by save_every, within a group of batches whose gradients are accumulated
  bool has_said_wait = false;         // that a stop waits for the end of such a group
  int64_t batches_without_step = 0;   // the last ones, in which no optimizer has stepped
  int64_t longest_group = 0;          // the most batches from one step of an optimizer to the next; 0: there was none
  bool has_checked_metric = false;    // keep_best compares checkpoints by a figure that is logged
  bool is_in_batches = false;         // between the begin and the end of an epoch's loop over batches
  int64_t num_ended_before = 0;       // of num_steps_ended(), when the body of that loop began
  std::optional<int64_t> last_saved;  // the step of the last checkpoint of this process
  std::exception_ptr left_error;      // what went wrong after a `break`; not reported yet
  bool was_left_by_exception = false;
  int64_t first_step = 0;                      // of this process
  int64_t epoch_begin = 0;                     // the epoch's first step
  int64_t num_samples = 0, epoch_samples = 0;  // both count only this rank's samples
  Clock::time_point epoch_start, last_step;
  std::optional<EpochTable> report;  // only on rank 0
  int64_t num_reported = 0;          // epochs in the report of this process
  std::optional<Progress> progress;
  std::optional<TensorBoardWriter> board;  // only on rank 0, and only if the options ask for it
  std::optional<detail::StepLog> steps;    // only on rank 0, and only if the options ask for it
  detail::PhaseClock phases;
  detail::PhaseWindows windows;              // of the epoch
  int64_t windows_begin = 0;                 // the first step in them
  std::optional<detail::Slowdown> slowdown;  // what was said last; only on rank 0
  int64_t next_look = 0;                     // the step after which ranks look at the times of all, within an epoch
  detail::MemorySamples memory, device_memory;
  std::optional<detail::MemoryGrowth> said_growth[2] = {};  // of hosts, of devices; only on rank 0
  bool was_first_epoch[2] = {};                             // when it was said
  bool has_warned_of_report = false;

  std::optional<KeptStates> kept;  // only if lost ranks are replaced
  bool has_returned = false;       // to an earlier step, and the loop does not know yet

  bool is_rank_0() const { return world.rank() == 0; }
  /// Epochs of which all batches were read; after the last batch of one, this one, too.
  int64_t num_complete() const { return steps_per_epoch == 0 ? 0 : schedule_step / steps_per_epoch; }
  /// On rank 0, begins or goes on with the files of the run, from the present step on. `num_complete`: epochs.
  void begin_output(int64_t num_complete);
  void watch_for_losses();  ///< If lost ranks are replaced.
  void keep();              ///< Keeps the state of `step`, if lost ranks are replaced.
  void take_kept();         ///< Collective. Returns to the newest state that all ranks have kept.
  int64_t largest(int64_t value) const;
  void save(int64_t of_step, const StringMap& metadata = {});
  void save_async(const StringMap& metadata = {});
  void compare_replicas(int64_t of_step);
  LoaderPosition position_of(int64_t of_step) const;
  void count_step();
  void note_group();  ///< A batch has ended.
  /// Collective. Whether a rank has gradients that no step has used yet, and a step is to be expected.
  bool is_within_group() const;
  StringMap metadata_of(int64_t of_step, StringMap metadata = {}) const;
  void report_left_error();
  void show_progress();
  void begin_watching();  ///< The loop over an epoch's batches begins.
  void sample_memory();
  /// Collective, if it is due. A step has ended. Returns what is to be said about the steps of the epoch.
  std::vector<std::string> watch_step();
  /// Collective. Looks at the times and the memory of all ranks. Returns what is news, on rank 0, which writes
  /// profile.json.
  std::vector<std::string> look();
  void write_report(const std::vector<std::vector<detail::PhaseTimes>>& ranks,
                    const std::optional<detail::Slowdown>& found);
  bool lacks_metric(const StringMap& of_epoch);
};

}  // namespace yoke::train
