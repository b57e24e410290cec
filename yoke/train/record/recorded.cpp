#include "yoke/train/record/recorded.h"

#include <c10/core/impl/LocalDispatchKeySet.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <list>
#include <map>
#include <optional>
#include <unordered_set>

#include "yoke/base/error.h"
#include "yoke/dist/plug.h"
#include "yoke/dist/ranks_lost.h"
#include "yoke/train/detail/rehearsal.h"
#include "yoke/train/record/detail/modes.h"
#include "yoke/train/record/detail/recorder.h"
#include "yoke/train/record/detail/snapshot.h"

namespace yoke::train {
namespace {

using detail::Plan;
using detail::Recorder;
using detail::Snapshot;

/// A plan that is replaced before so many replays was of little use, and after so many of these none is made any more.
constexpr int64_t kFewReplays = 8;
constexpr int kMaxInVain = 4;

/// Calls the step and drops the graphs of its results.
std::vector<at::Tensor> without_graphs(std::vector<at::Tensor> results) {
  for (auto& result : results) {
    if (result.defined()) result = result.variable_data();  // detach() would keep the graph alive
  }
  return results;
}

const char* why_no_graphs() {
  return dist::loaded_plug() == nullptr ? "no plug for such a device is loaded" : "yoke's plug has no graphs for it";
}

/// Looks for calls in a step that is compared which a recording would have refused, and notes what the step sends.
class Listener final : public detail::StepRecording {
 public:
  Listener(detail::Rehearsal& rehearsal, bool communicates)
      : rehearsal_(rehearsal), outer_(std::exchange(detail::recording_on_this_thread(), this)) {
    if (communicates) watch_.emplace();
  }
  ~Listener() override { detail::recording_on_this_thread() = outer_; }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
  void call(detail::HostCall call) override {
    const c10::impl::ExcludeDispatchKeyGuard inside(detail::kRecorderKey);
    call.run(call.tensors);
  }
  void add(detail::HostCall /*call*/) override {}
  void refuse(const std::string& reason) override { why_not = reason; }
  void postpone() override { refuse("an object that communicates in the step was made anew"); }
  void use_gradient(const at::Tensor&) override {}
  void communicate(const std::string& op, const at::Tensor& tensor) override {
    const auto is_its = [&](const auto& entry) { return entry.second->all_reduce(tensor).has_value(); };
    const auto found = std::ranges::find_if(communications_, is_its);
    if (op == "c10d::allreduce_" && found != communications_.end()) return rehearsal_.sent(found->first, tensor);
    refuse(op + " communicates with other ranks, and did not when the step was recorded");
  }

  std::string why_not;

 private:
  detail::Rehearsal& rehearsal_;
  std::optional<detail::CommunicationWatch> watch_;
  StepRecording* outer_;
};

}  // namespace

struct RecordedBase::Impl {
  explicit Impl(RecordedOptions given) : options(std::move(given)) {
    if (!options.modules.empty()) modes.emplace(options.modules);
  }

  struct Entry {
    Plan plan;
    std::vector<double> modes;
    int64_t num_replays = 0, last_compared = 0;
  };

  std::vector<at::Tensor> run(at::TensorList inputs, Call step);
  std::vector<at::Tensor> record(at::TensorList inputs, Call step, bool keep);
  std::vector<at::Tensor> record(at::TensorList inputs, Call step, bool keep, dist::GraphMaker* graphs);
  dist::GraphMaker* graphs_for(c10::Device device);
  std::vector<at::Tensor> check(Entry& entry, at::TensorList inputs, Call step);
  bool is_due(const Entry& entry);
  bool add_parameter(const at::Tensor& parameter);  ///< Whether it was not known.
  std::vector<at::Tensor> living_parameters();
  void give_up(const std::string& reason);
  void stop(const std::string& reason);

  RecordedOptions options;
  std::optional<detail::ModuleModes> modes;
  std::map<c10::DeviceIndex, std::unique_ptr<dist::GraphMaker>> graph_makers;
  std::list<Entry> entries;
  std::vector<detail::Parameter> parameters;  ///< All that a recording has found, and those of the modules.
  std::unordered_set<const c10::TensorImpl*> known_parameters;
  std::string why_not;
  int64_t num_calls = 0, num_recordings = 0, num_replays = 0;
  int64_t num_other_gradients = 0;
  int num_in_vain = 0;              ///< Recordings in a row that were of little use.
  int num_with_new_parameters = 0;  ///< Of such calls in a row.
  bool has_failed = false;          ///< The last call.
  bool has_warned_of_shapes = false, has_warned_of_inputs = false, has_warned_of_modes = false,
       has_warned_of_graphs = false;
  bool compares_next = false;
};

void RecordedBase::Impl::stop(const std::string& reason) {
  why_not = reason;
  entries.clear();
}

void RecordedBase::Impl::give_up(const std::string& reason) {
  stop(reason);
  if (options.warn) options.warn("Recorded: the step runs as it would without recording: " + reason);
}

bool RecordedBase::Impl::add_parameter(const at::Tensor& parameter) {
  const bool is_new = known_parameters.insert(parameter.unsafeGetTensorImpl()).second;
  if (is_new) parameters.push_back(parameter);
  return is_new;
}

std::vector<at::Tensor> RecordedBase::Impl::living_parameters() {
  std::vector<at::Tensor> living;
  std::erase_if(parameters, [&](const detail::Parameter& parameter) {
    if (parameter.is_gone()) {
      known_parameters.erase(parameter.get());
      return true;
    }
    living.push_back(parameter.tensor());
    return false;
  });
  return living;
}

/// Null on the CPU, and on a device that has no graphs.
dist::GraphMaker* RecordedBase::Impl::graphs_for(c10::Device device) {
  const auto* plug = dist::loaded_plug();
  if (plug == nullptr || plug->device_type != device.type() || plug->make_graph_maker == nullptr) return nullptr;
  auto& maker = graph_makers[device.index()];
  if (!maker) maker = plug->make_graph_maker(device.index());
  return maker.get();
}

/// The step runs on the stream on which it is captured then, so that libraries make there what they need.
std::vector<at::Tensor> RecordedBase::Impl::record(at::TensorList inputs, Call step, bool keep) {
  const auto device = inputs.empty() || !inputs[0].defined() ? c10::Device(c10::kCPU) : inputs[0].device();
  auto* graphs = graphs_for(device);
  if (graphs == nullptr) {
    if (keep && !device.is_cpu()) {
      give_up(fmt::format("its inputs are on {}, and {}", device.str(), why_no_graphs()));
      return without_graphs(step(inputs));
    }
    return record(inputs, step, keep, nullptr);
  }
  std::vector<at::Tensor> results;
  graphs->on_its_stream([&] { results = record(inputs, step, keep, graphs); });
  return results;
}

std::vector<at::Tensor> RecordedBase::Impl::record(at::TensorList inputs, Call step, bool keep,
                                                   dist::GraphMaker* graphs) {
  Recorder recorder(graphs == nullptr ? c10::Device(c10::kCPU) : inputs[0].device());
  if (modes) {
    modes->find_modules();
    for (const auto& parameter : modes->parameters()) add_parameter(parameter);
  }
  recorder.note_gradients(living_parameters());
  const auto modes_before = modes ? modes->now() : std::vector<double>();
  const auto stand_ins = recorder.add_inputs(inputs);
  auto results = step(stand_ins);
  const auto has_graph = [](const at::Tensor& result) { return result.defined() && result.requires_grad(); };
  const auto graph = std::ranges::find_if(results, has_graph) - results.begin();
  if (graph < std::ssize(results) && !recorder.ran_backward() && !std::exchange(has_warned_of_graphs, true) &&
      options.warn) {
    options.warn(fmt::format(
        "Recorded: result {} of the step has a graph, and no backward ran in the step. What a recorded step "
        "returns has no graph: call backward() in the step, or let the step run under torch::NoGradGuard",
        graph));
  }
  results = without_graphs(std::move(results));
  recorder.finish(results);
  bool has_new_parameter = false;
  for (const auto& leaf : recorder.parameters()) has_new_parameter |= add_parameter(leaf);
  // The next call would find the casts of this one.
  if (!recorder.keeps_casts() && (!keep || recorder.is_postponed())) return results;
  if (!recorder.why_not().empty()) {
    give_up(recorder.why_not());
    return results;
  }
  if (modes && modes->now() != modes_before) {
    if (!std::exchange(has_warned_of_modes, true) && options.warn) {
      options.warn(
          "Recorded: a step that switches its modules by train() or eval() is not recorded when it does so; "
          "switch them before the step");
    }
    return results;
  }
  // Whether a parameter that no call had used before had a gradient when the step began is not known, and it makes a
  // difference. So the next call is recorded.
  num_with_new_parameters = has_new_parameter ? num_with_new_parameters + 1 : 0;
  if (num_with_new_parameters == kMaxInVain) {
    give_up(fmt::format("each of {} calls in a row has used parameters that no call before had used", kMaxInVain));
  }
  if (has_new_parameter) return results;
  auto plan = recorder.take_plan();
  for (auto& watched : plan.watched) {
    if (modes) watched.name = modes->name_of(watched.tensor._unsafe_get_target());
  }
  if (graphs != nullptr) {
    try {
      plan.capture(*graphs, inputs);
    } catch (const std::exception& error) {  // the step has run, and nothing of its capture
      const auto* of_torch = dynamic_cast<const c10::Error*>(&error);
      give_up(fmt::format("it cannot be captured as a graph of the GPU: {}",
                          of_torch != nullptr ? of_torch->what_without_backtrace() : error.what()));
      return results;
    }
  }
  ++num_recordings;
  entries.push_back({.plan = std::move(plan), .modes = modes_before});
  return results;
}

std::vector<at::Tensor> RecordedBase::Impl::check(Entry& entry, at::TensorList inputs, Call step) {
  const Snapshot before(entry.plan, inputs);
  detail::Rehearsal rehearsal;
  std::optional<Listener> listener(std::in_place, rehearsal, !entry.plan.communications.empty());
  auto expected = without_graphs(step(inputs));
  const auto refused = listener->why_not;
  listener.reset();
  const auto replay = entry.num_replays, last = std::exchange(entry.last_compared, replay);
  const auto fail = [&](const std::string& reason) {
    if (replay == 1) return give_up(reason);
    if (entry.plan.is_captured()) {  // no rule about kernels that give other bits each time is certain
      return give_up(
          fmt::format("replay {} was compared with it, and {}. The replays since number {} may have been wrong", replay,
                      reason, last));
    }
    const auto error =
        Error(ErrorCode::kFailedPrecondition,
              "Recorded: replay {} was compared with the step, and {}. The replays since number {} may have been wrong",
              replay, reason, last);
    for (const auto& communication : entry.plan.communications) communication->report(error);
    stop(reason);
    throw error;
  };
  if (!refused.empty()) {
    fail(refused);
    return expected;
  }
  const Snapshot right(entry.plan, inputs);
  // An optimizer that began in this call, as after skipped steps or a new state, cannot be set back.
  if (right.num_memories() != before.num_memories()) {
    compares_next = true;
    return expected;
  }
  before.restore();
  rehearsal.begin_replay();
  std::vector<at::Tensor> results;
  try {
    results = entry.plan.replay(inputs);
  } catch (const std::exception& error) {
    right.restore();
    fail(fmt::format("the replay has failed and the step has not: {}", error.what()));
    return expected;
  }
  std::string differs = rehearsal.difference();
  if (differs.empty()) differs = right.difference(Snapshot(entry.plan, inputs));
  for (size_t i = 0; i < std::max(results.size(), expected.size()) && differs.empty(); ++i) {
    if (i >= results.size() || i >= expected.size() || !detail::same_bytes(results[i], expected[i])) {
      differs = fmt::format("result {} of the step", i);
    }
  }
  if (!differs.empty() && entry.plan.is_captured()) {
    std::vector<std::vector<at::Tensor>> replays;
    replays.push_back(Snapshot(entry.plan, inputs).values_and(results));
    while (replays.size() < 3) {
      before.restore();
      results = entry.plan.replay(inputs);
      replays.push_back(Snapshot(entry.plan, inputs).values_and(results));
    }
    if (detail::differ_as_each_other(before.values_and({}), right.values_and(expected), replays)) return results;
  }
  if (differs.empty()) return results;
  right.restore();
  fail(fmt::format(
      "a replay gives other bits than the step itself, first in {}: the step depends on numbers or decisions of the "
      "program that were other ones when it was recorded; give numbers that change as tensors, and call set_lr() "
      "before the step",
      differs));
  return expected;
}

bool RecordedBase::Impl::is_due(const Entry& entry) {
  if (std::exchange(compares_next, false)) return true;
  return options.check && (std::has_single_bit(static_cast<uint64_t>(entry.num_replays)) ||
                           entry.num_replays - entry.last_compared >= options.check_every);
}

std::vector<at::Tensor> RecordedBase::Impl::run(at::TensorList inputs, Call step) {
  if (!why_not.empty() || detail::recording_on_this_thread() != nullptr) return without_graphs(step(inputs));
  if (num_calls++ < options.warm_up) return record(inputs, step, /*keep=*/false);
  const auto* modes_now = modes ? &modes->now() : nullptr;
  for (auto entry = entries.begin(); entry != entries.end(); ++entry) {
    const bool fits = entry->plan.fits(inputs) && !(modes && entry->modes != *modes_now);
    if (!fits && !entry->plan.has_lost_parameter()) continue;
    if (const auto [reason, is_gradient] = entry->plan.why_stale(); !reason.empty()) {
      num_in_vain = entry->num_replays < kFewReplays ? num_in_vain + 1 : 0;
      if (num_in_vain == kMaxInVain) {
        give_up(
            fmt::format("it was recorded {} times in a row for fewer than {} replays each, the last time because {}",
                        kMaxInVain, kFewReplays, reason));
        return without_graphs(step(inputs));
      }
      entries.erase(entry);
      // Of steps that add to gradients, the first plan has those that were there before there was a plan.
      const bool is_usual = is_gradient && num_other_gradients++ < static_cast<int64_t>(options.max_plans);
      if (!is_usual && options.warn) options.warn(fmt::format("Recorded: the step is recorded again: {}", reason));
      return record(inputs, step, /*keep=*/true);
    }
    ++num_replays;
    ++entry->num_replays;
    if (is_due(*entry)) return check(*entry, inputs, step);
    try {
      return entry->plan.replay(inputs);
    } catch (const std::exception& error) {
      for (const auto& communication : entry->plan.communications) communication->report(error);
      // When the ranks have formed their group again, the step is recorded again.
      const bool may_go_on = dynamic_cast<const dist::RanksLost*>(&error) != nullptr;
      if (!may_go_on && dynamic_cast<const Error*>(&error) != nullptr) stop(error.what());
      throw;
    }
  }
  const auto is_lazy = [](const at::Tensor& input) {
    return input.defined() && (input.is_neg() || input.is_conj() || input._is_zerotensor());
  };
  if (!entries.empty() && std::ranges::any_of(inputs, is_lazy)) {
    if (!std::exchange(has_warned_of_inputs, true) && options.warn) {
      options.warn(
          "Recorded: steps with an input that is conjugated, negated or a zero tensor run as they would without "
          "recording; give clone() of it");
    }
    return without_graphs(step(inputs));
  }
  if (entries.size() < options.max_plans) return record(inputs, step, /*keep=*/true);
  if (!std::exchange(has_warned_of_shapes, true) && options.warn) {
    options.warn(
        fmt::format("Recorded: steps of {} shapes{} are recorded, and other shapes run as they would without "
                    "recording; raise RecordedOptions::max_plans, or pad the inputs",
                    entries.size(), modes ? " or modes" : ""));
  }
  return without_graphs(step(inputs));
}

RecordedBase::RecordedBase(RecordedOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}
RecordedBase::~RecordedBase() = default;
int64_t RecordedBase::num_recordings() const { return impl_->num_recordings; }
int64_t RecordedBase::num_replays() const { return impl_->num_replays; }
const std::string& RecordedBase::why_not() const { return impl_->why_not; }
void RecordedBase::check_next() { impl_->compares_next = true; }

std::vector<at::Tensor> RecordedBase::run(at::TensorList inputs, Call step) {
  // After an error, gradients may be left that no plan knows and that will not be there again.
  const bool has_failed = std::exchange(impl_->has_failed, true);
  auto results = has_failed ? without_graphs(step(inputs)) : impl_->run(inputs, step);
  impl_->has_failed = false;
  return results;
}

}  // namespace yoke::train
