#include "yoke/base/subordinate_ids.h"

#include "yoke/base/environment.h"
#include "yoke/base/text.h"

namespace yoke {

std::optional<std::string> subordinate_owner(int64_t uid, std::string_view subuid) {
  for (const auto line : lines_of(subuid)) {  // subuid(5): NAME:FIRST:COUNT
    const auto fields = split(line, ':');
    if (fields.size() != 3) continue;
    const auto first = parse_int(fields[1]), count = parse_int(fields[2]);
    if (first && count && uid >= *first && uid - *first < *count) return std::string(fields[0]);
  }
  return std::nullopt;
}

}  // namespace yoke
