#include "yoke/train/watch/memory_summary.h"

#include <c10/core/CachingDeviceAllocator.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "yoke/base/format.h"
#include "yoke/base/json.h"
#include "yoke/base/table.h"
#include "yoke/base/text.h"
#include "yoke/dist/plug.h"
#include "yoke/train/detail/describe.h"
#include "yoke/train/watch/detail/memory_growth.h"
#include "yoke/train/watch/detail/process_memory.h"

namespace yoke::train {
namespace {

/// The quantities of a device's table: name in JSON, title, whether it is bytes.
struct StatRow {
  const char *name, *title;
  MemoryStat DeviceMemory::*stat;
  bool is_bytes;
};
constexpr std::array<StatRow, 7> kStatRows = {
    {{"allocated_bytes", "allocated", &DeviceMemory::allocated_bytes, true},
     {"requested_bytes", "requested by the program", &DeviceMemory::requested_bytes, true},
     {"active_bytes", "active (also on other streams)", &DeviceMemory::active_bytes, true},
     {"reserved_bytes", "reserved from the driver", &DeviceMemory::reserved_bytes, true},
     {"inactive_split_bytes", "not releasable (parts of blocks)", &DeviceMemory::inactive_split_bytes, true},
     {"allocations", "allocations", &DeviceMemory::allocations, false},
     {"segments", "segments of the driver", &DeviceMemory::segments, false}}};

MemoryStat stat_of(const c10::CachingAllocator::StatArray& stats) {
  const auto& all = stats[static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE)];
  return {all.current, all.peak, all.allocated, all.freed};
}

/// Asks the allocator for the whole device's memory.
void read_whole_device(c10::DeviceAllocator& allocator, c10::DeviceIndex index, DeviceMemory& memory) {
  try {
    const auto [free, total] = allocator.getMemoryInfo(index);
    memory.free_bytes = static_cast<int64_t>(free);
    memory.total_bytes = static_cast<int64_t>(total);
  } catch (const c10::Error&) {  // this vendor's allocator does not support it
  }
}

c10::DeviceAllocator* allocator_of(c10::DeviceType type) {
  try {
    return dynamic_cast<c10::DeviceAllocator*>(c10::GetAllocator(type));
  } catch (const c10::Error&) {  // no allocator is registered
    return nullptr;
  }
}

/// Returns nullopt if libtorch has allocated nothing on the device. Asking such a device would create a driver context
/// on it.
std::optional<DeviceMemory> read_device(c10::DeviceAllocator& allocator, c10::Device device) {
  if (!allocator.initialized()) return std::nullopt;
  const auto stats = allocator.getDeviceStats(device.index());
  if (stat_of(stats.reserved_bytes).peak == 0) return std::nullopt;
  DeviceMemory memory;
  memory.device = device.str();
  memory.allocated_bytes = stat_of(stats.allocated_bytes);
  memory.requested_bytes = stat_of(stats.requested_bytes);
  memory.active_bytes = stat_of(stats.active_bytes);
  memory.reserved_bytes = stat_of(stats.reserved_bytes);
  memory.inactive_split_bytes = stat_of(stats.inactive_split_bytes);
  memory.allocations = stat_of(stats.allocation);
  memory.segments = stat_of(stats.segment);
  memory.num_out_of_memory = stats.num_ooms;
  memory.num_retries = stats.num_alloc_retries;
  read_whole_device(allocator, device.index(), memory);
  return memory;
}

void add_devices(const MemoryTensors& tensors, MemorySummary& summary) {
  std::set<std::pair<c10::DeviceType, c10::DeviceIndex>> with_tensors, all;
  for (const auto& entry : tensors.tensors()) {
    const auto device = entry.second.second.device();
    if (!device.is_cpu() && !device.is_meta()) with_tensors.emplace(device.type(), device.index());
  }
  all = with_tensors;
  if (const auto* plug = dist::loaded_plug()) {
    for (int64_t i = 0; i < plug->num_devices(); ++i) {
      all.emplace(plug->device_type, static_cast<c10::DeviceIndex>(i));
    }
  }
  for (const auto& [type, index] : all) {
    const c10::Device device(type, index);
    auto* allocator = allocator_of(type);
    auto memory = allocator == nullptr ? std::nullopt : read_device(*allocator, device);
    if (memory) {
      summary.devices.push_back(*std::move(memory));
    } else if (with_tensors.contains({type, index})) {
      summary.unknown.push_back(
          fmt::format("libtorch's allocator for {} keeps no figures, or none for this device.", device.str()));
    }
  }
  if (!summary.devices.empty()) {
    summary.unknown.push_back(
        "Memory of a device that libtorch's allocator did not allocate, such as the driver's context and NCCL's "
        "buffers, is only in the free and total memory of the whole device.");
  }
}

void add_tensors(const MemoryTensors& tensors, MemorySummary& summary) {
  std::map<const void*, std::string> owners;  // by storage
  std::map<std::pair<std::string, std::string>, size_t> kinds;
  int64_t num_without_storage = 0;
  for (const auto& [kind, named] : tensors.tensors()) {
    const auto& [name, tensor] = named;
    TensorMemory memory{kind, name, tensor.device().str(), describe(tensor)};
    if (!tensor.has_storage()) {
      ++num_without_storage;
    } else if (!tensor.is_meta()) {
      const auto [owner, is_first] =
          owners.emplace(tensor.storage().unsafeGetStorageImpl(), fmt::format("{} {}", kind, name));
      if (is_first) {
        memory.bytes = static_cast<int64_t>(tensor.storage().nbytes());
      } else {
        memory.shares = owner->second;
      }
    }
    const auto [index, is_new] = kinds.emplace(std::pair(kind, memory.device), summary.kinds.size());
    if (is_new) summary.kinds.push_back({kind, memory.device});
    summary.kinds[index->second].num_tensors += 1;
    summary.kinds[index->second].bytes += memory.bytes;
    summary.tensors.push_back(std::move(memory));
  }
  std::stable_sort(summary.tensors.begin(), summary.tensors.end(),
                   [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  if (num_without_storage > 0) {
    summary.unknown.push_back(
        fmt::format("{} of the named tensors have no storage of their own (sparse ones), and count as 0 bytes.",
                    num_without_storage));
  }
  summary.unknown.push_back(
      tensors.tensors().empty()
          ? "No tensors were named, so none are listed: libtorch keeps no list of live tensors."
          : "Only named tensors are listed: libtorch keeps no list of live tensors. Activations that "
            "autograd saved, and temporary tensors, are not among them.");
  summary.unknown.push_back(
      "The host's allocator keeps no figures: freed memory that it has not returned to the system is in the resident "
      "size, and so are pages of mapped files. A tensor of the host may be resident only in part.");
}

std::string bytes_or_unknown(const std::optional<int64_t>& bytes) { return bytes ? format_bytes(*bytes) : "unknown"; }

std::string process_text(const ProcessMemory& memory) {
  Table table{.columns = {{"THIS PROCESS"}, {"BYTES", Align::kRight}}};
  const auto row = [&](const char* title, const std::optional<int64_t>& bytes) {
    table.rows.push_back({title, bytes_or_unknown(bytes)});
  };
  row("resident", memory.resident_bytes);
  row("  anonymous (heap, tensors)", memory.anonymous_bytes);
  row("  mapped files", memory.file_bytes);
  row("  shared memory", memory.shared_bytes);
  row("peak resident", memory.peak_resident_bytes);
  row("swapped out", memory.swapped_bytes);
  if (memory.limit_bytes) {
    row("limit of the control group", memory.limit_bytes);
    row("  used by all its processes", memory.limit_used_bytes);
  } else {
    table.rows.push_back({"limit of the control group", "none"});
  }
  row("memory of the machine", memory.machine_bytes);
  row("  available", memory.machine_available_bytes);
  return to_text(table, kUnlimitedWidth);
}

std::string device_text(const DeviceMemory& memory) {
  Table table{.columns = {{memory.device},
                          {"NOW", Align::kRight},
                          {"PEAK", Align::kRight},
                          {"ADDED", Align::kRight},
                          {"REMOVED", Align::kRight}}};
  for (const auto& row : kStatRows) {
    const auto& stat = memory.*row.stat;
    const auto value = [&](int64_t number) { return row.is_bytes ? format_bytes(number) : std::to_string(number); };
    table.rows.push_back({row.title, value(stat.now), value(stat.peak), value(stat.added), value(stat.removed)});
  }
  return to_text(table, kUnlimitedWidth) +
         fmt::format("out of memory: {}; the cache was flushed for an allocation: {}; free on the device: {} of {}\n",
                     memory.num_out_of_memory, memory.num_retries, bytes_or_unknown(memory.free_bytes),
                     bytes_or_unknown(memory.total_bytes));
}

std::string tensors_text(const MemorySummary& summary, int64_t max_tensors) {
  if (summary.tensors.empty()) return "";
  Table kinds{.columns = {{"TENSORS"}, {"DEVICE"}, {"COUNT", Align::kRight}, {"BYTES", Align::kRight}}};
  for (const auto& kind : summary.kinds) {
    kinds.rows.push_back({kind.kind, kind.device, std::to_string(kind.num_tensors), format_bytes(kind.bytes)});
  }
  Table largest{.columns = {{"LARGEST"}, {"NAME"}, {"DEVICE"}, {"TENSOR"}, {"BYTES", Align::kRight}}};
  for (const auto& tensor : summary.tensors) {
    if (static_cast<int64_t>(largest.rows.size()) >= max_tensors || tensor.bytes == 0) break;
    largest.rows.push_back({tensor.kind, tensor.name, tensor.device, tensor.tensor, format_bytes(tensor.bytes)});
  }
  return "\n" + to_text(kinds, kUnlimitedWidth) +
         (largest.rows.empty() ? "" : "\n" + to_text(largest, kUnlimitedWidth));
}

Json device_json(const DeviceMemory& memory) {
  Json json{{"device", memory.device}};
  for (const auto& row : kStatRows) {
    const auto& stat = memory.*row.stat;
    json[row.name] = {{"now", stat.now}, {"peak", stat.peak}, {"added", stat.added}, {"removed", stat.removed}};
  }
  json["num_out_of_memory"] = memory.num_out_of_memory;
  json["num_retries"] = memory.num_retries;
  json["free_bytes"] = or_null(memory.free_bytes);
  json["total_bytes"] = or_null(memory.total_bytes);
  return json;
}

Json kind_json(const KindMemory& kind) {
  return {{"kind", printable(kind.kind)},
          {"device", kind.device},
          {"num_tensors", kind.num_tensors},
          {"bytes", kind.bytes}};
}

Json tensor_json(const TensorMemory& tensor) {
  return {{"kind", printable(tensor.kind)}, {"name", printable(tensor.name)}, {"device", tensor.device},
          {"tensor", tensor.tensor},        {"bytes", tensor.bytes},          {"shares", printable(tensor.shares)}};
}

}  // namespace

std::string MemorySummary::to_text(int64_t max_tensors) const {
  auto text = process_text(process);
  for (const auto& device : devices) text += "\n" + device_text(device);
  text += tensors_text(*this, max_tensors) + "\nNot known:\n";
  for (const auto& sentence : unknown) text += "- " + sentence + "\n";
  return text;
}

std::string MemorySummary::to_json() const {
  Json json{{"process",
             {{"resident_bytes", or_null(process.resident_bytes)},
              {"anonymous_bytes", or_null(process.anonymous_bytes)},
              {"file_bytes", or_null(process.file_bytes)},
              {"shared_bytes", or_null(process.shared_bytes)},
              {"peak_resident_bytes", or_null(process.peak_resident_bytes)},
              {"swapped_bytes", or_null(process.swapped_bytes)},
              {"limit_bytes", or_null(process.limit_bytes)},
              {"limit_used_bytes", or_null(process.limit_used_bytes)},
              {"machine_bytes", or_null(process.machine_bytes)},
              {"machine_available_bytes", or_null(process.machine_available_bytes)}}},
            {"devices", json_list(devices, device_json)},
            {"kinds", json_list(kinds, kind_json)},
            {"tensors", json_list(tensors, tensor_json)},
            {"unknown", unknown}};
  return json.dump(2);
}

MemorySummary memory_summary(const MemoryTensors& tensors) {
  MemorySummary summary;
  summary.process = read_process_memory();
  add_devices(tensors, summary);
  add_tensors(tensors, summary);
  return summary;
}

std::optional<int64_t> detail::allocated_bytes(c10::Device device) {
  auto* const allocator = device.is_cpu() ? nullptr : allocator_of(device.type());
  if (allocator == nullptr || !allocator->initialized()) return std::nullopt;
  return stat_of(allocator->getDeviceStats(device.index()).allocated_bytes).now;
}

}  // namespace yoke::train
