// yoke/train/detail/replicated.h -- which tensors are kept equal on which ranks.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <mutex>
#include <unordered_set>
#include <vector>

#include "yoke/dist/group.h"
#include "yoke/train/named_tensors.h"

namespace yoke::train::detail {

/// During its lifetime, says that tensors have the same bits on all ranks of a group between two steps. The classes
/// that make them so own it: DistributedDataParallel, ShardedOptimizer, and FullyShardedDataParallel for its replicas.
class Replicated {
 public:
  /// REQUIRES: the tensors live as long as this object.
  Replicated(const dist::Group& group, const NamedTensors& tensors) : ranks_(group.ranks()) {
    if (group.size() == 1) return;
    for (const auto& [_, tensor] : tensors) tensors_.insert(tensor.unsafeGetTensorImpl());
    const std::lock_guard lock(all().mutex);
    all().list.push_back(this);
  }
  ~Replicated() {
    const std::lock_guard lock(all().mutex);
    std::erase(all().list, this);
  }
  Replicated(const Replicated&) = delete;
  Replicated& operator=(const Replicated&) = delete;

  /// The ranks of the World on which `tensor` has the same bits; empty if nobody says so.
  static std::vector<int64_t> ranks_of(const at::Tensor& tensor) {
    const std::lock_guard lock(all().mutex);
    for (const auto* replicated : all().list) {
      if (replicated->tensors_.contains(tensor.unsafeGetTensorImpl())) return replicated->ranks_;
    }
    return {};
  }

 private:
  struct All {
    std::mutex mutex;
    std::vector<const Replicated*> list;
  };
  static All& all() {
    static All of_process;
    return of_process;
  }

  std::vector<int64_t> ranks_;
  std::unordered_set<const c10::TensorImpl*> tensors_;
};

}  // namespace yoke::train::detail
