// yoke/tui/processes.h -- the rows of the process list: chosen, sorted, as a list or a tree. Pure.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "yoke/tui/model.h"

namespace yoke::tui {

/// In the list one row for each process and device; in the tree one for each process, with its devices together, and
/// their parents of the same user. Texts are as the processes wrote them.
struct ProcessRow {
  ProcessKey key;
  std::string device;  ///< "3", "0:1", "0-3,6"; empty: uses none, is here for its children.
  std::string user;    ///< Empty: not known.
  std::optional<int64_t> memory_bytes;
  std::optional<int64_t> utilization_percent;
  std::optional<std::chrono::duration<double>> age;
  std::string origin;
  std::string branch;   ///< Lines of the tree before the command.
  std::string name;     ///< Short.
  std::string command;  ///< Or why there is none, in brackets.
  bool is_mine = false;
  bool is_visible = false;  ///< Its number means the same process here.
};

struct ProcessList {
  std::vector<ProcessRow> rows;
  int64_t num_processes = 0, num_shown = 0;  ///< Without and with the filters.
};

ProcessList process_list(const Model& model);

/// Where the selected row is; nullopt when it has gone, or nothing is selected.
std::optional<int64_t> selected_row(const Model& model, const std::vector<ProcessRow>& rows);

/// "4121 train.py (ada)", harmless and not long, for questions and messages.
std::string describe(const ProcessRow& row);

}  // namespace yoke::tui
