// DistributedDataParallel's join: ranks that are out of data take part in the other ranks' communication.
//
// One step of a join. Ranks with data run forward and backward; ranks without data run shadow_step. All ranks do:
//   1. all-reduce of the number of ranks that have data
//   2. broadcast of new buckets, once
//   3. all-reduce of each bucket, with zeros from ranks without data
//   4. all-reduce of the parameters in use, with find_unused_parameters (before 3 in the first step of a static graph)
//   5. all-reduce that finds the highest rank with data, and a broadcast of its buffers
#include <ATen/ops/full.h>

#include <vector>

#include "yoke/base/error.h"
#include "yoke/dist/arrivals.h"
#include "yoke/train/parallel/detail/distributed_data_parallel_impl.h"

namespace yoke::train {

DistributedDataParallelBase::Join DistributedDataParallelBase::join(const JoinOptions& options) {
  if (impl_->has_sync_batch_norm) {
    throw Error(
        ErrorCode::kInvalidArgument,
        "join: the model has a SyncBatchNorm, and a rank without data cannot take part in its communication; give "
        "all ranks the same number of batches");
  }
  if (impl_->averages_in_step) {
    throw Error(ErrorCode::kInvalidArgument,
                "join: average_in_step is set, and a rank without data has no step in which gradients are averaged; "
                "leave average_in_step off, or give all ranks the same number of batches");
  }
  if (impl_->hook != nullptr && !options.divide_by_all_ranks) {
    throw Error(ErrorCode::kInvalidArgument,
                "join: the communication hook divides by the number of all ranks; leave divide_by_all_ranks set");
  }
  impl_->join = options;
  return Join(*this);
}

DistributedDataParallelBase::Join::~Join() {
  if (owner_ == nullptr) return;
  owner_->impl_->join.reset();
}

void DistributedDataParallelBase::Join::finish() {
  if (owner_ == nullptr) {
    throw Error(ErrorCode::kFailedPrecondition, "Join::finish was called a second time; begin another join");
  }
  auto& impl = *owner_->impl_;
  const dist::Activity activity(impl.group, kStepName);
  bool is_last = true;
  try {
    while (impl.group.size() > 1) {
      const auto work = impl.count_active(false);
      work->wait();
      if (work->getFuture()->value().toTensorVector()[0].item<float>() == 0) break;
      if (impl.join->throw_when_one_is_out) impl.throw_out_of_data(false);
      impl.shadow_step();
      is_last = false;
    }
    impl.reducer->set_forward_pass_work_handle({}, true);
    if (impl.group.size() > 1) impl.broadcast(impl.values, impl.highest_rank(is_last));
  } catch (...) {
    impl.group.explain(std::current_exception());
  }
  std::exchange(owner_, nullptr)->impl_->join.reset();
}

c10::intrusive_ptr<c10d::Work> DistributedDataParallelBase::Impl::count_active(bool is_active) const {
  std::vector<at::Tensor> count = {
      at::full({1}, is_active ? 1 : 0, at::TensorOptions(group.device()).dtype(at::kFloat))};
  return group.process_group().allreduce(count);
}

void DistributedDataParallelBase::Impl::announce_step() {
  if (group.size() == 1) return;
  const auto work = count_active(true);
  reducer->set_forward_pass_work_handle(work, join->divide_by_all_ranks);
  if (!join->throw_when_one_is_out) return;
  work->wait();
  const auto num_active = work->getFuture()->value().toTensorVector()[0].item<float>();
  if (static_cast<int64_t>(num_active) < group.size()) throw_out_of_data(true);
}

void DistributedDataParallelBase::Impl::throw_out_of_data(bool is_active) const {
  const auto active = group.all_gather(at::full({1}, is_active ? 1 : 0, at::kLong));
  std::vector<int64_t> out;
  for (int64_t rank = 0; rank < group.size(); ++rank) {
    if (active[rank].item<int64_t>() == 0) out.push_back(group.ranks()[static_cast<size_t>(rank)]);
  }
  throw Error(ErrorCode::kFailedPrecondition, "{} out of data before step {}, and the join asks to stop then",
              dist::list_ranks(out) + (out.size() == 1 ? " is" : " are"), is_active ? num_steps : num_steps + 1);
}

int64_t DistributedDataParallelBase::Impl::highest_rank(bool is_candidate) const {
  const auto rank = at::full({1}, is_candidate ? group.rank() : -1, at::TensorOptions(group.device()).dtype(at::kLong));
  group.all_reduce(rank, dist::ReduceOp::kMax);
  return rank.item<int64_t>();
}

void DistributedDataParallelBase::Impl::shadow_step() {
  ++num_steps;
  if (has_sparse && num_steps == 1) {
    fail_step("this rank has no data at all, and does not know the shape of the sparse gradients: give it one batch");
  }
  if (reducer->rebuild_buckets()) reducer->share_buckets();
  const bool is_learning_graph = static_graph && !is_graph_learned;
  const auto share_no_use = [&] {
    std::vector<at::Tensor> used = {reducer->get_local_used_map_on_device().zero_()};
    return group.process_group().allreduce(used);
  };
  c10::intrusive_ptr<c10d::Work> used_work;
  if (is_learning_graph) used_work = share_no_use();
  std::vector<c10::intrusive_ptr<c10::ivalue::Future>> futures;
  auto buckets = reducer->get_grad_buckets(/*return_zero_tensors=*/true);
  for (auto& bucket : buckets) futures.push_back(reducer->run_comm_hook(bucket));
  if (find_unused_parameters && !static_graph) used_work = share_no_use();
  for (const auto& future : futures) {
    future->wait();
    if (hook != nullptr) hook->parseHookResult(future->value());
  }
  if (used_work) used_work->wait();
  // The other ranks rebuild their buckets before the second step; with a static graph, before the third.
  if (!is_learning_graph) reducer->push_rebuilt_params_for_all_indices();
  has_missed_graph |= is_learning_graph;
  is_graph_learned = true;
  if (broadcast_buffers && !buffers.empty()) broadcast_all_buffers(highest_rank(false));
}

}  // namespace yoke::train
