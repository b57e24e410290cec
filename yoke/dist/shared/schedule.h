// yoke/dist/shared/schedule.h -- which rank reduces which elements in which round. Pure.
//
// In a round, each rank puts into its chunk what the other ranks reduce (a lane for each of them), reduces its own part
// of all chunks, and then takes the parts that the others have reduced.
#pragma once

#include <cstdint>

#include "yoke/dist/shared/layout.h"

namespace yoke::dist::shared {

/// A range of elements.
struct Range {
  int64_t begin = 0, size = 0;
  bool operator==(const Range&) const = default;
};

struct ReduceSchedule {
  int64_t num_elements = 0;  ///< That each rank contributes.
  int64_t element_bytes = 1;
  bool scatters = false;  ///< Rank r gets the r-th of num_ranks equal blocks. Otherwise all ranks get all elements.
  Layout layout;

  int64_t num_rounds() const;
  /// The elements of a contribution that `rank` reduces in this round. They fit in a lane.
  Range part(int64_t round, int64_t rank) const;
  /// The most elements of a part.
  int64_t lane_elements() const { return lane_bytes(layout, layout.num_ranks) / element_bytes; }
};

/// The part of a rank if `size` elements are divided equally, in whole cache lines.
Range share_of(int64_t size, int64_t element_bytes, int64_t num_ranks, int64_t rank);

/// The part of `size` bytes that passes in this round if at most `lane` bytes pass in each.
Range part_of(int64_t size, int64_t lane, int64_t round);

inline int64_t num_rounds_of(int64_t size, int64_t lane) { return (size + lane - 1) / lane; }

}  // namespace yoke::dist::shared
