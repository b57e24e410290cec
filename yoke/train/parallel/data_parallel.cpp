#include "yoke/train/parallel/data_parallel.h"

#include <ATen/ThreadLocalState.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/stack.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/nn/module.h>

#include <condition_variable>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "yoke/base/error.h"
#include "yoke/train/device/detail/keep_generators.h"
#include "yoke/train/parallel/detail/autograd_node.h"

namespace yoke::train {
namespace {

using Tensors = Replicas::Tensors;

/// A persistent thread that runs one job at a time.
class Worker {
 public:
  Worker() : thread_([this] { loop(); }) {}

  ~Worker() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  /// REQUIRES: the previous job has been waited for, and `job` does not throw.
  void start(std::function<void()> job) {
    {
      const std::lock_guard lock(mutex_);
      job_ = std::move(job);
    }
    changed_.notify_all();
  }

  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !job_; });
  }

 private:
  void loop() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return job_ || stopping_; });
      if (!job_) return;
      lock.unlock();
      job_();
      lock.lock();
      job_ = nullptr;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::function<void()> job_;
  bool stopping_ = false;
  std::thread thread_;  // last, because it uses the other members
};

/// The graph node between the copies of a parameter in the replicas (the node's inputs) and the parameter (its only
/// output). Each parameter has its own node, so that gradients are transferred while backward still runs. One node
/// serves all replicas, so that the order of the sum is fixed.
struct SumOverReplicas : torch::autograd::Node {
  explicit SumOverReplicas(const at::Tensor& parameter)
      : Node(torch::autograd::collect_next_edges(parameter)), device(parameter.device()) {
    // A node runs on the device and stream of its first input. So this input is added, although it is never used.
    add_input_metadata(parameter);
  }

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    at::Tensor sum;
    for (const auto& gradient : gradients) {
      if (!gradient.defined()) continue;
      const auto here = gradient.to(device, /*non_blocking=*/!device.is_cpu());
      sum = sum.defined() ? sum + here : here;
    }
    return {sum};
  }

  std::string name() const override { return "SumOverReplicas"; }

  c10::Device device;
};

struct Replica {
  std::shared_ptr<torch::nn::Module> module;
  Tensors parameters, buffers;
  /// Tensors on the memory of the replica's parameters and buffers, with separate version counters. A second forward
  /// copies the same values again. This copy must not count as a change for the first forward's graph, whose backward
  /// comes later. (A change of the model itself is still detected by the model's part of that graph.)
  Tensors parameter_data, buffer_data;
  std::unique_ptr<Worker> worker;
};

/// Returns the parameters or buffers of a replica, in the model's order.
Tensors like(const torch::OrderedDict<std::string, at::Tensor>& own,
             const torch::OrderedDict<std::string, at::Tensor>& others, const char* what) {
  Tensors tensors;
  for (const auto& item : own) {
    const auto* other = others.find(item.key());
    if (other == nullptr || other->sizes() != item.value().sizes() ||
        other->scalar_type() != item.value().scalar_type()) {
      throw Error(
          ErrorCode::kInvalidArgument,
          "DataParallel: {} '{}' of the model is {} [{}], in a replica it {}; both must have the same structure", what,
          item.key(), c10::toString(item.value().scalar_type()), fmt::join(item.value().sizes(), ", "),
          other == nullptr
              ? "is missing"
              : fmt::format("is {} [{}]", c10::toString(other->scalar_type()), fmt::join(other->sizes(), ", ")));
    }
    tensors.push_back(*other);
  }
  return tensors;
}

Tensors data_of(const Tensors& tensors) {
  Tensors data;
  for (const auto& tensor : tensors) data.push_back(tensor.variable_data());
  return data;
}

void copy(const Tensors& to, const Tensors& from) {
  const at::NoGradGuard no_grad;
  if (!to.empty()) at::_foreach_copy_(to, from, /*non_blocking=*/true);
}

/// The caller's current stream on each GPU. The threads use the same streams.
std::vector<c10::Stream> current_streams(const std::vector<c10::Device>& devices) {
  std::vector<c10::Stream> streams;
  for (const auto device : devices) {
    if (!device.is_cpu()) streams.push_back(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
  }
  return streams;
}

[[noreturn]] void rethrow(const std::exception_ptr& error, const std::string& where) {
  try {
    std::rethrow_exception(error);
  } catch (c10::Error& torchs) {  // keeps the exception's type, because a caller may catch OutOfMemoryError
    torchs.add_context(where);
    throw;
  } catch (const Error& ours) {
    throw Error(ours.code(), "{}: {}", where, ours.what());
  } catch (const std::exception& other) {
    throw std::runtime_error(where + ": " + other.what());
  }
}

/// Splits each input; the result is [replica][input].
std::vector<Tensors> split(const Tensors& inputs, size_t num_parts) {
  std::vector<Tensors> parts;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].defined() || inputs[i].dim() == 0 || inputs[i].size(0) != inputs[0].size(0)) {
      throw Error(ErrorCode::kInvalidArgument, "DataParallel: input {} is {}; all inputs are [batch, ...] of one batch",
                  i, inputs[i].defined() ? fmt::format("[{}]", fmt::join(inputs[i].sizes(), ", ")) : "undefined");
    }
    const auto chunks = inputs[i].chunk(static_cast<int64_t>(num_parts), 0);
    parts.resize(chunks.size());
    for (size_t part = 0; part < chunks.size(); ++part) parts[part].push_back(chunks[part]);
  }
  return parts;
}

Tensors join(const std::vector<Tensors>& outputs, c10::Device device) {
  for (size_t part = 1; part < outputs.size(); ++part) {
    if (outputs[part].size() == outputs.front().size()) continue;
    throw Error(ErrorCode::kInvalidArgument, "DataParallel: part {} gave {} outputs, part 1 gave {}", part + 1,
                outputs[part].size(), outputs.front().size());
  }
  Tensors joined;
  for (size_t i = 0; i < outputs.front().size(); ++i) {
    Tensors parts;
    for (const auto& of_replica : outputs) parts.push_back(of_replica[i].to(device, /*non_blocking=*/!device.is_cpu()));
    joined.push_back(parts.front().dim() == 0 ? at::stack(parts) : at::cat(parts));
  }
  return joined;
}

void set_training(torch::nn::Module& replica, const torch::nn::Module& model) {
  const auto own = model.modules(/*include_self=*/false), others = replica.modules(/*include_self=*/false);
  if (replica.is_training() != model.is_training()) replica.train(model.is_training());
  for (size_t i = 0; i < own.size(); ++i) {  // parents first, because train() is recursive
    if (others[i]->is_training() != own[i]->is_training()) others[i]->train(own[i]->is_training());
  }
}

}  // namespace

struct Replicas::Impl {
  std::shared_ptr<torch::nn::Module> model;
  std::vector<c10::Device> devices;
  Tensors parameters, buffers;
  std::vector<Replica> replicas;  ///< On devices[1], devices[2], ...

  /// Called before the threads start, because none of this may happen while the model itself runs.
  void prepare(size_t num_used) {
    for (size_t i = 0; i < parameters.size(); ++i) {
      if (!parameters[i].requires_grad()) {
        for (size_t r = 0; r + 1 < num_used; ++r) {
          if (replicas[r].parameters[i].requires_grad()) replicas[r].parameters[i].detach_();
        }
      } else if (c10::GradMode::is_enabled()) {
        const auto sum = make_node<SumOverReplicas>(parameters[i]);
        for (size_t r = 0; r + 1 < num_used; ++r) {
          const auto& copied = replicas[r].parameters[i];
          torch::autograd::impl::set_gradient_edge(copied, {sum, sum->add_input_metadata(copied)});
        }
      }
    }
    for (size_t r = 0; r + 1 < num_used; ++r) {
      copy(replicas[r].buffer_data, buffers);
      set_training(*replicas[r].module, *model);
    }
  }
};

Replicas::Replicas(std::shared_ptr<torch::nn::Module> model, std::vector<c10::Device> devices, const Make& make)
    : impl_(std::make_unique<Impl>()) {
  if (devices.empty()) throw Error(ErrorCode::kInvalidArgument, "DataParallel: no device");
  to(*model, devices.front());
  impl_->model = std::move(model);
  impl_->devices = std::move(devices);
  impl_->parameters = impl_->model->parameters();
  impl_->buffers = impl_->model->buffers();
  const KeepGenerators keep(impl_->devices);
  for (size_t i = 1; i < impl_->devices.size(); ++i) {
    Replica replica{.module = make()};
    to(*replica.module, impl_->devices[i]);
    replica.parameters = like(impl_->model->named_parameters(), replica.module->named_parameters(), "parameter");
    replica.buffers = like(impl_->model->named_buffers(), replica.module->named_buffers(), "buffer");
    replica.parameter_data = data_of(replica.parameters);
    replica.buffer_data = data_of(replica.buffers);
    replica.worker = std::make_unique<Worker>();
    impl_->replicas.push_back(std::move(replica));
  }
}

Replicas::~Replicas() = default;

Tensors Replicas::run(const std::function<Tensors(torch::nn::Module& replica, const Tensors& inputs)>& function,
                      const Tensors& inputs) {
  auto& self = *impl_;
  if (self.devices.size() == 1 || inputs.empty()) {  // nothing to split: as in Python, the model itself is called
    Tensors moved;
    for (const auto& input : inputs) moved.push_back(to(input, self.devices[0]));
    return function(*self.model, moved);
  }
  const auto parts = split(inputs, self.devices.size());
  std::vector<Tensors> outputs(parts.size());
  std::vector<std::exception_ptr> errors(parts.size());
  self.prepare(parts.size());

  const at::ThreadLocalState state;
  const auto streams = current_streams(self.devices);
  const auto run_part = [&](size_t i) {
    const c10::DeviceGuard device(self.devices[i]);
    Tensors moved;
    for (const auto& input : parts[i]) moved.push_back(input.to(self.devices[i], /*non_blocking=*/true));
    outputs[i] = function(i == 0 ? *self.model : *self.replicas[i - 1].module, moved);
  };
  for (size_t i = 1; i < parts.size(); ++i) {
    self.replicas[i - 1].worker->start([&, i] {
      try {
        const at::ThreadLocalStateGuard of_caller(state);
        const c10::MultiStreamGuard behind(streams);
        copy(self.replicas[i - 1].parameter_data, self.parameters);
        run_part(i);
      } catch (...) {
        errors[i] = std::current_exception();
      }
    });
  }
  try {
    run_part(0);
  } catch (...) {
    errors[0] = std::current_exception();
  }
  for (size_t i = 1; i < parts.size(); ++i) self.replicas[i - 1].worker->wait();

  for (size_t i = 0; i < parts.size(); ++i) {
    if (errors[i]) {
      rethrow(errors[i],
              fmt::format("DataParallel: on {} (part {} of {})", self.devices[i].str(), i + 1, parts.size()));
    }
  }
  return parts.size() == 1 ? outputs.front() : join(outputs, self.devices[0]);
}

}  // namespace yoke::train
