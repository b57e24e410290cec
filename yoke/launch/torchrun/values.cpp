#include "yoke/launch/torchrun/values.h"

#include <algorithm>
#include <cctype>

#include "yoke/base/environment.h"
#include "yoke/base/error.h"
#include "yoke/base/text.h"

namespace yoke::launch {

std::vector<std::string> split_at_commas(const std::string& text) {
  const auto parts = split(text, ',');
  return {parts.begin(), parts.end()};
}

int64_t to_number(const std::string& text, const char* option) {
  const auto number = parse_int(text);
  if (number) return *number;
  throw Error(ErrorCode::kInvalidArgument, "{} {}: this is not a number", option, text);
}

std::string variable_of_option(std::string name) {
  std::ranges::transform(name, name.begin(),
                         [](unsigned char c) { return c == '-' ? '_' : static_cast<char>(std::toupper(c)); });
  return "PET_" + name;
}

}  // namespace yoke::launch
