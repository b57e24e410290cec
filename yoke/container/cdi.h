// yoke/container/cdi.h -- the names that CDI specifications (container device interface) give to the GPUs.
//
// A name may be a number, a UUID or free text, as the tool that wrote the specification chose. What counts is the
// device nodes that belong to a name, so a GPU is found by its node.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace yoke::container {

struct CdiDevice {
  std::string kind;                ///< "nvidia.com/gpu"
  std::string name;                ///< "0", "GPU-...", "all"
  std::vector<std::string> nodes;  ///< Paths in the container.

  std::string full_name() const { return kind + "=" + name; }
  bool operator==(const CdiDevice&) const = default;
};

/// Parses a specification, which is YAML or JSON. Errors  kDataLoss, with the name of the file.
std::vector<CdiDevice> parse_cdi(const std::string& text, const std::string& file);

struct CdiRegistry {
  std::vector<CdiDevice> devices;
  std::vector<std::string> problems = {};  ///< Sentences about what was left out, and why.
};

/// Reads the specifications in these folders; a name in a later folder has priority. As engines do, it leaves out files
/// that cannot be read or parsed, and names that two files of one folder have.
/// Source  container-device-interface, pkg/cdi/cache.go: refresh().
CdiRegistry read_cdi(const std::vector<std::filesystem::path>& folders);

/// Where engines look for specifications.
std::vector<std::filesystem::path> cdi_folders();

/// Finds the device of `kind` that has the GPU's node `node`, and no other GPU's node. Prefers the name `uuid`.
/// For a MIG instance, `names` ("0:1") and the UUID are tried instead, because instances share the node of their GPU.
struct CdiWish {
  std::string kind;
  std::string node;  ///< "/dev/nvidia0", "/dev/dri/renderD128"
  std::string uuid;
  std::string instance_name = {};  ///< "0:1"; empty for a whole GPU.
};
const CdiDevice* find_cdi(const std::vector<CdiDevice>& devices, const CdiWish& wish);

/// Whether `path` is a node of one GPU: /dev/nvidia0 or /dev/dri/renderD128, and not /dev/nvidiactl.
bool is_gpu_node(std::string_view path);

}  // namespace yoke::container
