#include "yoke/dist/activity.h"

#include <condition_variable>
#include <mutex>
#include <string_view>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "yoke/base/error.h"
#include "yoke/contract/error_file.h"
#include "yoke/dist/detail/group_impl.h"

namespace yoke::dist {

Activity::Activity(const Group& group, const char* name) {
  if (!group.job_->arrivals || !group.impl_->calls.begin(name, group.impl_->sequence())) return;
  impl_ = group.impl_;
}

Activity::~Activity() {
  if (impl_) impl_->calls.end(impl_->sequence());
}

/// Gloo's destructor waits for collectives in flight. Those of ranks that wait in different ones would end at the
/// timeout only, so this process keeps their connections until it ends.
void Group::Job::keep_connections() const {
  static std::mutex mutex;
  static auto& kept = *new std::vector<c10::intrusive_ptr<c10d::Backend>>;
  const std::lock_guard lock(mutex);
  for (const auto& impl : groups) kept.push_back(impl->cpu);
}

void Group::check_same_calls() const {
  const auto mismatch = job_->arrivals->mismatch();
  if (!mismatch) return;
  job_->keep_connections();
  note_failure_cause(mismatch->text, mismatch->cause);
  fail(Error(ErrorCode::kFailedPrecondition, "{}", mismatch->text));
}

void Group::wait(c10d::Work& work) const {
  if (!job_->arrivals) {
    work.wait();
    return;
  }
  for (int64_t look = 0;; ++look) {
    try {
      work.wait(job_->arrivals->patience(impl_->place, look));
      return;
    } catch (const std::exception& error) {
      if (std::string_view(error.what()).find("Operation timed out!") == std::string_view::npos) throw;
      if (work.isCompleted()) break;
      check_same_calls();
    }
  }
  work.wait();  // throws the collective's own error
}

void wait_for(const Group& group, c10::ivalue::Future& future) {
  if (group.job_->arrivals && !future.completed()) {
    struct Ending {
      std::mutex mutex;
      std::condition_variable changed;
      bool has_ended = false;
    };
    const auto ending = std::make_shared<Ending>();
    future.addCallback([ending](c10::ivalue::Future&) {
      {
        const std::lock_guard lock(ending->mutex);
        ending->has_ended = true;
      }
      ending->changed.notify_all();
    });
    std::unique_lock lock(ending->mutex);
    const auto is_over = [&](int64_t look) {
      const auto patience = group.job_->arrivals->patience(group.impl_->place, look);
      return ending->changed.wait_for(lock, patience, [&] { return ending->has_ended; });
    };
    for (int64_t look = 0; !is_over(look); ++look) group.check_same_calls();
  }
  future.waitAndThrow();
}

}  // namespace yoke::dist
