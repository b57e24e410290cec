#include "yoke/profile/account.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "yoke/profile/timeline.h"

namespace yoke::profile {
namespace {

/// If a device is idle for less than this, it only waits for the next launch. If the host is idle for less than this,
/// it is between two small operations. Launching takes 5 to 20 us.
constexpr int64_t kLaunchGapNs = 100'000;
/// If an operation of the host takes less than this, it computes almost nothing: its dispatch takes 1 to 5 us, and the
/// profiler adds as much. (TraceLens counts kernels below 10 us.)
constexpr int64_t kSmallOperationNs = 20'000;
/// Operations that take longer than this run faster with several threads: libtorch divides work from 32,768 elements
/// on.
constexpr int64_t kParallelOperationNs = 100'000;
/// The speedup of float32 by tensor cores (TF32). NVIDIA's data sheets say 156 and 19.5 TFLOP/s for A100, 495 and 67
/// for H100.
constexpr double kTensorCoreSpeedup = 8;

/// An operation that is not called by another operation.
struct Outermost {
  Interval time;
  uint32_t name = 0;
  int64_t longest_part_ns = 0;  ///< Longest time of one operation inside it, without those that it calls.
};

class Accountant {
 public:
  explicit Accountant(const Trace& trace) : trace_(trace), timeline_(trace) {}

  RankAccount run() {
    account_ = {.path = trace_.path,
                .rank = trace_.rank.value_or(0),
                .world_size = trace_.world_size,
                .host = trace_.host,
                .has_device = timeline_.has_device(),
                .has_steps = timeline_.has_steps(),
                .num_without_duration = trace_.num_without_duration,
                .is_truncated = trace_.is_truncated};
    for (const auto& window : timeline_.windows()) {
      account_.steps.push_back({.number = window.number, .length_ns = window.time.length()});
    }
    timeline_.has_device() ? account_device() : account_host();
    account_paging();
    find_largest_parts();
    return std::move(account_);
  }

 private:
  /// For each step, adds to `sum(step)` the length of `set` within the step.
  template <class Sum>
  void add(const Intervals& set, Sum sum) {
    for (size_t i = 0; i < account_.steps.size(); ++i) {
      std::invoke(sum, account_.steps[i]) += length_within(set, timeline_.windows()[i].time);
    }
  }
  void lose(Cause cause, const Intervals& set) {
    add(set, [cause](Step& step) -> int64_t& { return step.lost_ns[static_cast<size_t>(cause)]; });
  }
  /// Like lose() above, but only for a share of the time. REQUIRES: no time has been lost to `cause` yet.
  void lose(Cause cause, const Intervals& set, double share) {
    lose(cause, set);
    for (auto& step : account_.steps) {
      auto& lost = step.lost_ns[static_cast<size_t>(cause)];
      lost = static_cast<int64_t>(static_cast<double>(lost) * share);
    }
  }

  /// Divides each step into phases. A piece of time belongs to the first part that has it.
  void divide(const std::vector<std::pair<Phase, Intervals>>& parts) {
    auto left = timeline_.in_steps();
    const auto give = [&](Phase phase, const Intervals& set) {
      add(set, [phase](Step& step) -> int64_t& { return step.phase_ns[static_cast<size_t>(phase)]; });
    };
    for (const auto& [phase, set] : parts) {
      give(phase, intersect(left, set));
      left = subtract(left, set);
    }
    give(Phase::kRest, left);
  }

  /// `time_of` has the time of each name.
  void list_operations(const std::vector<int64_t>& time_of) {
    for (size_t i = 0; i < time_of.size(); ++i) {
      if (time_of[i] > 0) account_.operation_ns.emplace_back(trace_.names[i].text, time_of[i]);
    }
  }

  Step* step_at(int64_t time) {
    const auto index = timeline_.window_at(time);
    return index < 0 ? nullptr : &account_.steps[static_cast<size_t>(index)];
  }

  /// A collective's exposed time is the part of `exposed` from its start to the start of the step's next collective.
  /// For the first collective of a step, it also includes the part before.
  void add_collectives(Kind kind, const Intervals& exposed) {
    auto events = timeline_.events(kind, kind);
    std::ranges::stable_sort(events, [](const Event* a, const Event* b) { return a->start_ns < b->start_ns; });
    for (size_t i = 0; i < events.size(); ++i) {
      const auto index = timeline_.window_at(events[i]->start_ns);
      if (index < 0) continue;
      auto& step = account_.steps[static_cast<size_t>(index)];
      auto time = timeline_.windows()[static_cast<size_t>(index)].time;
      if (!step.collectives.empty()) time.begin = events[i]->start_ns;
      if (i + 1 < events.size()) time.end = std::min(time.end, events[i + 1]->start_ns);
      step.collectives.push_back({.key = std::hash<std::string>()(trace_.names[events[i]->name].text),
                                  .duration_ns = events[i]->duration_ns,
                                  .exposed_ns = length_within(exposed, time)});
    }
  }

  /// Returns the outermost operations of the main thread, in order, except those that begin in `without`. Adds to
  /// `time_of` the time of each name, without the operations that it calls.
  std::vector<Outermost> outermost_operations(const Intervals& without, std::vector<int64_t>& time_of) const {
    std::vector<Outermost> outermost;
    std::vector<Interval> open;   // the operations that contain the current one, the outermost first
    std::vector<int64_t> own_ns;  // the time of each open operation, without the operations that it calls
    std::vector<uint32_t> names;
    const auto begin = timeline_.windows().front().time.begin, end = timeline_.windows().back().time.end;
    const auto close_until = [&](int64_t time) {
      while (!open.empty() && open.back().end <= time) {
        outermost.back().longest_part_ns = std::max(outermost.back().longest_part_ns, own_ns.back());
        if (open.back().begin >= begin && open.back().begin < end) time_of[names.back()] += own_ns.back();
        open.pop_back();
        own_ns.pop_back();
        names.pop_back();
      }
    };
    for (const auto* event : timeline_.events(Kind::kOperation, Kind::kOperation)) {
      if (event->track != timeline_.main_track()) continue;
      const Interval operation{event->start_ns, event->end_ns()};
      close_until(operation.begin);
      if (open.empty()) outermost.push_back({operation, event->name});
      if (!own_ns.empty()) own_ns.back() -= operation.length();
      open.push_back(operation);
      own_ns.push_back(operation.length());
      names.push_back(event->name);
    }
    close_until(INT64_MAX);
    std::erase_if(outermost, [&](const Outermost& operation) {
      return length_within(without, {operation.time.begin, operation.time.begin + 1}) > 0;
    });
    return outermost;
  }

  static bool is_backward(const Name& name) { return name.text.starts_with("autograd::engine::evaluate_function"); }

  Intervals backward() const {
    std::vector<bool> is_wanted;
    for (const auto& name : trace_.names) is_wanted.push_back(name.kind == Kind::kOperation && is_backward(name));
    Intervals found;
    for (const auto& event : trace_.events) {
      if (is_wanted[event.name]) found.push_back({event.start_ns, event.end_ns()});
    }
    return union_of(std::move(found));
  }

  /// Returns the parts of the optimizer's steps in which a closure computes the loss and its gradients. Each part is
  /// from the beginning of the step to the end of the last gradient function in the step.
  Intervals closures() const {
    const auto& steps = timeline_.of(Kind::kOptimizer);
    Intervals found;
    for (const auto* event : timeline_.events(Kind::kOperation, Kind::kOperation)) {
      if (!is_backward(trace_.names[event->name])) continue;
      const auto after = std::ranges::upper_bound(steps, event->start_ns, {}, &Interval::begin);
      if (after == steps.begin() || std::prev(after)->end <= event->start_ns) continue;
      found.push_back({std::prev(after)->begin, std::min(event->end_ns(), std::prev(after)->end)});
    }
    return union_of(std::move(found));
  }

  void account_host() {
    const auto& loader = timeline_.of(Kind::kLoader);
    const auto computing = subtract(timeline_.of(Kind::kOperation), loader);
    lose(Cause::kDataLoading, loader);
    const auto optimizing = subtract(timeline_.of(Kind::kOptimizer), closures());
    lose(Cause::kOptimizer, subtract(optimizing, loader));
    if (trace_.host.has_operations == 0) {  // the trace has only annotations, so other causes are unknown
      return divide({{Phase::kLoading, loader}, {Phase::kOptimizer, optimizing}});
    }

    // The time that the training thread loses to collectives: it prepares a collective, does nothing else while one
    // runs, or is idle shortly before or after one.
    const auto& calls = timeline_.of(Kind::kCollectiveCall);
    const auto collectives = timeline_.of({Kind::kHostCollective, Kind::kCollectiveCall});
    auto idle = subtract(subtract(timeline_.in_steps(), collectives), timeline_.of({Kind::kOperation, Kind::kLoader}));
    idle = subtract(idle, optimizing);
    auto communicating = idle;
    std::erase_if(communicating, [&](const Interval& gap) {
      return gap.length() > kLaunchGapNs || length_within(collectives, {gap.begin - 1, gap.end + 1}) == 0;
    });
    idle = subtract(idle, communicating);
    for (const auto& part : subtract(collectives, timeline_.of({Kind::kOperation, Kind::kLoader}))) {
      communicating.push_back(part);
    }
    communicating.insert(communicating.end(), calls.begin(), calls.end());
    communicating = union_of(std::move(communicating));
    add_collectives(Kind::kHostCollective, communicating);
    add(subtract(computing, communicating), &Step::computing_ns);  // calls of collectives are operations too
    divide({{Phase::kLoading, loader},
            {Phase::kCommunication, communicating},
            {Phase::kOptimizer, optimizing},
            {Phase::kBackward, backward()},
            {Phase::kForward, timeline_.of(Kind::kOperation)}});

    auto apart = optimizing;
    apart.insert(apart.end(), loader.begin(), loader.end());
    apart = union_of(std::move(apart));
    std::vector<int64_t> time_of_operations(trace_.names.size());
    const auto operations = outermost_operations(apart, time_of_operations);
    list_operations(time_of_operations);
    Intervals small, parallel;
    std::vector<int64_t> time_of_small(trace_.names.size());
    for (size_t i = 0; i < operations.size(); ++i) {
      const auto& time = operations[i].time;
      if (auto* const step = step_at(time.begin)) ++step->num_operations;
      if (operations[i].longest_part_ns >= kParallelOperationNs) parallel.push_back(time);
      if (operations[i].longest_part_ns >= kSmallOperationNs) continue;
      time_of_small[operations[i].name] += time.length();
      small.push_back(time);  // the operation; the gap to the next one is added below
      if (i + 1 == operations.size() || operations[i + 1].time.begin - time.end > kLaunchGapNs) continue;
      small.push_back({time.end, operations[i + 1].time.begin});
    }
    const auto launching = subtract(subtract(union_of(std::move(small)), apart), communicating);
    lose(Cause::kSmallOperations, launching);
    find_largest_part(Cause::kSmallOperations, {Kind::kOperation}, time_of_small);
    add(subtract(idle, launching), &Step::unexplained_ns);
    const auto threads = trace_.host.num_threads.value_or(0), cpus = trace_.host.num_cpus.value_or(0);
    if (threads > 0 && threads < cpus) {
      lose(Cause::kThreads, union_of(std::move(parallel)),
           1 - static_cast<double>(threads) / static_cast<double>(cpus));
    }
  }

  void account_device() {
    const auto computing = timeline_.of({Kind::kKernel, Kind::kPlainMatmul, Kind::kMemoryBound});
    const auto copies = timeline_.of({Kind::kHostCopy, Kind::kPageableCopy});
    const auto working = timeline_.of({Kind::kKernel, Kind::kPlainMatmul, Kind::kMemoryBound, Kind::kDeviceCollective});
    add(computing, &Step::computing_ns);
    add_collectives(Kind::kDeviceCollective, subtract(timeline_.of(Kind::kDeviceCollective), computing));
    const auto& optimizing = timeline_.of(Kind::kDeviceOptimizer);
    divide({{Phase::kOptimizer, intersect(optimizing, computing)},
            {Phase::kMatmul, timeline_.of(Kind::kPlainMatmul)},
            {Phase::kMemoryBound, timeline_.of(Kind::kMemoryBound)},
            {Phase::kKernels, timeline_.of(Kind::kKernel)},
            {Phase::kCommunication, timeline_.of(Kind::kDeviceCollective)},
            {Phase::kCopies, copies},
            {Phase::kLoading, timeline_.of(Kind::kLoader)},
            {Phase::kOptimizer, timeline_.of({Kind::kOptimizer, Kind::kDeviceOptimizer})},
            {Phase::kCopies, timeline_.of(Kind::kCopyCall)}});
    std::vector<int64_t> time_of(trace_.names.size());
    for (const auto& event : trace_.events) {
      if (is_device_work(timeline_.kind_of(event)) && step_at(event.start_ns)) time_of[event.name] += event.duration_ns;
    }
    list_operations(time_of);

    // The time in which the device works, except on collectives, divided by cause.
    lose(Cause::kPrecision, subtract(timeline_.of(Kind::kPlainMatmul), optimizing), 1 - 1 / kTensorCoreSpeedup);
    lose(Cause::kMemoryBandwidth, subtract(fusible(), optimizing));
    const auto in_closures = closures();
    if (in_closures.empty())
      lose(Cause::kOptimizer, optimizing);  // with a closure, its kernels cannot be told from the model's
    lose(Cause::kDeviceCopy, subtract(copies, working));

    // The time in which the device is idle, divided by what the host does at that time.
    auto idle = subtract(subtract(timeline_.in_steps(), working), copies);
    const auto take_from_idle = [&](Cause cause, const Intervals& host) {
      lose(cause, intersect(idle, host));
      idle = subtract(idle, host);
    };
    take_from_idle(Cause::kDataLoading, timeline_.of(Kind::kLoader));
    idle = subtract(idle, optimizing);  // this time is counted above
    take_from_idle(Cause::kOptimizer, subtract(timeline_.of(Kind::kOptimizer), in_closures));
    take_from_idle(Cause::kDeviceCopy, timeline_.of(Kind::kCopyCall));
    const auto& syncs = timeline_.of(Kind::kSync);
    Intervals after_sync, launching, long_gaps;
    for (const auto& gap : idle) {
      // The host waited for the device and had launched nothing more, so the device then had no work.
      const bool is_after_sync = length_within(syncs, {gap.begin - 1000, gap.begin + 1000}) > 0;
      (is_after_sync ? after_sync : gap.length() <= kLaunchGapNs ? launching : long_gaps).push_back(gap);
    }
    lose(Cause::kSmallOperations, launching);
    // During a long gap, the host may have run operations. The trace does not explain the rest of the gap.
    const auto& operations = timeline_.of(Kind::kOperation);
    lose(Cause::kSmallOperations, intersect(long_gaps, operations));
    add(subtract(long_gaps, operations), &Step::unexplained_ns);
    lose(Cause::kHostSync, after_sync);
    for (size_t i = 0; i < account_.steps.size(); ++i) {
      // A step without synchronisation still takes as long as the host's work, so a fix saves at most the host's waits.
      auto& lost = account_.steps[i].lost_ns[static_cast<size_t>(Cause::kHostSync)];
      lost = std::min(lost, length_within(syncs, timeline_.windows()[i].time));
    }
    for (const auto* event : timeline_.events(Kind::kSync, Kind::kSync)) {
      if (auto* const step = step_at(event->start_ns)) ++step->num_syncs;
    }
    for (const auto* event : timeline_.events(Kind::kKernel, Kind::kPageableCopy)) {
      if (auto* const step = step_at(event->start_ns)) ++step->num_operations;
    }
    const auto pageable_ns = static_cast<double>(total(timeline_.of(Kind::kPageableCopy)));
    const auto all_ns = pageable_ns + static_cast<double>(total(timeline_.of(Kind::kHostCopy)));
    account_.pageable_share = all_ns > 0 ? pageable_ns / all_ns : 0;
  }

  /// Finds chains of kernels on a stream that could be fused: each kernel reads and writes all its data, but one kernel
  /// would do this once. Returns the time of all kernels of a chain except the longest.
  Intervals fusible() const {
    Intervals saved;
    const Event* longest = nullptr;  // of the current chain
    const Event* last = nullptr;
    for (const auto* kernel : timeline_.events(Kind::kKernel, Kind::kPageableCopy)) {
      const bool is_memory_bound = timeline_.kind_of(*kernel) == Kind::kMemoryBound;
      const bool continues = longest != nullptr && is_memory_bound && last->track == kernel->track &&
                             kernel->start_ns - last->end_ns() <= kLaunchGapNs;
      if (continues) {
        const auto* shorter = kernel->duration_ns > longest->duration_ns ? std::exchange(longest, kernel) : kernel;
        saved.push_back({shorter->start_ns, shorter->end_ns()});
      } else {
        longest = is_memory_bound ? kernel : nullptr;
      }
      last = kernel;
    }
    return union_of(std::move(saved));
  }

  void account_paging() {
    const auto stalled_us = trace_.host.memory_stall_us.value_or(0);
    if (stalled_us <= 0) return;
    const auto in_steps_ns = static_cast<double>(std::max<int64_t>(1, total(timeline_.in_steps())));
    lose(Cause::kPaging, timeline_.in_steps(), std::min(1.0, static_cast<double>(stalled_us) * 1e3 / in_steps_ns));
  }

  void find_largest_parts() {
    const bool has_device = timeline_.has_device();
    const std::pair<Cause, std::vector<Kind>> parts[] = {
        {Cause::kDataLoading, {Kind::kLoader}},
        {Cause::kCommunication,
         has_device ? std::vector{Kind::kDeviceCollective} : std::vector{Kind::kHostCollective, Kind::kCollectiveCall}},
        {Cause::kHostSync, {Kind::kSync}},
        {Cause::kDeviceCopy, {Kind::kPageableCopy}},
        {Cause::kPrecision, {Kind::kPlainMatmul}},
        {Cause::kOptimizer, {Kind::kOptimizer}},
        {Cause::kMemoryBandwidth, {Kind::kMemoryBound}}};
    std::vector<int64_t> time_of(trace_.names.size());
    for (const auto& event : trace_.events) {
      if (step_at(event.start_ns) != nullptr) time_of[event.name] += event.duration_ns;
    }
    for (const auto& [cause, kinds] : parts) find_largest_part(cause, kinds, time_of);
  }

  /// `time_of` has the total time of each name in the trace.
  void find_largest_part(Cause cause, const std::vector<Kind>& kinds, const std::vector<int64_t>& time_of) {
    int64_t most = 0;
    for (size_t i = 0; i < time_of.size(); ++i) {
      if (std::ranges::find(kinds, trace_.names[i].kind) == kinds.end() || time_of[i] <= most) continue;
      most = time_of[i];
      account_.largest_part[static_cast<size_t>(cause)] = trace_.names[i].text;
    }
  }

  const Trace& trace_;
  const Timeline timeline_;
  RankAccount account_;
};

}  // namespace

RankAccount account_for(const Trace& trace) { return Accountant(trace).run(); }

}  // namespace yoke::profile
