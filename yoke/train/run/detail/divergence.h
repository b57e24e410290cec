// yoke/train/run/detail/divergence.h -- which rank differs from the others, and in what. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace yoke::train::detail {

/// A tensor that several ranks hold, and what each of them has in it: a hash of its bits.
struct ReplicatedTensor {
  std::string name;
  bool is_option = false;  ///< Numbers of an optimizer's groups, such as "lr": a cause of other differences.
  std::vector<std::pair<int64_t, int64_t>> hashes;  ///< (rank in the group, hash), by rank.
};

struct Divergence {
  size_t tensor = 0;            ///< The first one that differs; options come before other tensors.
  std::vector<int64_t> ranks;   ///< Those that differ from most others. Empty if no value has most ranks.
  std::vector<int64_t> others;  ///< The other ranks that hold the tensor.
  std::vector<size_t> more;     ///< The other tensors that differ.
};

/// Returns nullopt if all ranks that hold a tensor have the same in it, for all tensors.
std::optional<Divergence> find_divergence(const std::vector<ReplicatedTensor>& tensors);

/// "rank 2 differs from ranks 0, 1, 3: ..." `values` are the numbers that each rank has in the first tensor, by rank;
/// empty if there are too many to show. `names` are the ranks of the World, by rank.
std::string describe_divergence(const Divergence& divergence, const std::vector<ReplicatedTensor>& tensors,
                                const std::vector<std::vector<double>>& values, const std::vector<int64_t>& names);

}  // namespace yoke::train::detail
