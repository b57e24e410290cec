// yoke/view/processes.h -- the processes of all devices as tables. Pure.
#pragma once

#include <chrono>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "yoke/base/table.h"
#include "yoke/device/uses.h"

namespace yoke::view {

nlohmann::ordered_json unanswered_json(const std::vector<device::Unanswered>& unanswered);

enum class CommandText {
  kShort,  ///< From the short name on: "train.py --lr 1" for "/usr/bin/python -u /home/ada/train.py --lr 1".
  kWhole,
};

/// Returns the command line or, in brackets, why it is not known.
std::string command_text(const device::ProcessInfo& info, CommandText which);

/// Returns "3:07" or "2 d 3 h", or "-" if the start of the process is not known.
std::string age_text(const device::ProcessInfo& info, std::chrono::system_clock::time_point now);

/// `claims`: who has claimed each device, by its id (claim_labels() in claims.h). If somebody has, there is a column.
Table process_table(const std::vector<device::DeviceUse>& uses, std::chrono::system_clock::time_point now,
                    CommandText which, const std::map<std::string, std::string>& claims = {});

/// Returns a table for programs: more columns, plain numbers, and units in the titles.
Table process_csv(const std::vector<device::DeviceUse>& uses, std::chrono::system_clock::time_point now);

}  // namespace yoke::view
