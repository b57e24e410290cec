#include "yoke/scaling/input.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <vector>

#include "yoke/base/error.h"
#include "yoke/base/median.h"
#include "yoke/base/text.h"
#include "yoke/profile/timeline.h"

namespace yoke::scaling {
namespace {

using profile::Interval;
using profile::Kind;

/// A recorded step, in seconds.
struct RecordedStep {
  double length = 0, backward = 0, optimizer = 0;
  std::vector<Gradient> gradients;
  int64_t num_elements = 0;
};

double seconds_of(int64_t nanoseconds) { return static_cast<double>(nanoseconds) * 1e-9; }

double median_of(const std::vector<RecordedStep>& steps, double RecordedStep::*member) {
  std::vector<double> values;
  for (const auto& step : steps) values.push_back(step.*member);
  return median(std::move(values));
}

/// Whether an event is a node of autograd that computes, with all that it calls.
std::vector<bool> names_of_backward(const profile::Trace& trace) {
  std::vector<bool> is_backward;
  for (const auto& one : trace.names) {
    is_backward.push_back(one.kind == Kind::kOperation && one.text.starts_with("autograd::engine::evaluate_function"));
  }
  return is_backward;
}

/// When the host was in each step, by its number. A timeline's windows are those of the device if the host is far
/// ahead.
std::map<int64_t, Interval> host_steps(const profile::Trace& trace, const profile::Timeline& timeline) {
  std::map<int64_t, Interval> steps;
  for (const auto& event : trace.events) {
    if (timeline.kind_of(event) != Kind::kStep || event.track != timeline.main_track()) continue;
    steps[trace.names[event.name].step] = {event.start_ns, event.end_ns()};
  }
  return steps;
}

/// The gradients, backward and optimizer of the host in `host`. nullopt: there is no backward in it.
std::optional<RecordedStep> step_in(const Interval& host, const profile::Trace& trace,
                                    const profile::Timeline& timeline, const std::vector<bool>& is_backward) {
  const auto contains = [&](const auto& event) { return event.start_ns >= host.begin && event.start_ns < host.end; };
  Interval backward{std::numeric_limits<int64_t>::max(), 0};
  const auto extend = [&](const auto& event) {
    if (contains(event)) backward = {std::min(backward.begin, event.start_ns), std::max(backward.end, event.end_ns())};
  };
  for (const auto& event : trace.events) {
    if (is_backward[event.name]) extend(event);
  }
  for (const auto& event : trace.gradients) extend(event);
  backward.end = std::min(backward.end, host.end);
  RecordedStep step;
  for (const auto& event : trace.gradients) {
    if (!contains(event)) continue;
    step.gradients.push_back({seconds_of(std::min(event.end_ns(), backward.end) - backward.begin),
                              event.num_elements * event.element_bytes});
    step.num_elements += event.num_elements;
  }
  if (step.gradients.empty()) return std::nullopt;
  std::ranges::stable_sort(step.gradients, {}, &Gradient::ready_seconds);
  step.backward = seconds_of(backward.length());
  step.optimizer = seconds_of(length_within(timeline.of(Kind::kOptimizer), {backward.end, host.end}));
  return step;
}

std::vector<RecordedStep> steps_of(const profile::Trace& trace, const profile::Timeline& timeline) {
  std::vector<RecordedStep> steps;
  const auto is_backward = names_of_backward(trace);
  const auto hosts = host_steps(trace, timeline);
  const auto& of_device = timeline.of(Kind::kDeviceOptimizer);
  for (const auto& [number, time] : timeline.windows()) {
    auto step = step_in(hosts.at(number), trace, timeline, is_backward);
    if (!step) continue;
    step->length = seconds_of(time.length());
    if (!of_device.empty()) step->optimizer = seconds_of(length_within(of_device, time));
    steps.push_back(std::move(*step));
  }
  return steps;
}

/// The gradients of the steps that have the median number of them, each with its median time.
std::vector<Gradient> gradients_of(const std::vector<RecordedStep>& steps, double scale) {
  std::vector<const RecordedStep*> by_count;
  for (const auto& step : steps) by_count.push_back(&step);
  const auto count_of = [](const RecordedStep* step) { return step->gradients.size(); };
  const auto middle = by_count.begin() + std::ssize(by_count) / 2;  // not a mean, which no step may have
  std::ranges::nth_element(by_count, middle, {}, count_of);
  auto gradients = (*middle)->gradients;
  const auto count = gradients.size();
  for (size_t i = 0; i < count; ++i) {
    std::vector<double> times;
    for (const auto& step : steps) {
      if (step.gradients.size() == count) times.push_back(step.gradients[i].ready_seconds);
    }
    gradients[i].ready_seconds = median(std::move(times)) * scale;
  }
  return gradients;
}

/// Which state the optimizer of "Optimizer.step#AdamW.step" has, or of "Optimizer.step#AdamW" in a training with yoke.
std::optional<Optimizer> optimizer_of(const profile::Trace& trace) {
  constexpr std::string_view kBefore = "Optimizer.step#";
  for (const auto& name : trace.names) {
    if (!name.text.starts_with(kBefore)) continue;
    const auto type = std::string_view(name.text).substr(kBefore.size());
    if (type.starts_with("SGD")) return Optimizer::kSgd;
    if (type.starts_with("Adagrad") || type.starts_with("RMSprop")) return Optimizer::kMomentum;  // 4 bytes, too
    if (type.find("Adam") != type.npos) return Optimizer::kAdam;
  }
  return std::nullopt;
}

bool has_half_gradients(const profile::Trace& trace) {
  int64_t all = 0, half = 0;
  for (const auto& gradient : trace.gradients) {
    all += gradient.num_elements;
    if (gradient.element_bytes == 2) half += gradient.num_elements;
  }
  return 2 * half > all;
}

std::optional<double> measured_delay(const Topology& topology) {
  return topology.intra.compute_delay ? topology.intra.compute_delay : topology.inter.compute_delay;
}

/// What no trace says.
PlanInput begin_input(const GivenTraining& given, PlanOptions& options) {
  PlanInput input;
  input.workload.loader_seconds = given.loader_seconds.value_or(0);
  const auto delay = measured_delay(options.topology);
  options.model.contention = given.contention.value_or(delay.value_or(0));
  if (delay && !given.contention) {
    input.origin.sentences.push_back(fmt::format(
        "An all-reduce delays what the slowest rank computes beside it by {:.0f} % of its own time (measured).",
        100 * *delay));
  }
  options.model.neighbour_slowdown = given.slowdown.value_or(1);
  options.memory.precision = given.precision.value_or(Precision::kFloat32);
  options.memory.optimizer = given.optimizer.value_or(Optimizer::kAdam);
  options.memory.other_bytes = given.other_bytes.value_or(0);
  return input;
}

void take_trace(const profile::Trace& trace, const GivenTraining& given, std::optional<double> step_seconds,
                PlanOptions& options, PlanInput& input) {
  auto profiled = workload_of(trace, step_seconds);
  input.origin.has_device = profiled.has_device;
  input.origin.sentences.push_back(
      fmt::format("The times of gradients ({}) were measured in recorded steps ({}) of one rank{}.",
                  profiled.workload.gradients.size(), profiled.num_steps,
                  step_seconds ? ", and scaled to a step without recording" : ", which recording made longer"));
  profiled.workload.loader_seconds = input.workload.loader_seconds;
  input.workload = std::move(profiled.workload);
  options.memory.num_parameters = profiled.num_parameters;
  options.memory.precision = given.precision.value_or(profiled.precision);
  if (!given.optimizer && profiled.optimizer) {
    options.memory.optimizer = *profiled.optimizer;
    if (*profiled.optimizer == Optimizer::kSgd) {
      input.origin.sentences.emplace_back(
          "SGD is taken to have no momentum, which a trace does not show (--optimizer momentum).");
    }
  }
  // Ranks on processors communicate with the processors that they compute with.
  if (!given.contention && !measured_delay(options.topology)) options.model.contention = profiled.has_device ? 0 : 1;
}

}  // namespace

ProfiledWorkload workload_of(const profile::Trace& trace, std::optional<double> step_seconds) {
  const auto refuse = [&](const char* why) {
    throw Error(ErrorCode::kInvalidArgument, "{}: {}", printable(trace.path), why);
  };
  if (trace.is_truncated) {
    throw Error(ErrorCode::kDataLoss, "{}: the file ends before its JSON does; copy or record it again",
                printable(trace.path));
  }
  if (trace.world_size.value_or(1) > 1) {
    refuse("this is the trace of one of several ranks; record a training of one rank, `-n 1`");
  }
  if (trace.gradients.empty()) {
    refuse(
        "no sizes of gradients are in it; record it by `yoke profile --shapes`, or with record_shapes=True of "
        "torch.profiler");
  }
  const profile::Timeline timeline(trace);
  if (!timeline.has_steps()) refuse("it marks no steps; call profiler.step() after each step");
  const auto steps = steps_of(trace, timeline);
  if (steps.empty()) refuse("no recorded step has a backward");

  const double recorded = median_of(steps, &RecordedStep::length);
  const double scale = step_seconds.value_or(recorded) / recorded;
  ProfiledWorkload profiled{.num_steps = static_cast<int64_t>(steps.size()),
                            .has_device = timeline.has_device(),
                            .precision = has_half_gradients(trace) ? Precision::kMixed : Precision::kFloat32,
                            .optimizer = optimizer_of(trace)};
  auto& work = profiled.workload;
  const double host_backward = std::max(median_of(steps, &RecordedStep::backward), 1e-9);
  const double optimizer = std::min(recorded, median_of(steps, &RecordedStep::optimizer));
  const double backward =
      profiled.has_device ? kBackwardShare * (recorded - optimizer) : std::min(recorded, host_backward);
  work.backward_seconds = backward * scale;
  work.optimizer_seconds = std::min(recorded - backward, optimizer) * scale;
  work.forward_seconds = recorded * scale - work.backward_seconds - work.optimizer_seconds;
  work.gradients = gradients_of(steps, backward / host_backward * scale);
  for (const auto& step : steps) profiled.num_parameters = std::max(profiled.num_parameters, step.num_elements);
  return profiled;
}

PlanInput input_of(const GivenTraining& given, PlanOptions& options) {
  auto input = begin_input(given, options);
  options.memory.num_parameters = std::llround(*given.num_parameters);
  auto& work = input.workload;
  work.optimizer_seconds = *given.step_seconds * given.optimizer_share.value_or(0);
  const double computing = *given.step_seconds - work.optimizer_seconds;
  work.backward_seconds = computing * given.backward_share.value_or(kBackwardShare);
  work.forward_seconds = computing - work.backward_seconds;
  work.gradients = {
      {work.backward_seconds, options.memory.num_parameters * bytes_per_gradient(options.memory.precision)}};
  work.is_even = true;
  input.origin.sentences.emplace_back("Gradients become ready at an even rate during backward.");
  return input;
}

PlanInput input_of(const GivenTraining& given, const profile::Trace& trace, PlanOptions& options) {
  auto input = begin_input(given, options);
  take_trace(trace, given, given.step_seconds, options, input);
  input.origin.is_step_measured = !given.step_seconds;
  return input;
}

PlanInput input_of(const GivenTraining& given, const MeasuredTraining& measured, PlanOptions& options) {
  auto input = begin_input(given, options);
  auto& sentences = input.origin.sentences;
  sentences.push_back(fmt::format(
      "A step of one rank takes {:.4g} ms, the median of parts of {} steps without recording (spread {:.1f} %).",
      measured.step_seconds * 1e3, measured.num_steps, measured.spread_percent));
  take_trace(measured.trace, given, measured.step_seconds, options, input);
  input.origin.is_step_measured = true;
  if (measured.neighbour_step_seconds && !given.slowdown) {
    options.model.neighbour_slowdown = std::max(1.0, *measured.neighbour_step_seconds / measured.step_seconds);
    input.origin.is_slowdown_measured = true;
    sentences.push_back(fmt::format(
        "{} copies that ran at the same time, and waited for each other after each step, took {:.4g} ms for a step.",
        *given.num_neighbours, *measured.neighbour_step_seconds * 1e3));
  }
  const double states = static_cast<double>(memory_of(Strategy::kDdp, 1, options.memory).total());
  if (!given.other_bytes && static_cast<double>(measured.device_peak_bytes) > states) {
    options.memory.other_bytes = measured.device_peak_bytes - std::llround(states);
    options.is_memory_measured = true;
  }
  return input;
}

}  // namespace yoke::scaling
