#include "yoke/train/run/run.h"

#include <ATen/ops/full.h>
#include <ATen/ops/scalar_tensor.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "yoke/base/error.h"
#include "yoke/contract/progress.h"
#include "yoke/dist/activity.h"
#include "yoke/dist/odd_ranks.h"
#include "yoke/dist/on_all_ranks.h"
#include "yoke/dist/ranks_lost.h"
#include "yoke/train/run/detail/run_folder.h"
#include "yoke/train/run/detail/run_impl.h"
#include "yoke/train/run/detail/run_position.h"
#include "yoke/train/watch/step_end.h"

namespace yoke::train {
namespace {

/// Collective. Ranks with another number of batches would wait for each other.
void require_same_on_all_ranks(dist::World& world, int64_t num_batches, const char* what, const char* advice) {
  const auto counts = world.all_gather_text(std::to_string(num_batches));
  const auto other = std::ranges::find_if(counts, [&](const auto& text) { return text != counts.front(); });
  if (other == counts.end()) return;
  const auto message = fmt::format("{} has {} batches on rank 0 and {} on rank {}, which would wait for each other: {}",
                                   what, counts.front(), *other, other - counts.begin(), advice);
  dist::note_odd_ranks(message, counts, world.ranks(), "the number of batches");
  throw Error(ErrorCode::kInvalidArgument, "{}", message);
}

/// `first`: from differs_from_first(), "rank 2 has FOLDER".
std::string folder_of_others(const dist::World& world, const std::string& first) {
  const std::string_view mark = " has ";
  const auto found = first.find(mark);
  if (found != first.npos) return first.substr(found + mark.size());
  throw Error(ErrorCode::kUnavailable,
              "rank {}: a rank was lost before the ranks had agreed on the folder of the run, so it cannot be replaced",
              world.rank());
}

}  // namespace

Run::Run(dist::World& world, const RunOptions& options) {
  const dist::Activity activity(world, "the construction of a Run");
  const auto given = fmt::format(
      "name '{}', folder '{}', resume {}, save_every {}, tensorboard {}, log_steps {}, watch {}, watch_every {} "
      "ms, check_replicas_every {}",
      options.name, options.folder.string(), options.resume, options.save_every, options.tensorboard, options.log_steps,
      options.watch, options.watch_every.count(), options.check_replicas_every);
  const auto all = world.all_gather_text(given);
  for (const auto& other : all) {
    if (other == given) continue;
    const auto message =
        fmt::format("ranks differ in their RunOptions: {} on rank {}, and {} on another", given, world.rank(), other);
    dist::note_odd_ranks(message, all, world.ranks(), "the RunOptions");
    throw Error(ErrorCode::kInvalidArgument, "{}", message);
  }
  // Rank 0 chooses the run's folder. If this fails, all ranks end.
  std::string folder;
  std::optional<FolderLock> lock;
  dist::on_all_ranks(world, "the run was not begun", [&] {
    if (world.rank() != 0 || world.needs_recovery()) return;
    folder = choose_run_folder(options.name, options.folder, options.resume).string();
    lock.emplace(folder);
  });
  folder = world.all_gather_text(folder).front();
  const bool replaces = world.needs_recovery();  // this process takes the place of a lost one
  if (world.is_replaceable()) {
    const auto first = world.differs_from_first("run.folder", replaces ? "none yet" : folder);
    if (replaces) folder = folder_of_others(world, first.value_or(""));
    if (replaces && world.rank() == 0) lock.emplace(folder);
  }
  impl_.reset(new Impl{.world = world,
                       .options = options,
                       .folder = folder,
                       .lock = std::move(lock),
                       .checkpoints = CheckpointFolder(folder, options.checkpoints),
                       .state = TrainState(world),
                       .figures = Figures(world)});
  impl_->state.add("meters", impl_->figures);
  if (options.check_replicas_every > 0) impl_->replica_check.emplace(impl_->state, options.checkpoints.warn);
  if (!options.resume && !replaces && world.env().restart_count > 0) {
    say(
        fmt::format("restart {} of the job begins the training again, in {}: it would go on with RunOptions::resume "
                    "(--resume), which the first start may have too",
                    world.env().restart_count, folder));
  }
  if (!options.resume) return;
  impl_->resumed = replaces ? impl_->checkpoints.newest() : impl_->checkpoints.newest(world);
  if (!impl_->resumed && !replaces) say(fmt::format("no checkpoint in {} yet: starting from the beginning", folder));
}

Run::~Run() {
  const auto& run = *impl_;
  if (std::uncaught_exceptions() > run.num_exceptions) return;
  const auto& warn = run.options.checkpoints.warn;
  try {
    if (run.left_error) std::rethrow_exception(run.left_error);
    const auto saved = std::max(run.epoch_begin, run.last_saved.value_or(0));
    if (!run.was_left_by_exception || !run.is_rank_0() || run.step <= saved) return;
    warn(fmt::format("an exception ended the loop of {} within epoch {}: the steps after step {} are not saved",
                     run.folder.string(), run.epoch_number + 1, saved));
  } catch (const std::exception& error) {
    try {
      warn(fmt::format("{}: after the loop was left: {}", run.folder.string(), error.what()));
    } catch (...) {  // a destructor cannot report this
    }
  } catch (...) {
  }
}

std::string Run::fix_text(const std::string& name, const std::string& text, bool given) {
  auto& run = *impl_;
  auto value = text;
  if (run.resumed) {
    const auto found = run.resumed->metadata.find(name);
    if (found == run.resumed->metadata.end()) {
      throw Error(ErrorCode::kInvalidArgument, "the run to resume, {}, does not say its '{}'",
                  run.resumed->path.string(), name);
    }
    if (given && found->second != text) {
      throw Error(ErrorCode::kInvalidArgument, "{} {} was given, but the run to resume was started with {}", name, text,
                  found->second);
    }
    value = found->second;
  }
  run.fixed.push_back(value);
  run.state.add(name, run.fixed.back());
  return value;
}

TrainState& Run::state() { return impl_->state; }
const std::optional<StoredCheckpoint>& Run::resumed() const { return impl_->resumed; }
int64_t Run::step() const { return impl_->step; }
bool Run::stopped() const { return impl_->is_stopped; }
const std::filesystem::path& Run::folder() const { return impl_->folder; }
const CheckpointFolder& Run::checkpoints() const { return impl_->checkpoints; }

int64_t Run::schedule_step() const { return impl_->schedule_step; }
int64_t Run::epoch() const { return impl_->is_in_epoch ? impl_->epoch_number : impl_->num_complete(); }
int64_t Run::first_batch() const { return impl_->schedule_step % impl_->steps_per_epoch; }

void Run::say(const std::string& text) const {
  if (!impl_->is_rank_0()) return;
  fmt::print("{}\n", text);
  std::fflush(stdout);
}

void Run::begin(int64_t count, detail::RunLoader loader) {
  auto& run = *impl_;
  run.report_left_error();
  run.watch_for_losses();
  const int64_t steps_per_epoch = loader.num_batches;
  require_same_on_all_ranks(run.world, steps_per_epoch, "an epoch",
                            "give all ranks loaders of the same samples; with LoaderOptions::exact, batch_size must be "
                            "above 1");
  if (steps_per_epoch < 1) {
    throw Error(ErrorCode::kInvalidArgument,
                "the loader has no batch in an epoch: there are fewer samples than one batch needs");
  }
  run.loader = std::move(loader);
  run.num_epochs = count;
  run.steps_per_epoch = steps_per_epoch;
  const std::pair<const char*, int64_t> sizes[] = {{"steps_per_epoch", steps_per_epoch},
                                                   {"samples_per_batch", run.loader.samples_per_batch}};
  std::vector<std::string*> texts;
  if (run.resumed) detail::require_same_samples(run.resumed->metadata, run.loader);
  for (const auto& [name, value] : sizes) {
    texts.push_back(&run.fixed.emplace_back(std::to_string(value)));
    // A checkpoint of an older version may lack this value.
    if (!run.resumed || run.resumed->metadata.contains(name)) run.state.add(name, *texts.back());
  }
  if (run.world.needs_recovery()) return rejoin();
  if (run.resumed) {
    run.state.load(*run.resumed, run.options.checkpoints.warn);
    for (size_t i = 0; i < texts.size(); ++i) *texts[i] = std::to_string(sizes[i].second);
    run.step = run.first_step = run.resumed->step;
    begin_resumed(count);
  }
  dist::on_all_ranks(run.world, "the metrics cannot be written",
                     [&] { run.begin_output(run.num_complete() - (run.has_empty_rest ? 1 : 0)); });
  run.progress.emplace(run.is_rank_0(), count, steps_per_epoch, run.schedule_step);
}

void Run::Impl::begin_output(int64_t num_complete) {
  if (!is_rank_0()) return;
  steps.reset();  // writes what it has kept
  board.reset();
  if (!report || num_reported > num_complete) report.emplace(folder, num_complete, options.checkpoints.warn);
  if (options.log_steps) steps.emplace(folder / "steps.jsonl", detail::StepPlace{step, num_complete + 1});
  if (options.tensorboard) board.emplace(folder / "events", TensorBoardOptions{.first_step = step});
}

/// Finds the place in the epochs of this process's loader at which the checkpoint was saved.
void Run::begin_resumed(int64_t count) {
  auto& run = *impl_;
  const auto& metadata = run.resumed->metadata;
  run.position = detail::saved_position(metadata, run.step, run.loader);
  const int64_t num_left = run.loader.num_batches_from(run.position);
  require_same_on_all_ranks(run.world, num_left, "what is left of the interrupted epoch",
                            "resume on fewer ranks, or with a batch_size above 1");
  run.has_empty_rest = num_left == 0;
  run.schedule_step = (run.position.epoch + 1) * run.steps_per_epoch - num_left;
  if (run.loader.position || run.position.sample > 0) run.resumed_at = run.position;
  if (first_batch() == 0 && !run.has_empty_rest) run.figures.reset();  // of an epoch that save() has ended
  const auto where = run.resumed->path.string();
  if (run.num_complete() >= count && !run.has_empty_rest) return say(fmt::format("{} is the end of that run", where));
  const auto other = detail::other_samples_per_batch(metadata, run.loader);
  say(fmt::format("resumed from {} at epoch {}, step {}{}", where, run.position.epoch + 1,
                  run.steps_per_epoch - num_left,
                  other == 0 ? ""
                             : fmt::format(": sample {} of the epoch; a step has {} samples, and had {} before",
                                           run.position.sample, run.loader.samples_per_batch, other)));
}

bool Run::begin_epoch() {
  auto& run = *impl_;
  if (run.is_told && !run.is_stopped) {
    run.is_stopped = true;
    say(fmt::format("told to stop at epoch {}, step {}; the checkpoint is saved", run.num_complete() + 1,
                    first_batch()));
  }
  run.epoch_number = run.num_complete() - (run.has_empty_rest ? 1 : 0);
  if (run.is_stopped || run.epoch_number >= run.num_epochs) {
    finish();
    return false;
  }
  run.is_in_epoch = true;
  run.was_left_by_exception = run.leaves_without_saving = false;
  run.epoch_begin = run.step;
  run.epoch_samples = 0;
  run.epoch_start = run.last_step = Clock::now();
  run.has_returned = false;  // the loop over batches begins anew in any case
  run.world.forgive_losses(run.kept.has_value());
  return true;
}

int64_t Run::resume_loader() {
  auto& run = *impl_;
  if (run.resumed_at) run.loader.resume(*run.resumed_at);
  run.resumed_at.reset();
  return run.epoch_number;
}

void Run::begin_batches() {
  auto& run = *impl_;
  run.position =
      run.loader.position ? run.loader.position() : LoaderPosition{.epoch = run.epoch_number, .sample = first_batch()};
  if (run.has_empty_rest) run.position = detail::next_epoch(run.position);
  run.is_in_batches = !run.has_empty_rest;
  run.num_ended_before = num_steps_ended();
  if (run.is_in_batches && !run.world.needs_recovery()) run.keep();
  run.begin_watching();
}

void Run::take_batch() {
  detail::enter(detail::Phase::kForward);
  auto& run = *impl_;
  if (!run.is_in_batches) return;
  run.position_after = run.loader.position ? run.loader.position()
                                           : LoaderPosition{.epoch = run.epoch_number, .sample = first_batch() + 1};
}

/// Where a run goes on after `of_step` steps, which is `step` or, in the body of the loop over batches, the next one.
LoaderPosition Run::Impl::position_of(int64_t of_step) const {
  if (of_step == step) return position;
  return (schedule_step + 1) % steps_per_epoch == 0 ? detail::next_epoch(position_after) : position_after;
}

void Run::Impl::count_step() {
  position = position_of(step + 1);
  ++step;
  ++schedule_step;
}

void Run::Impl::note_group() {
  ++batches_without_step;
  if (num_steps_ended() == num_ended_before) return;
  longest_group = std::max(longest_group, batches_without_step);
  batches_without_step = 0;
}

/// Gradients are no part of a checkpoint. Those that a step has used may still be there, so it also counts whether
/// there was a step. A program that steps no more, with gradients of the last step left, waits no longer than for a
/// group.
bool Run::Impl::is_within_group() const {
  constexpr int64_t kLongestFirstGroup = 64;  // it may have an optimizer that end_step() does not know
  const bool expects_step =
      batches_without_step > 0 && batches_without_step < (longest_group == 0 ? kLongestFirstGroup : longest_group);
  const auto has_gradient = [](const at::Tensor& parameter) {
    const auto& gradient = parameter.grad();
    if (!gradient.defined() || gradient.numel() == 0) return false;
    return gradient.layout() != at::kStrided || gradient.ne(0).any().item<bool>();
  };
  const auto is_pending = [&] { return std::ranges::any_of(state.optimized(), has_gradient); };
  return largest(expects_step && is_pending() ? 1 : 0) != 0;
}

/// Collective. Returns the largest value of all ranks.
int64_t Run::Impl::largest(int64_t value) const {
  const auto result = at::full({1}, value, at::kLong);
  world.all_reduce(result, dist::ReduceOp::kMax);
  return result.item<int64_t>();
}

int64_t Run::num_steps_made() const {
  const auto& run = *impl_;
  return run.largest(run.step + (run.is_in_batches && num_steps_ended() > run.num_ended_before ? 1 : 0));
}

void Run::end_batch(int64_t num_samples) {
  firmly([&] { end_batch_firmly(num_samples); });
}

void Run::end_batch_firmly(int64_t num_samples) {
  auto& run = *impl_;
  if (run.options.watch) {
    const auto times = run.phases.take();
    if (run.step >= run.windows_begin) run.windows.add(times);
    detail::enter(detail::Phase::kOther);
  }
  run.note_group();
  run.count_step();
  report_progress(run.step);
  run.is_in_batches = first_batch() != 0;
  run.num_ended_before = num_steps_ended();
  run.num_samples += num_samples;
  run.epoch_samples += num_samples;
  run.last_step = Clock::now();
  for (const auto& text : run.watch_step()) say(text);
  run.show_progress();
  if (run.step == run.first_step + 1) {  // a mistake that is in each step is reported before much time has passed
    if (const auto difference = run.figures.difference()) throw Error(ErrorCode::kInvalidArgument, "{}", *difference);
  }
  if (run.options.check_replicas_every > 0 && run.step % run.options.check_replicas_every == 0) {
    run.compare_replicas(run.step);
  }
  run.is_told = run.is_told || run.world.should_stop();
  if (run.options.save_every > 0 && run.step % run.options.save_every == 0) run.is_save_due = true;
  if (first_batch() == 0) {  // the epoch is complete, and the code after the loop saves its checkpoint
    run.is_save_due = false;
    run.phases.stop();
    return;
  }
  if ((run.is_told || run.is_save_due) && run.is_within_group()) {
    if (run.is_told && !std::exchange(run.has_said_wait, true)) {
      say("told to stop; that waits for the next step of the optimizer, as it needs the gradients of these batches");
    }
  } else if (run.is_told) {  // there is time for a checkpoint, but not for the rest of the epoch
    run.save(run.step);
    run.is_stopped = true;
    say(fmt::format("told to stop at epoch {}, step {}; the checkpoint is saved", run.num_complete() + 1,
                    first_batch()));
  } else if (run.is_save_due) {
    run.is_save_due = false;
    run.save_async();
    run.last_saved = run.step;
  }
  if (!run.is_stopped) run.keep();
  detail::enter(detail::Phase::kData);
}

void Run::Impl::show_progress() {
  if (!progress->due()) return;
  std::string figure;
  for (const auto& name : figures.names()) {
    const auto& mean = figures.at(name);
    if (mean.weight() == 0) continue;
    figure = fmt::format("{} {:.4f}", name, mean.read());
    std::ranges::replace(figure, '_', ' ');
    break;
  }
  progress->show(schedule_step, figure, num_samples * world.size());
}

void Run::end_epoch() {
  firmly([&] { end_epoch_firmly(); });
}

void Run::end_epoch_firmly() {
  auto& run = *impl_;
  if (run.is_stopped) return;
  if (first_batch() != 0) {
    throw Error(ErrorCode::kFailedPrecondition,
                "the loop over the batches of epoch {} was left after {} of {}: break out of the loop over epochs too",
                run.num_complete() + 1, first_batch(), run.steps_per_epoch);
  }
  if (run.leaves_without_saving) {
    throw Error(ErrorCode::kFailedPrecondition,
                "leave_without_saving() was called in epoch {}, and the loop over epochs goes on: break out of it",
                run.epoch_number + 1);
  }
  run.has_empty_rest = false;
  const dist::Activity activity(run.world, "the end of an epoch of a Run");
  if (const auto difference = run.figures.difference()) {
    run.figures.reset();
    run.save(run.step);
    throw Error(ErrorCode::kInvalidArgument, "{}. Epoch {} has no figures; its checkpoint is saved", *difference,
                run.num_complete());
  }
  const auto figures = run.figures.read();
  FirstNotFinite first;  // all ranks have the same figures
  if (!std::ranges::all_of(figures, [](const auto& figure) { return std::isfinite(figure.second); })) {
    first = run.figures.first_not_finite(run.world.all_gather_text(run.figures.not_finite()));
  }
  run.figures.reset();
  StringMap metadata;
  for (const auto& [name, value] : figures) metadata.emplace(name, text_of(value));
  const auto time = Clock::now() - run.epoch_start;
  // The last row tells the user that all is done, so the checkpoint is on disk before.
  const bool lacks_metric = run.lacks_metric(metadata);
  const bool is_last = run.num_complete() >= run.num_epochs || run.is_told || run.is_finishing || lacks_metric;
  if (is_last) run.save(run.step, metadata);
  const auto samples = static_cast<double>(run.epoch_samples * run.world.size());
  const auto seconds = std::chrono::duration<double>(run.last_step - run.epoch_start).count();
  dist::on_all_ranks(run.world, "the metrics were not written", [&] {
    if (!run.report) return;
    if (run.steps) run.steps->flush();
    if (run.board) {
      for (const auto& [name, value] : figures) run.board->add_scalar("epoch/" + name, value, run.step);
      run.board->flush();
    }
    run.report->add({.number = run.num_complete(),
                     .figures = figures,
                     .samples_per_second = samples > 0 ? samples / seconds : 0,
                     .time = time});
    run.num_reported = run.num_complete();
  });
  for (const auto& text : run.look()) say(text);
  for (const auto& [name, value] : figures) {
    if (std::isfinite(value) || std::exchange(run.has_said_not_finite, true)) continue;
    say(fmt::format(
        "warning: {} is {} in epoch {}, so nothing useful may be learned any more: try a lower rate, or fp32{}{}", name,
        std::isnan(value) ? "nan" : text_of(value), run.num_complete(), first.text.empty() ? "" : "; ", first.text));
  }
  if (!is_last) run.save_async(metadata);
  run.is_in_epoch = false;
  if (!lacks_metric) return;
  std::string names;
  for (const auto& [name, _] : metadata) names += fmt::format("{}'{}'", names.empty() ? "only " : ", ", name);
  throw Error(
      ErrorCode::kInvalidArgument,
      "keep_best compares checkpoints by '{}', which nobody has logged in the first epoch: it has {}. Give "
      "CheckpointFolderOptions::metric one of these names, or log '{}'; if only later epochs have it, log it in "
      "this one with weight 0. The epoch's checkpoint is saved",
      run.options.checkpoints.metric, names.empty() ? "no figures" : names, run.options.checkpoints.metric);
}

/// Collective. Returns whether nobody has logged the figure by which keep_best compares, in the first epoch of the run.
/// Of a resumed run, the checkpoints say whether there was one.
bool Run::Impl::lacks_metric(const StringMap& of_epoch) {
  const auto& metric = options.checkpoints.metric;
  if (std::exchange(has_checked_metric, true) || options.checkpoints.keep_best == 0) return false;
  const bool is_lacking =
      !of_epoch.contains(metric) && std::ranges::find(figures.names(), metric) == figures.names().end();
  return largest(is_rank_0() && is_lacking && !checkpoints.best_step() ? 1 : 0) != 0;
}

void Run::log(const std::string& name, const at::Tensor& value, int64_t weight) {
  auto& run = *impl_;
  run.figures.add(name, value.detach(), weight, run.step);
  if (run.board) run.board->add_scalar(name, value, run.step);
  // A value that is logged between two epochs belongs to the epoch that ends, which is still epoch_number.
  if (run.steps) run.steps->add({run.step, run.epoch_number + 1}, name, value);
}

void Run::log(const std::string& name, double value) { log(name, at::scalar_tensor(value, at::kDouble)); }

StringMap Run::Impl::metadata_of(int64_t of_step, StringMap metadata) const {
  metadata.emplace(kRunName, options.name);
  metadata.emplace(detail::kRunPosition, text_of(position_of(of_step)));
  if (loader.samples_per_epoch > 0) metadata.emplace(detail::kRunSamples, std::to_string(loader.samples_per_epoch));
  return metadata;
}

void Run::Impl::save(int64_t of_step, const StringMap& metadata) {
  compare_replicas(of_step);
  checkpoints.save(of_step, state, metadata_of(of_step, metadata));
  last_saved = of_step;
}

void Run::Impl::save_async(const StringMap& metadata) {
  compare_replicas(step);
  checkpoints.save_async(step, state, metadata_of(step, metadata));
}

/// Collective. A checkpoint of ranks that differ would take the place of a good one.
void Run::Impl::compare_replicas(int64_t of_step) {
  if (!replica_check || last_compared == of_step) return;
  last_compared = of_step;
  (*replica_check)(of_step);
}

void Run::Impl::report_left_error() {
  if (const auto error = std::exchange(left_error, nullptr)) std::rethrow_exception(error);
}

void Run::save() {
  auto& run = *impl_;
  run.report_left_error();
  const auto act = [&] {
    const dist::Activity activity(run.world, "saving a checkpoint");
    run.save(num_steps_made());
  };
  if (!run.kept || !run.is_in_epoch) return act();
  if (run.world.needs_recovery()) return;  // the step will be repeated, and saved then
  run.world.forgive_losses(false);
  try {
    act();
  } catch (const dist::RanksLost&) {
  }
  run.world.forgive_losses(true);
}

void Run::leave_without_saving() { impl_->leaves_without_saving = true; }

void Run::leave() noexcept {
  auto& run = *impl_;
  run.world.forgive_losses(false);
  if (!run.is_in_epoch || run.is_stopped) return;
  run.was_left_by_exception = std::uncaught_exceptions() > run.num_exceptions;
  if (run.was_left_by_exception) return;
  try {
    finish();
  } catch (...) {
    run.is_in_epoch = false;
    run.left_error = std::current_exception();
  }
}

void Run::finish() {
  auto& run = *impl_;
  run.report_left_error();
  run.world.forgive_losses(false);
  run.kept.reset();  // who is lost from here on cannot be replaced
  run.is_finishing = true;
  if (run.is_in_epoch && !run.is_stopped && !run.was_left_by_exception) {
    const dist::Activity activity(run.world, "the end of the loop of a Run");
    if (num_steps_made() > run.step) run.count_step();  // a `break` comes before its step is counted
    run.is_in_batches = false;
    if (run.largest(run.leaves_without_saving ? 1 : 0) != 0) {
      say(fmt::format("left at epoch {} after step {}, without a checkpoint", run.epoch_number + 1, run.step));
    } else if (run.step > run.epoch_begin && first_batch() == 0) {
      end_epoch_firmly();  // the loop was left, so no rank can return to an earlier step
    } else if (run.step > run.epoch_begin && run.last_saved != run.step) {
      run.save(run.step);
      say(fmt::format("left at epoch {}, step {}; the checkpoint is saved", run.num_complete() + 1, first_batch()));
    }
  }
  run.is_in_epoch = false;
  run.checkpoints.finish();
}

}  // namespace yoke::train
