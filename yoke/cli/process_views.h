// yoke/cli/process_views.h -- the processes of all devices as rows and text: pure functions of a snapshot.
#pragma once

#include <chrono>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "yoke/base/table.h"
#include "yoke/device/device.h"
#include "yoke/device/selection.h"
#include "yoke/device/unanswered.h"

namespace yoke::cli {

/// A process on one device. Who uses several devices has several.
struct DeviceUse {
  std::string device_id;  ///< "0", or "0:1" of a MIG instance.
  std::string device_uuid;
  device::DeviceProcess process;
};

/// By device, then by memory, the largest first.
/// Errors  of DeviceSelection::resolve.
std::vector<DeviceUse> uses_of(const device::Snapshot& snapshot, const device::DeviceSelection& selection = {});

nlohmann::ordered_json unanswered_json(const std::vector<device::Unanswered>& unanswered);

enum class CommandText {
  kShort,  ///< From the name that people know on: "train.py --lr 1" of "/usr/bin/python -u /home/ada/train.py --lr 1".
  kWhole,
};

/// The command, or in brackets why it is not known.
std::string command_text(const device::ProcessInfo& info, CommandText which);

/// "3:07", "2 d 3 h"; "-" when it is not known when the process began.
std::string age_text(const device::ProcessInfo& info, std::chrono::system_clock::time_point now);

Table process_table(const std::vector<DeviceUse>& uses, std::chrono::system_clock::time_point now, CommandText which);

/// The same for programs: more columns, plain numbers, units in the titles.
Table process_csv(const std::vector<DeviceUse>& uses, std::chrono::system_clock::time_point now);

}  // namespace yoke::cli
