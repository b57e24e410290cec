#include "yoke/dist/group.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/view_as_real.h>
#include <ATen/ops/zeros.h>
#include <ATen/record_function.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/Exception.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>

#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/host.h"
#include "yoke/dist/activity.h"
#include "yoke/dist/detail/gloo.h"
#include "yoke/dist/detail/group_impl.h"
#include "yoke/dist/detail/outside.h"
#include "yoke/dist/detail/shared_connect.h"
#include "yoke/dist/detail/shared_memory.h"
#include "yoke/dist/detail/single_tensor_collectives.h"
#include "yoke/dist/plug.h"

namespace yoke::dist {
namespace {

using std::chrono::milliseconds;

/// Whether something on this thread wants to see each operator: a profiler, a mode of Python's, or a recording of a
/// step (yoke/train/record), which includes the key Fake.
bool are_operators_watched() {
  return at::hasCallbacks() || c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::Fake) ||
         c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::Python);
}

/// Whether a call may go around c10d's operators, which take longer than a small message in shared memory.
bool is_short(const c10d::Backend& cpu, const at::Tensor& tensor) {
  return tensor.is_cpu() && is_shared_memory(cpu) && !are_operators_watched();
}

/// The contiguous form of a tensor, because backends ignore strides. give_back() copies its values to the tensor.
struct Dense {
  explicit Dense(const at::Tensor& tensor) : given(tensor.detach()), sent({given.contiguous()}) {}
  void give_back() const {
    if (!sent[0].is_same(given)) given.copy_(sent[0]);
  }
  at::Tensor given;
  std::vector<at::Tensor> sent;
};

/// Sent before each text, so that a rank that calls another collective at the same time is recognised.
constexpr int64_t kTextMark = 0x796f6b6574657874;  // "yoketext"

/// Refuses a tensor that is undefined, or needs a gradient. `gradient` is the function of gradient.h that does the
/// same, or of which the same can be made.
void check_tensor(const char* collective, const char* gradient, const at::Tensor& tensor) {
  if (!tensor.defined()) throw Error(ErrorCode::kInvalidArgument, "{}: a tensor is undefined", collective);
  if (!c10::GradMode::is_enabled() || !tensor.requires_grad()) return;
  throw Error(
      ErrorCode::kInvalidArgument,
      "{}: its tensor needs a gradient, but backward does not pass through this function, so gradients would be "
      "lost or wrong: call dist::gradient::{} (yoke/dist/gradient.h), through which it passes; if no gradient "
      "is wanted, give it tensor.detach(), or call it under torch::NoGradGuard, as for a parameter that is "
      "copied between ranks",
      collective, gradient);
}
void check_tensor(const char* collective, const at::Tensor& tensor) { check_tensor(collective, collective, tensor); }

/// Such as "Float [2, 3]".
std::string name_of(const at::Tensor& tensor) {
  return fmt::format("{} {}", c10::toString(tensor.scalar_type()), c10::str(tensor.sizes()));
}

[[noreturn]] void refuse_strides(const char* collective, const at::Tensor& tensor) {
  throw Error(
      ErrorCode::kInvalidArgument,
      "{}: the tensor is not contiguous ({} with strides {}), so its memory has other elements between its own: "
      "give tensor.contiguous(), and copy the result back where it is wanted",
      collective, name_of(tensor), c10::str(tensor.strides()));
}

/// Refuses elements that libtorch's Gloo does not know.
void check_gloo_type(const char* collective, const at::Tensor& tensor) {
  constexpr std::array kTypes = {at::kBool, at::kByte,     at::kChar,  at::kInt,   at::kLong,
                                 at::kHalf, at::kBFloat16, at::kFloat, at::kDouble};
  if (std::ranges::find(kTypes, tensor.scalar_type()) != kTypes.end()) return;
  throw Error(ErrorCode::kInvalidArgument,
              "{}: Gloo carries no {} elements, and these ranks do not share memory (docs/dist.md): convert it, for "
              "example with tensor.to(at::kInt)",
              collective, c10::toString(tensor.scalar_type()));
}

void refuse_mean_of_integers(const char* collective, const at::Tensor& tensor) {
  if (tensor.is_floating_point() || tensor.is_complex()) return;
  throw Error(ErrorCode::kInvalidArgument,
              "{}: the mean of {} numbers is not one of them; add them up, and divide the sum", collective,
              c10::toString(tensor.scalar_type()));
}

/// Backends know no complex numbers.
at::Tensor as_real(const at::Tensor& tensor) { return tensor.is_complex() ? at::view_as_real(tensor) : tensor; }

}  // namespace

// ---- Pending collectives -------------------------------------------------------------------------------------------

PendingCollective::PendingCollective() = default;
PendingCollective::PendingCollective(PendingCollective&&) noexcept = default;
PendingCollective& PendingCollective::operator=(PendingCollective&&) noexcept = default;
PendingCollective::~PendingCollective() = default;

void PendingCollective::wait() {
  if (!work_) return;
  const auto work = std::exchange(work_, {});
  try {
    if (peer_ < 0 && !tensors_.empty() && tensors_[0].is_cpu()) {
      group_->wait(*work);
    } else {
      work->wait();
    }
  } catch (...) {
    group_->explain(std::current_exception(), peer_);
  }
  if (const auto finish = std::exchange(finish_, {})) finish();
  tensors_.clear();
}

PendingCollective Group::start(const Collective& collective, std::vector<at::Tensor> tensors, const Start& start) {
  for (const auto& tensor : tensors) {
    if (!tensor.is_conj() && !tensor.is_neg()) continue;
    throw Error(
        ErrorCode::kInvalidArgument,
        "a tensor that is conjugated or negated lazily cannot be sent: give resolve_conj() or resolve_neg() of it");
  }
  for (auto& tensor : tensors) tensor = as_real(tensor);
  if (collective.peer < 0 && tensors[0].is_cpu() && impl_->cpu && impl_->cpu->getBackendName() == "gloo") {
    check_gloo_type(collective.name, tensors[0]);
  }
  // Backends write without autograd's knowledge. A value that autograd has saved for backward is noticed by its
  // version, which a detached tensor shares.
  if (collective.writes_first && !tensors[0].is_inference()) tensors[0].unsafeGetTensorImpl()->bump_version();
  PendingCollective pending;
  pending.group_ = this;
  pending.tensors_ = std::move(tensors);
  pending.peer_ = collective.peer;
  const uint64_t num_messages = collective.peer >= 0 && pending.tensors_[0].is_cpu() ? 1 : 0;
  impl_->num_messages += num_messages;
  try {
    pending.work_ = start(pending.tensors_);
  } catch (...) {
    impl_->num_messages -= num_messages;  // it has not been counted
    explain(std::current_exception(), collective.peer);
  }
  if (job_->arrivals && collective.peer < 0) {
    const auto& tensor = pending.tensors_[0];
    impl_->calls.add(impl_->sequence(), collective.name, collective.sizes_differ ? -1 : tensor.numel(),
                     tensor.scalar_type());
  }
  return pending;
}

// ---- Groups --------------------------------------------------------------------------------------------------------

void Group::Job::connect(const std::shared_ptr<Impl>& impl) {
  auto own = store;
  if (!impl->key.empty()) own = c10::make_intrusive<c10d::PrefixStore>(impl->key, store);
  const auto size = static_cast<int64_t>(impl->ranks.size());
  if (is_outside) {
    impl->cpu = outside_backend(impl->rank, size);
  } else if (losses && !groups.empty()) {
    impl->cpu = share_without_gloo(*own, *impl);
  } else {
    const auto gloo = [&] {
      return make_gloo(c10::make_intrusive<c10d::PrefixStore>("gloo", own),
                       {.rank = impl->rank, .size = size, .address = gloo_address, .timeout = timeout});
    };
    const auto offers = [this](int64_t member) { return offers_sharing[static_cast<size_t>(member)]; };
    if (size > 1 && std::ranges::all_of(impl->ranks, offers)) {
      c10d::PrefixStore shared("shared", own);
      impl->cpu = share_memory(shared, gloo, sharing_of(*impl));
    } else {
      impl->cpu = gloo();
    }
  }
  adopt(impl, own);
  groups.push_back(impl);
  if (!is_outside) watch(impl);
}

void Group::Job::adopt(const std::shared_ptr<Impl>& impl, const c10::intrusive_ptr<c10d::Store>& own) {
  using c10d::ProcessGroup;
  const auto size = static_cast<int64_t>(impl->ranks.size());
  impl->group = c10::make_intrusive<ProcessGroup>(own, static_cast<int>(impl->rank), static_cast<int>(size));
  impl->group->setBackend(c10::DeviceType::CPU, ProcessGroup::GLOO, impl->cpu);
  impl->group->setDefaultBackend(ProcessGroup::GLOO);
  impl->backend = impl->cpu;
  if (device.type() != c10::DeviceType::CPU) {
    const auto* plug = loaded_plug();
    impl->backend = plug->make_backend({.store = c10::make_intrusive<c10d::PrefixStore>(plug->name, own),
                                        .rank = static_cast<int>(impl->rank),
                                        .size = static_cast<int>(size),
                                        .device = device,
                                        .timeout = timeout});
    impl->group->setBackend(plug->device_type, ProcessGroup::NCCL, impl->backend);
    impl->group->setDefaultBackend(ProcessGroup::NCCL);
  }
  // c10d's operators find a group by its name, so each group of the process must have a unique name.
  impl->group->setGroupName(fmt::format("yoke-{}", static_cast<const void*>(impl->group.get())));
}

void Group::Job::watch(const std::shared_ptr<Impl>& impl) {
  if (env.world_size == 1) return;
  CountedGroup counted{.key = impl->key.empty() ? "arrivals" : impl->key + "/arrivals",
                       .ranks = impl->ranks,
                       .name = impl->name,
                       .sequence = [impl = impl.get()] { return impl->sequence(); },
                       .calls = [impl = impl.get()](uint64_t now) { return impl->calls.last(now); }};
  if (arrivals) {
    impl->place = arrivals->add(std::move(counted));
  } else {
    // A timeout that is short leaves time to find ranks in different collectives, too.
    const auto interval = std::clamp<milliseconds>(timeout / 60, milliseconds(10), milliseconds(1000));
    arrivals = std::make_unique<Arrivals>(*store, env.rank, interval, std::move(counted), watch_of_generation());
  }
}

Group::Group(std::shared_ptr<Job> job, std::shared_ptr<Impl> impl) : job_(std::move(job)), impl_(std::move(impl)) {}
Group::Group(Group&&) noexcept = default;
Group& Group::operator=(Group&&) noexcept = default;
Group::~Group() = default;

int64_t Group::rank() const { return impl_->rank; }
int64_t Group::size() const { return static_cast<int64_t>(impl_->ranks.size()); }
const std::vector<int64_t>& Group::ranks() const { return impl_->ranks; }
c10::Device Group::device() const { return job_->device; }

c10d::ProcessGroup& Group::process_group() const {
  if (impl_ == nullptr || impl_->group == nullptr) {
    throw Error(ErrorCode::kFailedPrecondition, "this World has been shut down; nothing can be sent through it");
  }
  if (job_->is_forked()) {
    throw Error(ErrorCode::kFailedPrecondition,
                "this process was forked from a rank, and the other ranks would take its collectives for those of that "
                "rank; only the rank itself can use the group");
  }
  return *impl_->group;
}

Group Group::split(int64_t color, int64_t key) {
  const auto own = at::empty({2}, at::kLong);
  own.mutable_data_ptr<int64_t>()[0] = color;
  own.mutable_data_ptr<int64_t>()[1] = key;
  const Activity activity(*this, "splitting a group");
  const auto all = job_->share_split(*impl_, own, [&] { return all_gather(own); });  // [size, 2]
  const auto* given = all.const_data_ptr<int64_t>();
  std::vector<std::pair<int64_t, int64_t>> members;  // key, rank in this group
  for (int64_t rank = 0; rank < size(); ++rank) {
    if (given[2 * rank] == color) members.emplace_back(given[2 * rank + 1], rank);
  }
  std::ranges::sort(members);
  auto impl = std::make_shared<Impl>();
  for (const auto& member : members) {
    if (member.second == rank()) impl->rank = static_cast<int64_t>(impl->ranks.size());
    impl->ranks.push_back(ranks()[static_cast<size_t>(member.second)]);
  }
  // The groups of one split have different first members, so their keys differ.
  impl->key =
      fmt::format("{}{}group/{}/{}", impl_->key, impl_->key.empty() ? "" : "/", impl_->num_splits++, impl->ranks[0]);
  impl->name = fmt::format(" of the group of {}", list_ranks(impl->ranks));
  try {
    job_->connect(impl);
  } catch (...) {
    explain(std::current_exception());
  }
  return {job_, impl};
}

Group Group::of_this_host() {
  const auto hosts = all_gather_text(fmt::format("{} {}", job_->env.node_rank, name_of_host()));
  return split(std::ranges::find(hosts, hosts[static_cast<size_t>(rank())]) - hosts.begin());
}

// ---- Collectives ---------------------------------------------------------------------------------------------------

void Group::barrier() {
  // Reduces one element with the device's own backend, because c10d's barrier would need the device as an argument.
  process_group();
  const Activity activity(*this, "barrier");
  const auto element = at::empty({1}, at::TensorOptions().device(device())).zero_();
  all_reduce(element);
  element.item();  // NCCL only orders the stream, so this makes the thread wait
}

void Group::all_reduce(const at::Tensor& tensor, ReduceOp op) {
  check_tensor("all_reduce", tensor);
  if (tensor.layout() != at::kStrided) {
    throw Error(ErrorCode::kInvalidArgument,
                "all_reduce: the tensor is not dense, but {}; process_group().allreduce() takes sparse ones, or reduce "
                "tensor.to_dense()",
                c10::str(tensor.layout()));
  }
  const Dense dense(tensor);
  start_all_reduce(dense.sent[0], op, Caller::kWaits).wait();
  dense.give_back();
}

PendingCollective Group::start_all_reduce(const at::Tensor& tensor, ReduceOp op) {
  check_tensor("all_reduce", tensor);
  return start_all_reduce(tensor, op, Caller::kGoesOn);
}

PendingCollective Group::start_all_reduce(const at::Tensor& tensor, ReduceOp op, Caller caller) {
  if (tensor.is_complex() && (op == ReduceOp::kMin || op == ReduceOp::kMax)) {
    throw Error(ErrorCode::kInvalidArgument, "all_reduce: complex numbers have no smallest and no largest");
  }
  if (op == ReduceOp::kMean) refuse_mean_of_integers("all_reduce", tensor);
  if (!tensor.is_non_overlapping_and_dense()) refuse_strides("all_reduce", tensor);
  c10d::AllreduceOptions options;
  options.asyncOp = caller == Caller::kGoesOn || !tensor.is_cpu();
  switch (op) {
    case ReduceOp::kSum: options.reduceOp = c10d::ReduceOp::SUM; break;
    case ReduceOp::kMean: options.reduceOp = sum_of_mean(); break;  // Gloo has no mean
    case ReduceOp::kMin: options.reduceOp = c10d::ReduceOp::MIN; break;
    case ReduceOp::kMax: options.reduceOp = c10d::ReduceOp::MAX; break;
  }
  const bool divides_first = op == ReduceOp::kMean && tensor.scalar_type() == at::kHalf;
  if (divides_first) tensor.detach().div_(size());
  auto pending = start({.name = "all_reduce", .writes_first = true}, {tensor.detach()}, [&](auto& tensors) {
    auto& group = process_group();
    return is_short(*impl_->cpu, tensors[0]) ? impl_->cpu->allreduce(tensors, options)
                                             : group.allreduce(tensors, options);
  });
  if (op == ReduceOp::kMean && !divides_first) {
    pending.finish_ = [sum = tensor.detach(), size = size()] { sum.div_(size); };
  }
  return pending;
}

void Group::broadcast(const at::Tensor& tensor, int64_t root) {
  check_tensor("broadcast", tensor);
  const Dense dense(tensor);
  c10d::BroadcastOptions options;
  options.rootRank = root;
  options.asyncOp = !tensor.is_cpu();
  start({.name = "broadcast", .writes_first = true}, dense.sent, [&](auto& tensors) {
    return process_group().broadcast(tensors, options);
  }).wait();
  dense.give_back();
}

at::Tensor Group::all_gather(const at::Tensor& tensor) {
  check_tensor("all_gather", tensor);
  auto shape = tensor.sizes().vec();
  shape.insert(shape.begin(), size());
  auto result = at::empty(shape, tensor.options());
  std::vector<std::vector<at::Tensor>> outputs = {as_real(result).unbind(0)};
  c10d::AllgatherOptions options;
  options.asyncOp = !tensor.is_cpu();
  start({"all_gather"}, {tensor.detach().contiguous()}, [&](auto& inputs) {
    return process_group().allgather(outputs, inputs, options);
  }).wait();
  return result;
}

at::Tensor Group::gather(const at::Tensor& tensor, int64_t root) {
  check_tensor("gather", "all_gather", tensor);
  at::Tensor result;
  std::vector<std::vector<at::Tensor>> outputs;
  if (rank() == root) {
    auto shape = tensor.sizes().vec();
    shape.insert(shape.begin(), size());
    result = at::empty(shape, tensor.options().requires_grad(false));
    outputs = {as_real(result).unbind(0)};
  }
  c10d::GatherOptions options;
  options.rootRank = root;
  options.asyncOp = !tensor.is_cpu();
  const auto call = [&](auto& inputs) { return process_group().gather(outputs, inputs, options); };
  start({"gather"}, {tensor.detach().contiguous()}, call).wait();
  return result;
}

void Group::scatter(const at::Tensor& output, const at::Tensor& input, int64_t root) {
  check_tensor("scatter", "broadcast", output);
  const Dense dense(output);
  std::vector<std::vector<at::Tensor>> inputs;
  if (rank() == root) {
    check_tensor("scatter", "broadcast", input);
    if (input.dim() == 0 || input.size(0) != size() || input.numel() != size() * output.numel() ||
        input.scalar_type() != output.scalar_type()) {
      throw Error(ErrorCode::kInvalidArgument, "scatter: an input of {} is not one part of {} for each of {} ranks",
                  name_of(input), name_of(output), size());
    }
    auto shape = output.sizes().vec();
    shape.insert(shape.begin(), size());
    inputs = {as_real(input.detach().resolve_conj().resolve_neg().contiguous().view(shape)).unbind(0)};
  }
  c10d::ScatterOptions options;
  options.rootRank = root;
  options.asyncOp = !output.is_cpu();
  start({.name = "scatter", .writes_first = true}, dense.sent, [&](auto& outputs) {
    return process_group().scatter(outputs, inputs, options);
  }).wait();
  dense.give_back();
}

void Group::all_to_all(const at::Tensor& output, const at::Tensor& input, const Splits& splits) {
  check_tensor("all_to_all", output);
  check_tensor("all_to_all", input);
  if (output.scalar_type() != input.scalar_type()) {
    throw Error(ErrorCode::kInvalidArgument, "all_to_all: an output of {} and an input of {} must have the same dtype",
                name_of(output), name_of(input));
  }
  auto outputs = splits.output, inputs = splits.input;
  for (const auto& [tensor, parts] : {std::pair(&output, &outputs), std::pair(&input, &inputs)}) {
    const int64_t rows = tensor->dim() == 0 ? 0 : tensor->size(0);
    const bool fits = parts->empty() ? tensor->dim() > 0 && rows % size() == 0
                                     : std::ssize(*parts) == size() &&
                                           std::ranges::all_of(*parts, [](int64_t part) { return part >= 0; }) &&
                                           std::accumulate(parts->begin(), parts->end(), int64_t{0}) == rows;
    if (fits) continue;
    throw Error(ErrorCode::kInvalidArgument,
                "all_to_all: {} of {} rows cannot be divided among {} ranks{}: give Splits with one number per rank, "
                "which add up to the rows",
                tensor == &output ? "an output" : "an input", rows, size(),
                parts->empty() ? " equally" : " by these Splits");
  }
  const auto call = [&](auto& tensors) {
    return all_to_all_single(process_group(), tensors[0], tensors[1], outputs, inputs);
  };
  const Dense to(output), from(input);
  start({.name = "all_to_all", .sizes_differ = true, .writes_first = true}, {to.sent[0], from.sent[0]}, call).wait();
  to.give_back();
}

PendingCollective Group::start_all_gather(const at::Tensor& output, const at::Tensor& input) {
  check_tensor("all_gather_into", "all_gather", output);
  check_tensor("all_gather_into", "all_gather", input);
  if (output.numel() != size() * input.numel() || output.scalar_type() != input.scalar_type()) {
    throw Error(ErrorCode::kInvalidArgument,
                "all_gather_into: an output of {} is not {} times an input of {}: it gets the inputs of all ranks, one "
                "after the other, of the same dtype",
                name_of(output), size(), name_of(input));
  }
  const auto call = [&](auto& tensors) { return all_gather_single(process_group(), tensors[0], tensors[1]); };
  return start({.name = "all_gather_into", .writes_first = true}, {output.detach(), input.detach()}, call);
}

PendingCollective Group::start_reduce_scatter(const at::Tensor& output, const at::Tensor& input, ReduceOp op) {
  if (op != ReduceOp::kSum && op != ReduceOp::kMean) {
    throw Error(ErrorCode::kInvalidArgument, "reduce_scatter gives sums and means only");
  }
  if (op == ReduceOp::kMean) refuse_mean_of_integers("reduce_scatter", input);
  check_tensor("reduce_scatter", output);
  check_tensor("reduce_scatter", input);
  process_group();  // throws after shutdown()
  const bool divides_first = op == ReduceOp::kMean && input.scalar_type() == at::kHalf;
  const auto sent = divides_first ? input.detach().div(size()) : input.detach();
  const auto mean = [result = output.detach(), divides = op == ReduceOp::kMean && !divides_first, size = size()] {
    if (divides) result.div_(size);
  };
  PendingCollective pending;
  if (input.is_cpu()) {
    if (output.dim() == 0 || input.dim() == 0 || output.size(0) * size() != input.size(0) ||
        output.sizes().slice(1) != input.sizes().slice(1) || output.scalar_type() != input.scalar_type()) {
      throw Error(ErrorCode::kInvalidArgument,
                  "reduce_scatter: an input of {} is not {} times an output of {}: each rank gets an equal part of the "
                  "input, of the same dtype",
                  name_of(input), size(), name_of(output));
    }
  }
  if (input.is_cpu() && !is_shared_memory(*impl_->cpu)) {
    // The work that libtorch returns for Gloo does the same, but its wait() cannot be interrupted.
    const auto whole = divides_first ? sent : sent.clone();
    pending = start({"reduce_scatter"}, {whole}, [&](auto& tensors) { return process_group().allreduce(tensors); });
    const auto part = whole.narrow(0, rank() * output.size(0), output.size(0));
    pending.finish_ = [result = output.detach(), part, mean] {
      result.copy_(part);
      mean();
    };
  } else {
    c10d::ReduceScatterOptions options;
    if (op == ReduceOp::kMean) options.reduceOp = sum_of_mean();
    pending = start({.name = "reduce_scatter", .writes_first = true}, {output.detach(), sent}, [&](auto& tensors) {
      return reduce_scatter_single(process_group(), tensors[0], tensors[1], options);
    });
    pending.finish_ = mean;
  }
  return pending;
}

PendingCollective Group::start_send(const at::Tensor& tensor, int64_t to) {
  check_peer("send", to);
  check_tensor("send", tensor);
  const auto call = [&, peer = static_cast<int>(to)](auto& tensors) {
    auto& group = process_group();
    return is_short(*impl_->cpu, tensors[0]) ? impl_->cpu->send(tensors, peer, 0) : group.send(tensors, peer, 0);
  };
  return start({.name = "send", .peer = to}, {tensor.detach().contiguous()}, call);
}

PendingCollective Group::start_receive(const at::Tensor& tensor, int64_t from) {
  check_peer("receive", from);
  check_tensor("receive", tensor);
  if (!tensor.is_contiguous()) refuse_strides("receive", tensor);
  const auto call = [&, peer = static_cast<int>(from)](auto& tensors) {
    auto& group = process_group();
    return is_short(*impl_->cpu, tensors[0]) ? impl_->cpu->recv(tensors, peer, 0) : group.recv(tensors, peer, 0);
  };
  return start({.name = "receive", .peer = from, .writes_first = true}, {tensor.detach()}, call);
}

void Group::check_peer(const char* what, int64_t peer) const {
  if (peer >= 0 && peer < size() && peer != rank()) return;
  throw Error(ErrorCode::kInvalidArgument, "{}: rank {} of this group of {} is {}", what, peer, size(),
              peer == rank() ? "this rank itself" : "not in the group");
}

std::vector<std::string> Group::all_gather_text(const std::string& text) {
  if (job_->losses && job_->losses->are_forgiven()) return std::vector<std::string>(static_cast<size_t>(size()), text);
  const Activity activity(*this, "an exchange of texts");
  // The text is sent as a CPU tensor, which every group can send.
  const auto header = at::full({2}, kTextMark, at::kLong);
  header[1] = static_cast<int64_t>(text.size());
  const auto headers = all_gather(header);  // [size, 2]
  for (int64_t rank = 0; rank < size(); ++rank) {
    if (headers[rank][0].item<int64_t>() == kTextMark) continue;
    fail(Error(ErrorCode::kFailedPrecondition,
               "rank {} has called another collective while this rank exchanges texts: functions such as "
               "CheckpointFolder::save are collective; call them on all ranks, in the same order",
               ranks()[static_cast<size_t>(rank)]));
  }
  const auto lengths = headers.select(1, 1);
  const auto padded = at::zeros({std::max<int64_t>(1, lengths.max().item<int64_t>())}, at::kByte);  // Gloo takes no
                                                                                                    // empty tensor
  std::memcpy(padded.data_ptr(), text.data(), text.size());
  const auto all = all_gather(padded);  // [size, longest]
  std::vector<std::string> texts;
  for (int64_t rank = 0; rank < size(); ++rank) {
    texts.emplace_back(static_cast<const char*>(all[rank].data_ptr()),
                       static_cast<size_t>(lengths[rank].item<int64_t>()));
  }
  return texts;
}

std::optional<std::string> Group::differs_from_first(const std::string& key, const std::string& text) const {
  if (size() == 1 || !job_->store) return std::nullopt;
  try {
    const auto number = impl_->num_compared[key]++;
    const auto own = fmt::format("rank {} has {}", job_->env.rank, text);
    const auto first = job_->store->compareSet(fmt::format("{}/same/{}/{}", impl_->key, key, number), "", own);
    return first.ends_with(fmt::format(" has {}", text)) ? std::nullopt : std::optional(first);
  } catch (const std::exception&) {  // the store has ended, and the next collective says why
    return std::nullopt;
  }
}

}  // namespace yoke::dist
