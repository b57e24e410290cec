// yoke/tui/processes.h -- chooses and sorts the rows of the process list, and arranges them as a tree. Pure.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "yoke/tui/model.h"

namespace yoke::tui {

/// The list has a row for each process on each device. The tree has one row for each process, with all of its devices,
/// and rows for ancestors of the same user. Texts may contain any bytes.
struct ProcessRow {
  ProcessKey key;
  std::string device;  ///< "3", "0:1", "0-3,6"; empty for an ancestor that uses no device.
  std::string user;    ///< Empty if it is not known.
  std::optional<int64_t> memory_bytes;
  std::optional<int64_t> utilization_percent;
  std::optional<std::chrono::duration<double>> age;
  std::string origin;
  std::string branch;   ///< The lines of the tree, drawn before the command.
  std::string name;     ///< The short name of the command.
  std::string command;  ///< The command line or, in brackets, why it is not known.
  bool is_mine = false;
  bool is_visible = false;  ///< Whether its PID means the same process in this PID namespace.
};

struct ProcessList {
  std::vector<ProcessRow> rows;
  int64_t num_processes = 0, num_shown = 0;  ///< Before and after the filters.
};

ProcessList process_list(const Model& model);

/// Returns the index of the selected row, or nullopt if its process has ended or no row is selected.
std::optional<int64_t> selected_row(const Model& model, const std::vector<ProcessRow>& rows);

/// Returns text such as "4121 train.py (ada)", printable and short, for questions and messages.
std::string describe(const ProcessRow& row);

}  // namespace yoke::tui
