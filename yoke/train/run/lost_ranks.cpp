// What a Run does when ranks are lost that the launcher starts again.
#include <fmt/format.h>

#include <string>
#include <utility>

#include "yoke/base/error.h"
#include "yoke/base/fields.h"
#include "yoke/dist/ranks_lost.h"
#include "yoke/train/run/detail/run_impl.h"
#include "yoke/train/run/detail/run_position.h"

namespace yoke::train {

void Run::Impl::watch_for_losses() {
  if (!world.is_replaceable()) return;
  kept.emplace(world, state);
}

void Run::Impl::keep() {
  if (!kept) return;
  FieldWriter place;
  place.add(schedule_step).add(text_of(position));
  try {
    kept->keep(step, place.bytes());
  } catch (const dist::RanksLost&) {
    throw;
  } catch (const Error& error) {
    if (kept->has_copies()) throw;  // the others would wait for this rank in the next step
    kept.reset();                   // a rank that is lost then ends the job
    world.forgive_losses(false);
    if (is_rank_0()) options.checkpoints.warn(fmt::format("lost ranks cannot be replaced: {}", error.what()));
  }
}

void Run::Impl::take_kept() {
  const auto restored = kept->restore();
  FieldReader place(restored.note);
  step = first_step = epoch_begin = restored.step;
  schedule_step = place.number();
  read_text(detail::kRunPosition, place.text(), position);
}

void Run::rejoin() {
  auto& run = *impl_;
  if (!run.kept) throw dist::RanksLost("ranks were lost, and their state was not kept", {});
  while (true) {
    try {
      run.checkpoints.abandon();
      run.world.recover();
      run.take_kept();
      break;
    } catch (const dist::RanksLost&) {  // another one, meanwhile
    }
  }
  run.has_returned = true;
  run.epoch_number = run.num_complete();
  run.has_empty_rest = run.is_in_batches = false;
  run.resumed_at.reset();
  if (run.loader.position || run.position.sample > 0) run.resumed_at = run.position;
  // On these depends which collectives a rank enters, and a new rank does not know what the others knew.
  run.is_told = run.has_checked_metric = run.leaves_without_saving = false;
  run.is_save_due = run.has_said_wait = false;
  run.batches_without_step = 0;  // nothing is kept within a group
  run.last_saved.reset();
  run.last_compared.reset();
  if (run.replica_check) run.replica_check.emplace(run.state, run.options.checkpoints.warn);
  run.begin_output(run.num_complete());
  run.progress.emplace(run.is_rank_0(), run.num_epochs, run.steps_per_epoch, run.schedule_step);
}

void Run::firmly(const std::function<void()>& act) {
  auto& run = *impl_;
  if (!run.kept) return act();
  run.world.forgive_losses(false);
  try {
    run.world.needs_recovery() ? rejoin() : act();
  } catch (const dist::RanksLost&) {
    rejoin();
  }
  run.world.forgive_losses(run.is_in_epoch && !run.is_stopped);
}

bool Run::take_return() { return std::exchange(impl_->has_returned, false); }

}  // namespace yoke::train
