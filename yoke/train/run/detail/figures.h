// yoke/train/run/detail/figures.h -- the figures that a Run's ranks log within an epoch.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "yoke/train/meter.h"
#include "yoke/train/named_tensors.h"

namespace yoke::train {

/// How often a rank has logged each figure.
using LogCounts = std::map<std::string, int64_t>;

/// Pure. Describes the first figure that ranks have logged a different number of times; nullopt if there is none.
std::optional<std::string> describe_difference(const std::vector<LogCounts>& ranks);

/// The first value of a rank that is not finite.
struct NotFinite {
  std::string name;
  int64_t step = 0;
};

/// The first one of all ranks.
struct FirstNotFinite {
  std::string text;         ///< "the first was loss in step 7, on rank 2 alone: look at its batch"; empty: not known.
  bool is_of_some = false;  ///< Other ranks had none in that step, so the data of these are to be suspected.
};

/// Pure. `of_ranks` has it of each rank that knows one.
FirstNotFinite find_first_not_finite(const std::map<int64_t, NotFinite>& of_ranks, int64_t num_ranks);

/// Means over an epoch. They are part of the checkpointed state, so that a resumed run continues them.
class Figures {
 public:
  explicit Figures(dist::Group& group) : group_(group) {}

  /// `step`: of the training, for not_finite().
  /// Errors  kInvalidArgument: `name` cannot be a column of metrics.csv, or is one of its own columns or of
  /// steps.jsonl; `value` is no single one, or `weight` is below 0.
  void add(const std::string& name, const at::Tensor& value, int64_t weight, int64_t step = 0);

  const std::vector<std::string>& names() const { return names_; }  ///< In the order in which they were first logged.
  const Mean& at(const std::string& name) const { return by_name_.at(name); }  ///< REQUIRES: it is one of names().

  /// Collective. Compares what the ranks have logged since the last reset(), and returns the difference on all ranks.
  std::optional<std::string> difference() const;

  /// Collective. Returns the means over all ranks, in the order of names(), and then those that only a resumed run's
  /// state has. A figure without a value is left out. REQUIRES: !difference(), because ranks read one after the other.
  std::vector<std::pair<std::string, double>> read() const;
  void reset();  ///< Begins the next epoch.

  /// What this rank knows of its first value since the last reset() that is not finite, for the other ranks. A value on
  /// a GPU is not looked at, because each look would take two kernels.
  std::string not_finite() const;
  /// Pure. `notes`: not_finite() of each rank. If a rank had such a value before it was resumed, nobody knows.
  FirstNotFinite first_not_finite(const std::vector<std::string>& notes) const;

  /// Collective, and saved before all parts whose saving can fail on one rank. Ranks may have logged different figures:
  /// the state has the figures of all ranks, so that nothing is lost before difference() is reported.
  TensorMap state_dict() const;
  void load_state_dict(const TensorMap& state);
  /// Not collective: what this rank has logged since the last reset(), and in which order.
  TensorMap own_state_dict() const;
  void load_own_state_dict(const TensorMap& state);

 private:
  void note_loaded();

  dist::Group& group_;
  std::vector<std::string> names_;
  std::map<std::string, Mean> by_name_;
  LogCounts counts_;
  std::optional<NotFinite> not_finite_;
  bool was_not_finite_ = false;  ///< A mean of the state that was loaded is not finite.
};

}  // namespace yoke::train
