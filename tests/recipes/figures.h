// tests/recipes/figures.h -- reads the metrics that a run of a recipe wrote.
#pragma once

#include <algorithm>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "yoke/base/file.h"

namespace yoke::test {

/// A column of a run's metrics.csv, with a value for each epoch; empty if there is no such column.
inline std::vector<double> figures_of(const std::filesystem::path& run, const std::string& column) {
  std::istringstream lines(read_file(run / "metrics.csv"));
  std::vector<double> result;
  size_t index = 0;
  for (std::string line; std::getline(lines, line);) {
    std::vector<std::string> cells;
    std::istringstream parts(line);
    for (std::string cell; std::getline(parts, cell, ',');) cells.push_back(cell);
    if (cells.front() == "epoch") {
      index = static_cast<size_t>(std::find(cells.begin(), cells.end(), column) - cells.begin());
    } else if (index < cells.size()) {
      result.push_back(std::stod(cells[index]));
    }
  }
  return result;
}

}  // namespace yoke::test
