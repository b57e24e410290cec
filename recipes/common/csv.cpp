#include "recipes/common/csv.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <string_view>

#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/text.h"

namespace recipes {

using namespace yoke;

namespace {

/// Takes the fields of the first row from `text`, and counts the lines that it had.
std::vector<std::string> take_row(std::string_view& text, int64_t& num_lines) {
  std::vector<std::string> fields(1);
  bool is_quoted = false;
  size_t i = 0;
  for (; i < text.size() && (is_quoted || text[i] != '\n'); ++i) {
    const char c = text[i];
    const char next = i + 1 < text.size() ? text[i + 1] : '\n';
    num_lines += c == '\n' ? 1 : 0;
    if (c == '"' && is_quoted && next == '"') {
      fields.back() += text[i++];
    } else if (c == '"') {
      is_quoted = !is_quoted;
    } else if (c == ',' && !is_quoted) {
      fields.emplace_back();
    } else if (c != '\r' || next != '\n' || is_quoted) {
      fields.back() += c;
    }
  }
  ++num_lines;
  text.remove_prefix(std::min(i + 1, text.size()));
  return fields;
}

}  // namespace

std::vector<std::vector<std::string>> read_csv(const std::filesystem::path& path,
                                               const std::vector<std::string>& columns) {
  const auto file = read_file(path);
  std::string_view text = file;
  int64_t line = 0;
  const auto header = take_row(text, line);
  std::vector<size_t> places;
  for (const auto& name : columns) {
    const auto found = std::ranges::find(header, name);
    if (found == header.end()) {
      throw Error(ErrorCode::kDataLoss, "{}: its first line names no column `{}`; it needs {}", path.string(), name,
                  fmt::join(columns, " and "));
    }
    places.push_back(static_cast<size_t>(found - header.begin()));
  }
  std::vector<std::vector<std::string>> rows;
  while (!text.empty()) {
    const auto number = line + 1;
    const auto fields = take_row(text, line);
    if (fields.size() == 1 && fields[0].empty()) continue;
    auto& row = rows.emplace_back();
    for (const auto place : places) row.push_back(place < fields.size() ? fields[place] : "");
    if (fields.size() != header.size() || std::ranges::find(row, "") != row.end()) {
      throw Error(ErrorCode::kDataLoss, "{}:{}: expected {} fields, of which {} are not empty; found {}", path.string(),
                  number, header.size(), fmt::join(columns, " and "), fmt::join(fields, ","));
    }
  }
  return rows;
}

Classes number_classes(const std::vector<std::string>& labels) {
  // A longer number is a name, such as that of a product; a class of each number up to it would be too many.
  const auto is_number = [](const std::string& label) {
    return !label.empty() && label.size() <= 6 && std::ranges::all_of(label, is_digit);
  };
  Classes classes;
  if (!labels.empty() && std::ranges::all_of(labels, is_number)) {
    for (const auto& label : labels) classes.targets.push_back(std::stoll(label));
    const auto highest = std::ranges::max(classes.targets);
    for (int64_t i = 0; i <= highest; ++i) classes.names.push_back(std::to_string(i));
    return classes;
  }
  std::map<std::string, int64_t> numbers;
  for (const auto& label : labels) numbers[label];
  for (auto& [name, number] : numbers) {
    number = static_cast<int64_t>(classes.names.size());
    classes.names.push_back(name);
  }
  for (const auto& label : labels) classes.targets.push_back(numbers.at(label));
  return classes;
}

}  // namespace recipes
