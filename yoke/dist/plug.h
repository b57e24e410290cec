// yoke/dist/plug.h -- the interface between libyoke_dist and the code that needs a vendor's libtorch.
//
// The plug (libyoke_cuda.so or libyoke_hip.so) is loaded by a constructor of libyoke_dist, before main, if a driver
// reports a device. The plug cannot be loaded later: the first manual_seed, is_available or backward of a process asks
// libtorch for its device hooks and keeps the answer. If libtorch_cuda were loaded after that, it would never be used.
#pragma once

#include <c10/core/Device.h>
#include <c10/util/FunctionRef.h>
#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

namespace c10d {
class Backend;
class Store;
}  // namespace c10d

namespace yoke::dist {

/// A rank's place in a process group.
struct BackendOptions {
  c10::intrusive_ptr<c10d::Store> store;
  int rank = 0;
  int size = 1;
  c10::Device device;  ///< The device of this rank.
  std::chrono::milliseconds timeout{};
};

/// Work of a device that was captured once, and is started as a whole.
class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;
  virtual void replay() = 0;  ///< On the current stream.
};

/// Captures graphs on one device. They share memory, so they are replayed one after the other, on one stream.
class GraphMaker {
 public:
  virtual ~GraphMaker() = default;

  /// Calls `work` with another stream as the current one, on which graphs can be captured. It waits for the work of
  /// the current stream, which then waits for it. Exceptions of `work` pass.
  virtual void on_its_stream(c10::function_ref<void()> work) = 0;

  /// Called in on_its_stream(). Captures what `work` starts on this thread, which does not run. Throws what `work`
  /// throws, or why it cannot be captured; then nothing has run either.
  virtual std::unique_ptr<DeviceGraph> capture(c10::function_ref<void()> work) = 0;
};

/// The functions of a vendor's plug. Registered by the plug's own constructor while it is being loaded.
struct Plug {
  const char* name;  ///< "cuda", "hip"
  c10::DeviceType device_type;
  int64_t (*num_devices)();
  void (*set_device)(c10::DeviceIndex index);
  std::string (*device_name)(c10::DeviceIndex index);  ///< The vendor's name of the device, "NVIDIA H100 80GB HBM3".
  bool (*has_bfloat16)(c10::DeviceIndex index);        ///< Whether the device has bfloat16 in hardware.
  /// Collective. Makes the process group's backend for this device type.
  c10::intrusive_ptr<c10d::Backend> (*make_backend)(const BackendOptions& options);
  /// The engine of make_backend() by its name in torch.distributed: "nccl" if there is only one, otherwise "nccl2" or
  /// "nccl-legacy" (detail/nccl_engine.h). Ranks with different engines wait for each other for ever.
  std::string (*engine)();
  /// Null if the plug has no graphs.
  std::unique_ptr<GraphMaker> (*make_graph_maker)(c10::DeviceIndex index) = nullptr;
};

/// `plug` must exist until the process ends. Only the first registered plug is used.
void register_plug(const Plug& plug);

/// Returns the plug that has been loaded; null if there is none.
const Plug* loaded_plug();

struct PlugStatus {
  /// The driver reports devices, but no plug could be loaded. A training would then silently run on the CPU.
  bool missing = false;
  std::string reason;  ///< Why no plug is loaded, and what to do if one is missing; empty if a plug is loaded.
};

/// With YOKE_DEVICE=cpu in the environment, no plug is loaded. YOKE_PLUG is the path of a plug to load instead of the
/// one beside libyoke_dist.so.
const PlugStatus& plug_status();

}  // namespace yoke::dist
