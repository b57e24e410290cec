// yoke/dist/mesh.h -- arranges the ranks of a group along named axes.
//
//     dist::Mesh mesh(world, {{"replicate", 2}, {"shard", 4}});   // 8 ranks; a node's ranks lie along the last axis
//     mesh["shard"].all_reduce(tensor);                           // over the 4 ranks of this rank's row
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "yoke/dist/group.h"

namespace yoke::dist {

struct Axis {
  std::string name;
  int64_t size = 1;
};

/// Ranks are numbered along the last axis first, like the elements of a tensor. With {{"replicate", 2}, {"shard", 2}},
/// ranks 0 and 1 form a group along "shard", and ranks 0 and 2 along "replicate". torch's init_device_mesh uses the
/// same order.
class Mesh {
 public:
  /// Collective.
  /// Errors  kInvalidArgument on all ranks: the product of the sizes is not the group's size, a name appears twice, or
  ///         the ranks give different axes (the message names the first rank that differs).
  Mesh(Group& group, std::vector<Axis> axes);

  /// Returns the group of the ranks whose coordinates differ from this rank's only along `axis`. Its rank() is this
  /// rank's coordinate.
  /// Errors  kNotFound: no axis has this name.
  Group& operator[](std::string_view axis);

  const std::vector<Axis>& axes() const { return axes_; }

 private:
  std::vector<Axis> axes_;
  std::vector<Group> groups_;  ///< One for each of axes_.
};

/// Pure. Returns the coordinate of `rank` along each axis.
std::vector<int64_t> coordinates_of(int64_t rank, const std::vector<Axis>& axes);

}  // namespace yoke::dist
