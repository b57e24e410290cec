#include "yoke/cli/help/words.h"

#include <algorithm>
#include <cctype>
#include <iterator>

#include "yoke/base/error.h"

namespace yoke::cli {
namespace {

bool is_time(std::string_view word) { return !word.empty() && word[0] >= '0' && word[0] <= '9'; }

}  // namespace

std::string with_dashes(std::string word) {
  if (!word.starts_with("--")) return word;
  const auto end = std::min(word.find('='), word.size());
  std::replace(word.begin(), word.begin() + static_cast<std::ptrdiff_t>(end), '_', '-');
  return word;
}

Words split_words(const std::vector<std::string>& words, const OptionNames& names) {
  Words result;
  auto word = words.begin();
  for (; word != words.end(); ++word) {
    if (*word == "--") {
      result.has_dashes = true;
      ++word;
      break;
    }
    if (word->size() < 2 || word->front() != '-') break;
    result.own.push_back(with_dashes(*word));
    auto& option = result.own.back();
    if (option.starts_with("--")) {
      const auto end = std::min(option.find('='), option.size());
      option.replace(0, end, names.whole_name(std::string_view(option).substr(0, end)));
    }
    if (option.starts_with("--") && option.find('=') == option.size() - 1) {
      option.pop_back();
      result.own.emplace_back();
      continue;
    }
    if (names.has_optional_time(option)) {
      const bool has_time = word + 1 != words.end() && is_time(*(word + 1));
      option += "=" + (has_time ? *++word : "forever");
      continue;
    }
    const bool has_its_value = option.starts_with("--") ? option.find('=') != option.npos : option.size() > 2;
    if (!has_its_value && names.takes_value(option) && word + 1 != words.end()) result.own.push_back(*++word);
  }
  result.rest.assign(word, words.end());
  return result;
}

std::optional<std::string> find_empty_value(const std::vector<std::string>& words,
                                            const std::function<bool(std::string_view)>& may_be_empty) {
  std::string_view option;
  for (const std::string_view word : words) {
    if (word.starts_with("--") && word.find('=') == word.size() - 1) {
      const auto name = word.substr(0, word.size() - 1);
      if (!may_be_empty(name)) return std::string(name);
    }
    if (word.empty() && !may_be_empty(option)) return option.empty() ? "argument" : std::string(option);
    option = word.starts_with('-') ? word : "";
  }
  return std::nullopt;
}

std::vector<std::string> with_signal_option(const std::vector<std::string>& words) {
  const auto is_signal = [](std::string_view word) {
    if (word.size() < 2 || word[0] != '-') return false;
    const auto has = [&](bool (*is_wanted)(unsigned char)) {
      return std::all_of(word.begin() + 1, word.end(),
                         [&](char c) { return is_wanted(static_cast<unsigned char>(c)); });
    };
    return has([](unsigned char c) { return std::isdigit(c) != 0; }) ||
           (word.size() > 2 && has([](unsigned char c) { return std::isupper(c) != 0 || std::isdigit(c) != 0; }));
  };
  constexpr std::string_view kTakeValues[] = {"--wait", "--signal", "-s", "--device", "-d", "--deadline", "--vendor"};
  std::vector<std::string> result;
  bool is_over = false;
  for (const auto& word : words) {
    is_over = is_over || word == "--";
    const bool is_value = !result.empty() && std::ranges::find(kTakeValues, result.back()) != std::end(kTakeValues);
    if (!is_over && !is_value && is_signal(word)) {
      result.emplace_back("--signal");
      result.push_back(word.substr(1));
    } else {
      result.push_back(word);
    }
  }
  return result;
}

std::vector<std::string> with_joined_option(const std::vector<std::string>& words) {
  std::vector<std::string> result;
  for (auto word = words.begin(); word != words.end(); ++word) {
    if (*word == "--") {
      result.insert(result.end(), word, words.end());
      break;
    }
    result.push_back(*word);
    const bool has_value = word + 1 != words.end() && (word + 1)->starts_with('-') && *(word + 1) != "--";
    if (*word == "--option" && has_value) result.back() += "=" + *++word;
  }
  return result;
}

std::vector<std::string> with_repeated_paths(const std::vector<std::string>& words) {
  std::vector<std::string> result;
  std::string option;  // whose values the words are
  for (auto word = words.begin(); word != words.end(); ++word) {
    if (*word == "--") {
      result.insert(result.end(), word, words.end());
      break;
    }
    if (*word == "--json" && !option.empty() && result.back() == option) {  // its values come after this flag
      result.insert(result.end() - 1, *word);
      continue;
    }
    if (word->starts_with('-')) {
      option = *word == "--trace" || *word == "--compare" ? *word : "";
    } else if (!option.empty() && result.back() != option) {
      result.push_back(option);
    }
    result.push_back(*word);
  }
  return result;
}

std::optional<std::string> extract_option(std::vector<std::string>& words, std::string_view short_name,
                                          std::string_view long_name) {
  std::optional<std::string> value;
  for (size_t i = 0; i < words.size() && words[i] != "--";) {
    const auto word = with_dashes(words[i]);
    size_t used = 0;
    if (word == short_name || word == long_name) {
      if (i + 1 == words.size()) throw Error(ErrorCode::kInvalidArgument, "{} needs a value", words[i]);
      value = words[i + 1];
      used = 2;
    } else if (word.starts_with(std::string(long_name) + "=")) {
      value = word.substr(long_name.size() + 1);
      used = 1;
    } else if (word.starts_with(short_name) && word[short_name.size()] >= '0' && word[short_name.size()] <= '9') {
      value = word.substr(short_name.size());
      used = 1;
    }
    if (used == 0) {
      ++i;
    } else {
      words.erase(words.begin() + static_cast<std::ptrdiff_t>(i),
                  words.begin() + static_cast<std::ptrdiff_t>(i + used));
    }
  }
  return value;
}

}  // namespace yoke::cli
