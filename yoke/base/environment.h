// yoke/base/environment.h -- environment variables as a value, so that functions that read them stay pure.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace yoke {

class Environment {
 public:
  Environment() = default;
  Environment(std::initializer_list<std::pair<const std::string, std::string>> variables) : variables_(variables) {}

  /// A copy of this process's environment. REQUIRES: no other thread calls setenv meanwhile.
  static Environment of_process();

  std::optional<std::string> find(std::string_view name) const;
  std::string value_or(std::string_view name, std::string_view fallback) const;
  bool contains(std::string_view name) const { return variables_.contains(name); }

  /// Returns the variable as a whole decimal number, or nullopt if it is not set.
  /// Errors  kInvalidArgument with the variable and its text if the text is not such a number.
  std::optional<int64_t> find_int(std::string_view name) const;

  void set(std::string name, std::string value) { variables_[std::move(name)] = std::move(value); }
  void erase(std::string_view name);
  /// Erases the variables for whose name `is_unwanted(name)` is true.
  template <typename Predicate>
  void erase_if(const Predicate& is_unwanted) {
    std::erase_if(variables_, [&](const auto& variable) { return is_unwanted(variable.first); });
  }

  /// Iterates over pairs of a name and a value, sorted by name.
  auto begin() const { return variables_.begin(); }
  auto end() const { return variables_.end(); }

  /// Returns "NAME=value" strings for execve, sorted by name.
  std::vector<std::string> to_strings() const;

 private:
  std::map<std::string, std::string, std::less<>> variables_;
};

/// Parses the whole of `text` as a decimal number. Returns nullopt if it is not a number or out of range.
std::optional<int64_t> parse_int(std::string_view text);

}  // namespace yoke
