// yoke/train/checkpoint/detail/state_part.h -- the interface of the parts of a TrainState.
#pragma once

#include <ATen/core/Generator.h>

#include <functional>
#include <string>
#include <vector>

#include "yoke/train/checkpoint/detail/replica.h"
#include "yoke/train/checkpoint/train_state.h"

namespace yoke::train {

/// One part's view of a checkpoint.
struct PartSource {
  std::string name;         ///< The name of the part.
  TensorSource tensors;     ///< The tensors "NAME/...", without that prefix; "" is the tensor "NAME".
  const std::string* text;  ///< The value "NAME"; null if there is none.
  bool is_listed;           ///< The checkpoint lists this part, even if it is empty.
  dist::Group& group;
  const Warn& warn;
};

/// A part's load after all checks; commit() carries it out.
struct PreparedPart {
  std::function<void()> commit;
  /// Names of tensors in the source that this rank does not have. If no rank has a tensor, that is an error.
  std::vector<std::string> unknown;
};

/// A tensor that differs between ranks but has the same shape on all.
struct RankRow {
  std::string name;
  at::Tensor own;
  /// Turns the rows of all ranks, [ranks, ...], into the tensor to save. If null, the rows are saved as they are.
  std::function<at::Tensor(const at::Tensor& rows)> arrange;
};

/// How much of an OwnState has been renewed.
struct OwnPlace {
  size_t slice = 0, row = 0;
};

/// Not collective. Brings what state.own_state() has given up to date, in a fraction of the time. Returns false if the
/// state has other names or shapes now; `own` has no meaning then.
bool renew_own(const TrainState& state, TrainState::OwnState& own);

struct TrainState::Part {
  virtual ~Part() = default;
  /// Not collective; an error on one rank becomes an error on all. `rows` are gathered afterwards.
  virtual void save(const std::string& name, Snapshot& snapshot, std::vector<RankRow>& rows) = 0;
  /// Not collective; changes nothing.
  virtual PreparedPart prepare(const PartSource& source) = 0;
  /// Adds the tensors that other ranks hold alike.
  virtual void add_replicas(const std::string& /*name*/, std::vector<detail::Replica>& /*all*/) const {}
  /// Not collective.
  virtual void save_own(const std::string& name, OwnState& own);
  /// Not collective. Puts the present tensors and values in the place of those that save_own() has given, from `place`
  /// on, which it advances. Returns false if they have other names or shapes now. A type or the size of a part of a
  /// tensor may be another one.
  virtual bool renew_own(const std::string& name, OwnState& own, OwnPlace& place);
  /// Not collective. `source` has what all ranks have alike and what is divided between them, and `rows` is of this
  /// rank alone.
  virtual void load_own(PartSource source, const TensorMap& rows);
  /// Adds the parameters of an optimizer of yoke::train.
  virtual void add_optimized(std::vector<at::Tensor>& /*all*/) const {}
  /// Returns whether a checkpoint without this part can be loaded.
  virtual bool is_optional() const { return false; }

 private:
  static bool renew_all(const TrainState& state, OwnState& own);
  // The header of TrainState, which users include, need not name it.
  friend bool renew_own(const TrainState& state, TrainState::OwnState& own) { return renew_all(state, own); }
};

}  // namespace yoke::train
