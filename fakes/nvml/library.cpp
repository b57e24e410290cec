// The fake's functions for the library itself, for finding devices, and for waiting for events.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "call.h"

namespace yoke::fake_nvml {
namespace {

int init() noexcept {
  try {
    const auto state = current_state();
    if (state == nullptr) return kDriverNotLoaded;
    if (const int status = trouble(state->root, "nvmlInit_v2"); status != kSuccess) return status;
    if (const Json& failure = member(state->root, "init"); !failure.is_null() && status_of(failure) != kSuccess) {
      return status_of(failure);
    }
    add_user(1);
    return kSuccess;
  } catch (...) {
    return kUnknown;
  }
}

int store_cuda_version(const State& state, int* version) {
  if (version == nullptr) return kInvalidArgument;
  int major = 13, minor = 0;
  std::sscanf(state.root.value("cuda_version", "13.0").c_str(), "%d.%d", &major, &minor);
  *version = 1000 * major + 10 * minor;
  return kSuccess;
}

int open_device(const char* function, const State& state, Place place, Handle* handle) {
  if (const int status = trouble_at(state, place, function); status != kSuccess) return status;
  *handle = handle_of(place);
  return kSuccess;
}

/// Finds the first device or MIG instance whose member `field` is `text`.
int find_by(const char* function, const char* field, const char* text, Handle* handle) noexcept {
  return on_system(function, [&](const State& state) -> int {
    if (text == nullptr || handle == nullptr) return kInvalidArgument;
    for (size_t i = 0; i < state.devices.size(); ++i) {
      const Json& device = state.devices[i];
      if (member(device, field) == text) return open_device(function, state, {i, -1}, handle);
      const Json& instances = member(device, "mig", "instances");
      for (size_t k = 0; k < instances.size(); ++k) {
        if (member(instances[k], field) == text) return open_device(function, state, {i, static_cast<int>(k)}, handle);
      }
    }
    return kNotFound;
  });
}

struct Registration {
  Handle device;
  Wide types;
  size_t num_delivered;
};

class EventSets {
 public:
  EventSet create() {
    const std::scoped_lock lock(mutex_);
    const auto set = reinterpret_cast<EventSet>(++last_);  // NOLINT(performance-no-int-to-ptr): never dereferenced
    sets_[set];
    return set;
  }

  bool erase(EventSet set) {
    const std::scoped_lock lock(mutex_);
    return sets_.erase(set) == 1;
  }

  bool add(EventSet set, Registration registration) {
    const std::scoped_lock lock(mutex_);
    const auto found = sets_.find(set);
    if (found == sets_.end()) return false;
    found->second.push_back(registration);
    return true;
  }

  /// Removes and returns the next XID error of a registered device. Returns kTimeout if there is none now.
  int take(const State& state, EventSet set, Event& event) {
    const std::scoped_lock lock(mutex_);
    const auto found = sets_.find(set);
    if (found == sets_.end()) return kInvalidArgument;
    for (auto& registration : found->second) {
      Place place;
      if (find(state, registration.device, place) != kSuccess) continue;
      const Json& device = state.devices[place.device];
      const Json& xids = member(device, "xids");
      if ((registration.types & kXidEvent) != 0 && registration.num_delivered < xids.size()) {
        const auto code = xids[registration.num_delivered++].get<Wide>();
        event = {registration.device, kXidEvent, code, kNoInstance, kNoInstance};
        return kSuccess;
      }
      if (const Json& error = member(device, "error"); !error.is_null()) return status_of(error);
    }
    return kTimeout;
  }

 private:
  std::mutex mutex_;
  std::map<EventSet, std::vector<Registration>> sets_;
  uintptr_t last_ = 0;
};

EventSets& event_sets() {
  static EventSets& sets = *new EventSets;  // never destroyed, because a thread may still wait when main() ends
  return sets;
}

int wait(const char* function, EventSet set, Event& event, Size timeout_ms) noexcept {
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + std::chrono::milliseconds(timeout_ms);
  for (;;) {
    const int status = on_system(function, [&](const State& state) { return event_sets().take(state, set, event); });
    if (status != kTimeout || Clock::now() >= deadline) return status;
    std::this_thread::sleep_until(std::min(deadline, Clock::now() + std::chrono::milliseconds(10)));
  }
}

}  // namespace
}  // namespace yoke::fake_nvml

using namespace yoke::fake_nvml;  // NOLINT: only definitions of the C interface follow

extern "C" {

int nvmlInit() { return init(); }
int nvmlInit_v2() { return init(); }
int nvmlInitWithFlags(Size) { return init(); }

int nvmlShutdown() {
  if (!is_initialised()) return kUninitialized;
  add_user(-1);
  return kSuccess;
}

const char* nvmlErrorString(int status) { return text_of(status); }

int nvmlSystemGetDriverVersion(char* version, Size length) {
  return on_system(__func__, [&](const State& state) {
    return store_text(state.root.value("driver_version", "580.65.06"), version, length);
  });
}

int nvmlSystemGetNVMLVersion(char* version, Size length) {
  return on_system(__func__, [&](const State& state) {
    const auto driver = "13." + state.root.value("driver_version", "580.65.06");
    return store_text(state.root.value("nvml_version", driver), version, length);
  });
}

int nvmlSystemGetCudaDriverVersion(int* version) {
  return on_system(__func__, [&](const State& state) { return store_cuda_version(state, version); });
}

int nvmlSystemGetCudaDriverVersion_v2(int* version) {
  return on_system(__func__, [&](const State& state) { return store_cuda_version(state, version); });
}

int nvmlDeviceGetCount_v2(Size* count) {
  return on_system(__func__, [&](const State& state) {
    return store({kSuccess, static_cast<double>(state.devices.size())}, count);
  });
}

int nvmlDeviceGetCount(Size* count) { return nvmlDeviceGetCount_v2(count); }

int nvmlDeviceGetHandleByIndex_v2(Size index, Handle* handle) {
  return on_system(__func__, [&](const State& state) -> int {
    if (index >= state.devices.size() || handle == nullptr) return kInvalidArgument;
    return open_device("nvmlDeviceGetHandleByIndex_v2", state, {index, -1}, handle);
  });
}

int nvmlDeviceGetHandleByIndex(Size index, Handle* handle) { return nvmlDeviceGetHandleByIndex_v2(index, handle); }

int nvmlDeviceGetHandleByUUID(const char* uuid, Handle* handle) { return find_by(__func__, "uuid", uuid, handle); }

int nvmlDeviceGetHandleBySerial(const char* serial, Handle* handle) {
  return find_by(__func__, "serial", serial, handle);
}

int nvmlDeviceGetHandleByPciBusId_v2(const char* bus_id, Handle* handle) {
  return on_system(__func__, [&](const State& state) -> int {
    if (bus_id == nullptr || handle == nullptr) return kInvalidArgument;
    const auto full = full_bus_id(bus_id);
    if (full.empty()) return kInvalidArgument;
    for (size_t i = 0; i < state.devices.size(); ++i) {
      if (full_bus_id(state.devices[i].value("pci_bus_id", "")) == full) {
        return open_device("nvmlDeviceGetHandleByPciBusId_v2", state, {i, -1}, handle);
      }
    }
    return kNotFound;
  });
}

int nvmlDeviceGetHandleByPciBusId(const char* bus_id, Handle* handle) {
  return nvmlDeviceGetHandleByPciBusId_v2(bus_id, handle);
}

int nvmlEventSetCreate(EventSet* set) {
  return on_system(__func__, [&](const State&) -> int {
    if (set == nullptr) return kInvalidArgument;
    *set = event_sets().create();
    return kSuccess;
  });
}

int nvmlEventSetFree(EventSet set) {
  return on_system(__func__,
                   [&](const State&) -> int { return event_sets().erase(set) ? kSuccess : kInvalidArgument; });
}

int nvmlDeviceGetSupportedEventTypes(Handle handle, Wide* types) {
  return on_device(__func__, handle, [&](const Target& target) -> int {
    return target.is_instance() ? kNotSupported : store({kSuccess, kXidEvent}, types);
  });
}

int nvmlDeviceRegisterEvents(Handle handle, Wide types, EventSet set) {
  return on_device(__func__, handle, [&](const Target& target) -> int {
    if (target.is_instance()) return kNotSupported;
    return event_sets().add(set, {handle, types, 0}) ? kSuccess : kInvalidArgument;
  });
}

int nvmlEventSetWait_v2(EventSet set, Event* event, Size timeout_ms) {
  if (event == nullptr) return kInvalidArgument;
  return wait(__func__, set, *event, timeout_ms);
}

int nvmlEventSetWait(EventSet set, EventV1* event, Size timeout_ms) {
  if (event == nullptr) return kInvalidArgument;
  Event full{};
  const int status = wait(__func__, set, full, timeout_ms);
  if (status == kSuccess) *event = {full.device, full.type, full.data};
  return status;
}

}  // extern "C"
