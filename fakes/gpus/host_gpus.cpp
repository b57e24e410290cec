// Two fake GPUs, `cuda:0` and `cuda:1`, that use the host's memory and the CPU's kernels. Tensors can be created on
// them, moved, multiplied and differentiated. Each GPU has its own autograd queue and thread, and an operation that
// mixes devices fails as on real GPUs. A test program that links this object file registers before main: libtorch's
// hooks and device guard, a boxed kernel for every operator that has no kernel for CUDA, and a plug of yoke. Each GPU
// has one synchronous stream, so a missing wait cannot be detected. If a real libtorch_cuda exists, set
// YOKE_DEVICE=cpu.
//
// Graphs are captured as on a real GPU: what is captured has not run when the capture is over, memory that it makes has
// no values until the first replay and stays where it is, and histc cannot be captured.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "yoke/dist/plug.h"

namespace {

constexpr c10::DeviceIndex kNumDevices = 2;
thread_local c10::DeviceIndex current = 0;
thread_local c10::StreamId current_stream = 0;

/// Allocates host memory and remembers its blocks, which count as pinned memory.
class PinnedAllocator : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t size) override {
    auto* block = new Block{*this, c10::GetCPUAllocator()->allocate(size)};
    const std::lock_guard lock(mutex_);
    blocks_.insert(block->data.get());
    return {block->data.get(), block, &release, c10::kCPU};
  }
  bool has(const void* data) {
    const std::lock_guard lock(mutex_);
    return data != nullptr && blocks_.contains(data);
  }
  void copy_data(void* to, const void* from, size_t size) const override { default_copy_data(to, from, size); }

 private:
  struct Block {
    PinnedAllocator& owner;
    c10::DataPtr data;
  };
  static void release(void* context) {
    const std::unique_ptr<Block> block(static_cast<Block*>(context));
    const std::lock_guard lock(block->owner.mutex_);
    block->owner.blocks_.erase(block->data.get());
  }

  std::mutex mutex_;
  std::set<const void*> blocks_;
};

PinnedAllocator& pinned_allocator() {
  static auto& allocator = *new PinnedAllocator();  // tensors may outlive main
  return allocator;
}

struct CUDAHooks : at::CUDAHooksInterface {
  explicit CUDAHooks(at::CUDAHooksArgs) {}
  void init() const override {}
  bool hasCUDA() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(at::DeviceIndex) const override { return true; }
  at::DeviceIndex deviceCount() const override { return kNumDevices; }
  at::DeviceIndex getCurrentDevice() const override { return current; }
  at::Allocator* getPinnedMemoryAllocator() const override { return &pinned_allocator(); }
  bool isPinnedPtr(const void* data) const override { return pinned_allocator().has(data); }
  const at::Generator& getDefaultGenerator(at::DeviceIndex index) const override {
    static const at::Generator generators[kNumDevices] = {at::detail::createCPUGenerator(1),
                                                          at::detail::createCPUGenerator(2)};
    return generators[index < 0 ? current : index];
  }
};

struct Guard : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return c10::kCUDA; }
  c10::Device exchangeDevice(c10::Device device) const override {
    const auto old = getDevice();
    setDevice(device);
    return old;
  }
  c10::Device getDevice() const override { return {c10::kCUDA, current}; }
  void setDevice(c10::Device device) const override {
    if (device.has_index()) current = device.index();
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override { setDevice(device); }
  c10::Stream getStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::UNSAFE, device.has_index() ? device : getDevice(), current_stream);
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::DEFAULT, device.has_index() ? device : getDevice());
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override {
    return c10::Stream(c10::Stream::UNSAFE, device.has_index() ? device : getDevice(), 1);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    const auto old = getStream(stream.device());
    current_stream = stream.id();
    return old;
  }
  c10::DeviceIndex deviceCount() const noexcept override { return kNumDevices; }
  void record(void**, const c10::Stream&, const c10::DeviceIndex, const c10::EventFlag) const override {}
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void destroyEvent(void*, const c10::DeviceIndex) const noexcept override {}
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream&) const override {}
  void synchronizeEvent(void*) const override {}
  void synchronizeDevice(const c10::DeviceIndex) const override {}
};

/// Returns a tensor on `device` that shares the memory of `tensor`. The alias keeps the original storage alive.
at::Tensor alias(const at::Tensor& tensor, c10::Device device, std::map<const void*, c10::Storage>& storages) {
  const auto* key = tensor.storage().unsafeGetStorageImpl();
  auto found = storages.find(key);
  if (found == storages.end()) {
    const auto release = [](void* kept) { delete static_cast<c10::Storage*>(kept); };
    c10::DataPtr data(tensor.storage().mutable_data(), new c10::Storage(tensor.storage()), release, device);
    found =
        storages.emplace(key, c10::Storage(c10::Storage::use_byte_size_t(), tensor.storage().nbytes(), std::move(data)))
            .first;
    // Also maps the alias's storage to the original one, for results that must become tensors of the fake device.
    storages.emplace(found->second.unsafeGetStorageImpl(), tensor.storage());
  }
  const auto backend = device.is_cpu() ? c10::DispatchKey::CPU : c10::DispatchKey::CUDA;
  auto result = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(found->second), c10::DispatchKeySet(backend),
                                                         tensor.dtype());
  auto* impl = result.unsafeGetTensorImpl();
  impl->set_storage_offset(tensor.storage_offset());
  impl->set_sizes_and_strides(tensor.sizes(), tensor.strides());
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) impl->set_wrapped_number(true);
  return result;
}

/// One call of an operator on the host: the original tensors, and their aliases on the host.
struct Call {
  std::optional<c10::Device> device;
  std::map<const void*, c10::Storage> storages;
  /// Finds the original tensor of an alias on the host, so that in-place operators return the original.
  std::map<const void*, at::Tensor> originals;

  at::Tensor to_host(const at::Tensor& tensor) {
    if (!tensor.defined() || !tensor.is_cuda()) return tensor;
    TORCH_CHECK(!device || *device == tensor.device() || *device == c10::Device(c10::kCUDA, -1),
                "Expected all tensors to be on the same device, but found at least two devices, ", device->str(),
                " and ", tensor.device().str());
    device = tensor.device();
    const auto host = alias(tensor, c10::kCPU, storages);
    originals.emplace(host.unsafeGetTensorImpl(), tensor);
    return host;
  }

  at::Tensor to_device(const at::Tensor& tensor) {
    if (!tensor.defined() || !tensor.is_cpu()) return tensor;
    const auto found = originals.find(tensor.unsafeGetTensorImpl());
    return found != originals.end() ? found->second : alias(tensor, *device, storages);
  }

  template <class F>
  static c10::IValue map(const c10::IValue& value, const F& each) {
    if (value.isTensor()) return each(value.toTensor());
    if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& tensor : value.toTensorList().vec()) list.push_back(each(tensor));
      return list;
    }
    if (value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> list;
      for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorList().vec()) {
        list.push_back(tensor ? std::optional(each(*tensor)) : std::nullopt);
      }
      return list;
    }
    return value;
  }
};

/// The calls of a capture, with arguments and results on the host.
struct Graph : yoke::dist::DeviceGraph {
  struct Captured {
    c10::OperatorHandle op;
    std::vector<c10::IValue> arguments, results;
  };

  void replay() override {
    for (const auto& call : calls) {
      torch::jit::Stack stack = call.arguments;
      call.op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack);
      for (size_t i = 0; i < stack.size(); ++i) {
        std::vector<at::Tensor> now, then;
        Call::map(stack[i], [&](const at::Tensor& tensor) { return now.emplace_back(tensor); });
        Call::map(call.results[i], [&](const at::Tensor& tensor) { return then.emplace_back(tensor); });
        for (size_t j = 0; j < now.size(); ++j) {
          if (now[j].defined() && now[j].data_ptr() != then[j].data_ptr()) then[j].copy_(now[j]);
        }
      }
    }
  }

  std::vector<Captured> calls;
};

class GraphMaker : public yoke::dist::GraphMaker {
 public:
  explicit GraphMaker(c10::DeviceIndex index) : index_(index) {}

  void on_its_stream(c10::function_ref<void()> work) override {
    const c10::DeviceGuard device({c10::kCUDA, index_});
    const auto stream = std::exchange(current_stream, 1);
    const auto end = [&] {
      current_stream = stream;
      forget_what_captures_did();
    };
    try {
      work();
    } catch (...) {
      end();
      throw;
    }
    end();
  }

  std::unique_ptr<yoke::dist::DeviceGraph> capture(c10::function_ref<void()> work) override {
    TORCH_CHECK(current_stream != 0, "CUDA graphs must be captured on a non-default stream.");
    if (!generator_state_.defined()) generator_state_ = at::detail::getDefaultCPUGenerator().get_state();
    auto graph = std::make_unique<Graph>();
    graph_ = graph.get();
    capturing() = this;
    try {
      work();
    } catch (...) {
      capturing() = nullptr;
      forget_what_captures_did();
      throw;
    }
    capturing() = nullptr;
    return graph;
  }

  /// The one that captures on this thread; null if there is none.
  static GraphMaker*& capturing() {
    thread_local GraphMaker* maker = nullptr;
    return maker;
  }

  void before(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments) {
    TORCH_CHECK(op.schema().name() != "aten::histc", "operation not permitted when stream is capturing (",
                op.schema().name(), ")");
    for (const auto& argument : arguments) {
      Call::map(argument, [&](const at::Tensor& tensor) {
        if (tensor.defined() && tensor.numel() > 0) save(tensor);
        return tensor;
      });
    }
  }

  void after(const c10::OperatorHandle& op, std::vector<c10::IValue> arguments, std::vector<c10::IValue> results) {
    std::set<const void*> given;
    for (const auto& argument : arguments) {
      Call::map(argument, [&](const at::Tensor& tensor) {
        if (tensor.defined()) given.insert(tensor.storage().unsafeGetStorageImpl());
        return tensor;
      });
    }
    for (const auto& result : results) {
      Call::map(result, [&](const at::Tensor& tensor) {
        if (tensor.defined() && !given.contains(tensor.storage().unsafeGetStorageImpl())) made_.push_back(tensor);
        return tensor;
      });
    }
    graph_->calls.push_back({op, std::move(arguments), std::move(results)});
  }

 private:
  struct Saved {
    at::Tensor tensor;
    std::vector<char> bytes;
  };

  void save(const at::Tensor& tensor) {
    int64_t extent = 1;
    for (int64_t i = 0; i < tensor.dim(); ++i) extent += (tensor.size(i) - 1) * tensor.stride(i);
    const auto* first = static_cast<const char*>(tensor.data_ptr());
    saved_.push_back({tensor, {first, first + extent * static_cast<int64_t>(tensor.itemsize())}});
  }

  void forget_what_captures_did() {
    for (auto saved = saved_.rbegin(); saved != saved_.rend(); ++saved) {
      std::memcpy(saved->tensor.data_ptr(), saved->bytes.data(), saved->bytes.size());
    }
    for (const auto& tensor : made_) {
      if (tensor.storage().nbytes() > 0) std::memset(tensor.storage().mutable_data(), 0xff, tensor.storage().nbytes());
    }
    saved_.clear();
    made_.clear();
    if (generator_state_.defined()) at::Generator(at::detail::getDefaultCPUGenerator()).set_state(generator_state_);
    generator_state_.reset();
  }

  const c10::DeviceIndex index_;
  Graph* graph_ = nullptr;
  std::vector<Saved> saved_;
  std::vector<at::Tensor> made_;
  at::Tensor generator_state_;
};

bool may_cross_devices(const std::string& name) { return name == "aten::copy_" || name == "aten::_copy_from"; }

void run_on_host(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  Call call;
  const auto num_arguments = op.schema().arguments().size(), num_returns = op.schema().returns().size();
  const bool crosses = may_cross_devices(op.schema().name());
  for (size_t i = stack->size() - num_arguments; i < stack->size(); ++i) {
    auto& value = (*stack)[i];
    if (value.isDevice()) {
      auto asked = value.toDevice();
      if (asked.is_cuda()) call.device = asked.has_index() ? asked : c10::Device(c10::kCUDA, current);
      value = c10::Device(c10::kCPU);
      continue;
    }
    value = Call::map(value, [&](const at::Tensor& tensor) {
      if (crosses) call.device.reset();
      if (!crosses && call.device && tensor.defined() && tensor.is_cpu() && tensor.dim() > 0) {
        TORCH_CHECK(false, "Expected all tensors to be on the same device, but found at least two devices, ",
                    call.device->str(), " and cpu (", op.schema().name(), ")");
      }
      return call.to_host(tensor);
    });
  }
  auto* const graphs = GraphMaker::capturing();
  std::vector<c10::IValue> arguments;
  if (graphs != nullptr) arguments.assign(stack->end() - static_cast<ptrdiff_t>(num_arguments), stack->end());
  if (graphs != nullptr) graphs->before(op, arguments);
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
  if (graphs != nullptr) {
    graphs->after(op, std::move(arguments), {stack->end() - static_cast<ptrdiff_t>(num_returns), stack->end()});
  }
  for (size_t i = stack->size() - num_returns; i < stack->size(); ++i) {
    auto& value = (*stack)[i];
    value = Call::map(value, [&](const at::Tensor& tensor) { return call.to_device(tensor); });
  }
}

constexpr yoke::dist::Plug kPlug = {
    .name = "host",
    .device_type = c10::kCUDA,
    .num_devices = [] { return int64_t{kNumDevices}; },
    .set_device = [](c10::DeviceIndex index) { current = index; },
    .device_name = [](c10::DeviceIndex index) { return "Host GPU " + std::to_string(index); },
    .has_bfloat16 = [](c10::DeviceIndex) { return true; },
    .make_backend = nullptr,
    .engine = nullptr,
    .make_graph_maker = [](c10::DeviceIndex index) -> std::unique_ptr<yoke::dist::GraphMaker> {
      return std::make_unique<GraphMaker>(index);
    },
};

// Runs after libyoke_dist's constructor, which loads a real plug if there is one. Then this function registers
// nothing, because two registrations are an error, and the build must be able to run the program to list its tests.
__attribute__((constructor)) void register_host_gpus() {
  if (yoke::dist::loaded_plug() != nullptr) return;
  at::CUDAHooksRegistry()->Register("CUDAHooks",
                                    [](at::CUDAHooksArgs args) { return std::make_unique<CUDAHooks>(args); });
  c10::impl::registerDeviceGuard(c10::kCUDA, new Guard);  // never freed, as libtorch requires

  static torch::Library all(torch::Library::IMPL, "_", c10::DispatchKey::CUDA, __FILE__, __LINE__);
  all.fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_host>());
  // copy_ has one kernel for all devices. libtorch would use it instead of the fallback above, and it needs CUDA.
  static torch::Library aten(torch::Library::IMPL, "aten", c10::DispatchKey::CUDA, __FILE__, __LINE__);
  aten.impl("copy_", torch::CppFunction::makeFromBoxedFunction<&run_on_host>());

  yoke::dist::register_plug(kPlug);
}

}  // namespace
