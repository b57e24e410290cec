// yoke/cli/device_views.h -- devices as text: pure functions of a snapshot.
#pragma once

#include <string>
#include <vector>

#include "yoke/base/table.h"
#include "yoke/device/device.h"
#include "yoke/device/selection.h"

namespace yoke::cli {

/// A row for each device and MIG instance: what one looks at every day.
Table device_table(const device::Snapshot& snapshot);

/// The same for programs, of chosen devices and their instances: more columns, plain numbers, units in the titles.
Table device_csv(const std::vector<device::Choice>& choices);

/// Index, UUID, bus id and name alone (`-L`).
Table device_list(const std::vector<device::Choice>& choices);

/// Everything that is known of one device, in sections.
std::string device_page(const device::Device& device, const std::string& id);

/// Lines that explain what the table cannot: why a device gives no numbers, why there is no GPU.
std::vector<std::string> device_notes(const device::Snapshot& snapshot);

/// The same as lines for standard error; `speaker` ("yoke devices: ") begins each.
std::string note_lines(const device::Snapshot& snapshot, const std::string& speaker);

/// Users of a device and its instances, each once, in order of memory: "ada, grace"; "?" for processes without a known
/// owner.
std::string users_of(const device::Device& device);

}  // namespace yoke::cli
