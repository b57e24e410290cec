// recipes/common/csv.h -- reads columns of CSV files, and numbers the classes that a column names.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace recipes {

/// Reads a CSV file, whose first line names its columns. Returns the fields of `columns` of each row, in this order.
/// A field in quotes may have commas, line feeds, and doubled quotes for quotes. Empty lines are left out.
/// Errors  as errno says; kDataLoss: there is no such column, or a row has another number of fields or an empty one in
///         these columns (names the line).
std::vector<std::vector<std::string>> read_csv(const std::filesystem::path& path,
                                               const std::vector<std::string>& columns);

struct Classes {
  std::vector<std::string> names;  ///< In the order of their numbers.
  std::vector<int64_t> targets;    ///< The number of each label's class.
};

/// Labels are numbers of classes if all are numbers; the names are then "0" to the highest one. Otherwise they are
/// names, which are numbered in their order.
Classes number_classes(const std::vector<std::string>& labels);

}  // namespace recipes
