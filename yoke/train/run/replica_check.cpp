#include "yoke/train/run/replica_check.h"

#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "yoke/base/error.h"
#include "yoke/base/text.h"
#include "yoke/contract/shared_failure.h"
#include "yoke/dist/activity.h"
#include "yoke/dist/group.h"
#include "yoke/train/checkpoint/detail/replica.h"
#include "yoke/train/checkpoint/train_state.h"
#include "yoke/train/detail/last_clip.h"
#include "yoke/train/detail/step_watch.h"
#include "yoke/train/run/detail/divergence.h"
#include "yoke/train/run/detail/replica_hash.h"
#include "yoke/train/sharding.h"

namespace yoke::train {
namespace {

constexpr int64_t kMostShown = 64;  // numbers of a tensor that a message looks at

/// What identifies a tensor on all ranks that hold it: ranks with the same line compare it.
std::string line_of(const detail::Replica& replica) {
  return fmt::format("{}\t{}\t{} {} {} {}\t{}\n", replica.name, replica.is_option ? 1 : 0,
                     c10::toString(replica.values.scalar_type()), fmt::join(replica.values.sizes(), "x"),
                     fmt::join(replica.values.strides(), "x"), replica.first, fmt::join(replica.ranks, " "));
}

/// What rounding depends on, besides the numbers.
std::string arithmetic(const c10::Device& device) {
  return device.is_cpu() ? fmt::format("{} with {} threads", at::get_cpu_capability(), at::get_num_threads())
                         : std::string(c10::DeviceTypeName(device.type()));
}

std::string numbers_of(const detail::Replica& replica) {
  const auto& tensor = replica.values;
  if ((tensor.numel() > kMostShown && !replica.is_option) || tensor.is_complex()) return {};
  const auto values = tensor.detach().to(at::kCPU, at::kDouble).contiguous();
  const auto* first = values.const_data_ptr<double>();
  return fmt::format("{}", fmt::join(first, first + values.numel(), " "));
}

std::vector<double> parse_numbers(const std::string& text) {
  std::vector<double> result;
  for (const auto word : yoke::split(text, ' ')) {
    if (!word.empty()) result.push_back(std::strtod(std::string(word).c_str(), nullptr));
  }
  return result;
}

/// Counts the steps that optimizers make with each part of a FullyShardedDataParallel's parameter. Ranks hold different
/// parts, so nothing else shows that one of them has left out a step.
class StepCounts {
 public:
  StepCounts()
      : watch_([this](at::TensorList parameters, detail::Mean) {
          if (parameters.empty() || sharding_of(parameters.front()) == nullptr) return;
          const std::lock_guard lock(mutex_);
          for (const auto& parameter : parameters) ++counts_[parameter.unsafeGetTensorImpl()];
        }) {}

  /// Adds the counts for the parts among `optimized`, and begins to count anew.
  void take(const std::vector<at::Tensor>& optimized, std::vector<detail::Replica>& all) {
    const std::lock_guard lock(mutex_);
    std::map<std::vector<int64_t>, std::vector<int64_t>> by_ranks;
    for (const auto& parameter : optimized) {
      const auto* sharding = sharding_of(parameter);
      if (sharding == nullptr || sharding->group == nullptr) continue;
      const auto found = counts_.find(parameter.unsafeGetTensorImpl());
      by_ranks[sharding->group->ranks()].push_back(found == counts_.end() ? 0 : found->second);
    }
    counts_.clear();
    for (const auto& [ranks, counts] : by_ranks) {
      all.push_back({.name = "the number of steps of an optimizer since the last comparison",
                     .values = at::tensor(counts, at::kLong),
                     .ranks = ranks,
                     .is_option = true});
    }
  }

 private:
  std::mutex mutex_;
  std::unordered_map<const c10::TensorImpl*, int64_t> counts_;
  detail::StepWatch watch_;  // the last member, because it calls at once
};

void add_last_clip(std::vector<detail::Replica>& all) {
  const auto& last = detail::last_clip();
  if (!last.norm.defined()) return;
  all.push_back({.name = "the limit of the last clip_grad_norm",
                 .values = at::tensor({last.max_norm}, at::kDouble),
                 .ranks = last.ranks,
                 .is_option = true});
  all.push_back({.name = "the norm that the last clip_grad_norm found",
                 .values = last.norm.view({1}),
                 .ranks = last.ranks,
                 .is_option = true});
}

}  // namespace

struct ReplicaCheck::Impl {
  const TrainState& state;
  Warn warn;

  /// Which tensors ranks share, as they told each other. Equal on all ranks, except for own_places.
  struct Plan {
    std::vector<int64_t> keys;  // by rank: a hash of its lines
    struct Shared {
      std::string name;
      bool is_option = false;
      std::vector<std::pair<int64_t, int64_t>> holders;  // (rank in the group, place among its replicas)
    };
    std::vector<Shared> tensors;
    int64_t num_places = 0;        // the most replicas of a rank
    std::vector<bool> own_places;  // which of this rank's replicas others hold too
    std::optional<std::string> other_arithmetic;
  };
  Plan plan = {};
  StepCounts steps = {};
  std::optional<int64_t> last_equal = {};
  bool has_warned = false;

  void exchange(const std::string& lines, int64_t key);
  at::Tensor hashes(const std::vector<detail::Replica>& replicas, int64_t key) const;
  void report(const detail::Divergence& divergence, const std::vector<detail::ReplicatedTensor>& tensors,
              const std::vector<detail::Replica>& replicas, int64_t step);
};

ReplicaCheck::ReplicaCheck(const TrainState& state, Warn warn)
    : impl_(new Impl{.state = state, .warn = std::move(warn)}) {
  detail::last_clip() = {};  // a rank that was replaced knows none, so none counts
}
ReplicaCheck::~ReplicaCheck() = default;
ReplicaCheck::ReplicaCheck(ReplicaCheck&&) noexcept = default;

void ReplicaCheck::operator()(int64_t step) {
  auto& check = *impl_;
  auto& group = check.state.group();
  if (group.size() == 1 || check.has_warned) return;
  const dist::Activity activity(group, "the comparison of replicas");
  const c10::NoGradGuard no_grad;
  std::vector<detail::Replica> replicas;
  try {
    replicas = check.state.replicas();
    check.steps.take(check.state.optimized(), replicas);
    add_last_clip(replicas);
  } catch (...) {
    group.fail(std::current_exception());
  }
  std::string lines;
  for (const auto& replica : replicas) lines += line_of(replica);
  const auto key = static_cast<int64_t>(std::hash<std::string>()(lines));

  // Each rank's row: its key, and the hashes of its replicas. An optimizer gets state with its first gradients, and so
  // new lines; then all ranks see that a key has changed, and exchange their lines.
  auto rows = group.all_gather(check.hashes(replicas, key)).cpu();
  const auto is_planned = [&] {
    if (check.plan.keys.empty()) return false;
    for (int64_t rank = 0; rank < group.size(); ++rank) {
      if (rows[rank][0].item<int64_t>() != check.plan.keys[static_cast<size_t>(rank)]) return false;
    }
    return true;
  };
  if (!is_planned()) {
    check.exchange(lines, key);
    rows = group.all_gather(check.hashes(replicas, key)).cpu();
  }
  const auto hash = rows.accessor<int64_t, 2>();
  std::vector<detail::ReplicatedTensor> tensors;
  for (const auto& shared : check.plan.tensors) {
    auto& tensor = tensors.emplace_back(
        detail::ReplicatedTensor{.name = shared.name, .is_option = shared.is_option, .hashes = {}});
    for (const auto& [rank, place] : shared.holders) tensor.hashes.emplace_back(rank, hash[rank][1 + place]);
  }
  if (const auto divergence = detail::find_divergence(tensors)) {
    check.report(*divergence, tensors, replicas, step);
  } else {
    check.last_equal = step;
  }
}

void ReplicaCheck::Impl::exchange(const std::string& lines, int64_t key) {
  auto& group = state.group();
  const auto texts = group.all_gather_text(fmt::format("{}\t{}\n{}", key, arithmetic(group.device()), lines));
  plan = {};
  std::map<std::string, size_t> indices;
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    const auto of_rank = yoke::lines_of(texts[rank]);
    const auto head = yoke::split(of_rank.front(), '\t');
    plan.keys.push_back(std::strtoll(std::string(head[0]).c_str(), nullptr, 10));
    if (head[1] != arithmetic(group.device())) plan.other_arithmetic = std::string(head[1]);
    const auto num_lines = static_cast<int64_t>(of_rank.size()) - 1;
    plan.num_places = std::max(plan.num_places, num_lines);
    for (int64_t place = 0; place < num_lines; ++place) {
      const std::string line(of_rank[static_cast<size_t>(place) + 1]);
      const auto [found, is_new] = indices.emplace(line, plan.tensors.size());
      if (is_new) {
        const auto columns = yoke::split(line, '\t');
        plan.tensors.push_back({.name = std::string(columns[0]), .is_option = columns[1] == "1", .holders = {}});
      }
      plan.tensors[found->second].holders.emplace_back(static_cast<int64_t>(rank), place);
    }
  }
  std::erase_if(plan.tensors, [](const auto& shared) { return shared.holders.size() < 2; });
  plan.own_places.resize(static_cast<size_t>(plan.num_places));
  for (const auto& shared : plan.tensors) {
    for (const auto& [rank, place] : shared.holders) {
      if (rank == group.rank()) plan.own_places[static_cast<size_t>(place)] = true;
    }
  }
}

/// This rank's row: its key, and a hash in the place of each replica that other ranks hold, as planned.
at::Tensor ReplicaCheck::Impl::hashes(const std::vector<detail::Replica>& replicas, int64_t key) const {
  std::vector<int64_t> here(static_cast<size_t>(plan.num_places) + 1);
  here[0] = key;
  const auto own = state.group().rank();
  const bool fits = !plan.keys.empty() && plan.keys[static_cast<size_t>(own)] == key;
  std::vector<at::Tensor> elsewhere;  // on GPUs
  std::vector<int64_t> places;
  for (size_t i = 0; fits && i < replicas.size(); ++i) {
    if (!plan.own_places[i]) continue;
    const auto hash = detail::replica_hash(replicas[i].values);
    if (hash.device().is_cpu()) {
      here[i + 1] = hash.item<int64_t>();
    } else {
      elsewhere.push_back(hash);
      places.push_back(static_cast<int64_t>(i) + 1);
    }
  }
  const auto row = at::tensor(here, at::kLong).to(state.group().device());
  if (!elsewhere.empty()) {
    row.index_copy_(0, at::tensor(places, at::kLong).to(row.device()), at::stack(elsewhere).to(row.device()));
  }
  return row;
}

void ReplicaCheck::Impl::report(const detail::Divergence& divergence,
                                const std::vector<detail::ReplicatedTensor>& tensors,
                                const std::vector<detail::Replica>& replicas, int64_t step) {
  auto& group = state.group();
  std::string own;
  for (const auto& [rank, place] : plan.tensors[divergence.tensor].holders) {
    if (rank == group.rank()) own = numbers_of(replicas[static_cast<size_t>(place)]);
  }
  std::vector<std::vector<double>> values;
  for (const auto& text : group.all_gather_text(own)) values.push_back(parse_numbers(text));
  const auto before = last_equal ? fmt::format("they were equal after step {}", *last_equal)
                                 : std::string("they were not compared before");
  const auto what = fmt::format("after step {}, ranks no longer hold the same training ({}): {}", step, before,
                                describe_divergence(divergence, tensors, values, group.ranks()));
  if (plan.other_arithmetic) {
    has_warned = true;
    if (group.rank() == 0) {
      warn(fmt::format(
          "{}. Ranks compute differently ({} here, and {} elsewhere), which rounds differently, so this may be "
          "all; they are not compared again. OMP_NUM_THREADS gives all ranks the same number of threads",
          what, arithmetic(group.device()), *plan.other_arithmetic));
    }
    return;
  }
  const bool is_known = !divergence.ranks.empty();
  std::vector<int64_t> odd;
  for (const auto rank : is_known ? divergence.ranks : divergence.others) {
    odd.push_back(group.ranks()[static_cast<size_t>(rank)]);
  }
  note_shared_failure(what, odd,
                      fmt::format("{}{} after step {}", odd.size() == 1 ? "differs" : "differ",
                                  is_known ? " from the others" : "", step));
  throw Error(
      ErrorCode::kFailedPrecondition,
      "{}. Ranks that average gradients need the same rates, clipping and changes of weights; see what that rank "
      "does differently, and go on from a checkpoint before",
      what);
}

}  // namespace yoke::train
