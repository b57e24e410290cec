// yoke/scaling/input.h -- the training step of one device, from a measurement, a trace or the user's figures. Pure.
#pragma once

#include <optional>

#include "yoke/scaling/meter.h"
#include "yoke/scaling/plan.h"

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

/// What the user says of a training. All else is measured, is in a trace, or is assumed.
struct GivenTraining {
  std::optional<double> step_seconds, num_parameters;
  std::optional<double> backward_share;   ///< The share of backward in the step without the optimizer.
  std::optional<double> optimizer_share;  ///< The share of the optimizer in the step.
  std::optional<double> loader_seconds, contention, slowdown;
  std::optional<int64_t> num_neighbours;  ///< As in MeterOptions.
  std::optional<Precision> precision;
  std::optional<Optimizer> optimizer;
  std::optional<int64_t> other_bytes;  ///< As in MemoryOptions.
};

/// A step of one device, and where it comes from.
struct PlanInput {
  Workload workload;
  Origin origin;
};

/// What a prediction begins with: from the user's figures alone, from the trace of one rank, or from a measurement.
/// These complete the model and the memory of `options`, of which the topology is read. From figures, gradients become
/// ready at an even rate (Workload::is_even). Errors  those of workload_of().
/// REQUIRES: without a trace and a measurement, step_seconds and num_parameters are given.
PlanInput input_of(const GivenTraining& given, PlanOptions& options);
PlanInput input_of(const GivenTraining& given, const profile::Trace& trace, PlanOptions& options);
PlanInput input_of(const GivenTraining& given, const MeasuredTraining& measured, PlanOptions& options);

}  // namespace yoke::scaling
