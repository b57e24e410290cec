#include "yoke/launch/process/descriptors.h"

#include <unistd.h>

#include <algorithm>

namespace yoke::launch {

void close_all_except(std::vector<int> keep) {
  std::ranges::sort(keep);
  unsigned first = 3;
  for (const int fd : keep) {
    if (fd < static_cast<int>(first)) continue;
    if (fd > static_cast<int>(first)) close_range(first, static_cast<unsigned>(fd) - 1, 0);
    first = static_cast<unsigned>(fd) + 1;
  }
  close_range(first, ~0U, 0);
}

}  // namespace yoke::launch
