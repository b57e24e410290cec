#include "yoke/container/devices.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "yoke/base/error.h"
#include "yoke/base/text.h"

namespace yoke::container {
namespace {

using device::Vendor;

constexpr const char* kNvidiaKind = "nvidia.com/gpu";

std::vector<std::string> uuids_of(const std::vector<WantedDevice>& devices) {
  std::vector<std::string> uuids;
  for (const auto& device : devices) uuids.push_back(device.uuid);
  return uuids;
}

std::string need_node(const WantedDevice& device) {
  if (!device.minor) {
    throw Error(ErrorCode::kFailedPrecondition, "the driver does not tell which node in /dev device {} has", device.id);
  }
  return device.node();
}

/// The names of the devices in CDI specifications, or an empty list if one of them has none.
std::vector<std::string> cdi_names(const Engine& engine, const std::vector<WantedDevice>& devices) {
  std::vector<std::string> names;
  if (!engine.is_installed && engine.cdi.devices.empty()) {  // as `nvidia-ctk cdi generate` would name them
    for (const auto& device : devices) names.push_back(fmt::format("{}={}", kNvidiaKind, device.id));
    return names;
  }
  for (const auto& device : devices) {
    // Specifications name instances by NVML's index of the GPU; `device.id` has the same for NVIDIA's devices, which
    // come first in `yoke devices`.
    const auto* found = find_cdi(engine.cdi.devices, {.kind = kNvidiaKind,
                                                      .node = need_node(device),
                                                      .uuid = device.uuid,
                                                      .instance_name = device.is_instance ? device.id : ""});
    if (found == nullptr) return {};
    names.push_back(found->full_name());
  }
  return names;
}

void use_cdi(const Engine& engine, const std::vector<std::string>& names, DeviceGrant& grant) {
  for (const auto& name : names) grant.arguments.insert(grant.arguments.end(), {"--device", name});
  // A runtime of NVIDIA's that is the default would also add what the image asks for by this variable, usually `all`.
  grant.variables.emplace_back("NVIDIA_VISIBLE_DEVICES", "void");
  grant.expectation.mechanism =
      fmt::format("{}'s --device {} (CDI)", name(engine.kind), fmt::join(names, " --device "));
}

[[noreturn]] void refuse_nvidia(const Engine& engine, std::string_view what_to_do) {
  throw Error(ErrorCode::kFailedPrecondition, "{} {} cannot give these devices to a container: {}", name(engine.kind),
              engine.version.text(), what_to_do);
}

std::string without_specification(const Engine& engine) {
  auto text = std::string(
      "no CDI specification in /etc/cdi or /var/run/cdi names them. An administrator makes one by `nvidia-ctk cdi "
      "generate --output=/etc/cdi/nvidia.yaml`, and again after a change of the driver");
  for (const auto& problem : engine.cdi.problems) text += ". Left out: " + problem;
  return text;
}

void grant_nvidia(const Engine& engine, const std::vector<WantedDevice>& devices, DeviceGrant& grant) {
  const auto uuids = fmt::format("{}", fmt::join(uuids_of(devices), ","));
  const auto names = engine.has_cdi ? cdi_names(engine, devices) : std::vector<std::string>();
  if (!names.empty()) {
    use_cdi(engine, names, grant);
  } else if (engine.kind == EngineKind::kApptainer) {
    grant.arguments.emplace_back("--nv");
    grant.expectation.is_exact = false;  // it binds the nodes of all devices
    grant.expectation.mechanism = "apptainer's --nv";
  } else if (engine.kind == EngineKind::kPodman) {
    if (engine.has_cdi) refuse_nvidia(engine, without_specification(engine));
    if (!engine.has_nvidia_hook) {
      refuse_nvidia(engine, "this version knows no CDI, and NVIDIA's OCI hook is not installed; update podman to 4.1");
    }
    grant.variables.emplace_back("NVIDIA_VISIBLE_DEVICES", uuids);
    grant.expectation.mechanism = "NVIDIA's OCI hook by NVIDIA_VISIBLE_DEVICES";
  } else if (engine.version >= Version{19, 3, 0}) {
    grant.arguments = {"--gpus", fmt::format("\"device={}\"", uuids)};
    grant.expectation.mechanism = fmt::format("docker's --gpus \"device={}\"", uuids);
  } else if (engine.has_nvidia_runtime) {
    grant.arguments = {"--runtime", "nvidia"};
    grant.variables.emplace_back("NVIDIA_VISIBLE_DEVICES", uuids);
    grant.expectation.mechanism = "docker's --runtime nvidia";
  } else {
    refuse_nvidia(engine, "update docker to 19.03 or later, and install the NVIDIA Container Toolkit");
  }
  grant.variables.emplace_back("CUDA_VISIBLE_DEVICES", uuids);
  for (const auto& device : devices) grant.expectation.nodes.push_back(need_node(device));
}

/// AMD's GPUs are plain device nodes: AMD's specifications for CDI have nothing else. --device with a path works in all
/// versions, whereas --gpus is ignored by podman before 6.0 and fails in docker before 29.3.
void grant_amd(const Engine& engine, const std::vector<WantedDevice>& devices, DeviceGrant& grant) {
  if (engine.kind == EngineKind::kApptainer) {
    grant.arguments.emplace_back("--rocm");
    grant.expectation.is_exact = false;
    grant.expectation.mechanism = "apptainer's --rocm";
  }
  grant.expectation.nodes.emplace_back("/dev/kfd");
  for (const auto& device : devices) grant.expectation.nodes.push_back(need_node(device));
  if (engine.kind != EngineKind::kApptainer) {
    for (const auto& node : grant.expectation.nodes) {
      grant.arguments.insert(grant.arguments.end(), {"--device", node});
    }
    grant.expectation.mechanism =
        fmt::format("{}'s --device {}", name(engine.kind), fmt::join(grant.expectation.nodes, " --device "));
  }
  const auto uuids = uuids_of(devices);
  std::vector<std::string> numbers;
  const bool has_uuids = std::ranges::none_of(uuids, [](const auto& uuid) { return uuid.empty(); });
  for (size_t i = 0; i < devices.size(); ++i) {
    // With only some nodes in the container, ROCr numbers those from 0.
    numbers.push_back(
        std::to_string(grant.expectation.is_exact ? static_cast<int64_t>(i) : devices[i].vendor_index.value_or(0)));
  }
  grant.variables.emplace_back("ROCR_VISIBLE_DEVICES", fmt::format("{}", fmt::join(has_uuids ? uuids : numbers, ",")));
}

void grant_nothing(const Engine& engine, DeviceGrant& grant) {
  // A default runtime of NVIDIA's would add the devices that the image's NVIDIA_VISIBLE_DEVICES asks for.
  grant.variables = {{"NVIDIA_VISIBLE_DEVICES", "void"}, {"CUDA_VISIBLE_DEVICES", ""}, {"ROCR_VISIBLE_DEVICES", ""}};
  grant.expectation.mechanism = fmt::format("{} without an option for devices", name(engine.kind));
}

}  // namespace

std::string WantedDevice::node() const {
  if (!minor) return "";
  return fmt::format(fmt::runtime(vendor == Vendor::kAmd ? "/dev/dri/renderD{}" : "/dev/nvidia{}"), *minor);
}

std::vector<WantedDevice> wanted_devices(const device::Snapshot& snapshot, const std::vector<std::string>& ids) {
  std::vector<WantedDevice> result;
  const auto own_uuid = [&](const device::Device& gpu) {
    const auto is_same = [&](const device::Device& other) { return other.facts.uuid == gpu.facts.uuid; };
    return std::ranges::count_if(snapshot.devices, is_same) == 1 ? gpu.facts.uuid : "";
  };
  for (const auto& id : ids) {
    for (const auto& gpu : snapshot.devices) {
      WantedDevice wanted{.vendor = gpu.vendor,
                          .id = id,
                          .uuid = gpu.vendor == Vendor::kAmd ? own_uuid(gpu) : gpu.facts.uuid,
                          .minor = gpu.facts.minor_number,
                          .vendor_index = gpu.facts.vendor_index};
      if (id_of(gpu) == id) result.push_back(wanted);
      wanted.is_instance = true;
      for (const auto& instance : gpu.instances) {
        wanted.uuid = instance.facts.uuid;
        if (fmt::format("{}:{}", gpu.index, instance.index) == id) result.push_back(wanted);
      }
    }
  }
  return result;
}

DeviceGrant grant_devices(const Engine& engine, const std::vector<WantedDevice>& devices) {
  DeviceGrant grant;
  if (devices.empty()) {
    grant_nothing(engine, grant);
  } else if (devices.front().vendor == Vendor::kNvidia) {
    grant_nvidia(engine, devices, grant);
  } else {
    grant_amd(engine, devices, grant);
  }
  const auto is_other = [&](const WantedDevice& device) { return device.vendor != devices.front().vendor; };
  if (std::ranges::any_of(devices, is_other)) {
    throw Error(ErrorCode::kFailedPrecondition,
                "a container gets devices of one vendor; these are of two. Name them by --device");
  }
  for (const auto& [name, value] : grant.variables) {
    if (name != "NVIDIA_VISIBLE_DEVICES") grant.expectation.variables.emplace_back(name, value);
  }
  return grant;
}

Sight parse_sight(std::string_view report) {
  Sight sight;
  for (const auto line : lines_of(report)) {
    const auto word = line.substr(0, line.find(' '));
    const auto rest = line.substr(std::min(word.size() + 1, line.size()));
    if (line.starts_with("node ")) {
      const auto space = std::min(rest.find(' '), rest.size());
      sight.nodes.push_back({std::string(rest.substr(0, space)),
                             space < rest.size() ? std::string(rest.substr(space + 1)) : std::string()});
    } else if (line.starts_with("variable ")) {
      const auto equals = rest.find('=');
      if (equals == rest.npos) continue;
      sight.variables.emplace_back(rest.substr(0, equals), rest.substr(equals + 1));
    }
  }
  return sight;
}

std::optional<std::string> contradiction(const Expectation& expectation, const Sight& sight) {
  std::vector<std::string> wrong;
  for (const auto& path : expectation.nodes) {
    const auto found = std::ranges::find_if(sight.nodes, [&](const auto& node) { return node.path == path; });
    if (found == sight.nodes.end()) {
      wrong.push_back(fmt::format("{} is missing", path));
    } else if (!found->error.empty()) {
      wrong.push_back(fmt::format("{} does not open ({})", path, printable(found->error)));
    }
  }
  for (const auto& node : sight.nodes) {
    const bool is_gpu = is_gpu_node(node.path) || (expectation.nodes.empty() && node.path == "/dev/kfd");
    const bool is_wanted = std::ranges::find(expectation.nodes, node.path) != expectation.nodes.end();
    if (expectation.is_exact && is_gpu && !is_wanted) {
      wrong.push_back(fmt::format("{} is there, but was not asked for", printable(node.path)));
    }
  }
  for (const auto& variable : expectation.variables) {
    if (std::ranges::find(sight.variables, variable) == sight.variables.end()) {
      wrong.push_back(fmt::format("{} is not \"{}\"", variable.first, variable.second));
    }
  }
  if (wrong.empty()) return std::nullopt;
  return fmt::format("{} did not take effect: in the container, {}", expectation.mechanism, fmt::join(wrong, "; "));
}

}  // namespace yoke::container
