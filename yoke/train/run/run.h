// yoke/train/run/run.h -- the parts around the loop that every training program needs: a folder for the run, resuming,
// checkpoints, the stop signal, progress, metrics. The program keeps its own loop.
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
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "yoke/train/checkpoint/checkpoint_folder.h"
#include "yoke/train/checkpoint/text_value.h"
#include "yoke/train/checkpoint/train_state.h"
#include "yoke/train/data/collate.h"
#include "yoke/train/data/loader_position.h"

namespace yoke::dist {
class World;
}

namespace yoke::train {

class LoaderBase;

namespace detail {

/// What a Run asks a loader. Of a loader that is no train::Loader, positions count batches.
struct RunLoader {
  int64_t num_batches = 0, samples_per_batch = 1, samples_per_epoch = 0;
  std::function<int64_t(const LoaderPosition&)> num_batches_from = {};
  std::function<void(const LoaderPosition&)> resume = {};
  std::function<LoaderPosition()> position = {};  ///< Null if the loader has none.
};

template <class Loader>
RunLoader run_loader(Loader& loader) {
  RunLoader result{.num_batches = loader.num_batches()};
  if constexpr (std::is_base_of_v<LoaderBase, Loader>) {
    result.samples_per_batch = loader.samples_per_batch();
    result.samples_per_epoch = loader.samples_per_epoch();
    result.num_batches_from = [&loader](const LoaderPosition& position) { return loader.num_batches(position); };
    result.resume = [&loader](const LoaderPosition& position) { loader.resume(position); };
    result.position = [&loader] { return loader.position(); };
  } else {
    result.num_batches_from = [n = result.num_batches](const LoaderPosition& position) { return n - position.sample; };
    result.resume = [&loader](const LoaderPosition& position) { loader.resume({position.epoch, position.sample}); };
  }
  return result;
}

}  // namespace detail

/// In the metadata of a run's checkpoints: RunOptions::name, by which `yoke infer` finds the recipe.
inline constexpr const char* kRunName = "run.name";

struct RunOptions {
  std::string name = "run";  ///< Used in the default folder, in messages, and in checkpoints (kRunName).
  std::filesystem::path
      folder;  ///< Default: runs/NAME; if that exists, with the next free number. To resume: the last such folder.
  bool resume = false;  ///< Continue from the newest checkpoint, or from the beginning if there is none yet. Then the
                        ///< same command line serves the first start and each restart.
  int64_t save_every = 0;  ///< Steps between checkpoints; 0: none within an epoch. Each epoch's end also saves one.
  CheckpointFolderOptions checkpoints = {};  ///< How many to keep; `metric` names a figure that the program logs.
  /// Rank 0 also writes events for TensorBoard, in the run's folder `events`: every value that it logs, by its name,
  /// and at the end of an epoch the means over all ranks, as `epoch/NAME`. Step numbers are those of the training.
  bool tensorboard = false;
  /// If true, rank 0 also appends the values that it logs to `steps.jsonl` in the run's folder, one line per step.
  /// `yoke curve` draws these values. A resumed run first removes the lines of the steps that it repeats.
  bool log_steps = false;
  /// If true, ranks note where the time of their steps goes and what memory they have, and rank 0 says at the end of an
  /// epoch, and within a long one, what slows them down (a rank for which the others wait, and in which phase; waits
  /// for data; or the exchange of gradients) and whose memory grows with each step. An epoch of fewer than 65 steps has
  /// no such line. `profile.json` in the run's folder has the times of the newest epoch, for `yoke profile --compare`.
  bool watch = true;
  /// About how often ranks tell each other what they have noted, within an epoch.
  std::chrono::milliseconds watch_every = std::chrono::seconds(10);
  /// Steps between comparisons of what ranks hold alike, see ReplicaCheck; 0: never. It is also compared before a
  /// checkpoint is saved, so that none has the state of ranks that differ.
  int64_t check_replicas_every = 200;
};

/// One run of a training. Its folder holds its checkpoints and `metrics.csv`.
///
/// Epochs   an epoch ends when the outer loop's body ends. Then the metrics of all ranks are read and shown as a row of
///          a table and of metrics.csv, and a checkpoint is saved while the training continues. The checkpoint of the
///          last epoch is on disk before its row is shown.
/// Left     a `break` out of the loop over epochs ends the run: an epoch of which all batches were read has its row and
///          checkpoint, and within an epoch a checkpoint of the last step is saved. All ranks leave it alike. An error
///          of this is thrown by the next call of finish(), save() or epochs(), and otherwise ~Run warns of it. If an
///          exception ends the loop, nothing is saved. So a program that ends because the state is bad, as after a loss
///          that is not finite, throws an error or calls leave_without_saving() before the `break`: otherwise the bad
///          state becomes the newest checkpoint, which takes the place of a good one.
/// Step     a `break` and save() take the step of their batch for made if an optimizer of yoke::train has stepped on
///          any rank. Other optimizers are not seen. Of several, as in a GAN, the first one's step counts: save before
///          it or after the last one's, or a resumed run lacks the steps in between.
/// Stopped  after a signal (WorldOptions::stop_signals, such as Ctrl-C), all ranks leave the inner loop after the same
///          step, and a checkpoint is on disk. Gradients are no part of it: while an optimizer in state() accumulates
///          them over several batches, the stop and RunOptions::save_every wait for its step.
/// Resumed  continues steps, epochs, partly read epochs and partly computed means; an optimizer in state() has the
///          rates that step(lr) or set_lr() gave it last. With the same number of ranks and deterministic kernels, the
///          results have the same bits. With another number of ranks or batch size, an epoch goes on behind the sample
///          that was read last, so each of its samples is read once, and it has another number of steps: rates are
///          then a function of schedule_step().
/// Ranks    all ranks construct it, run the loops, and call state(), fix(), log() and finish(). Only rank 0 prints and
///          writes.
/// Lost     under `yoke run --replace` (World::is_replaceable), a rank that a signal kills is started again alone. The
///          others keep their processes: the body of the loop ends with values that have no meaning, all ranks return
///          to the last state that they have kept in memory, that before the last step as a rule, and the body runs
///          again from there, with the batches from there. It must therefore depend on nothing that it changes outside
///          of state(). If the loss is noticed after the last batch of an epoch, the body of the outer loop begins
///          again too, with the batches that are left. The results have the same bits as without the loss, as of a
///          resumed run.
/// Errors   on all ranks: kFailedPrecondition: the folder holds another run's checkpoints and `resume` is false;
///          kUnavailable: another process uses the folder. After the first epoch,
///          whose checkpoint is saved, kInvalidArgument: nobody has logged the figure by which keep_best compares
///          (names those that were logged).
class Run {
 public:
  Run(dist::World& world, const RunOptions& options);
  ~Run();

  /// Registers a value that must not change when a run is resumed. Checkpoints contain it, and a resumed run sets
  /// `value` to the value of the original run. `given` is true if the user set this value explicitly.
  /// Errors  kInvalidArgument: the user set a value, but the run was started with a different one.
  template <class Value>
  void fix(const std::string& name, Value& value, bool given = false) {
    read_text(name, fix_text(name, text_of(value), given), value);
  }

  /// The state that checkpoints save and restore. Add the model, the optimizer and so on to it before calling epochs().
  TrainState& state();

  /// The checkpoint from which the run was resumed; nullopt for a new run.
  const std::optional<StoredCheckpoint>& resumed() const;

  template <class Loader>
  class Epoch;
  template <class Loader>
  class Epochs;

  /// Collective. Loads the state if the run is resumed, and returns the remaining epochs of `count`. The loader is a
  /// Loader, or has the same num_batches(), epoch() and resume().
  /// Errors  those of TrainState::load; kInvalidArgument: an epoch has other samples than in the original run (or, of
  ///         a stream and of a loader that is no train::Loader, another number of batches); or what is left of the
  ///         interrupted epoch has more batches on one rank than on another.
  template <class Loader>
  Epochs<Loader> epochs(Loader& loader, int64_t count) {
    begin(count, detail::run_loader(loader));
    return Epochs<Loader>(*this, loader);
  }

  int64_t step() const;  ///< Number of finished steps in all epochs; within a step, its number from 0.
  /// The step of a schedule that has num_batches() steps in each epoch. This is step(), unless the run was resumed with
  /// another number of ranks or batch size: then it is the step with as many steps left in the epoch.
  int64_t schedule_step() const;
  /// In the body of the loop over epochs, the number of the epoch from 0, also after its last batch, as in its
  /// evaluation. Outside of it, the number of complete epochs.
  int64_t epoch() const;
  bool stopped() const;  ///< True after a stop signal; a checkpoint is on disk.

  /// Adds a value to this rank's mean without waiting for the device. The mean over all ranks is computed at the end of
  /// the epoch. `weight` is the number of samples over which the value is a mean.
  /// Ranks   all ranks log the same names, equally often in an epoch; a rank without a value logs one of weight 0. So
  ///         `if (world.rank() == 0) run.log(...)` is a mistake. It is found after the first step and at the end of
  ///         each epoch.
  /// Errors  kInvalidArgument: `name` cannot be a column of metrics.csv. Later, on all ranks: they differ.
  void log(const std::string& name, const at::Tensor& value, int64_t weight = 1);
  /// Like log() of a tensor, for a number, such as the result of an evaluation.
  void log(const std::string& name, double value);

  /// Collective. Saves a checkpoint now. Within the loop over batches, it is one of step() before the optimizer's step,
  /// and of step() + 1 after it, so a resumed run repeats no step (see "Step" above). After the last batch, the
  /// checkpoint is of the next epoch's beginning: a run that is resumed from it leaves out what the program does at the
  /// end of the epoch, and its row.
  void save();

  /// For a `break` that follows: this epoch has no row, and no checkpoint is saved. The older ones stay. If one rank
  /// calls it, it holds for all, but all ranks leave the loop.
  void leave_without_saving();

  /// Collective. Waits until the last checkpoint is on disk, and throws what went wrong after a `break`. Needed only
  /// if something in the program depends on that: the end of the loop does the rest. Errors: those of saving.
  void finish();

  /// Prints a line on rank 0.
  void say(const std::string& text) const;

  const std::filesystem::path& folder() const;
  const CheckpointFolder& checkpoints() const;

 private:
  std::string fix_text(const std::string& name, const std::string& text, bool given);
  void begin(int64_t count, detail::RunLoader loader);
  void begin_resumed(int64_t count);    ///< Collective.
  bool begin_epoch();                   ///< Returns false after the last epoch.
  int64_t resume_loader();              ///< Returns the number of the epoch whose loop over batches begins.
  void begin_batches();                 ///< The loader has begun the epoch.
  void take_batch();                    ///< The loader has given the next batch, or its end.
  int64_t first_batch() const;          ///< Batches in the epoch before the present one, as schedule_step() counts.
  bool take_return();                   ///< Whether the run has returned to an earlier step since the last call.
  void end_batch(int64_t num_samples);  ///< Collective.
  void end_batch_firmly(int64_t num_samples);
  void end_epoch();  ///< Collective.
  void end_epoch_firmly();
  void leave() noexcept;                          ///< Collective. The loop over epochs was left.
  void firmly(const std::function<void()>& act);  ///< Collective. If a rank is lost, returns to an earlier step.
  void rejoin();                                  ///< Collective. Ranks were lost; returns to an earlier step.
  int64_t num_steps_made() const;  ///< Collective. step(), and the step whose body the loop is in, if it was made.

  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// The remaining batches of an epoch.
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
  void begin_batches();
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

  Iterator(Run& run, Epoch& epoch) : run_(&run), epoch_(&epoch) { begin(); }
  decltype(auto) operator*() const { return **inner_; }
  Iterator& operator++() {
    run_->end_batch(num_samples(**inner_));
    if (run_->stopped()) return *this;
    if (run_->take_return()) {
      inner_.reset();
      begin();
    } else {
      ++*inner_;
      run_->take_batch();
    }
    return *this;
  }
  void operator++(int) { ++*this; }
  bool operator==(std::default_sentinel_t) const { return run_->stopped() || *inner_ == epoch_->batches_->end(); }

 private:
  void begin() {
    epoch_->begin_batches();
    inner_.emplace(epoch_->batches_->begin());
    run_->take_batch();
  }

  Run* run_;
  Epoch* epoch_;
  std::optional<Inner> inner_;
};

template <class Loader>
typename Run::Epoch<Loader>::Iterator Run::Epoch<Loader>::begin() {
  return Iterator(*run_, *this);
}

template <class Loader>
void Run::Epoch<Loader>::begin_batches() {
  batches_.emplace(loader_->epoch(run_->resume_loader()));
  run_->begin_batches();
}

template <class Loader>
class Run::Epochs {
 public:
  Epochs(const Epochs&) = delete;
  Epochs& operator=(const Epochs&) = delete;
  ~Epochs() { run_->leave(); }

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
