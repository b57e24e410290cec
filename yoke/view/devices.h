// yoke/view/devices.h -- devices as text. Pure.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "yoke/base/table.h"
#include "yoke/device/device.h"
#include "yoke/device/selection.h"
#include "yoke/view/claims.h"

namespace yoke::view {

/// Who has claimed a device, by its id, as claim_labels() (claims.h) has it.
using ClaimLabels = std::map<std::string, std::string>;

/// Returns the default table, with a row for each device and MIG instance, and with a column of claims if there are
/// any.
Table device_table(const device::Snapshot& snapshot, const ClaimLabels& claims = {});

/// Returns a table for programs, with the chosen devices and their instances. It has more columns, plain numbers, and
/// units in the titles. Where several share a device, a cell about claims has a value of each,
/// as a line of CSV with a blank after each comma.
Table device_csv(const std::vector<device::Choice>& choices, const std::vector<ClaimRow>& claims = {});

/// Returns a table with only index, UUID, bus id and name (`-L`).
Table device_list(const std::vector<device::Choice>& choices);

/// Returns everything that is known about one device, in sections. `claims`: of all devices.
std::string device_page(const device::Device& device, const std::string& id, const std::vector<ClaimRow>& claims = {});

/// Returns the notes for a table: why a device has no numbers, or why there is no GPU.
std::vector<std::string> device_notes(const device::Snapshot& snapshot);

/// Returns device_notes() as lines for standard error. Each line begins with `speaker` ("yoke devices: ").
std::string note_lines(const device::Snapshot& snapshot, const std::string& speaker);

}  // namespace yoke::view
