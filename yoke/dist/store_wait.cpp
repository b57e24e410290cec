// What shared_memory.cpp needs of the store, apart from what connects to one: yoke/dist/python has it too.
#include <c10/util/Exception.h>
#include <c10/util/Logging.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "yoke/dist/detail/store.h"

namespace yoke::dist {
namespace {

std::mutex warnings_mutex;
int num_without_warnings = 0, level_before = 0;  // guarded by the mutex

}  // namespace

void wait_for_key(c10d::Store& store, const std::string& key, const std::function<void()>& check,
                  std::chrono::steady_clock::time_point until) {
  constexpr std::chrono::milliseconds kCheckInterval(20);
  const WithoutWarnings quiet;  // libtorch would warn of each interval, and look up names for that
  while (!store.check({key})) {
    check();
    try {
      store.wait({key}, kCheckInterval);
    } catch (const c10::DistStoreError&) {  // not yet
      if (std::chrono::steady_clock::now() >= until) throw;
    }
  }
}

WithoutWarnings::WithoutWarnings() {
  const std::lock_guard lock(warnings_mutex);
  if (num_without_warnings++ > 0) return;
  level_before = FLAGS_caffe2_log_level;
  FLAGS_caffe2_log_level = std::max(level_before, c10::GLOG_ERROR);
}

WithoutWarnings::~WithoutWarnings() {
  const std::lock_guard lock(warnings_mutex);
  if (--num_without_warnings == 0) FLAGS_caffe2_log_level = level_before;
}

}  // namespace yoke::dist
