// A fake libcuda.so.1 that only counts devices. YOKE_FAKE_GPUS is their number (0 if it is unset).
//
// Put its folder (build/fakes) only into the LD_LIBRARY_PATH of the tested program, because it hides a real driver.
// YOKE_FAKE_GPU_HANG=1 makes cuInit hang, as a broken driver does.
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string_view>

namespace {

constexpr int kSuccess = 0, kInvalidValue = 1, kNotInitialized = 3, kNoDevice = 100;
int visible_devices = -1;

/// Counts the devices in CUDA_VISIBLE_DEVICES as the driver does: up to the first index without a device.
int count_visible(int present, const char* visible) {
  if (visible == nullptr) return present;
  std::string_view rest(visible);
  int count = 0;
  while (!rest.empty()) {
    const auto item = rest.substr(0, rest.find(','));
    char* end = nullptr;
    const long index = std::strtol(item.data(), &end, 10);
    if (item.empty() || end != item.data() + item.size() || index < 0 || index >= present) break;
    ++count;
    rest.remove_prefix(item.size() == rest.size() ? item.size() : item.size() + 1);
  }
  return count;
}

}  // namespace

extern "C" {

int cuInit(unsigned flags) {
  if (flags != 0) return kInvalidValue;
  while (std::getenv("YOKE_FAKE_GPU_HANG") != nullptr) pause();
  const char* present = std::getenv("YOKE_FAKE_GPUS");
  visible_devices = count_visible(present == nullptr ? 0 : std::atoi(present), std::getenv("CUDA_VISIBLE_DEVICES"));
  return visible_devices > 0 ? kSuccess : kNoDevice;
}

int cuDeviceGetCount(int* count) {
  if (count == nullptr) return kInvalidValue;
  if (visible_devices <= 0) return kNotInitialized;
  *count = visible_devices;
  return kSuccess;
}

int cuDeviceGet(int* device, int ordinal) {
  if (device == nullptr || ordinal < 0 || ordinal >= visible_devices) return kInvalidValue;
  *device = ordinal;
  return kSuccess;
}

int cuDriverGetVersion(int* version) {
  if (version == nullptr) return kInvalidValue;
  *version = 12'000;
  return kSuccess;
}

}  // extern "C"
