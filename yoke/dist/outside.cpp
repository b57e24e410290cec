#include "yoke/dist/detail/outside.h"

#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <utility>
#include <vector>

namespace yoke::dist {
namespace {

using TensorList = std::vector<at::Tensor>;

class DoneWork : public c10d::Work {
 public:
  explicit DoneWork(TensorList outputs) : outputs_(std::move(outputs)) {}
  bool isCompleted() override { return true; }
  bool isSuccess() const override { return true; }
  bool wait(std::chrono::milliseconds /*timeout*/ = kNoTimeout) override { return true; }
  std::vector<at::Tensor> result() override { return outputs_; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    auto future = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
    future->markCompleted(c10::IValue(outputs_));
    return future;
  }

 private:
  TensorList outputs_;
};

c10::intrusive_ptr<c10d::Work> done(TensorList outputs = {}) {
  return c10::make_intrusive<DoneWork>(std::move(outputs));
}

/// Makes `tensor`, which each of `size` ranks has given, the result of the reduction.
void reduce_alike(const at::Tensor& tensor, const c10d::ReduceOp& op, int64_t size) {
  const c10::NoGradGuard no_grad;
  if (op == c10d::ReduceOp::SUM && tensor.scalar_type() != at::kBool) {
    tensor.mul_(size);
  } else if (op == c10d::ReduceOp::PRODUCT) {
    tensor.pow_(size);
  } else if (op == c10d::ReduceOp::BXOR && size % 2 == 0) {
    tensor.zero_();
  }
}

class RefusingBackend : public c10d::Backend {
 public:
  using Backend::Backend;
  const std::string getBackendName() const override { return "none, because ranks were replaced,"; }
  uint64_t getSequenceNumberForGroup() override { return 0; }
  void setTimeout(std::chrono::milliseconds /*timeout*/) override {}
  void abort() override {}
  void shutdown() override {}
};

class OutsideBackend : public RefusingBackend {
 public:
  using RefusingBackend::RefusingBackend;
  const std::string getBackendName() const override { return "none, because this rank has not joined the others,"; }

  c10::intrusive_ptr<c10d::Work> allreduce(TensorList& tensors, const c10d::AllreduceOptions& options) override {
    for (const auto& tensor : tensors) reduce_alike(tensor, options.reduceOp, getSize());
    return done(tensors);
  }
  c10::intrusive_ptr<c10d::Work> broadcast(TensorList& tensors, const c10d::BroadcastOptions& /*options*/) override {
    return done(tensors);
  }
  c10::intrusive_ptr<c10d::Work> barrier(const c10d::BarrierOptions& /*options*/) override { return done(); }
  c10::intrusive_ptr<c10d::Work> allgather(std::vector<TensorList>& outputs, TensorList& inputs,
                                           const c10d::AllgatherOptions& /*options*/) override {
    for (auto& output : outputs.at(0)) output.copy_(inputs.at(0));
    return done(outputs[0]);
  }
  c10::intrusive_ptr<c10d::Work> _allgather_base(at::Tensor& output, at::Tensor& input,
                                                 const c10d::AllgatherOptions& /*options*/) override {
    if (input.numel() > 0) output.view({-1, input.numel()}).copy_(input.reshape({1, -1}));
    return done({output});
  }
  c10::intrusive_ptr<c10d::Work> _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                      const c10d::ReduceScatterOptions& options) override {
    if (output.numel() > 0) output.view({-1}).copy_(input.reshape({-1, output.numel()})[getRank()]);
    reduce_alike(output, options.reduceOp, getSize());
    return done({output});
  }
  c10::intrusive_ptr<c10d::Work> reduce(TensorList& tensors, const c10d::ReduceOptions& options) override {
    for (const auto& tensor : tensors) reduce_alike(tensor, options.reduceOp, getSize());
    return done(tensors);
  }
  c10::intrusive_ptr<c10d::Work> gather(std::vector<TensorList>& outputs, TensorList& inputs,
                                        const c10d::GatherOptions& /*options*/) override {
    for (auto& list : outputs) {
      for (auto& output : list) output.copy_(inputs.at(0));
    }
    return done();
  }
};

}  // namespace

c10::intrusive_ptr<c10d::Backend> outside_backend(int64_t rank, int64_t size) {
  return c10::make_intrusive<OutsideBackend>(static_cast<int>(rank), static_cast<int>(size));
}

c10::intrusive_ptr<c10d::Backend> refusing_backend(int64_t rank, int64_t size) {
  return c10::make_intrusive<RefusingBackend>(static_cast<int>(rank), static_cast<int>(size));
}

}  // namespace yoke::dist
