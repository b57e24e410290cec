#include "yoke/cli/help/values.h"

#include <fmt/format.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <array>
#include <optional>

#include "yoke/base/environment.h"
#include "yoke/base/quantity.h"
#include "yoke/base/spelling.h"

namespace yoke::cli {
namespace {

constexpr std::array<std::string_view, 4> kWholeNumbers = {"N", "RANK", "PORT", "PID"};
constexpr std::array<std::string_view, 2> kNumbers = {"SECONDS", "PERCENT"};

bool is_among(const auto& words, std::string_view word) { return std::ranges::find(words, word) != words.end(); }

std::vector<std::string> alternatives_of(std::string_view value) {
  std::vector<std::string> result;
  if (value.ends_with("...")) value.remove_suffix(3);  // "..." stands for several values, each of which is checked
  for (size_t begin = 0; begin <= value.size() && !value.empty();) {
    const auto end = std::min(value.find('|', begin), value.size());
    result.emplace_back(value.substr(begin, end - begin));
    begin = end + 1;
  }
  return result;
}

bool is_small(unsigned char c) { return (c >= 'a' && c <= 'z') || c == '-'; }

/// "mask:LIST" allows "mask:" and any text. "0..3" and "KEY=VALUE" allow any text; the code of their options checks it.
bool may_be(std::string_view alternative, std::string_view text) {
  if (is_among(kWholeNumbers, alternative)) return parse_int(text).has_value();
  if (is_among(kNumbers, alternative)) return parse_real(text).has_value();
  const auto literal = static_cast<size_t>(std::ranges::find_if_not(alternative, is_small) - alternative.begin());
  if (literal == alternative.size()) return text == alternative;
  if (literal > 0 && alternative[literal] == ':') return text.starts_with(alternative.substr(0, literal + 1));
  return true;
}

/// "a, b or c"
std::string listing(const std::vector<std::string>& words) {
  std::string text;
  for (size_t i = 0; i < words.size(); ++i) {
    text += fmt::format("{}{}", i == 0 ? "" : i + 1 == words.size() ? " or " : ", ", words[i]);
  }
  return text;
}

std::string shown(std::string_view text) { return text.empty() ? "''" : std::string(text); }

}  // namespace

std::string complaint_about(std::string_view value, std::string_view text) {
  const auto alternatives = alternatives_of(value);
  const bool is_one =
      std::ranges::any_of(alternatives, [&](const auto& alternative) { return may_be(alternative, text); });
  if (is_one || alternatives.empty()) return "";
  if (alternatives.size() > 1) {
    std::vector<std::string> literals;
    std::ranges::copy_if(alternatives, std::back_inserter(literals),
                         [](const auto& word) { return std::ranges::all_of(word, is_small); });
    return "give " + listing(alternatives) + did_you_mean(text, literals);
  }
  if (value == "SECONDS") return "give a number of seconds";
  if (value == "PERCENT") return "give a number of percent";
  return "give a whole number";
}

// command_line.cpp adds the option's name, which a validator does not know.
CLI::Validator in_range(double min, double max, std::string_view unit) {
  const auto range = fmt::format("give {:.15g} to {:.15g}{}{}", min, max, unit.empty() ? "" : " ", unit);
  return CLI::Validator(
      [min, max, range](const std::string& text) {
        const auto number = parse_real(text);
        return number && *number >= min && *number <= max ? std::string() : shown(text) + ": " + range;
      },
      "");
}

void check_values(CLI::App& app) {
  for (auto* option : app.get_options()) {
    const auto value = option->get_type_name();
    if (option->get_items_expected_max() == 0 || value.empty()) continue;
    option->check(
        [value](const std::string& text) {
          const auto complaint = complaint_about(value, text);
          return complaint.empty() ? complaint : shown(text) + ": " + complaint;
        },
        "");
  }
  for (auto* command : app.get_subcommands([](CLI::App*) { return true; })) check_values(*command);
}

}  // namespace yoke::cli
