#include "yoke/train/watch/step_end.h"

#include <fmt/format.h>

#include <mutex>
#include <utility>
#include <vector>

#include "yoke/base/environment.h"
#include "yoke/base/error.h"
#include "yoke/contract/rank_env.h"
#include "yoke/contract/variables.h"
#include "yoke/train/detail/step_phases.h"
#include "yoke/train/warn.h"
#include "yoke/train/watch/detail/lock_step.h"
#include "yoke/train/watch/detail/profile_agent.h"
#include "yoke/train/watch/detail/step_counter.h"
#include "yoke/train/watch/detail/step_times.h"

namespace yoke::train {
namespace {

struct Observers {
  std::mutex mutex;
  detail::StepCounter counter;
  std::vector<std::unique_ptr<StepObserver>> list;
};

Observers& observers() {
  static Observers all;
  return all;
}

thread_local int64_t num_ended = 0;

void add_observers_of_environment() {
  const auto environment = Environment::of_process();
  if (const auto folder = environment.find(variable::kStepTimes)) {
    RankEnv rank;
    try {
      rank = read_rank_env(environment);
    } catch (const Error&) {  // code that needs the ranks reports this error
    }
    add_step_observer(std::make_unique<detail::StepTimes>(*folder, rank));
  }
  if (const auto fifo = environment.find(variable::kLockStep)) {
    try {
      add_step_observer(std::make_unique<detail::LockStep>(*fifo));
    } catch (const Error& error) {
      warn_on_stderr(fmt::format("the copies of this program do not wait for each other: {}", error.what()));
    }
  }
  if (auto agent = detail::make_profile_agent()) add_step_observer(std::move(agent));
}

}  // namespace

void add_step_observer(std::unique_ptr<StepObserver> observer) {
  auto& all = observers();
  const std::lock_guard lock(all.mutex);
  all.list.push_back(std::move(observer));
}

int64_t num_steps_ended() { return num_ended; }

void end_step(const void* optimizer) {
  ++num_ended;
  detail::enter(detail::Phase::kOther);
  static std::once_flag is_read;
  std::call_once(is_read, add_observers_of_environment);
  auto& all = observers();
  const std::lock_guard lock(all.mutex);
  if (all.list.empty()) return;
  const auto step = all.counter.end_of(optimizer);
  if (!step) return;
  for (const auto& observer : all.list) observer->on_step(*step);
}

}  // namespace yoke::train
