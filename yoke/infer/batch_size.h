// yoke/infer/batch_size.h -- finds the batch size at which a model is fast, by running it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace yoke::dist {
class World;
}

namespace yoke::infer {

struct BatchTrial {
  int64_t size = 1;
  std::optional<double> seconds;  ///< Of the slowest rank; nullopt: there was too little memory.
};

struct BatchSizeSearch {
  int64_t least = 1, most = 256;
  /// Runs the model on a batch of this size to the end.
  std::function<void(int64_t size)> run = nullptr;
};

/// The size to try next, twice the last one: at least five sizes, until two sizes in a row gain less than 5 % and a
/// batch takes over 10 ms, it takes over half a second, memory ends, or it would be above the most. Pure.
std::optional<int64_t> next_batch_size(const std::vector<BatchTrial>& trials, const BatchSizeSearch& search);

/// The smallest size whose samples per second are within 5 % of the best. Pure.
int64_t best_batch_size(const std::vector<BatchTrial>& trials);

/// The batch size for which AOTInductor compiled a model, or the largest one, if this is its error about another one.
std::optional<int64_t> compiled_batch_size(const std::string& error);

/// Collective. Returns the same size on all ranks, which try each size at the same time.
/// Errors  what `run` throws, but a lack of memory for other sizes than the least.
int64_t find_batch_size(dist::World& world, const BatchSizeSearch& search);

}  // namespace yoke::infer
