// yoke/base/environment.h -- environment variables as a value, so that what reads them stays a pure function.
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

  /// A copy of this process's environment. Not to be called while another thread calls setenv.
  static Environment of_process();

  std::optional<std::string> find(std::string_view name) const;
  std::string value_or(std::string_view name, std::string_view fallback) const;
  bool contains(std::string_view name) const { return variables_.contains(name); }

  /// The variable as a whole decimal number; nullopt when unset.
  /// Errors  kInvalidArgument, naming the variable and its text, when it is anything else.
  std::optional<int64_t> find_int(std::string_view name) const;

  void set(std::string name, std::string value) { variables_[std::move(name)] = std::move(value); }
  void erase(std::string_view name);

  /// "NAME=value" in order of names, as execve takes them.
  std::vector<std::string> to_strings() const;

 private:
  std::map<std::string, std::string, std::less<>> variables_;
};

/// The whole of `text` as a decimal number; nullopt when it is anything else or out of range.
std::optional<int64_t> parse_int(std::string_view text);

}  // namespace yoke
