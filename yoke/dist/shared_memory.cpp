#include "yoke/dist/detail/shared_memory.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>
#include <vector>

#include "yoke/base/error.h"
#include "yoke/contract/variables.h"
#include "yoke/dist/detail/element_types.h"
#include "yoke/dist/detail/losses.h"
#include "yoke/dist/detail/shared_connect.h"
#include "yoke/dist/detail/shared_work.h"
#include "yoke/dist/detail/tensor_bytes.h"
#include "yoke/dist/shared/layout.h"

namespace yoke::dist {
namespace {

using c10d::OpType;
using std::chrono::milliseconds;
using Tensors = std::vector<at::Tensor>;
using WorkPointer = c10::intrusive_ptr<c10d::Work>;

constexpr const char* kBackendName = "yoke";

/// The supplement of sum_of_mean(), which passes through c10d's operators.
const c10::intrusive_ptr<c10d::_SupplementBase>& mark_of_mean() {
  static const auto mark = c10::make_intrusive<c10d::_SupplementBase>();
  return mark;
}

class SharedMemory : public c10d::Backend {
 public:
  SharedMemory(std::shared_ptr<shared::Engine> engine, std::shared_ptr<shared::Arena> arena,
               c10::intrusive_ptr<c10d::Backend> gloo, const SharedMemoryOptions& options)
      : Backend(static_cast<int>(options.rank), static_cast<int>(options.size)),
        engine_(std::move(engine)),
        arena_(std::move(arena)),
        gloo_(std::move(gloo)),
        losses_(options.losses),
        timeout_(options.timeout) {}
  ~SharedMemory() override { engine_->stop(); }

  const std::string getBackendName() const override { return kBackendName; }
  c10::intrusive_ptr<Options> getBackendOptions() override { return gloo_->getBackendOptions(); }
  uint64_t getSequenceNumberForGroup() override { return engine_->num_started() + gloo_->getSequenceNumberForGroup(); }
  void setTimeout(milliseconds timeout) override {
    timeout_ = timeout;
    gloo_->setTimeout(timeout);
  }
  void abort() override {
    engine_->stop();
    gloo_->abort();
  }
  void shutdown() override {
    engine_->stop();
    gloo_->shutdown();
  }

  void leave() { engine_->stop(); }
  const shared::Engine& engine() const { return *engine_; }

  // ---- Memory ----

  const std::shared_ptr<shared::Arena>& arena() const { return arena_; }
  bool supportsTensorAlloc(c10::DeviceIndex) override { return arena_ != nullptr; }
  /// A tensor whose all-reduce copies nothing, if those of the other ranks are such ones, too. Ordinary memory if there
  /// is no space.
  at::Tensor allocateTensor(long size, at::TensorOptions options) override {
    const auto bytes = size * static_cast<int64_t>(options.dtype().itemsize());
    const auto memory = arena_ == nullptr ? nullptr : arena_->allocate(bytes);
    if (memory == nullptr) return at::empty({size}, options);
    return at::from_blob(
        memory.get(), {size}, [memory](void*) {}, options);
  }

  // ---- What reduces ----

  WorkPointer allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    const auto element = tensors.size() == 1 ? reducible(tensors[0], options.reduceOp) : std::nullopt;
    if (!element) return gloo_->allreduce(tensors, options);
    return reduce_in_place("allreduce", OpType::ALLREDUCE, tensors[0], *element, options.timeout, options.asyncOp);
  }

  WorkPointer allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override {
    const bool is_one_type = std::ranges::all_of(
        tensors, [&](const auto& tensor) { return tensor.scalar_type() == tensors[0].scalar_type(); });
    const auto element = tensors.empty() || !is_one_type ? std::nullopt : reducible(tensors[0], options.reduceOp);
    if (!element) return gloo_->allreduce_coalesced(tensors, options);
    Tensors flat;
    for (const auto& tensor : tensors) flat.push_back(tensor.reshape({-1}));
    const auto all = at::cat(flat);
    const auto scatter = [tensors, all] {
      int64_t begin = 0;
      for (const auto& tensor : tensors) {
        tensor.copy_(all.narrow(0, begin, tensor.numel()).view(tensor.sizes()));
        begin += tensor.numel();
      }
    };
    return start_reduction({.input = bytes_of(all).data(), .output = bytes_of(all).data()}, all, *element,
                           options.timeout,
                           {.type = OpType::ALLREDUCE_COALESCED,
                            .title = "yoke:all_reduce",
                            .inputs = tensors,
                            .outputs = tensors,
                            .after = scatter});
  }

  WorkPointer reduce(Tensors& tensors, const c10d::ReduceOptions& options) override {
    check_root("reduce", options.rootRank);
    const auto element = tensors.size() == 1 ? reducible(tensors[0], options.reduceOp) : std::nullopt;
    if (!element) return gloo_->reduce(tensors, options);
    check_dense("reduce", tensors[0]);
    const auto memory = bytes_of(tensors[0]);
    return start_reduction({.root = static_cast<uint32_t>(options.rootRank),
                            .input = memory.data(),
                            .output = rank_ == options.rootRank ? memory.data() : nullptr},
                           tensors[0], *element, options.timeout,
                           {.type = OpType::REDUCE,
                            .title = "yoke:reduce",
                            .inputs = tensors,
                            .outputs = tensors,
                            .driver = driver(options.asyncOp)});
  }

  WorkPointer reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                             const c10d::ReduceScatterOptions& options) override {
    const bool fits = outputs.size() == 1 && inputs.size() == 1 && std::ssize(inputs[0]) == size_ &&
                      reducible(outputs[0], options.reduceOp) && std::ranges::all_of(inputs[0], [&](const auto& input) {
                        return input.numel() == outputs[0].numel() && input.scalar_type() == outputs[0].scalar_type();
                      });
    if (!fits) return gloo_->reduce_scatter(outputs, inputs, options);
    Tensors flat;
    for (const auto& tensor : inputs[0]) flat.push_back(tensor.reshape({-1}));
    auto all = at::cat(flat);
    return _reduce_scatter_base(outputs[0], all, options);
  }

  WorkPointer _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                   const c10d::ReduceScatterOptions& options) override {
    const auto element = reducible(input, options.reduceOp);
    const bool fits = output.numel() * size_ == input.numel() && output.scalar_type() == input.scalar_type();
    if (!element || !fits) return gloo_->_reduce_scatter_base(output, input, options);
    SharedWorkOptions work = {.type = OpType::_REDUCE_SCATTER_BASE,
                              .title = "yoke:reduce_scatter",
                              .outputs = {output},
                              .driver = driver(options.asyncOp)};
    const auto to = contiguous_outputs({output}, work.after)[0];
    const auto* const own = static_cast<const std::byte*>(input.const_data_ptr()) + rank_ * to.nbytes();
    const auto from = contiguous_input(input, to.const_data_ptr() != own && overlap(to, input));
    work.inputs = {to};
    return start_reduction({.input = bytes_of(from).data(), .output = bytes_of(to).data(), .scatters = true}, from,
                           *element, options.timeout, std::move(work));
  }

  // ---- What copies ----

  WorkPointer broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override {
    check_root("broadcast", options.rootRank);
    if (tensors.size() != 1) return gloo_->broadcast(tensors, options);
    check_dense("broadcast", tensors[0]);
    const auto memory = bytes_of(tensors[0]);
    shared::CopyOptions copy = pieces(tensors[0], tensors[0].nbytes());
    copy.root = static_cast<uint32_t>(options.rootRank);
    copy.is_from_root = true;
    if (rank_ == options.rootRank) {
      copy.send = {memory};
    } else {
      copy.receive[static_cast<size_t>(options.rootRank)] = memory;
    }
    return start_copy(std::move(copy), options.timeout,
                      {.type = OpType::BROADCAST,
                       .title = "yoke:broadcast",
                       .inputs = tensors,
                       .outputs = tensors,
                       .driver = driver(options.asyncOp)});
  }

  WorkPointer allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                        const c10d::AllgatherOptions& options) override {
    if (outputs.size() != 1 || inputs.size() != 1 || !fits(outputs[0], inputs[0])) {
      return gloo_->allgather(outputs, inputs, options);
    }
    return gather_to_here(outputs, inputs[0], options.timeout,
                          {.type = OpType::ALLGATHER, .title = "yoke:all_gather", .driver = driver(options.asyncOp)});
  }

  WorkPointer _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) override {
    const bool is_possible = output.numel() == input.numel() * size_ && output.scalar_type() == input.scalar_type() &&
                             output.is_contiguous() && input.is_contiguous();
    if (!is_possible) return gloo_->_allgather_base(output, input, options);
    std::vector<Tensors> parts = {output.view({-1}).chunk(size_)};
    if (input.numel() == 0) parts[0].assign(static_cast<size_t>(size_), output.view({-1}));
    auto work = SharedWorkOptions{.type = OpType::_ALLGATHER_BASE,
                                  .title = "yoke:all_gather",
                                  .outputs = {output},
                                  .driver = driver(options.asyncOp)};
    return gather_to_here(parts, input, options.timeout, std::move(work));
  }

  WorkPointer gather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& options) override {
    check_root("gather", options.rootRank);
    const bool is_root = rank_ == options.rootRank;
    if (inputs.size() != 1 || (is_root && (outputs.size() != 1 || !fits(outputs[0], inputs[0])))) {
      return gloo_->gather(outputs, inputs, options);
    }
    auto work = SharedWorkOptions{.type = OpType::GATHER, .title = "yoke:gather", .driver = driver(options.asyncOp)};
    return gather_to_here(outputs, inputs[0], options.timeout, std::move(work),
                          static_cast<uint32_t>(options.rootRank));
  }

  WorkPointer scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ScatterOptions& options) override {
    check_root("scatter", options.rootRank);
    const bool is_root = rank_ == options.rootRank;
    if (outputs.size() != 1 || (is_root && (inputs.size() != 1 || !fits(inputs[0], outputs[0])))) {
      return gloo_->scatter(outputs, inputs, options);
    }
    SharedWorkOptions work = {
        .type = OpType::SCATTER, .title = "yoke:scatter", .outputs = outputs, .driver = driver(options.asyncOp)};
    const auto to = contiguous_outputs(outputs, work.after)[0];
    auto copy = pieces(to, to.nbytes());
    copy.root = static_cast<uint32_t>(options.rootRank);
    copy.is_from_root = true;
    copy.for_each = true;
    if (is_root) {
      for (const auto& input : inputs[0])
        work.inputs.push_back(contiguous_input(input, !input.is_same(inputs[0][rank_]) && overlap(to, input)));
      for (const auto& input : work.inputs) copy.send.push_back(bytes_of(input));
    }
    copy.receive[static_cast<size_t>(options.rootRank)] = bytes_of(to);
    work.inputs.push_back(to);
    return start_copy(std::move(copy), options.timeout, std::move(work));
  }

  WorkPointer alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                            std::vector<int64_t>& input_splits, const c10d::AllToAllOptions& options) override {
    const auto is_good = [this](const at::Tensor& tensor, const std::vector<int64_t>& splits) {
      if (tensor.layout() != at::kStrided || tensor.dim() == 0) return false;
      int64_t sum = 0;
      for (const int64_t split : splits) sum += split;
      return splits.empty() ? tensor.size(0) % size_ == 0 : std::ssize(splits) == size_ && sum == tensor.size(0);
    };
    if (!is_good(output, output_splits) || !is_good(input, input_splits) ||
        output.scalar_type() != input.scalar_type()) {
      return gloo_->alltoall_base(output, input, output_splits, input_splits, options);
    }
    // Of equal parts, all ranks know the size.
    const bool is_equal = output_splits.empty() && input_splits.empty();
    SharedWorkOptions work = {.type = OpType::ALLTOALL_BASE,
                              .title = "yoke:all_to_all",
                              .outputs = {output},
                              .driver = driver(options.asyncOp)};
    const auto to = contiguous_outputs({output}, work.after)[0];
    const auto from = contiguous_input(input, overlap(to, input));
    work.inputs = {from, to};
    auto copy = pieces(from, is_equal ? from.nbytes() / static_cast<size_t>(size_) : 0);
    if (!is_equal) copy.bytes = -1;
    copy.for_each = true;
    const auto sent = divided(from, input_splits);
    copy.send.assign(sent.begin(), sent.end());
    const auto received = divided(to, output_splits);
    copy.receive.assign(received.begin(), received.end());
    return start_copy(std::move(copy), options.timeout, std::move(work));
  }

  WorkPointer alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override {
    if (std::ssize(outputs) != size_ || std::ssize(inputs) != size_) return gloo_->alltoall(outputs, inputs, options);
    SharedWorkOptions work = {.type = OpType::ALLTOALL, .title = "yoke:all_to_all", .outputs = outputs};
    auto copy = pieces(inputs[0], 0);
    copy.bytes = -1;
    copy.for_each = true;
    const auto to = contiguous_outputs(outputs, work.after);
    for (const auto& input : inputs) {
      work.inputs.push_back(
          contiguous_input(input, std::ranges::any_of(to, [&](const auto& one) { return overlap(one, input); })));
    }
    for (const auto& input : work.inputs) copy.send.push_back(bytes_of(input));
    for (size_t i = 0; i < to.size(); ++i) copy.receive[i] = bytes_of(to[i]);
    work.inputs.insert(work.inputs.end(), to.begin(), to.end());
    return start_copy(std::move(copy), options.timeout, std::move(work));
  }

  WorkPointer barrier(const c10d::BarrierOptions& options) override {
    static std::byte nothing;
    shared::CopyOptions copy;
    copy.bytes = 0;
    copy.send = {std::span(&nothing, 0)};
    copy.receive.assign(static_cast<size_t>(size_), std::span(&nothing, 0));
    return start_copy(std::move(copy), options.timeout,
                      {.type = OpType::BARRIER, .title = "yoke:barrier", .driver = driver(options.asyncOp)});
  }

  // ---- Messages between two ranks ----

  WorkPointer send(Tensors& tensors, int to, int tag) override {
    return start_message(tensors, {.is_sent = true, .peer = to}, tag, {.type = OpType::SEND, .title = "yoke:send"});
  }
  WorkPointer recv(Tensors& tensors, int from, int tag) override {
    return start_message(tensors, {.peer = from}, tag, {.type = OpType::RECV, .title = "yoke:recv"});
  }
  WorkPointer recvAnysource(Tensors& tensors, int tag) override {
    return start_message(tensors, {.peer = shared::kAnyRank}, tag,
                         {.type = OpType::RECVANYSOURCE, .title = "yoke:recvAnySource"});
  }

  // ---- What is rare ----

  WorkPointer allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    return gloo_->allreduce_sparse(tensors, options);
  }
  WorkPointer allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                                  const c10d::AllgatherOptions& options) override {
    return gloo_->allgather_coalesced(outputs, inputs, options);
  }
  WorkPointer allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                              const c10d::AllgatherOptions& options) override {
    return gloo_->allgather_into_tensor_coalesced(outputs, inputs, options);
  }
  WorkPointer reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                              const c10d::ReduceScatterOptions& options) override {
    return gloo_->reduce_scatter_tensor_coalesced(outputs, inputs, options);
  }
  void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_for_all) override {
    gloo_->monitoredBarrier(options, wait_for_all);
  }

 private:
  struct Element {
    shared::Type type;
    shared::Reduction reduction;
    int64_t per_element = 1;  ///< 2 for complex numbers, which are pairs.
    bool averages = false;    ///< The sum is divided by the number of ranks.
    bool is_of_mean = false;  ///< It is, here or by the caller.
  };

  void check_root(const char* what, int64_t root) const {
    TORCH_CHECK(root >= 0 && root < size_, what, ": invalid root rank: ", root, " of ", size_);
  }

  static shared::Driver driver(bool is_async) { return is_async ? shared::Driver::kEngine : shared::Driver::kWaiter; }

  /// How the tensor is reduced; nullopt: not by this backend.
  static std::optional<Element> reducible(const at::Tensor& tensor, const c10d::ReduceOp& op) {
    if (tensor.layout() != at::kStrided || !tensor.is_cpu()) return std::nullopt;
    const bool is_complex = tensor.is_complex();
    TORCH_CHECK(op.op_ != c10d::ReduceOp::AVG || is_complex || tensor.is_floating_point(), "averages of ",
                tensor.scalar_type(), " are not whole numbers; reduce with SUM, and divide the sum");
    const auto type = type_of(is_complex ? c10::toRealValueType(tensor.scalar_type()) : tensor.scalar_type());
    const bool averages = op.op_ == c10d::ReduceOp::AVG;
    const auto reduction = averages ? shared::Reduction::kSum : reduction_of(op);
    if (!type || !reduction || (is_complex && *reduction != shared::Reduction::kSum)) return std::nullopt;
    const bool is_of_mean = averages || (op.op_ == c10d::ReduceOp::SUM && op.supplement_ == mark_of_mean());
    return Element{*type, *reduction, is_complex ? 2 : 1, averages, is_of_mean};
  }

  WorkPointer reduce_in_place(const char* what, OpType op, const at::Tensor& tensor, const Element& element,
                              milliseconds timeout, bool is_async) {
    check_dense(what, tensor);
    const auto memory = bytes_of(tensor);
    return start_reduction(
        {.input = memory.data(), .output = memory.data(), .arena = arena_}, tensor, element, timeout,
        {.type = op, .title = "yoke:all_reduce", .inputs = {tensor}, .outputs = {tensor}, .driver = driver(is_async)});
  }

  WorkPointer start_reduction(shared::ReduceOptions options, const at::Tensor& input, const Element& element,
                              milliseconds timeout, SharedWorkOptions work) {
    options.kind = static_cast<uint32_t>(work.type);
    options.type = element.type;
    options.reduction = element.reduction;
    options.is_of_mean = element.is_of_mean;
    options.num_elements = input.numel() * element.per_element;
    work.inputs.push_back(input);
    if (element.averages && options.output != nullptr) {
      work.after = [after = std::move(work.after), outputs = work.outputs, size = size_] {
        if (after) after();
        for (const auto& output : outputs) output.div_(size);
      };
    }
    return begin(shared::make_reduction(engine_->layout(), rank_, options), timeout, std::move(work));
  }

  WorkPointer start_copy(shared::CopyOptions options, milliseconds timeout, SharedWorkOptions work) {
    options.kind = static_cast<uint32_t>(work.type);
    return begin(shared::make_copy(engine_->layout(), rank_, std::move(options)), timeout, std::move(work));
  }

  WorkPointer start_message(const Tensors& tensors, shared::Message message, int tag, SharedWorkOptions work) {
    TORCH_CHECK(
        tensors.size() == 1 && tensors[0].layout() == at::kStrided && tensors[0].is_cpu() && tensors[0].is_contiguous(),
        work.title, ": a message is one contiguous tensor of the CPU; this is none (contiguous() makes one)");
    TORCH_CHECK(message.peer < size_ && message.peer != rank_ && message.peer >= shared::kAnyRank, work.title,
                ": rank ", message.peer, " is not another rank of a group of ", size_);
    const auto memory = bytes_of(tensors[0]);
    message.tag = static_cast<uint32_t>(tag);
    message.type = static_cast<uint32_t>(tensors[0].scalar_type());
    message.data = memory.data();
    message.bytes = static_cast<int64_t>(memory.size());
    work.inputs = tensors;
    if (!message.is_sent) work.outputs = tensors;
    auto transfer = std::make_shared<shared::Transfer>();
    transfer->message = message;
    return begin(std::move(transfer), timeout_, std::move(work));
  }

  WorkPointer begin(std::unique_ptr<shared::Exchange> exchange, milliseconds timeout, SharedWorkOptions work) {
    auto transfer = std::make_shared<shared::Transfer>();
    transfer->exchange = std::move(exchange);
    return begin(std::move(transfer), timeout == c10d::kUnsetTimeout ? timeout_ : timeout, std::move(work));
  }

  WorkPointer begin(std::shared_ptr<shared::Transfer> transfer, milliseconds timeout, SharedWorkOptions work) {
    TORCH_CHECK(num_forks_ == num_forks(),
                "this process was forked from a rank, and the other ranks would take its collectives for those of that "
                "rank; only the rank itself can use the group");
    work.rank = rank_;
    work.callbacks = callbacks_;
    work.timeout = timeout;
    work.losses = losses_;
    return SharedWork::start(engine_, std::move(transfer), std::move(work));
  }

  shared::CopyOptions pieces(const at::Tensor& like, size_t bytes) const {
    shared::CopyOptions copy;
    copy.type = static_cast<uint32_t>(like.scalar_type());
    copy.bytes = static_cast<int64_t>(bytes);
    copy.receive.resize(static_cast<size_t>(size_));
    return copy;
  }

  /// Whether there is one tensor for each rank, with as many elements as `like`.
  bool fits(const Tensors& tensors, const at::Tensor& like) const {
    return std::ssize(tensors) == size_ && std::ranges::all_of(tensors, [&](const auto& tensor) {
             return tensor.numel() == like.numel() && tensor.scalar_type() == like.scalar_type();
           });
  }

  /// Without a root, all ranks get the inputs of all.
  WorkPointer gather_to_here(const std::vector<Tensors>& outputs, const at::Tensor& input, milliseconds timeout,
                             SharedWorkOptions work, uint32_t root = 0) {
    const auto to = outputs.empty() ? Tensors() : contiguous_outputs(outputs[0], work.after);
    bool is_overwritten = false;
    for (int rank = 0; rank < std::ssize(to); ++rank) {
      const bool is_own = rank == rank_ && to[rank].const_data_ptr() == input.const_data_ptr();
      is_overwritten |= !is_own && overlap(to[rank], input);
    }
    const auto from = contiguous_input(input, is_overwritten);
    auto copy = pieces(from, from.nbytes());
    copy.root = root;
    copy.send = {bytes_of(from)};
    work.inputs = {from};
    if (!outputs.empty()) {
      for (size_t i = 0; i < to.size(); ++i) copy.receive[i] = bytes_of(to[i]);
      if (work.outputs.empty()) work.lists = outputs;
      work.inputs.insert(work.inputs.end(), to.begin(), to.end());
    }
    return start_copy(std::move(copy), timeout, std::move(work));
  }

  /// The parts of a contiguous tensor for each rank, by rows; equal parts without `splits`.
  std::vector<std::span<std::byte>> divided(const at::Tensor& tensor, const std::vector<int64_t>& splits) const {
    const auto memory = bytes_of(tensor);
    const auto rows = static_cast<size_t>(tensor.size(0));
    const size_t row_bytes = rows == 0 ? 0 : memory.size() / rows;
    std::vector<std::span<std::byte>> parts;
    size_t begin = 0;
    for (size_t rank = 0; rank < static_cast<size_t>(size_); ++rank) {
      const size_t count = splits.empty() ? rows / static_cast<size_t>(size_) : static_cast<size_t>(splits[rank]);
      parts.push_back(memory.subspan(begin, count * row_bytes));
      begin += count * row_bytes;
    }
    return parts;
  }

  const std::shared_ptr<shared::Engine> engine_;
  const std::shared_ptr<shared::Arena> arena_;  ///< Null if the layout has no place for tensors.
  const c10::intrusive_ptr<c10d::Backend> gloo_;
  const std::shared_ptr<const GroupLosses> losses_;
  const std::shared_ptr<Callbacks> callbacks_ = std::make_shared<Callbacks>();
  const uint64_t num_forks_ = num_forks();
  std::chrono::milliseconds timeout_;
};

}  // namespace

uint64_t num_forks() {  // getpid() would be a system call
  static std::atomic<uint64_t> count = 0;
  static const int is_watched = pthread_atfork(nullptr, nullptr, [] { ++count; });
  static_cast<void>(is_watched);
  return count.load(std::memory_order_relaxed);
}

bool offers_shared_memory() {
  const auto* const wish = std::getenv(variable::kSharedMemory);
  return (wish == nullptr || std::string_view(wish) != "0") && shared::kernel_marks_ends();
}

bool is_shared_memory(const c10d::Backend& backend) { return backend.getBackendName() == kBackendName; }

void leave_shared_memory(c10d::Backend& backend) {
  if (auto* const shared = dynamic_cast<SharedMemory*>(&backend)) shared->leave();
}

std::vector<int64_t> ended_ranks(const c10d::Backend& backend) {
  const auto* const shared = dynamic_cast<const SharedMemory*>(&backend);
  return shared == nullptr ? std::vector<int64_t>() : shared->engine().ended_ranks();
}

bool has_consumed_all(const c10d::Backend& backend, int64_t rank) {
  const auto* const shared = dynamic_cast<const SharedMemory*>(&backend);
  return shared != nullptr && shared->engine().has_consumed_all(rank);
}

c10d::ReduceOp sum_of_mean() {
  c10d::ReduceOp op;
  op.supplement_ = mark_of_mean();
  return op;
}

std::shared_ptr<shared::Arena> arena_of(const c10d::Backend& backend) {
  const auto* const shared = dynamic_cast<const SharedMemory*>(&backend);
  return shared == nullptr ? nullptr : shared->arena();
}

c10::intrusive_ptr<c10d::Backend> share_memory(c10d::Store& store,
                                               const std::function<c10::intrusive_ptr<c10d::Backend>()>& gloo,
                                               const SharedMemoryOptions& options) {
  if (options.size == 1 || options.size > shared::kMostRanks) return gloo();
  auto connection = connect_shared(store, options);
  if (!connection) return gloo();
  return c10::make_intrusive<SharedMemory>(std::move(connection->engine), std::move(connection->arena), gloo(),
                                           options);
}

}  // namespace yoke::dist
