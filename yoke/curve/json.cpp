// Parses JSON: an object in each line, or one document that holds such objects.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "yoke/base/text.h"
#include "yoke/curve/detail/values.h"
#include "yoke/curve/log.h"

namespace yoke::curve {
namespace {

/// Python writes NaN, Infinity and -Infinity, which are not JSON. Replaces them by null, except in strings.
std::string without_infinite_words(std::string_view text) {
  std::string result;
  bool is_in_string = false;
  for (size_t i = 0; i < text.size();) {
    if (!is_in_string) {
      const auto rest = text.substr(i);
      const auto words = {std::string_view("NaN"), std::string_view("Infinity"), std::string_view("-Infinity")};
      const auto word = std::ranges::find_if(words, [&](std::string_view one) { return rest.starts_with(one); });
      if (word != words.end()) {
        result += "null";
        i += word->size();
        continue;
      }
    } else if (text[i] == '\\' && i + 1 < text.size()) {
      result += text[i++];
      result += text[i++];
      continue;
    }
    is_in_string = is_in_string != (text[i] == '"');
    result += text[i++];
  }
  return result;
}

nlohmann::json parse(std::string_view text) {
  auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) json = nlohmann::json::parse(without_infinite_words(text), nullptr, false);
  return json;
}

}  // namespace

void JsonParser::take_object(const nlohmann::json& object) {
  if (const auto history = object.find("log_history"); history != object.end() && history->is_array()) {
    for (const auto& entry : *history) {
      if (entry.is_object()) take_numbers(entry);
    }
    return;
  }
  take_numbers(object);
}

void JsonParser::take_numbers(const nlohmann::json& object) {
  numbers_.clear();
  collect(object, "", 0);
  num_numbers_ = numbers_.size();
  add_values();
}

void JsonParser::collect(const nlohmann::json& object, const std::string& prefix, int depth) {
  constexpr int kMostDepth = 16;  // deeper ones are no metrics, and would use up the stack
  for (const auto& [name, value] : object.items()) {
    if (value.is_number()) numbers_.emplace_back(prefix + name, value.get<double>());
    if (value.is_null()) numbers_.emplace_back(prefix + name, kNaN);
    if (value.is_object() && depth < kMostDepth) collect(value, prefix + name + "/", depth + 1);
    if (!value.is_string()) continue;
    const auto word = number_of(value.get_ref<const std::string&>());
    if (word && !std::isfinite(*word)) numbers_.emplace_back(prefix + name, *word);
  }
}

void JsonParser::add_values() {
  Position place{kNaN, kNaN, kNaN};
  std::array<const PlaceName*, 3> names{};  // of the place's members
  for (size_t i = 0; i < num_numbers_; ++i) {
    const auto& [name, number] = numbers_[i];
    const auto* known = place_name(name);
    if (known == nullptr) continue;
    auto& before = names[known->place == &Position::step ? 0 : known->place == &Position::epoch ? 1 : 2];
    if (before != nullptr && before < known) continue;
    before = known;
    place.*known->place = number;
  }
  for (size_t i = 0; i < num_numbers_; ++i) {
    const auto& [name, number] = numbers_[i];
    if (place_name(name) == nullptr) log().add(name, place, number);
  }
}

size_t JsonDocumentParser::take(std::string_view bytes, bool is_end) {
  if (!is_end) return 0;
  const auto json = parse(bytes.substr(std::min(bytes.find_first_of("{["), bytes.size())));
  if (json.is_object()) take_object(json);
  if (json.is_discarded()) damaged("it is not JSON, or not all of it");
  if (!json.is_array()) return bytes.size();
  for (const auto& entry : json) {
    if (entry.is_object()) take_object(entry);
  }
  return bytes.size();
}

size_t JsonLinesParser::take(std::string_view bytes, bool is_end) {
  // A last line without a line feed may be parsed, because a complete object ends with a brace.
  return take_lines(
      bytes, '\n', is_end, [&](std::string_view line) { take_line(line); },
      [&](std::string_view line) {
        if (take_flat(line)) return add_values();
        if (const auto json = parse(line); json.is_object()) take_object(json);
      });
}

void JsonLinesParser::take_line(std::string_view line) {
  ++num_lines_;
  if (trimmed(line).empty()) return;
  if (take_flat(line)) return add_values();
  const auto json = parse(line);
  if (!json.is_object()) return damaged(fmt::format("line {} is not a JSON object", num_lines_));
  take_object(json);
}

/// Reads an object without nested objects and without backslashes, as nearly every line is. This is ten times as fast
/// as building a tree. Returns false for all other lines.
bool JsonLinesParser::take_flat(std::string_view line) {
  num_numbers_ = 0;
  line = trimmed(line);
  if (!line.starts_with('{') || !line.ends_with('}')) return false;
  line = trimmed(line.substr(1, line.size() - 2));
  while (!line.empty()) {
    if (line.front() != '"') return false;
    const auto name_end = line.find('"', 1);
    if (name_end == line.npos) return false;
    const auto name = line.substr(1, name_end - 1);
    if (name.find('\\') != name.npos) return false;
    line = trimmed(line.substr(name_end + 1));
    if (!line.starts_with(':')) return false;
    line = trimmed(line.substr(1));
    std::optional<double> number;
    if (line.starts_with('"')) {
      const auto end = line.find('"', 1);
      if (end == line.npos) return false;
      const auto text = line.substr(1, end - 1);
      if (text.find('\\') != text.npos) return false;
      const auto word = number_of(text);
      if (word && !std::isfinite(*word)) number = word;  // such as "NaN"; other strings are skipped
      line = trimmed(line.substr(end + 1));
      if (!line.empty() && line.front() != ',') return false;
    } else {
      const auto end = std::min(line.find(','), line.size());
      const auto word = trimmed(line.substr(0, end));
      number = word == "null" ? kNaN : number_of(word);
      if (!number && word != "true" && word != "false") return false;
      line.remove_prefix(end);
    }
    if (number) {
      if (num_numbers_ == numbers_.size()) numbers_.emplace_back();
      numbers_[num_numbers_].first = name;
      numbers_[num_numbers_++].second = *number;
    }
    if (line.empty()) return true;
    line = trimmed(line.substr(1));
    if (line.empty()) return false;  // a comma without a member after it
  }
  return true;
}

}  // namespace yoke::curve
