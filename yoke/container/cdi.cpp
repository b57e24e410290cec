#include "yoke/container/cdi.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/json.h"
#include "yoke/base/sysfs.h"
#include "yoke/container/detail/yaml.h"

namespace yoke::container {
namespace {

constexpr size_t kMostCdiBytes = 16 << 20;

std::string text_at(const SortedJson& json, const char* key) {
  if (!json.is_object() || !json.contains(key) || !json.at(key).is_string()) return "";
  return json.at(key).get<std::string>();
}

const SortedJson& at_or_null(const SortedJson& json, const char* key) {
  static const SortedJson kNull;
  return json.is_object() && json.contains(key) ? json.at(key) : kNull;
}

/// Counts nodes of GPUs, by device nodes and by mounts of nodes.
std::vector<std::string> nodes_of(const SortedJson& device) {
  std::vector<std::string> nodes;
  const auto& edits = at_or_null(device, "containerEdits");
  for (const auto& [list, key] : {std::pair{"deviceNodes", "path"}, std::pair{"mounts", "containerPath"}}) {
    for (const auto& one : at_or_null(edits, list)) {
      auto path = text_at(one, key);
      if (path.starts_with("/dev/")) nodes.push_back(std::move(path));
    }
  }
  return nodes;
}

bool ends_in_number(std::string_view text, std::string_view beginning) {
  return text.starts_with(beginning) && text.size() > beginning.size() &&
         text.find_first_not_of("0123456789", beginning.size()) == text.npos;
}

}  // namespace

bool is_gpu_node(std::string_view path) {
  return ends_in_number(path, "/dev/nvidia") || ends_in_number(path, "/dev/dri/renderD");
}

std::vector<CdiDevice> parse_cdi(const std::string& text, const std::string& file) {
  try {
    const auto begin = text.find_first_not_of(" \t\r\n");
    const auto json = begin != text.npos && text[begin] == '{' ? SortedJson::parse(text) : parse_yaml(text);
    if (!json.is_object() && !json.is_null()) throw Error(ErrorCode::kDataLoss, "it has no keys");
    std::vector<CdiDevice> devices;
    for (const auto& device : at_or_null(json, "devices")) {
      devices.push_back({text_at(json, "kind"), text_at(device, "name"), nodes_of(device)});
      if (devices.back().kind.empty() || devices.back().name.empty()) {
        throw Error(ErrorCode::kDataLoss, "a device has no name or no kind");
      }
    }
    return devices;
  } catch (const SortedJson::exception& error) {
    throw Error(ErrorCode::kDataLoss, "{} is no CDI specification: {}", file, error.what());
  } catch (const Error& error) {
    throw Error(ErrorCode::kDataLoss, "{} is no CDI specification: {}", file, error.what());
  }
}

CdiRegistry read_cdi(const std::vector<std::filesystem::path>& folders) {
  CdiRegistry registry;
  for (const auto& folder : folders) {
    std::vector<CdiDevice> devices;
    std::map<std::string, std::vector<std::string>> files_of;  // by name
    for (const auto& file : entries_of(folder)) {
      const auto extension = file.extension();
      if (extension != ".yaml" && extension != ".yml" && extension != ".json") continue;
      try {
        for (auto& device : parse_cdi(read_regular_file(file, kMostCdiBytes), file.native())) {
          files_of[device.full_name()].push_back(file.native());
          devices.push_back(std::move(device));
        }
      } catch (const Error& error) {
        registry.problems.emplace_back(error.what());
      }
    }
    std::erase_if(registry.devices, [&](const auto& device) { return files_of.contains(device.full_name()); });
    for (auto& device : devices) {
      if (files_of.at(device.full_name()).size() == 1) registry.devices.push_back(std::move(device));
    }
    for (const auto& [name, names] : files_of) {
      if (names.size() == 1) continue;
      registry.problems.push_back(fmt::format("{} is in {}, so engines give it to nobody; remove one of them", name,
                                              fmt::join(names, " and ")));
    }
  }
  return registry;
}

std::vector<std::filesystem::path> cdi_folders() { return {"/etc/cdi", "/var/run/cdi"}; }

const CdiDevice* find_cdi(const std::vector<CdiDevice>& devices, const CdiWish& wish) {
  const CdiDevice* found = nullptr;
  for (const auto& device : devices) {
    if (device.kind != wish.kind) continue;
    const bool has_name =
        device.name == wish.uuid || (!wish.instance_name.empty() && device.name == wish.instance_name);
    const auto num_gpus = std::ranges::count_if(device.nodes, is_gpu_node);
    const bool has_node = std::ranges::find(device.nodes, wish.node) != device.nodes.end();
    if (has_name && has_node && num_gpus == 1) return &device;
    if (wish.instance_name.empty() && has_node && num_gpus == 1 && found == nullptr &&
        device.name.find(':') == device.name.npos && !device.name.starts_with("MIG-")) {
      found = &device;
    }
  }
  return found;
}

}  // namespace yoke::container
