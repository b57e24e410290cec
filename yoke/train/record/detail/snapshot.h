// yoke/train/record/detail/snapshot.h -- what a step changes, for the comparison of its replay with the step itself.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>

#include <string>
#include <vector>

#include "yoke/train/record/detail/plan.h"

namespace yoke::train::detail {

/// The state of everything that a plan changes, besides gradients that it makes.
class Snapshot {
 public:
  Snapshot(const Plan& plan, at::TensorList inputs);

  /// How many memories were saved, which grows if the step makes state that it keeps.
  size_t num_memories() const { return storages_.size(); }

  void restore() const;

  /// What differs from another snapshot of the same plan; empty if nothing does.
  std::string difference(const Snapshot& other) const;

  /// All tensors in it, in the same order for each snapshot of a plan, and then the results of the step.
  std::vector<at::Tensor> values_and(const std::vector<at::Tensor>& results) const;

 private:
  struct Saved {
    c10::Storage storage;
    at::Tensor values;
  };

  void save(const c10::Storage& storage, at::ScalarType dtype);

  std::vector<Saved> storages_;
  std::vector<GradientAt> gradients_;
  std::vector<at::Tensor> gradient_values_, generator_states_;
  std::vector<at::Generator> generators_;
};

/// A sum of all words of a tensor's memory, by which a write shows.
int64_t checksum(const at::Tensor& tensor);

/// Whether replays from the same state differ from the step no more than kernels explain that add in another order each
/// time: each tensor by at most four times the largest distance between two of the replays, and a small part of what
/// the step changes in it. The distance of two tensors is the largest difference of two elements.
bool differ_as_each_other(const std::vector<at::Tensor>& before, const std::vector<at::Tensor>& step,
                          const std::vector<std::vector<at::Tensor>>& replays);

}  // namespace yoke::train::detail
