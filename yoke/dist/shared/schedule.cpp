#include "yoke/dist/shared/schedule.h"

#include <algorithm>

namespace yoke::dist::shared {

int64_t ReduceSchedule::num_rounds() const {
  const int64_t of_a_round = scatters ? lane_elements() : lane_elements() * layout.num_ranks;
  return num_rounds_of(scatters ? num_elements / layout.num_ranks : num_elements, of_a_round);
}

Range ReduceSchedule::part(int64_t round, int64_t rank) const {
  if (scatters) {
    const int64_t block = num_elements / layout.num_ranks;
    const auto part = part_of(block, lane_elements(), round);
    return {rank * block + part.begin, part.size};
  }
  const auto all = part_of(num_elements, lane_elements() * layout.num_ranks, round);
  const auto share = share_of(all.size, element_bytes, layout.num_ranks, rank);  // the last round is divided, too
  return {all.begin + share.begin, share.size};
}

Range share_of(int64_t size, int64_t element_bytes, int64_t num_ranks, int64_t rank) {
  const int64_t in_a_line = std::max<int64_t>(1, kLineBytes / element_bytes);
  const int64_t share = round_up((size + num_ranks - 1) / num_ranks, in_a_line);
  const int64_t begin = std::min(rank * share, size), end = std::min(begin + share, size);
  return {begin, end - begin};
}

Range part_of(int64_t size, int64_t lane, int64_t round) {
  const int64_t begin = std::min(round * lane, size);
  return {begin, std::min(lane, size - begin)};
}

}  // namespace yoke::dist::shared
