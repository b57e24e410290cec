// yoke/dist/ranks_lost.h -- the error of a collective of which ranks have ended, in a job that can take others in.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "yoke/base/error.h"

namespace yoke::dist {

/// Thrown under `yoke run --replace`. The launcher starts the lost ranks again; World::recover() then forms the groups
/// again. A program that does not catch it ends, as after any other loss of a rank.
class RanksLost : public Error {
 public:
  RanksLost(const std::string& message, std::vector<int64_t> ranks)
      : Error(ErrorCode::kUnavailable, message), ranks_(std::move(ranks)) {}

  /// Ranks of the World that are known to have ended; empty if this rank only knows that others form the groups again.
  const std::vector<int64_t>& ranks() const { return ranks_; }

 private:
  std::vector<int64_t> ranks_;
};

}  // namespace yoke::dist
