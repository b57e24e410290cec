#include <fmt/format.h>
#include <strings.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <numeric>
#include <utility>

#include "yoke/base/text.h"
#include "yoke/device/visibility/detail/rules.h"

namespace yoke::device {
namespace {

// ---- the order of indices -------------------------------------------------------------------------------------------

struct Order {
  std::vector<int64_t> devices;
  bool is_certain = true;
  std::string why;
};

std::pair<int, int> capability(const Device& gpu) {
  int major = 0;
  int minor = 0;
  const auto& text = gpu.facts.compute_capability;
  const auto* end = text.data() + text.size();
  const auto [point, error] = std::from_chars(text.data(), end, major);
  if (error == std::errc{} && point != end) std::from_chars(point + 1, end, minor);
  return {major, minor};
}

Order cuda_order(const Gpus& gpus, const CudaRules& rules) {
  Order order{std::vector<int64_t>(gpus.size()), true, "in PCI order"};
  std::iota(order.devices.begin(), order.devices.end(), 0);
  if (rules.device_order == "PCI_BUS_ID") return order;
  const bool one_model = std::ranges::all_of(
      gpus, [&](const Device* gpu) { return !gpu->facts.name.empty() && gpu->facts.name == gpus.front()->facts.name; });
  if (gpus.size() < 2) return order;
  if (one_model) {
    order.why = "in PCI order, as the GPUs are of one model";
    return order;
  }
  // NVIDIA does not document what "fastest" means. The assumption that newer generations come first is usually right.
  std::ranges::stable_sort(order.devices, [&](int64_t a, int64_t b) {
    return capability(*gpus[static_cast<size_t>(a)]) > capability(*gpus[static_cast<size_t>(b)]);
  });
  order.is_certain = false;
  order.why = "by a guess: of different GPUs CUDA promises only that the fastest is first";
  return order;
}

// ---- what one entry names -------------------------------------------------------------------------------------------

Entry match_index(const std::string& token, const Order& order) {
  const auto text = trimmed(token, kSpace);
  if (text.empty()) return refused(token, Verdict::kInvalid, "an empty entry");
  if (text == "NoDevFiles") return refused(token, Verdict::kInvalid, "Slurm's word for no GPU");
  const bool is_negative = text.front() == '-';
  auto digits = text.substr(is_negative || text.front() == '+' ? 1 : 0);
  const auto num_digits = std::min(digits.find_first_not_of("0123456789"), digits.size());
  const auto rest = digits.substr(num_digits);
  digits = digits.substr(0, num_digits);
  if (digits.empty()) return refused(token, Verdict::kInvalid, "neither a number nor a UUID");
  int64_t index = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
  if (is_negative && (error != std::errc{} || index != 0)) {
    return refused(token, Verdict::kInvalid, "a negative number");
  }
  if (error != std::errc{} || index >= static_cast<int64_t>(order.devices.size())) {
    return refused(token, Verdict::kOutOfRange,
                   order.devices.empty() ? "there is no GPU"
                                         : fmt::format("GPUs are counted from 0 to {}", order.devices.size() - 1));
  }
  Entry entry{token, Verdict::kVisible, Unit{order.devices[static_cast<size_t>(index)], {}}, {}, order.is_certain};
  entry.why = fmt::format("number {} {}", index, order.why);
  if (!rest.empty()) entry.why += "; what follows the number is not read";
  // Whether the driver reads 0x1 as 1, or 010 as 8, has not been tested on hardware.
  if (text.front() == '0' && text.size() > 1) entry.is_certain = false;
  return entry;
}

Entry match_prefix(const std::string& token, const std::vector<std::pair<std::string, Unit>>& uuids) {
  std::optional<Unit> unit;
  for (const auto& [uuid, candidate] : uuids) {
    if (!uuid.starts_with(token) || uuid.empty()) continue;
    if (unit) return refused(token, Verdict::kAmbiguous, "several UUIDs begin with this");
    unit = candidate;
  }
  if (!unit) return refused(token, Verdict::kOutOfRange, "no UUID begins with this");
  return {token, Verdict::kVisible, unit, "by its UUID", true};
}

Entry match_gpu_uuid(const std::string& token, const Gpus& gpus) {
  if (!token.starts_with("GPU-")) return refused(token, Verdict::kInvalid, "not a GPU- UUID, as the first entry is");
  std::vector<std::pair<std::string, Unit>> uuids;
  for (size_t i = 0; i < gpus.size(); ++i) uuids.push_back({gpus[i]->facts.uuid, {static_cast<int64_t>(i), {}}});
  return match_prefix(token, uuids);
}

/// Matches "MIG-GPU-<uuid>/<GPU instance>/<compute instance>", the form of names in drivers before 470.
Entry match_old_mig_name(const std::string& token, const Gpus& gpus) {
  const auto first = token.find('/');
  const auto second = token.find('/', first + 1);
  const auto whole_number = [](std::string_view text) {
    return text.find_first_not_of("0123456789") == text.npos ? parse_int(text) : std::nullopt;
  };
  if (first == token.npos || second == token.npos) {
    return refused(token, Verdict::kInvalid, "not MIG-GPU-<uuid>/<GPU instance>/<compute instance>");
  }
  const auto gpu_instance = whole_number(std::string_view(token).substr(first + 1, second - first - 1));
  const auto compute_instance = whole_number(std::string_view(token).substr(second + 1));
  if (!gpu_instance || !compute_instance) return refused(token, Verdict::kInvalid, "an instance is not a number");
  auto entry = match_gpu_uuid(token.substr(4, first - 4), gpus);
  entry.text = token;
  if (!entry.unit) return entry;
  const auto& instances = gpus[static_cast<size_t>(entry.unit->device)]->instances;
  for (size_t i = 0; i < instances.size(); ++i) {
    const auto& facts = instances[i].facts;
    if (facts.gpu_instance != gpu_instance || facts.compute_instance != compute_instance) continue;
    entry.unit->instance = static_cast<int64_t>(i);
    entry.why = "by the GPU's UUID and its instances' numbers";
    return entry;
  }
  return refused(token, Verdict::kOutOfRange, "the GPU has no such instance");
}

Entry match_mig_uuid(const std::string& token, const Gpus& gpus) {
  if (!token.starts_with("MIG-")) return refused(token, Verdict::kInvalid, "not a MIG- UUID, as the first entry is");
  if (token.starts_with("MIG-GPU-")) return match_old_mig_name(token, gpus);
  std::vector<std::pair<std::string, Unit>> uuids;
  for (size_t i = 0; i < gpus.size(); ++i) {
    for (size_t j = 0; j < gpus[i]->instances.size(); ++j) {
      const Unit unit{static_cast<int64_t>(i), static_cast<int64_t>(j)};
      uuids.push_back({gpus[i]->instances[j].facts.uuid, unit});
    }
  }
  return match_prefix(token, uuids);
}

// ---- MIG ------------------------------------------------------------------------------------------------------------

/// Returns the units that stand for a GPU: the GPU itself or, in MIG mode, the first compute instance of each GPU
/// instance.
std::vector<Unit> expand(const Unit& unit, const Gpus& gpus) {
  const auto& gpu = *gpus[static_cast<size_t>(unit.device)];
  if (unit.instance || !is_mig(gpu)) return {unit};
  std::vector<Unit> units;
  std::vector<std::optional<int64_t>> seen;
  for (size_t i = 0; i < gpu.instances.size(); ++i) {
    const auto& gpu_instance = gpu.instances[i].facts.gpu_instance;
    if (gpu_instance && std::ranges::find(seen, gpu_instance) != seen.end()) continue;
    seen.push_back(gpu_instance);
    units.push_back({unit.device, static_cast<int64_t>(i)});
  }
  return units;
}

/// Whether `units` already has a compute instance in the GPU instance to which `unit` belongs.
bool shares_gpu_instance(const Unit& unit, const std::vector<Unit>& units, const Gpus& gpus) {
  const auto gpu_instance = [&](const Unit& any) -> std::optional<int64_t> {
    if (!any.instance) return std::nullopt;
    return gpus[static_cast<size_t>(any.device)]->instances[static_cast<size_t>(*any.instance)].facts.gpu_instance;
  };
  return gpu_instance(unit) && std::ranges::any_of(units, [&](const Unit& other) {
           return other.device == unit.device && gpu_instance(other) == gpu_instance(unit);
         });
}

/// Replaces GPUs in MIG mode by their instances. Drops units that CUDA does not show together with other devices.
void apply_mig(Selection& selection, const Gpus& gpus, const CudaRules& rules) {
  const auto judge = [&](const Unit& unit, Verdict verdict, std::string_view why) {
    for (auto& entry : selection.entries) {
      if (entry.verdict != Verdict::kVisible || entry.unit != unit) continue;
      if (verdict != Verdict::kVisible) entry.verdict = verdict;
      entry.why = verdict == Verdict::kVisible ? fmt::format("{}; {}", entry.why, why) : std::string(why);
    }
  };
  const bool several = rules.driver_branch.value_or(0) >= kFirstBranchWithSeveralMigDevices;
  std::vector<Unit> units;
  for (const auto& unit : selection.units) {
    const auto& gpu = *gpus[static_cast<size_t>(unit.device)];
    const auto expanded = expand(unit, gpus);
    if (expanded.empty()) {
      judge(unit, Verdict::kUnusable, "the GPU is in MIG mode and has no instance to show");
    } else if (!unit.instance && is_mig(gpu)) {
      judge(unit, Verdict::kVisible,
            several ? "the GPU is in MIG mode: its instances" : "the GPU is in MIG mode: its first instance");
    }
    for (const auto& part : expanded) {
      if (part.instance && shares_gpu_instance(part, units, gpus)) {
        judge(part, Verdict::kIgnored, "CUDA shows one compute instance of a GPU instance: an earlier entry's");
        continue;
      }
      units.push_back(part);
    }
  }
  const auto first = std::ranges::find_if(units, [](const Unit& unit) { return unit.instance.has_value(); });
  if (!several && first != units.end()) {
    const Unit only = *first;
    for (const auto& unit : selection.units) {
      if (unit == only || (!unit.instance && unit.device == only.device)) continue;
      judge(unit, Verdict::kIgnored,
            rules.driver_branch
                ? "before driver 570 a program sees one MIG device and nothing beside it"
                : "a program sees one MIG device and nothing beside it, unless the driver is 570 or newer");
    }
    units = {only};
  }
  selection.units = std::move(units);
}

// ---- containers -----------------------------------------------------------------------------------------------------

bool equal_ignoring_case(const std::string& a, const std::string& b) {
  return a.size() == b.size() && strcasecmp(a.c_str(), b.c_str()) == 0;
}

Entry match_for_container(const std::string& token, const Gpus& gpus) {
  Entry entry{token, Verdict::kVisible, std::nullopt, "by its UUID", true};
  for (size_t i = 0; i < gpus.size() && !token.empty(); ++i) {
    const auto device = static_cast<int64_t>(i);
    if (equal_ignoring_case(gpus[i]->facts.uuid, token)) entry.unit = {device, {}};
    for (size_t j = 0; j < gpus[i]->instances.size(); ++j) {
      if (equal_ignoring_case(gpus[i]->instances[j].facts.uuid, token)) entry.unit = {device, static_cast<int64_t>(j)};
    }
  }
  unsigned domain = 0;
  unsigned bus = 0;
  unsigned slot = 0;
  if (!entry.unit && std::sscanf(token.c_str(), "%x:%2x:%2x.0", &domain, &bus, &slot) == 3) {
    const auto bus_id = fmt::format("{:04x}:{:02x}:{:02x}.0", domain, bus, slot);
    for (size_t i = 0; i < gpus.size(); ++i) {
      if (equal_ignoring_case(gpus[i]->facts.pci_bus_id, bus_id)) entry.unit = {static_cast<int64_t>(i), {}};
    }
    entry.why = "by its PCI bus id";
  }
  const auto colon = token.find(':');
  const auto index = parse_int(token.substr(0, colon));
  if (!entry.unit && index && *index >= 0 && *index < static_cast<int64_t>(gpus.size())) {
    const auto& instances = gpus[static_cast<size_t>(*index)]->instances;
    const auto instance = colon == token.npos ? std::nullopt : parse_int(token.substr(colon + 1));
    if (colon == token.npos) entry.unit = {*index, {}};
    for (size_t j = 0; instance && j < instances.size(); ++j) {
      if (instances[j].index != *instance) continue;
      entry.unit = {*index, static_cast<int64_t>(j)};
      // Whether the toolkit counts the holes in the driver's indices has not been tested on hardware.
      entry.is_certain = *instance == static_cast<int64_t>(j);
    }
    entry.why = "by its number, which is nvidia-smi's";
  }
  if (!entry.unit) {
    return refused(token, Verdict::kOutOfRange, "no GPU of this machine; the container would not start");
  }
  return entry;
}

}  // namespace

Selection select_cuda(const std::optional<std::string>& text, const Gpus& gpus, const CudaRules& rules) {
  const auto order = cuda_order(gpus, rules);
  Selection result;
  if (!text) {
    for (const auto device : order.devices) result.units.push_back({device, {}});
    result.effect = "not set: every GPU, " + order.why;
    result.is_certain = order.is_certain;
  } else {
    ListReader reader(Duplicates::kHideAll);
    for (const auto& token : split_list(*text, true)) {
      if (text->starts_with("GPU-")) {
        reader.add(match_gpu_uuid(token, gpus));
      } else if (text->starts_with("MIG-")) {
        reader.add(match_mig_uuid(token, gpus));
      } else {
        reader.add(match_index(token, order));
      }
    }
    result = std::move(reader.selection);
    result.effect = text->empty() ? "empty: hides every GPU" : "the GPUs that CUDA programs see, in their order";
  }
  apply_mig(result, gpus, rules);
  return result;
}

Selection select_for_container(const std::string& text, const Gpus& gpus) {
  const auto every_unit = [&] {
    std::vector<Unit> units;
    for (size_t i = 0; i < gpus.size(); ++i) {
      const auto device = static_cast<int64_t>(i);
      if (!is_mig(*gpus[i])) units.push_back({device, {}});
      for (size_t j = 0; j < gpus[i]->instances.size(); ++j) units.push_back({device, static_cast<int64_t>(j)});
    }
    return units;
  };
  Selection result;
  if (text.empty() || text == "void") {
    result.effect = "gives a container neither GPUs nor the driver's libraries";
    return result;
  }
  if (text == "none") {
    result.effect = "gives a container the driver's libraries and no GPU";
    return result;
  }
  ListReader reader(Duplicates::kAreSkipped);
  bool all = false;
  for (const auto& token : split_list(text, true)) {
    if (reader.has_ended() || !equal_ignoring_case(token, "all")) {
      if (!token.empty()) reader.add(match_for_container(token, gpus));
    } else {
      all = true;
      reader.selection.entries.push_back({token, Verdict::kVisible, std::nullopt, "every GPU and MIG instance", true});
      reader.end("all of them are given already");
    }
  }
  auto& entries = reader.selection.entries;
  const auto refusal =
      std::ranges::find_if(entries, [](const Entry& entry) { return entry.verdict == Verdict::kOutOfRange; });
  if (refusal != entries.end()) {
    reader.cancel(static_cast<size_t>(refusal - entries.begin()));
    result = std::move(reader.selection);
    result.effect = "names a device that is not here: a container would not start";
    return result;
  }
  result = std::move(reader.selection);
  if (all) result.units = every_unit();
  // If an entry names a GPU in MIG mode instead of one of its instances, the container gets the GPU without its
  // instances, and CUDA cannot use it.
  for (auto& entry : result.entries) {
    if (entry.verdict != Verdict::kVisible || !entry.unit || entry.unit->instance) continue;
    if (!is_mig(*gpus[static_cast<size_t>(entry.unit->device)])) continue;
    entry.verdict = Verdict::kUnusable;
    entry.why = "the GPU is in MIG mode; name an instance of it, as 0:1 or by UUID";
    std::erase(result.units, *entry.unit);
  }
  std::ranges::sort(result.units);
  result.effect = "read when a container is started, which would get these GPUs, numbered from 0 in their order here";
  return result;
}

}  // namespace yoke::device
