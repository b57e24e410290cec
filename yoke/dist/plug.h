// yoke/dist/plug.h -- the interface between libyoke_dist and the code that needs a vendor's libtorch.
//
// The plug (libyoke_cuda.so or libyoke_hip.so) is loaded by a constructor of libyoke_dist, before main, when a driver
// shows a device. It cannot be loaded later: the first manual_seed, is_available or backward of a process asks libtorch
// for its device hooks and keeps the answer, so a libtorch_cuda that is loaded afterwards is never used.
#pragma once

#include <c10/core/Device.h>
#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <cstdint>
#include <string>

namespace c10d {
class Backend;
class Store;
}  // namespace c10d

namespace yoke::dist {

/// The functions of a vendor's plug. Registered by the plug's own constructor while it is being loaded.
struct Plug {
  const char* name;  ///< "cuda", "hip"
  c10::DeviceType device_type;
  int64_t (*num_devices)();
  void (*set_device)(c10::DeviceIndex index);
  std::string (*device_name)(c10::DeviceIndex index);  ///< The vendor's name of the device, "NVIDIA H100 80GB HBM3".
  bool (*has_bfloat16)(c10::DeviceIndex index);        ///< Whether the device has it in hardware.
  /// Collective. The process group's backend for this device type.
  c10::intrusive_ptr<c10d::Backend> (*make_backend)(c10::intrusive_ptr<c10d::Store> store, int rank, int size,
                                                    std::chrono::milliseconds timeout);
};

/// `plug` must live for ever. The first one registered wins.
void register_plug(const Plug& plug);

/// The plug that has loaded; null when there is none.
const Plug* loaded_plug();

struct PlugStatus {
  /// The driver shows devices, but no plug could be loaded. A training on the CPU would then be a mistake that nobody
  /// notices.
  bool missing = false;
  std::string reason;  ///< Why there is no plug, and what to do if one is missing; empty when there is one.
};

/// With YOKE_DEVICE=cpu in the environment, no plug is loaded. YOKE_PLUG names a file to load in place of the plug
/// beside libyoke_dist.so.
const PlugStatus& plug_status();

}  // namespace yoke::dist
