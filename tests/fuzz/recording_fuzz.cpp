// Reads any bytes as a line of a recording, which may come from an untrusted source: it is refused with an Error, or
// gives a snapshot that can be shown. Writing and reading the snapshot again gives the same snapshot.
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string_view>

#include "yoke/base/error.h"
#include "yoke/device/json.h"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, size_t size) {
  using namespace yoke::device;
  Snapshot snapshot;
  try {
    snapshot = snapshot_from_json({reinterpret_cast<const char*>(data), size});
  } catch (const yoke::Error&) {
    return 0;
  }
  if (snapshot_from_json(to_json(snapshot).dump()) != snapshot) std::abort();
  for (auto& device : snapshot.devices) set_state_by_use(device, {});
  return 0;
}
