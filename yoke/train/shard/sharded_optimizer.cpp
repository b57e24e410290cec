#include "yoke/train/shard/sharded_optimizer.h"

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "yoke/dist/same_on_all_ranks.h"
#include "yoke/dist/shared_tensors.h"
#include "yoke/train/detail/recording.h"
#include "yoke/train/detail/replicated.h"
#include "yoke/train/detail/step_watch.h"
#include "yoke/train/detail/trainable.h"
#include "yoke/train/optim/clip_grad.h"
#include "yoke/train/shard/detail/clip.h"
#include "yoke/train/shard/detail/flat_parameters.h"
#include "yoke/train/sharding.h"

namespace yoke::train {
namespace {

constexpr size_t kMaxBucketReductions = 2;

/// Groups neighbouring parameters of one dtype into buckets of up to `bucket_bytes`. A larger parameter has its own
/// bucket.
std::vector<NamedTensors> divide_into_buckets(const NamedTensors& parameters, int64_t bucket_bytes) {
  std::vector<NamedTensors> buckets;
  std::map<at::ScalarType, std::pair<size_t, int64_t>> open;  // by dtype: the bucket's index and bytes
  for (const auto& [name, tensor] : parameters) {
    const auto bytes = static_cast<int64_t>(tensor.nbytes());
    auto place = open.find(tensor.scalar_type());
    if (place == open.end() || place->second.second + bytes > bucket_bytes) {
      place = open.insert_or_assign(tensor.scalar_type(), std::pair(buckets.size(), int64_t{0})).first;
      buckets.emplace_back();
    }
    buckets[place->second.first].emplace_back(name, tensor);
    place->second.second += bytes;
  }
  return buckets;
}

}  // namespace

ShardedOptimizer::ShardedOptimizer(const NamedTensors& parameters, dist::Group& world,
                                   const MakeOptimizer& make_optimizer, const ShardedOptimizerOptions& options)
    : world_(world), generation_(world.generation()), gradients_(options.gradients) {
  NamedTensors given, trained, frozen;
  for (const auto& named : parameters) {
    if (detail::is_trainable(named.second)) given.push_back(named);
  }
  check_same_on_all_ranks(
      world, given,
      fmt::format("gradients: {}; bucket_bytes: {}", options.gradients == GradientMean::kInStep ? "kInStep" : "kDone",
                  options.bucket_bytes));
  std::set<std::string_view> names;
  for (const auto& named : given) {
    if (names.insert(named.first).second) continue;
    throw Error(ErrorCode::kInvalidArgument, "a sharded optimizer was given two parameters named '{}'", named.first);
  }
  parameters_ = distinct(given);
  for (const auto& named : parameters_) (named.second.requires_grad() ? trained : frozen).push_back(named);
  if (trained.empty()) {
    throw Error(ErrorCode::kInvalidArgument, "a sharded optimizer was given no parameter that requires a gradient");
  }

  const c10::NoGradGuard no_grad;
  NamedTensors slices;
  for (const auto& group : divide_into_buckets(trained, options.bucket_bytes)) {
    Bucket bucket{.parameters = group, .layout = lay_out(group, world.size())};
    place(bucket);
    for (size_t i = 0; i < bucket.parameters.size(); ++i) {
      const auto first = bucket.layout.part(i, world.rank()).first;
      mark_sharded(bucket.slices[i], {.shape = bucket.layout.items()[i].shape, .first = first, .group = &world});
      slices.emplace_back(bucket.parameters[i].first, bucket.slices[i]);
    }
    if (world.size() > 1) world.broadcast(bucket.flat);
    buckets_.push_back(std::move(bucket));
  }
  for (const auto& group : divide_into_buckets(frozen, options.bucket_bytes)) {
    const auto& bucket = idle_.emplace_back(idle_bucket(group));
    for (size_t i = 0; i < group.size(); ++i) slices.emplace_back(group[i].first, bucket.slices[i]);
  }
  local_ = make_optimizer(std::move(slices));
  share_memory();
  replicated_ = std::make_shared<detail::Replicated>(world, trained);
}

/// The slices are views of the parameters until place() gives both another memory.
ShardedOptimizer::Bucket ShardedOptimizer::idle_bucket(const NamedTensors& parameters) const {
  Bucket bucket{
      .parameters = parameters, .layout = lay_out(parameters, world_.size()), .number = idle_.size(), .was_idle = true};
  for (size_t i = 0; i < parameters.size(); ++i) {
    const auto& shape = bucket.layout.items()[i].shape;
    const auto part = bucket.layout.part(i, world_.rank());
    const auto& whole = parameters[i].second;
    auto slice = whole.detach().reshape({-1}).narrow(0, part.first, part.length);
    if (!whole.is_contiguous()) slice = slice.clone();  // so that the whole copy ends
    slice = slice.view(shape_of_part(shape, part.length)).detach().set_requires_grad(true);
    mark_sharded(slice, {.shape = shape, .first = part.first, .group = &world_});
    bucket.slices.push_back(slice);
  }
  return bucket;
}

/// As they are on a new rank, whose optimizer has just been made.
void ShardedOptimizer::make_idle_again() {
  const auto others = std::ranges::stable_partition(buckets_, [](const auto& bucket) { return !bucket.was_idle; });
  for (auto& bucket : others) {
    for (const auto& slice : bucket.slices) slice.mutable_grad().reset();
    bucket.flats.clear();
    bucket.gradients.clear();
    bucket.places.clear();
    idle_.push_back(std::move(bucket));
  }
  buckets_.erase(others.begin(), others.end());
  std::ranges::sort(idle_, {}, &Bucket::number);
}

/// Collective. Moves idle buckets to those that are stepped and sent.
void ShardedOptimizer::place_trained(const std::vector<bool>& is_trained) {
  if (std::ranges::find(is_trained, true) == is_trained.end()) return;
  const c10::NoGradGuard no_grad;
  if (auto* recording = detail::recording_on_this_thread()) recording->postpone();  // because parameters move
  std::vector<Bucket> idle;
  for (size_t i = 0; i < idle_.size(); ++i) {
    if (!is_trained[i]) {
      idle.push_back(std::move(idle_[i]));
      continue;
    }
    place(idle_[i]);
    if (world_.size() > 1) world_.broadcast(idle_[i].flat);
    buckets_.push_back(std::move(idle_[i]));
  }
  idle_ = std::move(idle);
  reduced_.clear();
  pieces_.clear();
  local_->replan();
  share_memory();
  NamedTensors placed;
  for (const auto& bucket : buckets_) placed.insert(placed.end(), bucket.parameters.begin(), bucket.parameters.end());
  replicated_ = std::make_shared<detail::Replicated>(world_, placed);
}

void ShardedOptimizer::place_trained_here() {
  std::vector<bool> is_trained;
  for (const auto& bucket : idle_) {
    is_trained.push_back(
        std::ranges::any_of(bucket.parameters, [](const auto& named) { return named.second.grad().defined(); }));
  }
  place_trained(is_trained);
}

/// `has_gradient` contains for each parameter of idle buckets whether any rank has a gradient. Returns false if none
/// has.
bool ShardedOptimizer::place_trained_anywhere(const uint8_t* has_gradient) {
  std::vector<bool> is_trained;
  for (const auto& bucket : idle_) {
    const auto* const end = has_gradient + bucket.parameters.size();
    is_trained.push_back(std::find(has_gradient, end, 1) != end);
    has_gradient = end;
  }
  place_trained(is_trained);
  return std::ranges::find(is_trained, true) != is_trained.end();
}

/// Collective. Moves the parameters of a bucket, and this rank's slices of them, into one buffer.
void ShardedOptimizer::place(Bucket& bucket) {
  const auto options = bucket.parameters.front().second.options().requires_grad(false);
  bucket.flats = dist::share_tensors(world_, bucket.layout.num_elements(), options);
  bucket.flat = bucket.flats.empty() ? at::empty({bucket.layout.num_elements()}, options).zero_()
                                     : bucket.flats[static_cast<size_t>(world_.rank())];
  const int64_t begin = world_.rank() * bucket.layout.rank_elements();
  const bool is_new = bucket.slices.empty();
  for (size_t i = 0; i < bucket.parameters.size(); ++i) {
    const auto& tensor = bucket.parameters[i].second;
    const auto& item = bucket.layout.items()[i];
    const auto view = bucket.flat.narrow(0, item.offset, item.num_elements).view(item.shape);
    view.copy_(tensor);
    tensor.set_data(view);
    const auto part = bucket.layout.part(i, world_.rank());
    const auto slice =
        bucket.flat.narrow(0, begin + part.offset, part.length).view(shape_of_part(item.shape, part.length)).detach();
    if (is_new) {
      bucket.slices.push_back(slice.set_requires_grad(true));
    } else {
      bucket.slices[i].set_data(slice);
    }
  }
}

/// Collective. When the group was formed again, its shared memory is another one.
void ShardedOptimizer::follow_group() {
  if (std::exchange(generation_, world_.generation()) == world_.generation()) return;
  const c10::NoGradGuard no_grad;
  reduced_.clear();
  marks_.clear();
  pieces_.clear();
  make_idle_again();
  for (auto& bucket : buckets_) {
    for (const auto& slice : bucket.slices) slice.mutable_grad().reset();
    bucket.gradients.clear();
    bucket.places.clear();
    place(bucket);
  }
  local_->replan();
  share_memory();
}

void ShardedOptimizer::slice_gradients() {
  for (auto& bucket : buckets_) {
    for (size_t i = 0; i < bucket.parameters.size(); ++i) {
      const auto& [name, parameter] = bucket.parameters[i];
      const auto& gradient = parameter.grad();
      if (gradient.defined() && gradient.layout() != at::kStrided) refuse_sparse(name);
      const auto part = bucket.layout.part(i, world_.rank());
      const auto& slice = bucket.slices[i];
      slice.mutable_grad() =
          gradient.defined() ? gradient.detach().reshape({-1}).narrow(0, part.first, part.length).view(slice.sizes())
                             : at::Tensor();
    }
  }
}

/// `has_gradient` contains for each parameter whether any rank has a gradient.
void ShardedOptimizer::reduce_gradients(const at::Tensor& has_gradient) {
  const auto* next_flag = has_gradient.const_data_ptr<uint8_t>();
  struct BucketReduction {
    Bucket* bucket;
    const uint8_t* has_gradient;
    at::Tensor shard;
    dist::PendingCollective pending;
  };
  std::deque<BucketReduction> reductions;
  const auto finish_one = [&] {
    auto& [bucket, flags, shard, pending] = reductions.front();
    pending.wait();
    for (size_t i = 0; i < bucket->slices.size(); ++i) {
      const auto part = bucket->layout.part(i, world_.rank());
      const auto& slice = bucket->slices[i];
      slice.mutable_grad() =
          flags[i] != 0 ? shard.narrow(0, part.offset, part.length).view(slice.sizes()) : at::Tensor();
    }
    reductions.pop_front();
  };
  for (auto& bucket : buckets_) {
    const auto* flags = std::exchange(next_flag, next_flag + bucket.parameters.size());
    const auto whole = at::empty({bucket.layout.num_elements()}, bucket.flat.options());
    for (size_t i = 0; i < bucket.parameters.size(); ++i) {
      const auto& item = bucket.layout.items()[i];
      const auto place = whole.narrow(0, item.offset, item.num_elements).view(item.shape);
      const auto& [name, parameter] = bucket.parameters[i];
      const auto& gradient = parameter.grad();
      if (!gradient.defined()) {
        place.zero_();
      } else {
        place.copy_(gradient);
      }
    }
    const auto shard = at::empty({bucket.layout.rank_elements()}, bucket.flat.options());
    reductions.push_back({&bucket, flags, shard, world_.start_reduce_scatter(shard, whole, dist::ReduceOp::kMean)});
    if (reductions.size() > kMaxBucketReductions) finish_one();
  }
  while (!reductions.empty()) finish_one();
}

void ShardedOptimizer::prepare() {
  const c10::NoGradGuard no_grad;
  follow_group();
  if (gradients_ == GradientMean::kDone) place_trained_here();
  check_views();
  if (gradients_ == GradientMean::kDone) {
    slice_gradients();
    return;
  }
  if (const auto has_gradient = exchange_flags()) {
    if (shares_memory_) {
      reduce_in_memory(*has_gradient);
    } else {
      reduce_gradients(*has_gradient);
    }
    for (const auto& bucket : buckets_) {
      for (const auto& [name, parameter] : bucket.parameters) {
        const auto& gradient = parameter.grad();
        reduced_.push_back({decltype(Reduced::gradient)(gradient.getIntrusivePtr()),
                            gradient.defined() ? static_cast<uint32_t>(gradient._version()) : 0});
      }
    }
  }
}

std::optional<at::Tensor> ShardedOptimizer::exchange_flags() {
  // One flag for each parameter says whether the parameter has a gradient; the last flag says whether gradients have
  // changed since they were averaged. After the all-reduce, a flag is set if it was set on any rank. The flags are on
  // the CPU, which reads them.
  std::vector<uint8_t> flags;
  for (const auto* buckets : {&buckets_, &idle_}) {
    for (const auto& bucket : *buckets) {
      for (const auto& [name, parameter] : bucket.parameters) {
        const auto& gradient = parameter.grad();
        if (gradient.defined() && gradient.layout() != at::kStrided) refuse_sparse(name);
        flags.push_back(gradient.defined() ? 1 : 0);
      }
    }
  }
  size_t num_placed = 0;
  for (const auto& bucket : buckets_) num_placed += bucket.parameters.size();
  flags.push_back(is_as_reduced() ? 0 : 1);
  if (shares_memory_ && flags.back() != 0) fill_places();
  const auto of_any = at::empty({static_cast<int64_t>(flags.size())}, at::kByte);
  std::ranges::copy(flags, of_any.data_ptr<uint8_t>());
  world_.all_reduce(of_any, dist::ReduceOp::kMax);
  if (!world_.needs_recovery() && place_trained_anywhere(of_any.const_data_ptr<uint8_t>() + num_placed))
    return exchange_flags();
  if (of_any.const_data_ptr<uint8_t>()[flags.size() - 1] == 0) return std::nullopt;
  reduced_.clear();
  return of_any;
}

bool ShardedOptimizer::is_as_reduced() const {
  auto reduced = reduced_.begin();
  if (reduced == reduced_.end()) return false;
  for (const auto& bucket : buckets_) {
    for (const auto& [name, parameter] : bucket.parameters) {
      const auto& gradient = parameter.grad();
      if (reduced->gradient._unsafe_get_target() != gradient.unsafeGetTensorImpl()) return false;
      if (gradient.defined() && gradient._version() != reduced->version) return false;
      ++reduced;
    }
  }
  return true;
}

/// If the module's parameters are no longer views of the buffers, a step would silently have no effect.
void ShardedOptimizer::check_views() const {
  for (const auto& bucket : buckets_) {
    for (const auto& [name, parameter] : bucket.parameters) {
      if (parameter.is_alias_of(bucket.flat)) continue;
      world_.fail(Error(ErrorCode::kFailedPrecondition,
                        "parameter '{}' has other memory than when the sharded optimizer was made (torch::load and "
                        "to() do that): make the optimizer after them, or copy_ into the parameters",
                        name));
    }
  }
}

void ShardedOptimizer::refuse_sparse(const std::string& name) const {
  world_.fail(Error(ErrorCode::kInvalidArgument,
                    "parameter '{}' has a sparse gradient, and a sharded optimizer takes dense ones only: make its "
                    "embedding with sparse(false)",
                    name));
}

/// Runs the local step. Reports an exception to the other ranks, which would otherwise wait for this rank.
void ShardedOptimizer::step_local(const std::function<void(Optimizer&)>& step) {
  try {
    step(*local_);
  } catch (...) {
    world_.fail(std::current_exception());
  }
}

void ShardedOptimizer::finish() {
  finish_slices();
  gather();
}

void ShardedOptimizer::finish_slices() {
  reduced_.clear();
  std::vector<at::Tensor> stepped;
  for (const auto& bucket : buckets_) {
    for (size_t i = 0; i < bucket.slices.size(); ++i) {
      auto& gradient = bucket.slices[i].mutable_grad();
      if (!gradient.defined()) continue;
      stepped.push_back(bucket.parameters[i].second);
      stepped.back().unsafeGetTensorImpl()->bump_version();
      gradient.reset();
    }
  }
  detail::report_step(stepped, gradients_ == GradientMean::kInStep ? detail::Mean::kOfStep : detail::Mean::kOfCaller);
}

void ShardedOptimizer::gather() {
  const c10::NoGradGuard no_grad;
  if (shares_memory_) {
    world_.barrier();  // a rank that has not begun its step may still read its parameters
    if (world_.needs_recovery()) return;
    for_each_piece([this](const Piece& piece) { publish(piece); });
    world_.barrier();
    return;
  }
  std::vector<dist::PendingCollective> pending;
  for (const auto& bucket : buckets_) {
    const int64_t length = bucket.layout.rank_elements();
    pending.push_back(world_.start_all_gather(bucket.flat, bucket.flat.narrow(0, world_.rank() * length, length)));
    if (pending.size() > kMaxBucketReductions) pending[pending.size() - 1 - kMaxBucketReductions].wait();
  }
  for (auto& one : pending) one.wait();
}

void ShardedOptimizer::step() {
  follow_group();
  if (gradients_ == GradientMean::kInStep && shares_memory_ && local_->can_step_in_pieces()) {
    const c10::NoGradGuard no_grad;
    check_views();
    if (const auto has_gradient = exchange_flags()) {
      if (shares_memory_) return step_in_memory(*has_gradient);
      reduce_gradients(*has_gradient);  // there was no space in shared memory for a layer that is new
    }
  } else {
    prepare();
  }
  step_local([](Optimizer& local) { local.step(); });
  finish();
}

void ShardedOptimizer::step(double lr) {
  set_lr(lr);
  step();
}

void ShardedOptimizer::step(const GradScale& scale) {
  prepare();
  if (scale.found_inf.defined()) world_.all_reduce(scale.found_inf, dist::ReduceOp::kMax);
  step_local([&](Optimizer& local) { local.step(scale); });
  finish();
}

StepGradients ShardedOptimizer::step_gradients() {
  if (gradients_ == GradientMean::kDone) return {parameters_};
  prepare();
  return {local_->parameters(), &world_};
}

void ShardedOptimizer::zero_grad() {
  reduced_.clear();
  for (const auto& [name, parameter] : parameters_) {
    if (parameter.grad().defined()) parameter.mutable_grad().reset();
  }
  for (const auto& bucket : buckets_) {
    for (const auto& slice : bucket.slices) slice.mutable_grad().reset();
  }
}

at::Tensor ShardedOptimizer::clip_grad_norm(double max_norm) {
  if (gradients_ == GradientMean::kDone) {
    throw Error(ErrorCode::kFailedPrecondition,
                "this sharded optimizer does not average gradients: clip those of the parameters, which are whole");
  }
  prepare();
  std::vector<at::Tensor> gradients;
  for (const auto& bucket : buckets_) {
    for (const auto& slice : bucket.slices) {
      if (slice.grad().defined()) gradients.push_back(slice.grad());
    }
  }
  return clip_sharded_grad_norm(world_, gradients, max_norm);
}

void ShardedOptimizer::clip_grad_value(double max_value) {
  if (gradients_ == GradientMean::kDone) {
    throw Error(ErrorCode::kFailedPrecondition,
                "this sharded optimizer does not average gradients: clip those of the parameters, which are whole, by "
                "train::clip_grad_value");
  }
  prepare();
  NamedTensors slices;
  for (const auto& bucket : buckets_) {
    for (size_t i = 0; i < bucket.slices.size(); ++i) slices.emplace_back(bucket.parameters[i].first, bucket.slices[i]);
  }
  train::clip_grad_value(slices, max_value);
}

NamedTensors ShardedOptimizer::state_layout() const { return local_->state_layout(); }
TensorMap ShardedOptimizer::state_dict() const { return local_->state_dict(); }
void ShardedOptimizer::load_state_dict(const TensorMap& state) { local_->load_state_dict(state); }

}  // namespace yoke::train
