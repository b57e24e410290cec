#include "yoke/train/parallel/distributed_data_parallel.h"

#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <exception>
#include <set>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <utility>

#include "yoke/base/error.h"
#include "yoke/dist/same_on_all_ranks.h"
#include "yoke/train/detail/averaged_in_step.h"
#include "yoke/train/detail/last_clip.h"
#include "yoke/train/detail/recording.h"
#include "yoke/train/detail/step_phases.h"
#include "yoke/train/detail/trainable.h"
#include "yoke/train/optim/clip_grad.h"
#include "yoke/train/parallel/detail/distributed_data_parallel_impl.h"
#include "yoke/train/parallel/sync_batch_norm.h"
#include "yoke/train/warn.h"

namespace yoke::train {
namespace {

constexpr auto kDivergence =
    "gradients of no_sync() alone, which are not averaged, so the ranks' parameters have become "
    "different: end each accumulation, also a short one at the end of an epoch, by a forward and a backward outside of "
    "no_sync(), or reset its gradients; where ranks shall train apart for some steps (local SGD), give "
    "DistributedDataParallelOptions a communication_hook that returns the bucket's own gradients";

constexpr auto kDivergenceInStep =
    "gradients that are not averaged, so the ranks' parameters have become different: average_in_step is set, so the "
    "ShardedOptimizer with GradientMean::kInStep, and no other one, steps";

constexpr size_t kBroadcastBytes = 250 << 20;  // PyTorch's chunk for parameters and buffers

/// Returns each tensor once, under its first name, because modules may share parameters. Leaves out the ignored names,
/// and erases each of them from `ignored`.
NamedTensors not_ignored(const NamedTensors& tensors, std::set<std::string>& ignored,
                         const std::vector<std::string>& all_ignored) {
  NamedTensors result;
  std::set<const c10::TensorImpl*> seen;
  for (const auto& [name, tensor] : tensors) {
    const bool is_ignored = std::find(all_ignored.begin(), all_ignored.end(), name) != all_ignored.end();
    ignored.erase(name);
    if (seen.insert(tensor.unsafeGetTensorImpl()).second && !is_ignored) result.emplace_back(name, tensor);
  }
  return result;
}

/// Calls `report` if a backward ends before its last callback. In this case an exception has ended the backward.
class BackwardWatch {
 public:
  explicit BackwardWatch(std::function<void()> report) : report_(std::move(report)) {}
  ~BackwardWatch() {
    if (report_) report_();
  }
  BackwardWatch(const BackwardWatch&) = delete;
  BackwardWatch& operator=(const BackwardWatch&) = delete;
  void finish() { report_ = nullptr; }

 private:
  std::function<void()> report_;
};

}  // namespace

DistributedDataParallelBase::DistributedDataParallelBase(torch::nn::Module& model, dist::Group& group,
                                                         const DistributedDataParallelOptions& options)
    : impl_(std::make_shared<Impl>(model, group)) {
  const dist::Activity activity(group, "the construction of a DistributedDataParallel");
  impl_->broadcast_buffers = options.broadcast_buffers;
  impl_->averages_in_step = options.average_in_step;
  impl_->find_unused_parameters = options.find_unused_parameters && !options.average_in_step;
  impl_->static_graph = options.static_graph && !options.average_in_step;
  std::set<std::string> not_found(options.ignored.begin(), options.ignored.end());
  auto all = not_ignored(model.named_parameters().pairs(), not_found, options.ignored);
  auto& trained = impl_->trained;
  for (const auto& item : all) {
    (item.second.requires_grad() ? trained : impl_->frozen).push_back(item);
    if (detail::is_trainable(item.second)) impl_->trainable.push_back(item);
  }
  const auto& buffers = impl_->buffers = not_ignored(model.named_buffers().pairs(), not_found, options.ignored);
  all.insert(all.end(), buffers.begin(), buffers.end());
  if (!not_found.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                "'{}' is to be ignored, and the model has no parameter or buffer of that name", *not_found.begin());
  }
  if (trained.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                "the model has no parameter that requires a gradient; it needs no "
                "DistributedDataParallel");
  }
  for (const auto& [name, tensor] : all) {
    if (tensor.device() == group.device()) continue;
    throw Error(ErrorCode::kInvalidArgument, "'{}' is on {} and this rank's device is {}; move the model there first",
                name, tensor.device().str(), group.device().str());
  }
  if (options.average_in_step) impl_->check_averages_in_step(options);
  check_same_on_all_ranks(
      group, all,
      fmt::format("bucket_bytes: {}; first_bucket_bytes: {}; broadcast_buffers: {}; find_unused_parameters: {}; "
                  "static_graph: {}; communication_hook: {}; average_in_step: {}",
                  options.bucket_bytes, options.first_bucket_bytes, options.broadcast_buffers,
                  options.find_unused_parameters, options.static_graph, options.communication_hook ? "set" : "none",
                  options.average_in_step));

  impl_->known_parameters.emplace(model);
  impl_->has_arrived.assign(trained.size(), 0);
  for (const auto& [name, tensor] : all) impl_->values.push_back(tensor);
  for (const auto& named : trained) impl_->dtypes.push_back(named.second.scalar_type());
  impl_->has_sync_batch_norm = has_sync_batch_norm(model);
  impl_->broadcast(impl_->values);
  const auto& sparse = impl_->expects_sparse = expects_sparse(model, trained);
  impl_->has_sparse = std::find(sparse.begin(), sparse.end(), true) != sparse.end();
  auto equal = impl_->frozen;
  for (size_t i = 0; i < trained.size(); ++i) {
    // On a GPU, the sum of a sparse gradient's rows rounds in another order on each rank.
    if (!sparse[i] || group.device().is_cpu()) equal.push_back(trained[i]);
  }
  impl_->replicated.emplace(group, equal);
  impl_->given = options;
  if (options.average_in_step) {
    impl_->watch_parameters();
    return;
  }
  impl_->set_up_reducer();
  impl_->watch_parameters();
}

DistributedDataParallelBase::~DistributedDataParallelBase() = default;

NamedTensors DistributedDataParallelBase::parameters() const { return impl_->trainable; }
NamedTensors DistributedDataParallelBase::buffers() const { return impl_->buffers; }
dist::Group& DistributedDataParallelBase::group() const { return impl_->group; }
void DistributedDataParallelBase::sync_buffers() { impl_->broadcast_all_buffers(); }
void DistributedDataParallelBase::begin_forward() {
  const c10::impl::ExcludeDispatchKeyGuard unseen(detail::kRecorderKey);  // new buckets are no part of a recorded step
  impl_->begin_forward();
}
bool DistributedDataParallelBase::communicates() const {
  return c10::GradMode::is_enabled() && *impl_->no_sync_depth == 0;
}
void DistributedDataParallelBase::take_output(const at::Tensor& output) { impl_->take_output(output); }

at::Tensor DistributedDataParallelBase::clip_grad_norm(double max_norm) {
  if (impl_->averages_in_step) {
    throw Error(ErrorCode::kFailedPrecondition,
                "DistributedDataParallel: average_in_step is set, so these gradients are no means yet: call "
                "clip_grad_norm of the optimizer");
  }
  const auto norm = train::clip_grad_norm(impl_->trained, {.max_norm = max_norm});
  const auto keep = [max_norm, ranks = impl_->group.ranks()](const at::Tensor& found) {
    detail::last_clip() = {.max_norm = max_norm, .norm = found, .ranks = ranks};
  };
  if (auto* recording = detail::recording_on_this_thread()) {  // the memory of the norm is that of the recorded step
    recording->call({.name = "clip_grad_norm",
                     .tensors = {norm},
                     .parameters = {},
                     .run = [keep](const std::vector<at::Tensor>& tensors) { keep(tensors[0].clone()); },
                     .written = {}});
  } else {
    keep(norm);
  }
  return norm;
}

DistributedDataParallelBase::NoSync::NoSync(std::shared_ptr<int64_t> depth) : depth_(std::move(depth)) { ++*depth_; }
DistributedDataParallelBase::NoSync::~NoSync() {
  if (depth_) --*depth_;
}
DistributedDataParallelBase::NoSync DistributedDataParallelBase::no_sync() {
  impl_->recorded();  // so that it knows the depth before
  return NoSync(impl_->no_sync_depth);
}

// ---- A step: forward, backward, and its end ------------------------------------------------------------------------

DistributedDataParallelBase::Impl::~Impl() {
  if (has_diverged && std::uncaught_exceptions() == 0 && group.rank() == 0) {
    warn_on_stderr(fmt::format("DistributedDataParallel: the last step of the optimizer had {}", divergence()));
  }
  for (const auto& [accumulator, key] : accumulators) accumulator->del_post_hook(key);
  for (auto& [tensor, key] : static_hooks) tensor.remove_hook(key);
}

void DistributedDataParallelBase::Impl::check_averages_in_step(const DistributedDataParallelOptions& options) const {
  if (options.communication_hook) {
    throw Error(ErrorCode::kInvalidArgument,
                "DistributedDataParallel: a communication_hook replaces the all-reduce, and with average_in_step there "
                "is none: set one of them");
  }
  bool shares_memory = true;
  for (const auto& [name, tensor] : trained) {
    const auto how = detail::averaging_in_step(tensor);
    shares_memory = shares_memory && how == detail::InStep::kInSharedMemory;
    if (how != detail::InStep::kNot) continue;
    throw Error(ErrorCode::kInvalidArgument,
                "DistributedDataParallel: average_in_step is set, and no optimizer averages the gradient of '{}' in "
                "its step: make a Sharded optimizer with GradientMean::kInStep of the model first",
                name);
  }
  if (shares_memory || group.size() == 1 || group.rank() != 0 || group.needs_recovery()) return;
  warn_on_stderr(
      "DistributedDataParallel: average_in_step is set, and the ranks share no memory (they are on several hosts or on "
      "GPUs, or docs/dist.md has another reason): the step sends gradients and parameters as messages, which "
      "gives the same results and may take longer than without average_in_step");
}

const char* DistributedDataParallelBase::Impl::divergence() const {
  return averages_in_step ? kDivergenceInStep : kDivergence;
}

/// When the group was formed again, this becomes as new on all ranks, whatever step was lost.
void DistributedDataParallelBase::Impl::follow_group() {
  if (std::exchange(generation, group.generation()) == group.generation()) return;
  for (auto& [tensor, key] : static_hooks) tensor.remove_hook(key);
  static_hooks.clear();
  activity.reset();
  state = StepState::kIdle;
  is_graph_learned = has_missed_graph = has_local_gradients = has_diverged = false;
  hook = nullptr;
  if (reducer) set_up_reducer();
}

void DistributedDataParallelBase::Impl::set_up_reducer() {
  reducer.reset();
  reducer = make_reducer(trained, expects_sparse, process_group_of(group), given);
  logger = std::make_shared<c10d::Logger>(reducer);  // the Reducer does not check it for null
  reducer->set_logger(logger);
  if (!given.communication_hook) return;
  auto runner = std::make_unique<HookRunner>(given.communication_hook);
  hook = runner.get();
  reducer->register_comm_hook(std::move(runner));
}

/// Detects gradients that would not be averaged, which the Reducer's own hooks ignore.
void DistributedDataParallelBase::Impl::watch_parameters() {
  using torch::autograd::variable_list;
  for (size_t index = 0; index < trained.size(); ++index) {
    const auto& named = trained[index];
    auto accumulator = torch::autograd::impl::grad_accumulator(named.second);
    const auto key = accumulator->add_post_hook(std::make_unique<torch::autograd::utils::LambdaPostHook>(
        [this, index, &name = named.first](const variable_list& outputs, const variable_list&) {
          const auto now = state.load();
          if (averages_in_step) {
            has_local_gradients = true;
            has_arrived[index] = 1;
            return outputs;
          }
          if (now == StepState::kExpects || now == StepState::kInBackward) return outputs;
          if (*no_sync_depth > 0) {
            if (now == StepState::kAccumulates) {
              has_local_gradients = true;
              note_local_gradients();
            }
            return outputs;
          }
          fail_step(fmt::format(
              "'{}' has received a gradient that is not averaged, so the ranks would diverge: {}", name,
              now == StepState::kAccumulates
                  ? "the last forward was under no_sync() and this backward is not; end no_sync() before the forward "
                    "of the last micro-batch, so that its forward and its backward both come after"
                  : "call the network through DistributedDataParallel, `net(x)`, and backward once for each forward; "
                    "to add up gradients first, do both under no_sync()"));
        },
        [](auto&) {}));
    accumulators.emplace_back(std::move(accumulator), key);
  }
  std::unordered_set<const c10::TensorImpl*> own;
  for (const auto& named : trained) own.insert(named.second.unsafeGetTensorImpl());
  step_watch.emplace([this, own = std::move(own)](at::TensorList stepped, detail::Mean mean) {
    if (is_stepped_by_yoke && !has_local_gradients) return;
    const auto is_own = [&](const at::Tensor& parameter) { return own.contains(parameter.unsafeGetTensorImpl()); };
    if (!std::ranges::any_of(stepped, is_own)) return;
    is_stepped_by_yoke = true;
    if (mean == detail::Mean::kOfStep) {
      has_local_gradients = false;
    } else if (has_local_gradients) {
      has_diverged = true;
    }
  });
}

uint64_t DistributedDataParallelBase::Impl::versions() const {
  uint64_t sum = 0;
  for (const auto& named : trained) sum += named.second._version();
  return sum;
}

void DistributedDataParallelBase::Impl::check_local_gradients() {
  if (has_diverged) fail_step(fmt::format("the last step of the optimizer had {}", divergence()));
  // Steps of other optimizers cannot be told from other changes, such as an average that was swapped in for an
  // evaluation.
  if (!has_local_gradients || is_stepped_by_yoke || versions() == versions_before) return;
  if (std::ranges::any_of(trained, [](const auto& named) { return named.second.grad().defined(); })) return;
  has_local_gradients = false;
  if (std::exchange(has_warned, true) || group.rank() != 0) return;
  warn_on_stderr(fmt::format(
      "DistributedDataParallel: the parameters were changed before step {}. If an optimizer did this, it had {}",
      num_steps + 1, divergence()));
}

void DistributedDataParallelBase::Impl::check_last_backward() const {
  if (state != StepState::kInBackward) return;
  fail_step("the last backward ended with an error while gradients were averaged; make another");
}

void DistributedDataParallelBase::Impl::begin_forward() {
  follow_group();
  check_local_gradients();
  if (!c10::GradMode::is_enabled()) return;
  check_last_backward();
  for (size_t i = 0; i < trained.size(); ++i) {
    const auto& [name, tensor] = trained[i];
    if (tensor.scalar_type() == dtypes[i] && tensor.device() == group.device()) {
      if (!tensor.requires_grad() || torch::autograd::impl::grad_accumulator(tensor) == accumulators[i].first) continue;
      fail_step(
          fmt::format("'{}' was replaced after this was made, as by torch::load, and its gradients would not be "
                      "averaged: load a model before its DistributedDataParallel is made, or with load_module, which "
                      "copies",
                      name));
    }
    fail_step(fmt::format(
        "'{}' is {} on {}, and was {} on {} when this was made: convert and move a model, as by "
        "model->to({}), before its DistributedDataParallel is made",
        name, c10::toString(tensor.scalar_type()), tensor.device().str(), c10::toString(dtypes[i]),
        group.device().str(),
        tensor.device() == group.device() ? fmt::format("at::k{}", c10::toString(tensor.scalar_type())) : "device"));
  }
  if (*no_sync_depth > 0) {
    if (!has_local_gradients) versions_before = versions();
    if (state == StepState::kIdle) state = StepState::kAccumulates;
    return note_forward(/*averages=*/false);
  }
  for (const auto& [name, tensor] : frozen) {
    if (!tensor.requires_grad()) continue;
    fail_step(
        fmt::format("'{}' requires a gradient, which would not be averaged: it did not when this was made; "
                    "make another DistributedDataParallel after a change of what is trained",
                    name));
  }
  if (averages_in_step) {
    if (!has_local_gradients) versions_before = versions();
    if (state != StepState::kExpects) ++num_steps;
    state = StepState::kExpects;
    return note_forward(/*averages=*/true);
  }
  if (state == StepState::kExpects && reducer->is_expecting()) {
    if (!reducer->has_begun()) return note_forward(/*averages=*/true);  // an additional forward of the same step
    fail_step("a backward that did not come through what forward returned left it half averaged; call `net(x)`");
  }
  ++num_steps;
  if (has_missed_graph) {
    fail_step("static_graph is set, and this rank had no data in the first step, from which the graph is learned");
  }
  const dist::Activity of_step(group, kStepName);
  reducer->prepare_for_forward();
  if (join) announce_step();
  // Done once, after the first step, and before forward, when memory use is lowest.
  if (reducer->rebuild_buckets()) {
    reducer->share_buckets();
    postpone_recording();  // gradients may have moved into the new buckets
  }
  reducer->expect_backward();
  state = StepState::kExpects;
  note_forward(/*averages=*/true);
}

void DistributedDataParallelBase::Impl::take_output(const at::Tensor& output) {
  if (state != StepState::kExpects || !output.defined() || !output.requires_grad() || output.is_leaf()) return;
  output.register_hook([weak = weak_from_this()](const at::Tensor&) {
    if (const auto impl = weak.lock()) impl->begin_backward();
  });
}

void DistributedDataParallelBase::Impl::begin_backward() {
  // torch::autograd::grad for some inputs is not a step, because parameters get no gradients.
  const auto* only = torch::autograd::get_current_graph_task_exec_info();
  if (only != nullptr && !only->empty()) return;
  auto expected = StepState::kExpects;
  if (!state.compare_exchange_strong(expected, StepState::kInBackward)) return;
  if (!averages_in_step && !reducer->is_expecting()) {
    fail_step(
        "another backward, such as one under no_sync(), has taken the average of this one, whose gradients would stay "
        "this rank's: call backward once after each forward, before the next forward");
  }
  begin_averaging();
  note_backward();
  auto watch = std::make_shared<BackwardWatch>([weak = weak_from_this()] {
    const auto impl = weak.lock();
    if (!impl) return;
    impl->group.report_failure(
        fmt::format("in step {} of DistributedDataParallel an exception ended the backward", impl->num_steps));
  });
  torch::autograd::Engine::get_default_engine().queue_callback([watch, weak = weak_from_this()] {
    watch->finish();
    if (const auto impl = weak.lock()) impl->finish_backward();
  });
}

/// The first callback at the end of backward. If all gradients have arrived, the Reducer's callback follows.
void DistributedDataParallelBase::Impl::finish_backward() {
  const c10::NoGradGuard no_grad;
  const bool is_learning_graph = static_graph && !is_graph_learned;
  if (!averages_in_step && reducer->is_expecting()) {  // false if a nested backward brought the last gradients
    if (!reducer->has_begun()) {
      const auto is_trained = [](const auto& named) { return named.second.requires_grad(); };
      if (std::any_of(trained.begin(), trained.end(), is_trained)) {
        fail_step("the loss depends on no parameter that is averaged; leave no step without any");
      }
      activity.reset();
      state = StepState::kExpects;  // all parameters are frozen in this step, as in a GAN's discriminator
      refuse_to_record("a backward passes through a DistributedDataParallel whose parameters are all frozen");
      return;
    }
    if (is_learning_graph) {
      reducer->delay_all_reduce();
    } else if (find_unused_parameters && !static_graph) {
      std::vector<uint8_t> arrived(trained.size(), 1);
      for (const size_t index : reducer->missing()) arrived[index] = 0;
      check_replaced(arrived);
      reducer->take_missing_for_unused();
    } else if (const auto missing = reducer->missing(); !missing.empty() && static_graph) {
      fail_step(
          fmt::format("static_graph is set, the first step used {}, and this step's loss does not depend on it in the "
                      "same way; leave static_graph off",
                      list(missing)));
    } else if (!missing.empty()) {
      explain_change(missing);
      fail_step(
          fmt::format("the loss does not depend on {}; set find_unused_parameters if that is meant, or freeze what is "
                      "not trained (set_requires_grad(false)) before this is made",
                      list(missing)));
    }
    detail::enter(detail::Phase::kWait);
    try {
      reducer->wait(group);
    } catch (...) {
      group.explain(std::current_exception());
    }
    note_wait();
  } else if (averages_in_step) {
    check_replaced(has_arrived);
    std::ranges::fill(has_arrived, 0);
  } else {
    refuse_to_record("a backward within a backward has brought the last gradients of a DistributedDataParallel");
  }
  torch::autograd::Engine::get_default_engine().queue_callback([weak = weak_from_this()] {
    if (const auto impl = weak.lock()) impl->finish_step();
  });
}

/// Fails the step if the program has changed which parameters are trained since construction.
void DistributedDataParallelBase::Impl::explain_change(const std::vector<size_t>& missing) const {
  if (const auto change = known_parameters->change(); !change.empty()) {
    fail_step(change + ": make another DistributedDataParallel, and its optimizer, after such a change");
  }
  const auto now = model.named_parameters();
  for (const size_t index : missing) {
    const auto& [name, tensor] = trained[index];
    const auto* current = now.find(name);
    if (current == nullptr || !current->is_same(tensor)) {
      fail_step(
          fmt::format("the model has another '{}' than when this was constructed (a module was replaced): make another "
                      "DistributedDataParallel, and its optimizer, after such a change",
                      name));
    }
    if (!tensor.requires_grad()) {
      fail_step(
          fmt::format("'{}' has been frozen since this was made: make another DistributedDataParallel after a "
                      "change of what is trained",
                      name));
    }
  }
}

void DistributedDataParallelBase::Impl::check_replaced(const std::vector<uint8_t>& arrived) {
  if (const auto change = known_parameters->change(arrived); !change.empty()) {
    fail_step(fmt::format("{}: make another {} after such a change", change,
                          averages_in_step ? "ShardedOptimizer, and then another DistributedDataParallel,"
                                           : "DistributedDataParallel, and its optimizer,"));
  }
}

/// Called after the Reducer has put the means into the gradients.
void DistributedDataParallelBase::Impl::finish_step() {
  const c10::NoGradGuard no_grad;
  if (static_graph && !std::exchange(is_graph_learned, true)) {
    reducer->learn_graph();
    for (const size_t index : reducer->never_used()) {
      const auto key = trained[index].second.register_hook([this, index](const at::Tensor&) {
        if (state != StepState::kInBackward) return;
        fail_step(
            fmt::format("static_graph is set, the first step did not use '{}', and this one does; leave static_graph "
                        "off",
                        trained[index].first));
      });
      static_hooks.emplace_back(trained[index].second, key);
    }
  }
  end_step();
}

void DistributedDataParallelBase::Impl::broadcast(const std::vector<at::Tensor>& tensors, int64_t root) {
  if (tensors.empty() || group.size() == 1) return;
  std::vector<at::Tensor> current;  // read again, because ShardedOptimizer may have exchanged the parameters' memory
  for (const auto& tensor : tensors) current.push_back(tensor.detach());
  try {
    c10d::broadcast_coalesced(process_group_of(group), current, kBroadcastBytes, static_cast<int>(root));
  } catch (...) {
    group.explain(std::current_exception());
  }
}

void DistributedDataParallelBase::Impl::broadcast_all_buffers(int64_t root) {
  std::vector<at::Tensor> tensors;
  for (const auto& [name, tensor] : buffers) tensors.push_back(tensor);
  broadcast(tensors, root);
}

void DistributedDataParallelBase::Impl::fail_step(const std::string& reason) const {
  group.fail(Error(ErrorCode::kFailedPrecondition, "in step {} of DistributedDataParallel {}", num_steps, reason));
}

std::string DistributedDataParallelBase::Impl::list(const std::vector<size_t>& parameters) const {
  constexpr size_t kMaxNamed = 8;
  std::string text;
  for (size_t i = 0; i < std::min(parameters.size(), kMaxNamed); ++i) {
    text += fmt::format("{}'{}'", i == 0 ? "" : ", ", trained[parameters[i]].first);
  }
  if (parameters.size() > kMaxNamed) text += fmt::format(" and {} more", parameters.size() - kMaxNamed);
  return text;
}

}  // namespace yoke::train
