// The page with everything that is known about one device.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "yoke/base/format.h"
#include "yoke/base/moment.h"
#include "yoke/view/devices.h"

namespace yoke::view {
namespace {

using Number = std::optional<int64_t>;

/// Lines "  label    value" below titles. Unknown values and sections without lines are left out.
class Page {
 public:
  void section(std::string title) { title_ = std::move(title); }

  void add(std::string_view label, const std::string& value) {
    if (value.empty()) return;
    if (!title_.empty()) text_ += fmt::format("{}{}\n", text_.empty() ? "" : "\n", title_);
    title_.clear();
    text_ += fmt::format("  {:<26}{}\n", label, printable(value));
  }
  void add(std::string_view label, const Number& value, std::string_view unit = "") {
    if (value) add(label, fmt::format("{}{}", *value, unit));
  }
  void add(std::string_view label, const std::optional<bool>& value) {
    if (value) add(label, std::string(*value ? "on" : "off"));
  }
  void add_bytes(std::string_view label, const Number& value, std::string_view unit = "") {
    if (value) add(label, fmt::format("{}{}", format_bytes(*value), unit));
  }
  void add_watts(std::string_view label, const Number& value_mw) {
    if (value_mw) add(label, fmt::format("{:.1f} W", static_cast<double>(*value_mw) / 1000));
  }
  /// Adds a line such as "3 of 4".
  void add_of(std::string_view label, const Number& value, const Number& most, std::string_view unit = "") {
    if (value && most) {
      add(label, fmt::format("{}{} of {}{}", *value, unit, *most, unit));
    } else {
      add(label, value, unit);
    }
  }

  std::string take() { return std::move(text_); }

 private:
  std::string title_, text_;
};

void add_links(Page& page, const std::vector<device::Link>& links) {
  page.section("Links");
  for (const auto& link : links) {
    page.add(fmt::format("{} {}", link.kind, link.number), !link.is_active ? "inactive"
                                                           : link.remote_pci_bus_id.empty()
                                                               ? "active"
                                                               : "active, to " + link.remote_pci_bus_id);
  }
}

void add_identity(Page& page, const device::Device& device, const std::string& id) {
  const auto& facts = device.facts;
  page.section(fmt::format("Device {}: {}", id, facts.name.empty() ? "unknown" : printable(facts.name)));
  page.add("vendor", std::string(name(device.vendor)));
  page.add("state", std::string(name(device.state)) + (device.reason.empty() ? "" : ": " + device.reason));
  page.add("UUID", facts.uuid);
  page.add("PCI bus id", facts.pci_bus_id);
  page.add("serial number", facts.serial);
  page.add("brand", facts.brand);
  page.add("architecture", facts.architecture);
  page.add("compute capability", facts.compute_capability);
  page.add("target", facts.target);
  page.add("VBIOS", facts.vbios);
  page.add("minor number", facts.minor_number);
  page.add("vendor's index", facts.vendor_index);
  page.add("MIG GPU instance", facts.gpu_instance);
  page.add("MIG compute instance", facts.compute_instance);
  page.add("NUMA node", facts.numa_node);
  page.add("processors beside it", facts.cpu_affinity);
  page.add("packages", facts.num_packages);
  page.add("NUMA nodes", facts.num_numa_nodes);
  page.add("cores", facts.num_cores);
  page.add_of("allowed processors", facts.num_allowed_cpus, facts.num_cpus);
}

void add_claims(Page& page, const std::vector<ClaimRow>& claims, const std::string& id) {
  page.section("Claims");
  for (const auto& claim : claims) {
    if (claim.id != id) continue;
    std::vector<std::string> words;
    if (claim.since) words.push_back("since " + moment_text(*claim.since));
    if (claim.until) words.push_back("until " + moment_text(*claim.until));
    words.push_back(claim.share_bytes ? "shared, " + format_bytes(*claim.share_bytes) + " of it" : "alone");
    for (const auto& text : {claim.remark, claim.purpose}) {
      if (!text.empty()) words.push_back(text);
    }
    const auto pid = claim.pid ? fmt::format("{} ", *claim.pid) : "";
    page.add(pid + (claim.user.empty() ? "?" : claim.user), fmt::format("{}", fmt::join(words, ", ")));
  }
}

void add_use(Page& page, const device::Readings& now) {
  page.section("Use");
  page.add("utilisation", now.utilization_percent, " %");
  page.add("memory utilisation", now.memory_utilization_percent, " %");
  page.add("encoder utilisation", now.encoder_utilization_percent, " %");
  page.add("decoder utilisation", now.decoder_utilization_percent, " %");
  page.add_bytes("memory used", now.memory_used_bytes);
  page.add_bytes("memory free", now.memory_free_bytes);
  page.add_bytes("memory reserved", now.memory_reserved_bytes);
  page.add_bytes("memory total", now.memory_total_bytes);

  page.section("Modes");
  page.add("performance state", now.performance_state.value_or(""));
  page.add("compute mode", now.compute_mode.value_or(""));
  page.add("persistence mode", now.persistence_mode);
  page.add("MIG", now.mig_enabled);
  page.add("display active", now.display_active);
}

void add_heat(Page& page, const device::Facts& facts, const device::Readings& now) {
  page.section("Temperature and power");
  page.add("temperature", now.temperature_celsius, " C");
  page.add("memory temperature", now.memory_temperature_celsius, " C");
  page.add("slows down at", facts.temperature_slowdown_celsius, " C");
  page.add("shuts down at", facts.temperature_shutdown_celsius, " C");
  page.add("fan", now.fan_percent, " %");
  page.add_watts("power", now.power_mw);
  page.add_watts("power limit", now.power_limit_mw);
  page.add_watts("lowest limit", facts.power_limit_min_mw);
  page.add_watts("highest limit", facts.power_limit_max_mw);
  page.add_watts("default limit", facts.power_limit_default_mw);
  if (now.energy_mj) {
    page.add("energy since driver load", fmt::format("{:.1f} kJ", static_cast<double>(*now.energy_mj) / 1e6));
  }
}

void add_clocks(Page& page, const device::Facts& facts, const device::Readings& now) {
  page.section("Clocks");
  page.add_of("SM", now.clock_sm_mhz, facts.clock_sm_max_mhz, " MHz");
  page.add_of("memory", now.clock_memory_mhz, facts.clock_memory_max_mhz, " MHz");
  page.add("graphics", now.clock_graphics_mhz, " MHz");
  page.add("video", now.clock_video_mhz, " MHz");
  if (now.throttle_reasons) {
    page.add("held back by",
             now.throttle_reasons->empty() ? "nothing" : fmt::format("{}", fmt::join(*now.throttle_reasons, ", ")));
  }
}

void add_bus(Page& page, const device::Facts& facts, const device::Readings& now) {
  page.section("PCIe");
  page.add_of("generation", now.pcie_generation, facts.pcie_generation_max);
  page.add_of("lanes", now.pcie_width, facts.pcie_width_max);
  page.add("replays", now.pcie_replays);
  page.add_bytes("received", now.pcie_rx_bytes_per_second, "/s");
  page.add_bytes("sent", now.pcie_tx_bytes_per_second, "/s");
}

void add_memory_errors(Page& page, const device::Readings& now) {
  page.section("Memory errors (ECC)");
  page.add("ECC", now.ecc_enabled);
  page.add("corrected since boot", now.ecc_corrected_volatile);
  page.add("uncorrected since boot", now.ecc_uncorrected_volatile);
  page.add("corrected, lifetime", now.ecc_corrected_aggregate);
  page.add("uncorrected, lifetime", now.ecc_uncorrected_aggregate);
  page.add("retired pages", now.retired_pages);
  page.add("remapped rows", now.remapped_rows);
  page.add("waits for a reset", now.retirement_pending);
  if (now.remapping_failed == true) page.add("spare rows", std::string("none left: have the GPU replaced"));
}

void add_processes(Page& page, const device::Device& device) {
  page.section("Processes");
  for (const auto& process : device.processes) {
    const auto& info = process.info;
    page.add(fmt::format("{} {}", process.pid, info.user.empty() ? "?" : info.user),
             fmt::format("{}, {}, {}", process.type,
                         process.memory_bytes ? format_bytes(*process.memory_bytes) : "memory unknown",
                         info.is_visible.value_or(false) ? info.command : "(" + info.reason + ")"));
  }
  if (device.instances.empty() && !knows_processes(device)) {
    page.add("not known", device.reason.empty() ? "the driver does not tell" : device.reason);
  }
}

}  // namespace

std::string device_page(const device::Device& device, const std::string& id, const std::vector<ClaimRow>& claims) {
  Page page;
  add_identity(page, device, id);
  add_claims(page, claims, id);
  add_use(page, device.readings);
  add_heat(page, device.facts, device.readings);
  add_clocks(page, device.facts, device.readings);
  add_bus(page, device.facts, device.readings);
  add_memory_errors(page, device.readings);
  if (device.links) add_links(page, *device.links);
  add_processes(page, device);
  std::string text = page.take();
  for (const auto& instance : device.instances) {
    text += '\n' + device_page(instance, id_of(device, instance), claims);
  }
  return text;
}

}  // namespace yoke::view
