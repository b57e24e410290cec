// yoke/scaling/input.h -- the training step of one device, from a trace or from the user's figures. Pure.
#pragma once

#include <optional>

#include "yoke/profile/trace.h"
#include "yoke/scaling/memory.h"
#include "yoke/scaling/model.h"

namespace yoke::scaling {

struct ProfiledWorkload {
  Workload workload;
  int64_t num_parameters = 0;
  int64_t num_steps = 0;  ///< Recorded steps.
  bool has_device = false;
  /// Whether most gradients have 16 bits, so that parameters probably have, too.
  Precision precision = Precision::kFloat32;
  /// By the name of the optimizer's class in the trace. It does not say whether SGD has a momentum; it is taken for SGD
  /// without.
  std::optional<Optimizer> optimizer;
};

/// Of the step without the optimizer: backward computes twice as much as forward.
inline constexpr double kBackwardShare = 2.0 / 3;

/// The median over the steps of a trace of one rank. If `step_seconds` is given, that is how long a step takes without
/// recording, and all parts are changed in proportion, because recording makes steps longer. If the trace has a device,
/// which computes later than the host launches, backward is kBackwardShare, and only the order and the proportions of
/// the times of gradients are the host's.
/// Errors  kInvalidArgument: the trace has no shapes, no steps, no backward, or is one of several ranks; kDataLoss: its
///         file is not complete.
ProfiledWorkload workload_of(const profile::Trace& trace, std::optional<double> step_seconds);

struct GivenWorkload {
  double step_seconds = 0;
  double backward_share = kBackwardShare;  ///< The share of backward in the step without the optimizer.
  double optimizer_share = 0;              ///< The share of the optimizer in the step.
  int64_t gradient_bytes = 0;
  double loader_seconds = 0;
};

/// Gradients become ready at an even rate (Workload::is_even).
Workload workload_of(const GivenWorkload& given);

}  // namespace yoke::scaling
