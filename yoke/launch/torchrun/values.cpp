#include "yoke/launch/torchrun/values.h"

#include <algorithm>

#include "yoke/base/environment.h"
#include "yoke/base/error.h"

namespace yoke::launch {

std::vector<std::string> split_at_commas(const std::string& text) {
  std::vector<std::string> parts;
  for (size_t from = 0; from <= text.size() && !text.empty();) {
    const auto end = std::min(text.find(',', from), text.size());
    parts.push_back(text.substr(from, end - from));
    from = end + 1;
  }
  return parts;
}

int64_t to_number(const std::string& text, const char* option) {
  const auto number = parse_int(text);
  if (number) return *number;
  throw Error(ErrorCode::kInvalidArgument, "{} {}: this is not a number", option, text);
}

}  // namespace yoke::launch
