// yoke/container/devices.h -- how a container gets its devices: by which mechanism of which engine at which version,
// and what the container must then show. Pure.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "yoke/container/engine.h"
#include "yoke/device/device.h"

namespace yoke::container {

/// A GPU or a MIG instance that a container gets.
struct WantedDevice {
  device::Vendor vendor = device::Vendor::kNvidia;
  std::string id;                ///< As in `yoke devices`: "3", "0:1".
  std::string uuid;              ///< Empty if the device has none, or shares it (partitions of an MI300).
  std::optional<int64_t> minor;  ///< The N of /dev/nvidiaN or /dev/dri/renderDN.
  std::optional<int64_t> vendor_index;
  bool is_instance = false;

  std::string node() const;  ///< "/dev/nvidia3", "/dev/dri/renderD131"; empty if the driver does not tell the number.
};

/// The devices with these ids. REQUIRES: `snapshot` has them.
std::vector<WantedDevice> wanted_devices(const device::Snapshot& snapshot, const std::vector<std::string>& ids);

using Variables = std::vector<std::pair<std::string, std::string>>;

/// What a container must show before its program starts.
struct Expectation {
  std::vector<std::string> nodes;  ///< Device nodes that must exist and open.
  bool is_exact = true;            ///< Other nodes of GPUs must not exist.
  Variables variables;             ///< Variables that must have these values.
  std::string mechanism;           ///< For messages: "podman's --device nvidia.com/gpu=0 (CDI)".
};

/// Arguments for the engine, variables for the container, and what they must lead to.
struct DeviceGrant {
  std::vector<std::string> arguments;
  Variables variables;
  Expectation expectation;
};

/// Decides by which mechanism the container gets `devices`. If `devices` is empty, it must not see a GPU.
///
/// Options that this engine at this version ignores without a word are never used: podman ignores --gpus before 5.0
/// for NVIDIA and before 6.0 for AMD.
/// Errors  kFailedPrecondition: the engine has no mechanism for these devices; the message says what to install.
DeviceGrant grant_devices(const Engine& engine, const std::vector<WantedDevice>& devices);

/// What the first program in a container saw there.
struct Sight {
  struct Node {
    std::string path;
    std::string error;  ///< Why it does not open; empty if it does.
  };
  std::vector<Node> nodes;
  Variables variables;
};

/// Parses the report of the program container-init. Lines that are not known are left out.
Sight parse_sight(std::string_view report);

/// Why the container may not start its program, in a sentence; nullopt: it has what it should have.
std::optional<std::string> contradiction(const Expectation& expectation, const Sight& sight);

}  // namespace yoke::container
