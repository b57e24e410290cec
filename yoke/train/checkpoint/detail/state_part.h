// yoke/train/checkpoint/detail/state_part.h -- what a TrainState asks of its parts.
#pragma once

#include <ATen/core/Generator.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "yoke/train/checkpoint/train_state.h"

namespace yoke::train {

/// A checkpoint, as one part sees it.
struct PartSource {
  std::string name;         ///< The part's.
  TensorSource tensors;     ///< Those of "NAME/...", without it; and "" is the tensor "NAME".
  const std::string* text;  ///< The value "NAME"; null when there is none.
  bool is_listed;           ///< The checkpoint says that it has this part, if only an empty one.
  dist::Group& group;
  const Warn& warn;
};

/// What loading a part will do.
struct PreparedPart {
  std::function<void()> commit;
  /// Tensors of the source that are of nothing that this rank holds: an error if they are of nothing on any rank.
  std::vector<std::string> unknown;
};

/// What each rank has of its own, of one shape on all.
struct RankRow {
  std::string name;
  at::Tensor own;
  /// Of the rows of all ranks, [ranks, ...], what is saved; null: these.
  std::function<at::Tensor(const at::Tensor& rows)> arrange;
};

struct TrainState::Part {
  virtual ~Part() = default;
  /// Not collective: what one rank finds alone is an error on all. `rows` are gathered afterwards.
  virtual void save(const std::string& name, Snapshot& snapshot, std::vector<RankRow>& rows) = 0;
  /// Not collective; changes nothing.
  virtual PreparedPart prepare(const PartSource& source) = 0;
  /// Whether a checkpoint without it is loaded all the same.
  virtual bool is_optional() const { return false; }
};

}  // namespace yoke::train
