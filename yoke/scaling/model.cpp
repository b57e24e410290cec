#include "yoke/scaling/model.h"

#include <algorithm>
#include <limits>

#include "yoke/base/error.h"

namespace yoke::scaling {
namespace {

/// The tasks of a step: those of the device and those of its link.
struct Tasks {
  std::vector<Task> compute, link;

  size_t add_compute(double seconds, std::optional<size_t> after = {}) {
    compute.push_back({seconds, after});
    return compute.size() - 1;
  }
  size_t add_link(double seconds, std::optional<size_t> after = {}) {
    link.push_back({seconds, after});
    return link.size() - 1;
  }
};

/// What a collective on `bytes` costs in this job.
struct Costs {
  int64_t num_devices;
  const Topology& topology;

  double seconds(Collective collective, int64_t bytes) const {
    return collective_cost(collective, static_cast<double>(bytes), num_devices, topology).seconds;
  }
};

/// Backward, during which each bucket is sent when its last gradient is ready.
void add_backward(const Workload& work, const std::vector<Bucket>& buckets, Collective collective, const Costs& costs,
                  Tasks& tasks) {
  tasks.add_compute(work.forward_seconds);
  double computed = 0;
  for (const auto& bucket : buckets) {
    const double ready = std::clamp(bucket.ready_seconds, computed, std::max(computed, work.backward_seconds));
    const auto piece = tasks.add_compute(ready - computed);
    computed = ready;
    tasks.add_link(costs.seconds(collective, bucket.bytes), piece);
  }
  tasks.add_compute(work.backward_seconds - computed);
}

/// Even gradients, cut at the bytes `ends`.
std::vector<Bucket> cut(const Workload& work, const std::vector<int64_t>& ends) {
  const auto all = static_cast<double>(work.gradient_bytes());
  std::vector<Bucket> parts;
  int64_t begin = 0;
  for (const int64_t end : ends) {
    if (end > begin) parts.push_back({work.backward_seconds * static_cast<double>(end) / all, end - begin});
    begin = end;
  }
  return parts;
}

std::optional<size_t> last_of(const std::vector<Task>& tasks) {
  return tasks.empty() ? std::nullopt : std::optional(tasks.size() - 1);
}

/// DDP and ZeRO-1, which differ in who sums gradients and makes the optimizer's step.
Tasks bucket_tasks(const Workload& work, const Costs& costs, const ModelOptions& options) {
  Tasks tasks;
  const bool is_zero1 = options.strategy == Strategy::kZero1;
  const auto buckets = buckets_of(work, options.first_bucket_bytes, options.bucket_bytes);
  add_backward(work, buckets, is_zero1 ? Collective::kReduceScatter : Collective::kAllReduce, costs, tasks);
  const auto num_parts = static_cast<double>(is_zero1 ? costs.num_devices : 1);
  const auto step = tasks.add_compute(work.optimizer_seconds / num_parts, last_of(tasks.link));
  if (!is_zero1) return tasks;
  for (const auto& bucket : buckets) tasks.add_link(costs.seconds(Collective::kAllGather, bucket.bytes), step);
  return tasks;
}

/// The next unit is gathered while the device computes one, in forward as well as in backward.
Tasks fsdp_tasks(const Workload& work, const Costs& costs, const ModelOptions& options) {
  const auto units = units_of(work, options.num_units);
  const auto num_units = units.size();
  std::vector<double> backward(num_units);
  double computed = 0, last = 0;
  for (size_t i = 0; i < num_units; ++i) {
    last = std::clamp(units[i].ready_seconds, computed, std::max(computed, work.backward_seconds));
    backward[i] = last - computed;
    computed = last;
  }
  Tasks tasks;
  if (num_units == 0) {
    tasks.add_compute(work.step_seconds());
    return tasks;
  }
  backward.back() += work.backward_seconds - computed;
  const double total = std::max(work.backward_seconds, 1e-12);
  const auto gather = [&](size_t unit, std::optional<size_t> after) {
    return tasks.add_link(costs.seconds(Collective::kAllGather, units[unit].bytes), after);
  };
  // Forward visits the units in the opposite order. `begun[i]` is the task after which the i-th unit of a pass begins.
  std::optional<size_t> before, previous;
  for (size_t i = num_units; i-- > 0;) {
    const auto gathered = gather(i, before);
    before = previous;
    previous = tasks.add_compute(work.forward_seconds * backward[i] / total, gathered);
  }
  // The unit that forward needed last is still there when backward begins with it.
  before = previous;
  for (size_t i = 0; i < num_units; ++i) {
    std::optional<size_t> gathered;
    if (i > 0) gathered = gather(i, before);
    if (i > 1) {  // its gradient is sent after the next unit was asked for
      tasks.add_link(costs.seconds(Collective::kReduceScatter, units[i - 2].bytes), before);
    }
    before = previous;
    previous = tasks.add_compute(backward[i], gathered);
  }
  if (num_units > 1) tasks.add_link(costs.seconds(Collective::kReduceScatter, units[num_units - 2].bytes), before);
  tasks.add_link(costs.seconds(Collective::kReduceScatter, units[num_units - 1].bytes), previous);
  tasks.add_compute(work.optimizer_seconds / static_cast<double>(costs.num_devices), last_of(tasks.link));
  return tasks;
}

/// A queue of tasks at some time of the simulation.
class Queue {
 public:
  explicit Queue(std::span<const Task> tasks) : tasks_(tasks) { load(); }

  bool is_done() const { return next_ == tasks_.size(); }
  bool can_run(const Queue& other) const {
    return !is_done() && (!tasks_[next_].after || other.next_ > *tasks_[next_].after);
  }
  double remaining() const { return remaining_; }
  void advance(double seconds) { remaining_ -= seconds; }
  void finish() {
    ++next_;
    load();
  }

 private:
  void load() { remaining_ = is_done() ? 0 : tasks_[next_].seconds; }

  std::span<const Task> tasks_;
  size_t next_ = 0;
  double remaining_ = 0;
};

}  // namespace

std::string_view name(Strategy strategy) {
  return strategy == Strategy::kDdp ? "ddp" : strategy == Strategy::kZero1 ? "zero1" : "fsdp";
}

int64_t Workload::gradient_bytes() const {
  int64_t sum = 0;
  for (const auto& gradient : gradients) sum += gradient.bytes;
  return sum;
}

std::vector<Bucket> buckets_of(const Workload& workload, int64_t first_bytes, int64_t other_bytes) {
  if (workload.is_even) {
    constexpr int64_t kMostBuckets = 1 << 18;
    const int64_t all = workload.gradient_bytes();
    const int64_t size = std::max(other_bytes, all / kMostBuckets + 1);
    std::vector<int64_t> ends;
    for (int64_t end = first_bytes; end < all; end += size) ends.push_back(end);
    ends.push_back(all);
    return cut(workload, ends);
  }
  std::vector<Bucket> buckets;
  Bucket open;
  for (const auto& gradient : workload.gradients) {
    open.bytes += gradient.bytes;
    open.ready_seconds = std::max(open.ready_seconds, gradient.ready_seconds);
    if (open.bytes < (buckets.empty() ? first_bytes : other_bytes)) continue;
    buckets.push_back(open);
    open.bytes = 0;  // a bucket is never sent before the one before it, so it keeps that one's time
  }
  if (open.bytes > 0) buckets.push_back(open);
  return buckets;
}

std::vector<Bucket> units_of(const Workload& workload, int64_t num_units) {
  const int64_t all = workload.gradient_bytes(), count = std::clamp<int64_t>(num_units, 1, std::max<int64_t>(1, all));
  const auto end_of = [&](int64_t unit) { return all / count * (unit + 1) + std::min(all % count, unit + 1); };
  if (workload.is_even) {
    std::vector<int64_t> ends;
    for (int64_t unit = 0; unit < count; ++unit) ends.push_back(end_of(unit));
    return cut(workload, ends);
  }
  std::vector<Bucket> units;
  Bucket open;
  int64_t unit = 0, sum = 0;
  for (const auto& gradient : workload.gradients) {
    sum += gradient.bytes;
    open.bytes += gradient.bytes;
    open.ready_seconds = std::max(open.ready_seconds, gradient.ready_seconds);
    if (open.bytes == 0 || sum < end_of(unit)) continue;
    units.push_back(open);
    open.bytes = 0;
    while (unit + 1 < count && end_of(unit) <= sum) ++unit;
  }
  return units;
}

double gathered_share(const std::vector<Bucket>& units) {
  int64_t all = 0, most = 0, before = 0;
  for (const auto& unit : units) {
    all += unit.bytes;
    most = std::max(most, before + unit.bytes);
    before = unit.bytes;
  }
  return all == 0 ? 0 : static_cast<double>(most) / static_cast<double>(all);
}

Workload divided(const Workload& workload, int64_t num_devices) {
  auto part = workload;
  const auto n = static_cast<double>(num_devices);
  part.forward_seconds /= n;
  part.backward_seconds /= n;
  part.loader_seconds /= n;
  for (auto& gradient : part.gradients) gradient.ready_seconds /= n;
  return part;
}

ScheduleResult simulate(std::span<const Task> compute, std::span<const Task> link, double contention) {
  constexpr double kNever = std::numeric_limits<double>::infinity();
  Queue computing(compute), communicating(link);
  ScheduleResult result;
  double computed = 0;
  while (!computing.is_done() || !communicating.is_done()) {
    const bool computes = computing.can_run(communicating), communicates = communicating.can_run(computing);
    if (!computes && !communicates) throw Error(ErrorCode::kInternal, "the tasks of a step wait for each other");
    const double rate = communicates && communicating.remaining() > 0 ? 1 - contention : 1;
    double compute_end = kNever;
    if (computes && computing.remaining() <= 0) {
      compute_end = 0;
    } else if (computes && rate > 0) {
      compute_end = computing.remaining() / rate;
    }
    const double link_end = communicates ? communicating.remaining() : kNever;
    const double passed = std::min(compute_end, link_end);
    result.seconds += passed;
    if (communicates) communicating.advance(passed);
    if (computes) {
      computing.advance(passed * rate);
      computed += passed * rate;
    }
    if (link_end <= compute_end) {
      communicating.finish();
    } else {
      computing.finish();
    }
  }
  result.waiting_seconds = result.seconds - computed;
  return result;
}

StepPrediction predict_step(const Workload& workload, int64_t num_devices, const Topology& topology,
                            const ModelOptions& options) {
  auto work = workload;
  if (num_devices > 1) {
    work.forward_seconds *= options.neighbour_slowdown;
    work.backward_seconds *= options.neighbour_slowdown;
    work.optimizer_seconds *= options.neighbour_slowdown;
    for (auto& gradient : work.gradients) gradient.ready_seconds *= options.neighbour_slowdown;
  }
  StepPrediction prediction;
  if (num_devices == 1) {
    prediction.step_seconds = work.step_seconds();
    prediction.compute_seconds = work.step_seconds();
  } else {
    const Costs costs{num_devices, topology};
    const auto tasks =
        options.strategy == Strategy::kFsdp ? fsdp_tasks(work, costs, options) : bucket_tasks(work, costs, options);
    const auto result = simulate(tasks.compute, tasks.link, options.contention);
    prediction.step_seconds = result.seconds;
    prediction.exposed_seconds = result.waiting_seconds;
    for (const auto& task : tasks.compute) prediction.compute_seconds += task.seconds;
    for (const auto& task : tasks.link) prediction.communication_seconds += task.seconds;
  }
  prediction.loader_wait_seconds = std::max(0.0, work.loader_seconds - prediction.step_seconds);
  prediction.step_seconds += prediction.loader_wait_seconds;
  return prediction;
}

}  // namespace yoke::scaling
