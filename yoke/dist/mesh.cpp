#include "yoke/dist/mesh.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <utility>

#include "yoke/base/error.h"

namespace yoke::dist {
namespace {

std::string describe(const std::vector<Axis>& axes) {
  std::vector<std::string> words;
  for (const auto& axis : axes) words.push_back(fmt::format("{} {}", axis.name, axis.size));
  return fmt::format("{}", fmt::join(words, " x "));
}

void check(const std::vector<Axis>& axes, int64_t num_ranks) {
  std::set<std::string> names;
  int64_t product = 1;
  for (const auto& axis : axes) {
    if (axis.size < 1 || axis.size > num_ranks) {
      throw Error(ErrorCode::kInvalidArgument, "a mesh of {} ranks: its axis '{}' has size {}", num_ranks, axis.name,
                  axis.size);
    }
    product = std::min(product * axis.size, num_ranks + 1);
    if (names.insert(axis.name).second) continue;
    throw Error(ErrorCode::kInvalidArgument, "a mesh has two axes named '{}'", axis.name);
  }
  if (product == num_ranks) return;
  throw Error(ErrorCode::kInvalidArgument,
              "a mesh of {} does not fit a group of {} ranks: the product of its sizes must be the number of ranks",
              describe(axes), num_ranks);
}

}  // namespace

std::vector<int64_t> coordinates_of(int64_t rank, const std::vector<Axis>& axes) {
  std::vector<int64_t> coordinates(axes.size());
  for (size_t axis = axes.size(); axis-- > 0; rank /= axes[axis].size) coordinates[axis] = rank % axes[axis].size;
  return coordinates;
}

Mesh::Mesh(Group& group, std::vector<Axis> axes) : axes_(std::move(axes)) {
  const auto texts = group.all_gather_text(describe(axes_));
  for (size_t rank = 1; rank < texts.size(); ++rank) {
    if (texts[rank] == texts[0]) continue;
    throw Error(ErrorCode::kInvalidArgument, "the mesh differs between ranks: it is {} on rank {}, and {} on rank {}",
                texts[rank], group.ranks()[rank], texts[0], group.ranks()[0]);
  }
  check(axes_, group.size());
  const auto own = coordinates_of(group.rank(), axes_);
  for (size_t axis = 0; axis < axes_.size(); ++axis) {
    int64_t row = 0;  // equal on ranks that differ only along this axis
    for (size_t other = 0; other < axes_.size(); ++other) {
      if (other != axis) row = row * axes_[other].size + own[other];
    }
    groups_.push_back(group.split(row, own[axis]));
  }
}

Group& Mesh::operator[](std::string_view axis) {
  const auto found = std::ranges::find(axes_, axis, &Axis::name);
  if (found == axes_.end()) {
    throw Error(ErrorCode::kNotFound, "the mesh has no axis '{}'; it is {}", axis, describe(axes_));
  }
  return groups_[static_cast<size_t>(found - axes_.begin())];
}

}  // namespace yoke::dist
