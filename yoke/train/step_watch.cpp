#include "yoke/train/detail/step_watch.h"

#include <mutex>
#include <utility>
#include <vector>

namespace yoke::train::detail {
namespace {

struct StepWatches {
  std::mutex mutex;
  std::vector<const StepWatch*> list;
};

StepWatches& step_watches() {
  static StepWatches all;
  return all;
}

}  // namespace

StepWatch::StepWatch(Stepped stepped) : stepped_(std::move(stepped)) {
  auto& all = step_watches();
  const std::lock_guard lock(all.mutex);
  all.list.push_back(this);
}

StepWatch::~StepWatch() {
  auto& all = step_watches();
  const std::lock_guard lock(all.mutex);
  std::erase(all.list, this);
}

void report_step(at::TensorList parameters, Mean mean) {
  auto& all = step_watches();
  const std::lock_guard lock(all.mutex);
  for (const auto* watch : all.list) watch->stepped_(parameters, mean);
}

}  // namespace yoke::train::detail
