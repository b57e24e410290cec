#include "yoke/device/visibility/detail/warnings.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "yoke/base/text.h"

namespace yoke::device {
namespace {

using Lines = std::vector<std::string>;

std::optional<int64_t> driver_branch(const Snapshot& snapshot) {
  for (const auto& backend : snapshot.backends) {
    int64_t branch = 0;
    const auto& version = backend.driver_version;
    const auto [end, error] = std::from_chars(version.data(), version.data() + version.size(), branch);
    if (backend.backend == "nvml" && error == std::errc{} && end != version.data()) return branch;
  }
  return std::nullopt;
}

/// Warns of the first entry that has no effect or an unexpected effect. A single `-1` gives no warning, because it is
/// the usual way to hide all devices.
void warn_of_entries(const std::string& variable, const Selection& selection, Duplicates duplicates, Lines& lines) {
  const auto& entries = selection.entries;
  if (entries.size() == 1 && (entries[0].text == "-1" || entries[0].text == "NoDevFiles")) return;
  for (size_t i = 0; i < entries.size(); ++i) {
    const auto verdict = entries[i].verdict;
    const bool is_harmless = verdict == Verdict::kVisible || verdict == Verdict::kCancelled ||
                             (verdict == Verdict::kDuplicate && duplicates == Duplicates::kAreSkipped);
    if (is_harmless) continue;
    const auto num_not_read =
        std::ranges::count_if(entries, [](const Entry& entry) { return entry.verdict == Verdict::kNotRead; });
    auto line = fmt::format("{}: {} ({}) is {}: {}", variable, entry_number(i), in_quotes(entries[i].text),
                            name(verdict), entries[i].why);
    if (num_not_read > 0 && verdict != Verdict::kNotRead) {
      line += fmt::format(", and {} more {} not read", num_not_read, num_not_read == 1 ? "is" : "are");
    }
    lines.push_back(line);
    return;
  }
}

void warn_of_order(const Environment& environment, const Selections& all, Lines& lines) {
  const auto order = environment.find("CUDA_DEVICE_ORDER");
  if (order && *order != "PCI_BUS_ID" && *order != "FASTEST_FIRST") {
    lines.push_back(
        fmt::format("CUDA_DEVICE_ORDER={} is neither PCI_BUS_ID nor FASTEST_FIRST: CUDA probably takes it as "
                    "FASTEST_FIRST; write PCI_BUS_ID to count GPUs as nvidia-smi does",
                    in_quotes(*order)));
  }
  const auto text = environment.value_or("CUDA_VISIBLE_DEVICES", "");
  const bool has_uncertain_index = std::ranges::any_of(
      all.cuda.entries, [](const Entry& entry) { return entry.verdict == Verdict::kVisible && !entry.is_certain; });
  if (has_uncertain_index) {
    lines.push_back(
        "CUDA_VISIBLE_DEVICES: which GPU a number means is not certain here; set CUDA_DEVICE_ORDER=PCI_BUS_ID and "
        "write "
        "plain numbers, or name GPUs by UUID (`yoke visible --set` does)");
  }
  const bool has_index = std::ranges::any_of(all.cuda.entries, [&](const Entry& entry) {
    return entry.verdict == Verdict::kVisible && !text.starts_with("GPU-") && !text.starts_with("MIG-");
  });
  if (has_index && environment.contains("CUDA_MPS_PIPE_DIRECTORY")) {
    lines.push_back(
        "CUDA_VISIBLE_DEVICES has numbers while CUDA_MPS_PIPE_DIRECTORY points to an MPS server, which numbers the "
        "GPUs "
        "that it was given from 0; name them by UUID");
  }
}

void warn_of_containers(const Environment& environment, const Selections& all, Lines& lines) {
  const auto container = environment.find("NVIDIA_VISIBLE_DEVICES");
  const auto cuda = environment.value_or("CUDA_VISIBLE_DEVICES", "");
  if (!container || cuda.empty() || cuda.starts_with("-")) return;
  if (*container == "none" || *container == "void") {
    lines.push_back(
        fmt::format("NVIDIA_VISIBLE_DEVICES={} gives containers no GPU, while CUDA_VISIBLE_DEVICES={} gives "
                    "some to programs; unset one of them",
                    *container, in_quotes(cuda)));
    return;
  }
  const auto given = select_for_container(*container, all.nvidia);
  if (given.units.empty()) return;  // this process is in a container, and the numbers are the host's
  for (const auto& unit : all.cuda.units) {
    if (std::ranges::find(given.units, unit) != given.units.end()) continue;
    lines.push_back(
        fmt::format("NVIDIA_VISIBLE_DEVICES={} does not give containers device {}, which "
                    "CUDA_VISIBLE_DEVICES={} shows to programs; make them name the same devices",
                    in_quotes(*container), all.nvidia[static_cast<size_t>(unit.device)]->index, in_quotes(cuda)));
    return;
  }
}

void warn_of_amd(const Environment& environment, const Selections& all, Lines& lines) {
  const auto rocr = environment.find("ROCR_VISIBLE_DEVICES");
  const auto hip = environment.find("HIP_VISIBLE_DEVICES");
  const auto cuda = environment.find("CUDA_VISIBLE_DEVICES");
  const auto filter = environment.value_or(all.hip_variable, "");
  const auto left = select_hip(std::nullopt, all.amd_left).units;
  // On a machine with GPUs of both vendors, a HIP_VISIBLE_DEVICES that hides nothing is useful, because it prevents HIP
  // from reading CUDA_VISIBLE_DEVICES. So there is no warning.
  if (rocr && !filter.empty() && (all.nvidia.empty() || all.hip.units != left)) {
    lines.push_back(
        fmt::format("ROCR_VISIBLE_DEVICES={} and {}={} both hide AMD GPUs: the second counts from 0 among the "
                    "{} that the first leaves, so programs see {} of {}; set ROCR_VISIBLE_DEVICES alone",
                    in_quotes(*rocr), all.hip_variable, in_quotes(filter), all.rocr.units.size(), all.hip.units.size(),
                    all.amd.size()));
  }
  // torch.cuda._parse_visible_devices compares the numbers of commas.
  if (rocr && hip && std::count(hip->begin(), hip->end(), ',') > std::count(rocr->begin(), rocr->end(), ',')) {
    lines.push_back(
        "HIP_VISIBLE_DEVICES has more entries than ROCR_VISIBLE_DEVICES: PyTorch refuses to start with that");
  }
  // If there are GPUs of both vendors, each variable is for its own vendor.
  if (all.nvidia.empty() && hip && !hip->empty() && cuda && !cuda->empty() && *hip != *cuda) {
    lines.push_back(
        fmt::format("HIP_VISIBLE_DEVICES={} and CUDA_VISIBLE_DEVICES={} differ: HIP programs read only the "
                    "first; unset one of them",
                    in_quotes(*hip), in_quotes(*cuda)));
  }
  if (!all.nvidia.empty() && !filter.empty() && all.hip_variable == "CUDA_VISIBLE_DEVICES") {
    lines.push_back(
        "CUDA_VISIBLE_DEVICES hides AMD GPUs too, as HIP_VISIBLE_DEVICES is not set; set that for HIP programs");
  }
  const auto is_empty = [](const std::optional<std::string>& value) { return value && value->empty(); };
  if (filter.empty() && (is_empty(hip) || (is_empty(cuda) && all.nvidia.empty()))) {
    lines.push_back(
        fmt::format("{} is empty, which hides no AMD GPU; to hide them all set ROCR_VISIBLE_DEVICES to "
                    "nothing",
                    is_empty(hip) ? "HIP_VISIBLE_DEVICES" : "CUDA_VISIBLE_DEVICES"));
  }
  if (environment.contains("GPU_DEVICE_ORDINAL")) {
    lines.push_back("GPU_DEVICE_ORDINAL is read by AMD's OpenCL and not by HIP; set ROCR_VISIBLE_DEVICES for both");
  }
}

void warn_of_intel(const Environment& environment, Lines& lines) {
  const auto hierarchy = environment.find("ZE_FLAT_DEVICE_HIERARCHY");
  if (hierarchy && *hierarchy != "FLAT" && *hierarchy != "COMPOSITE" && *hierarchy != "COMBINED") {
    lines.push_back(fmt::format("ZE_FLAT_DEVICE_HIERARCHY={} is not FLAT, COMPOSITE or COMBINED, and has no effect",
                                in_quotes(*hierarchy)));
  }
  const auto mask = select_level_zero(environment.find("ZE_AFFINITY_MASK"), {}, hierarchy.value_or("FLAT"));
  const auto odd = std::ranges::find_if(mask.entries, [](const Entry& entry) {
    return entry.verdict == Verdict::kIgnored || entry.verdict == Verdict::kInvalid;
  });
  if (odd == mask.entries.end()) return;
  lines.push_back(fmt::format("ZE_AFFINITY_MASK: {} ({}) is {}: {}",
                              entry_number(static_cast<size_t>(odd - mask.entries.begin())), in_quotes(odd->text),
                              name(odd->verdict), odd->why));
}

}  // namespace

std::string in_quotes(std::string_view value) {
  constexpr int64_t kWidth = 50;
  return '"' + fit(printable(value), kWidth) + '"';
}

bool shows_several_mig_devices(const Snapshot& snapshot) {
  return driver_branch(snapshot).value_or(0) >= kFirstBranchWithSeveralMigDevices;
}

Selections select_all(const Environment& environment, const Snapshot& snapshot) {
  Selections all;
  for (const auto& device : snapshot.devices) {
    if (device.vendor == Vendor::kNvidia) all.nvidia.push_back(&device);
    if (device.vendor != Vendor::kAmd) continue;
    const bool is_silent = device.state == State::kNoAnswer || device.state == State::kLost;
    (device.facts.vendor_index || is_silent ? all.amd : all.amd_without_kfd).push_back(&device);
  }
  const auto cuda = environment.find("CUDA_VISIBLE_DEVICES");
  all.cuda = select_cuda(cuda, all.nvidia, {environment.find("CUDA_DEVICE_ORDER"), driver_branch(snapshot)});
  all.rocr = select_rocr(environment.find("ROCR_VISIBLE_DEVICES"), all.amd);
  for (const auto& unit : all.rocr.units) all.amd_left.push_back(all.amd[static_cast<size_t>(unit.device)]);
  auto hip = environment.find("HIP_VISIBLE_DEVICES");
  all.hip_variable = "HIP_VISIBLE_DEVICES";
  if ((!hip || hip->empty()) && cuda && !(hip && cuda->empty())) {
    hip = cuda;
    all.hip_variable = "CUDA_VISIBLE_DEVICES";
  }
  all.hip = select_hip(hip, all.amd_left);
  return all;
}

std::vector<std::string> warnings(const Environment& environment, const Selections& all) {
  Lines lines;
  warn_of_order(environment, all, lines);
  if (!all.nvidia.empty()) {
    warn_of_entries("CUDA_VISIBLE_DEVICES", all.cuda, Duplicates::kHideAll, lines);
  }
  warn_of_containers(environment, all, lines);
  if (!all.amd.empty()) {
    warn_of_entries("ROCR_VISIBLE_DEVICES", all.rocr, Duplicates::kEndTheList, lines);
    warn_of_entries(all.hip_variable, all.hip, Duplicates::kAreSkipped, lines);
    warn_of_amd(environment, all, lines);
  }
  warn_of_intel(environment, lines);
  return lines;
}

}  // namespace yoke::device
