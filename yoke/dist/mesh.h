// yoke/dist/mesh.h -- the ranks of a group along named axes.
//
//     dist::Mesh mesh(world, {{"replicate", 2}, {"shard", 4}});   // 8 ranks; of one node lie along the last axis
//     mesh["shard"].all_reduce(tensor);                           // over the 4 ranks of this one's row
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

/// Ranks are counted along the last axis first, as the elements of a tensor: with {{"replicate", 2}, {"shard", 2}} the
/// ranks 0 and 1 are together along "shard", and 0 and 2 along "replicate". As torch's init_device_mesh has it.
class Mesh {
 public:
  /// Collective.
  /// Errors  kInvalidArgument on all ranks: the sizes do not multiply to the group's, a name comes twice, or ranks give
  ///         other axes (names the first).
  Mesh(Group& group, std::vector<Axis> axes);

  /// The ranks that differ from this one along that axis only; its rank() is this rank's coordinate.
  /// Errors  kNotFound for another name.
  Group& operator[](std::string_view axis);

  const std::vector<Axis>& axes() const { return axes_; }

 private:
  std::vector<Axis> axes_;
  std::vector<Group> groups_;  ///< Beside axes_.
};

/// Pure: where `rank` is along each axis.
std::vector<int64_t> coordinates_of(int64_t rank, const std::vector<Axis>& axes);

}  // namespace yoke::dist
