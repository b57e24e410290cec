#include "yoke/train/shard/detail/flat_parameters.h"

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <utility>

#include "yoke/train/shard/detail/refusals.h"
#include "yoke/train/sharding.h"

namespace yoke::train {

FlatLayout lay_out(const NamedTensors& parameters, int64_t num_ranks) {
  std::vector<NamedShape> shapes;
  for (const auto& [name, tensor] : parameters) shapes.push_back({name, tensor.sizes().vec()});
  return {shapes, num_ranks, flat_alignment(static_cast<int64_t>(parameters.front().second.element_size()))};
}

namespace {

/// Returns a view of one parameter's elements in a flat tensor.
at::Tensor view_of(const at::Tensor& flat, const FlatItem& item) {
  return flat.narrow(0, item.offset, item.num_elements).view(item.shape);
}

void release_memory(const at::Tensor& tensor) {
  auto& storage = *tensor.storage().unsafeGetStorageImpl();
  storage.set_data_ptr_noswap(at::DataPtr(nullptr, tensor.device()));
  storage.set_nbytes(0);
}

void acquire_memory(const at::Tensor& tensor) {
  auto& storage = *tensor.storage().unsafeGetStorageImpl();
  const auto num_bytes = static_cast<size_t>(tensor.numel()) * tensor.element_size();
  storage.set_data_ptr_noswap(storage.allocator()->allocate(num_bytes));
  storage.set_nbytes(num_bytes);
}

}  // namespace

FlatParameters::FlatParameters(dist::Group& group, dist::Group* replicas, NamedTensors parameters,
                               std::optional<at::ScalarType> compute_dtype)
    : group_(&group),
      replicas_(replicas),
      parameters_(std::move(parameters)),
      layout_(lay_out(parameters_, group.size())) {
  const c10::NoGradGuard no_grad;
  const auto dtype = parameters_.front().second.scalar_type();
  const auto options = at::TensorOptions(dtype).device(group.device());
  flat_shard_ = at::empty({layout_.rank_elements()}, options).zero_();
  whole_ = at::empty({layout_.num_elements()},
                     options.dtype(at::isFloatingType(dtype) ? compute_dtype.value_or(dtype) : dtype));
  nothing_ = make_placeholder(whole_.options());
  for (size_t i = 0; i < parameters_.size(); ++i) {
    auto& tensor = parameters_[i].second;
    const auto values = tensor.detach().to(group.device()).contiguous();
    if (group.size() > 1 && values.numel() > 0) group.broadcast(values);
    const auto part = layout_.part(i, group.rank());
    auto shard = flat_shard_.narrow(0, part.offset, part.length).detach();
    shard.copy_(values.view({-1}).narrow(0, part.first, part.length));
    const auto& shape = layout_.items()[i].shape;
    shard = shard.view(shape_of_part(shape, part.length)).detach().set_requires_grad(tensor.requires_grad());
    mark_sharded(shard, {.shape = shape, .first = part.first, .group = &group});
    shards_.push_back(shard);
    views_.push_back(view_of(whole_, layout_.items()[i]));
    tensor.set_data(nothing_);
  }
  release_memory(whole_);
  if (replicas_ != nullptr && flat_shard_.numel() > 0) replicas_->broadcast(flat_shard_);
}

void FlatParameters::mark_gradients() {
  if (is_gathered_ || is_gathering_) return;
  is_marked_.resize(parameters_.size());
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (!shards_[i].grad().defined()) continue;
    parameters_[i].second.mutable_grad() = make_placeholder(nothing_.options());
    is_marked_[i] = true;
  }
}

void FlatParameters::take_marks() {
  for (size_t i = 0; i < is_marked_.size(); ++i) {
    if (!is_marked_[i]) continue;
    is_marked_[i] = false;
    auto& mark = parameters_[i].second.mutable_grad();
    if (!mark.defined()) shards_[i].mutable_grad().reset();
    mark.reset();
  }
}

void FlatParameters::start_gather() {
  const c10::NoGradGuard no_grad;
  take_marks();
  acquire_memory(whole_);
  is_gathering_ = true;
  gather_ = group_->start_all_gather(whole_, flat_shard_.to(whole_.scalar_type()));
}

void FlatParameters::finish_gather() {
  if (!is_gathering_) return;
  gather_.wait();
  is_gathering_ = false;
  is_gathered_ = true;
  for (size_t i = 0; i < parameters_.size(); ++i) parameters_[i].second.set_data(views_[i]);
}

void FlatParameters::free() {
  finish_gather();
  if (!std::exchange(is_gathered_, false)) return;
  for (const auto& [name, tensor] : parameters_) tensor.set_data(nothing_);
  release_memory(whole_);
  mark_gradients();
}

void FlatParameters::forget_step() {
  gather_ = {};
  gradient_.reset();
  if (std::exchange(is_gathering_, false)) release_memory(whole_);
  free();
}

bool FlatParameters::is_replaced(size_t parameter) const {
  return !parameters_[parameter].second.is_alias_of(is_gathered_ ? whole_ : nothing_);
}

void FlatParameters::take_gradient(size_t parameter) {
  const c10::NoGradGuard no_grad;
  if (!gradient_.defined()) {
    gradient_ = at::empty({layout_.num_elements()}, flat_shard_.options());
    has_arrived_.assign(parameters_.size(), false);
  }
  auto& gradient = parameters_[parameter].second.mutable_grad();
  const auto place = view_of(gradient_, layout_.items()[parameter]);
  if (has_arrived_[parameter]) {
    place.add_(gradient);
  } else {
    place.copy_(gradient);
    has_arrived_[parameter] = true;
  }
  gradient.reset();
}

size_t FlatParameters::arrived() const {
  return static_cast<size_t>(std::ranges::find(has_arrived_, true) - has_arrived_.begin());
}

Reduction FlatParameters::start_reduce() {
  const c10::NoGradGuard no_grad;
  Reduction reduction;
  if (!gradient_.defined()) {
    gradient_ = at::empty({layout_.num_elements()}, flat_shard_.options()).zero_();
  } else {
    for (size_t i = 0; i < parameters_.size(); ++i) {
      if (!has_arrived_[i]) view_of(gradient_, layout_.items()[i]).zero_();
    }
  }
  reduction.whole = std::exchange(gradient_, {});
  reduction.shard = at::empty({layout_.rank_elements()}, flat_shard_.options());
  reduction.pending = group_->start_reduce_scatter(reduction.shard, reduction.whole, dist::ReduceOp::kMean);
  return reduction;
}

void FlatParameters::start_average(Reduction& reduction) {
  if (replicas_ == nullptr || std::exchange(reduction.is_reduced, true)) return;
  reduction.pending.wait();
  reduction.whole.reset();
  reduction.pending = replicas_->start_all_reduce(reduction.shard, dist::ReduceOp::kMean);
}

void FlatParameters::finish_reduce(Reduction reduction) {
  const c10::NoGradGuard no_grad;
  start_average(reduction);
  reduction.pending.wait();
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const auto part = layout_.part(i, group_->rank());
    const auto mean = reduction.shard.narrow(0, part.offset, part.length).view(shards_[i].sizes());
    auto& gradient = shards_[i].mutable_grad();
    if (gradient.defined()) {
      gradient.add_(mean);
    } else {
      gradient = mean;
    }
  }
  mark_gradients();
}

}  // namespace yoke::train
