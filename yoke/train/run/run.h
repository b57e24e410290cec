// yoke/train/run/run.h -- what every training program repeats around its loop: a folder of the run's own, resuming,
// checkpoints, the stop signal, progress, metrics. The loop itself stays the program's.
//
//     train::Run run(world, {.name = "spirals", .resume = true});
//     ... model, net, optimizer, loader ...
//     run.state().add("model", net).add("optimizer", optimizer).add_generators();
//     for (auto& epoch : run.epochs(loader, 10)) {
//       for (auto& batch : epoch) {
//         ...
//         optimizer.step(schedule(run.step()));
//         run.log("loss", loss, batch.target.size(0));
//       }
//       if (run.stopped()) break;
//       run.log("accuracy", evaluate(...));
//     }
//     run.finish();
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "yoke/train/checkpoint/checkpoint_folder.h"
#include "yoke/train/checkpoint/text_value.h"
#include "yoke/train/checkpoint/train_state.h"

namespace yoke::dist {
class World;
}

namespace yoke::train {

struct RunOptions {
  std::string name = "run";  ///< Of the default folder, and of messages.
  std::filesystem::path
      folder;              ///< Default: runs/NAME, or that with the next free number; to resume, the last of them.
  bool resume = false;     ///< Go on from the newest checkpoint; from the beginning when there is none yet.
  int64_t save_every = 0;  ///< Steps between checkpoints; 0: at the end of each epoch only, as in any case.
  CheckpointFolderOptions checkpoints = {};  ///< How many to keep; `metric` is the name of one that is logged.
  /// Rank 0 also writes events for TensorBoard, in the run's folder `events`: every value that it logs, by its name,
  /// and at the end of an epoch the means over all ranks, as `epoch/NAME`. The steps are those of the training.
  bool tensorboard = false;
};

/// One run of a training, in a folder that holds its checkpoints and `metrics.csv`.
///
/// Epochs   an epoch ends with the body of the outer loop: then the metrics of all ranks are read, shown as a row of a
///          table and of metrics.csv, and a checkpoint is saved while the training goes on.
/// Stopped  told to stop by a signal (WorldOptions::stop_signals), all ranks leave the inner loop after the same step,
///          and a checkpoint is on disk.
/// Resumed  steps, epochs, half-read epochs and half-taken means go on where they were: on the same number of ranks,
///          with deterministic kernels, to the same bits.
/// Ranks    construction, state(), the loops, fix() and finish() are for all ranks alike. Rank 0 prints and writes.
/// Errors   on all ranks: kFailedPrecondition when the folder holds another run's checkpoints and `resume` is false;
///          kNotFound when there is nothing to resume; kUnavailable when another process runs in it.
class Run {
 public:
  Run(dist::World& world, const RunOptions& options);
  ~Run();

  /// What must not change between a run and its resumption, and so is in its checkpoints: a resumed run takes the value
  /// that it was started with. `given` says that the user asked for this very value.
  /// Errors  kInvalidArgument when a value was given, and the run was started with another.
  template <class Value>
  void fix(const std::string& name, Value& value, bool given = false) {
    read_text(name, fix_text(name, text_of(value), given), value);
  }

  /// For the parts of the training; before epochs().
  TrainState& state();

  /// Where the run was resumed from; nullopt when it begins.
  const std::optional<StoredCheckpoint>& resumed() const;

  template <class Loader>
  class Epoch;
  template <class Loader>
  class Epochs;

  /// Collective. Loads the state when the run is resumed, and gives the epochs that are left of `count`. The loader is
  /// a Loader, or has its num_batches(), epoch() and resume(). Errors  those of TrainState::load; kInvalidArgument when
  /// the loader has another number of batches in an epoch than
  ///         when the run was started.
  template <class Loader>
  Epochs<Loader> epochs(Loader& loader, int64_t count) {
    int64_t samples_per_batch = 0;
    if constexpr (requires { loader.position().samples_per_batch; }) {
      samples_per_batch = loader.position().samples_per_batch;
    }
    begin(count, loader.num_batches(), samples_per_batch);
    return Epochs<Loader>(*this, loader);
  }

  int64_t step() const;   ///< How many steps have been done, of all epochs; within a step its number from 0.
  int64_t epoch() const;  ///< How many epochs are complete; within one its number from 0.
  bool stopped() const;   ///< Told so by a signal; a checkpoint is on disk.

  /// The mean of this rank's values is taken without waiting for the device; the mean over all ranks at the epoch's
  /// end. `weight` is how many samples the value is the mean of. The same names on all ranks, in the same order.
  void log(const std::string& name, const at::Tensor& value, int64_t weight = 1);
  /// The same of a number: an evaluation's figure, say.
  void log(const std::string& name, double value);

  /// Collective. Saves a checkpoint now, between two steps.
  void save();

  /// Collective. To be called where the outer loop was left by `break`: ends the epoch when that is complete, and waits
  /// until the last checkpoint is on disk. The loop's own end does so. Errors: those of saving.
  void finish();

  /// Prints a line on rank 0.
  void say(const std::string& text) const;

  const std::filesystem::path& folder() const;
  const CheckpointFolder& checkpoints() const;

 private:
  std::string fix_text(const std::string& name, const std::string& text, bool given);
  void begin(int64_t count, int64_t steps_per_epoch, int64_t samples_per_batch);
  void require_same(const char* name, int64_t value);  ///< As when the run was started.
  bool begin_epoch();                                  ///< False when there is none left.
  int64_t first_batch() const;                         ///< Of the epoch that begins.
  void end_step(int64_t num_samples);                  ///< Collective.
  void end_epoch();                                    ///< Collective.

  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// The batches that are left of an epoch.
template <class Loader>
class Run::Epoch {
 public:
  class Iterator;
  Iterator begin();
  std::default_sentinel_t end() const { return {}; }

 private:
  friend class Run::Epochs<Loader>;
  Epoch(Run& run, Loader& loader) : run_(&run), loader_(&loader) {}

  using Batches = decltype(std::declval<Loader&>().epoch(0));
  Run* run_;
  Loader* loader_;
  std::optional<Batches> batches_;
};

template <class Loader>
class Run::Epoch<Loader>::Iterator {
 public:
  using Inner = decltype(std::declval<Batches&>().begin());
  using difference_type = std::ptrdiff_t;
  using value_type = std::remove_reference_t<decltype(*std::declval<Inner&>())>;

  Iterator(Run& run, Batches& batches) : run_(&run), batches_(&batches), inner_(batches.begin()) {}
  decltype(auto) operator*() const { return *inner_; }
  Iterator& operator++() {
    run_->end_step((*inner_).target.size(0));
    if (!run_->stopped()) ++inner_;
    return *this;
  }
  void operator++(int) { ++*this; }
  bool operator==(std::default_sentinel_t) const { return run_->stopped() || inner_ == batches_->end(); }

 private:
  Run* run_;
  Batches* batches_;
  Inner inner_;
};

template <class Loader>
typename Run::Epoch<Loader>::Iterator Run::Epoch<Loader>::begin() {
  if (run_->first_batch() > 0) loader_->resume({run_->epoch(), run_->first_batch()});
  batches_.emplace(loader_->epoch(run_->epoch()));
  return Iterator(*run_, *batches_);
}

template <class Loader>
class Run::Epochs {
 public:
  class Iterator {
   public:
    using difference_type = std::ptrdiff_t;
    using value_type = Epoch<Loader>;
    explicit Iterator(Epochs* epochs) : epochs_(epochs), is_there_(epochs->run_->begin_epoch()) {}
    Epoch<Loader>& operator*() const { return epochs_->epoch_; }
    Iterator& operator++() {
      epochs_->run_->end_epoch();
      is_there_ = epochs_->run_->begin_epoch();
      return *this;
    }
    void operator++(int) { ++*this; }
    bool operator==(std::default_sentinel_t) const { return !is_there_; }

   private:
    Epochs* epochs_;
    bool is_there_;
  };

  Iterator begin() { return Iterator(this); }
  std::default_sentinel_t end() const { return {}; }

 private:
  friend class Run;
  Epochs(Run& run, Loader& loader) : run_(&run), epoch_(run, loader) {}

  Run* run_;
  Epoch<Loader> epoch_;
};

}  // namespace yoke::train
