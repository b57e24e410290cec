#include "yoke/base/environment.h"

#include <unistd.h>

#include <charconv>

#include "yoke/base/error.h"

namespace yoke {

Environment Environment::of_process() {
  Environment result;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const auto equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    // If two entries have the same name, the first one counts, as in getenv.
    result.variables_.try_emplace(std::string(text.substr(0, equals)), text.substr(equals + 1));
  }
  return result;
}

std::optional<std::string> Environment::find(std::string_view name) const {
  const auto found = variables_.find(name);
  if (found == variables_.end()) return std::nullopt;
  return found->second;
}

std::string Environment::value_or(std::string_view name, std::string_view fallback) const {
  return find(name).value_or(std::string(fallback));
}

std::optional<int64_t> Environment::find_int(std::string_view name) const {
  const auto text = find(name);
  if (!text) return std::nullopt;
  if (const auto value = parse_int(*text)) return value;
  throw Error(ErrorCode::kInvalidArgument, "environment variable {}='{}' is not a whole number", name, *text);
}

void Environment::erase(std::string_view name) {
  if (const auto found = variables_.find(name); found != variables_.end()) variables_.erase(found);
}

std::vector<std::string> Environment::to_strings() const {
  std::vector<std::string> result;
  result.reserve(variables_.size());
  for (const auto& [name, value] : variables_) result.push_back(name + "=" + value);
  return result;
}

std::optional<int64_t> parse_int(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace yoke
