#include "yoke/dist/gpu/graphs.h"

#include <ATen/ops/zeros.h>
#include <c10/core/Event.h>
#include <torch/version.h>

#include <exception>
#include <utility>

#include "yoke/dist/gpu/vendor.h"

namespace yoke::dist::gpu {
namespace {

struct Graph final : DeviceGraph {
  void replay() override { graph.replay(); }
  at::cuda::CUDAGraph graph;
};

template <class F>
void ignoring_errors(const F& function) noexcept {
  try {
    function();
  } catch (const std::exception&) {
  }
}

class Maker final : public GraphMaker {
 public:
  explicit Maker(c10::DeviceIndex index)
      : stream_(runtime::getStreamFromPool(/*isHighPriority=*/false, index)), pool_(at::cuda::graph_pool_handle()) {}

  void on_its_stream(c10::function_ref<void()> work) override {
    const auto current = runtime::getCurrentCUDAStream(stream_.device_index());
    wait(stream_, current);
    {
      const runtime::CUDAStreamGuard guard(stream_);
      try {
        work();
      } catch (...) {
        ignoring_errors([&] { wait(current, stream_); });
        throw;
      }
    }
    wait(current, stream_);
  }

  std::unique_ptr<DeviceGraph> capture(c10::function_ref<void()> work) override {
    try {
      return try_capture(work);
    } catch (...) {
      // In libtorch 2.11 a failed capture leaves the default generator in a state in which it refuses to draw. A
      // capture that works ends that.
      ignoring_errors([&] { try_capture([&] { at::zeros({1}, at::Device(stream_.device())); }); });
      throw;
    }
  }

 private:
  static void wait(c10::Stream waiting, c10::Stream awaited) {
    c10::Event event(awaited.device_type());
    event.record(awaited);
    event.block(waiting);
  }

  std::unique_ptr<DeviceGraph> try_capture(c10::function_ref<void()> work) {
    auto graph = std::make_unique<Graph>();
    graph->graph.capture_begin(pool_, kCaptureMode);
    try {
      work();
      graph->graph.capture_end();
    } catch (...) {
      ignoring_errors([&] { abandon(std::move(graph)); });
      throw;
    }
    return graph;
  }

  /// Ends a capture that has failed.
  void abandon(std::unique_ptr<Graph> graph) {
    try {
      graph->graph.capture_end();
      return;
    } catch (const std::exception&) {
    }
#if TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR < 15
    // Its destructor would leave the allocator with the memory of the capture, and with a pointer to the graph. So the
    // graph is never destroyed, and the rest is done here.
    [[maybe_unused]] const auto* kept = graph.release();
    ignoring_errors([&] { allocator::endAllocateToPool(stream_.device_index(), pool_); });
    ignoring_errors([&] { allocator::releasePool(stream_.device_index(), pool_); });
#endif
  }

  const runtime::CUDAStream stream_;
  const at::cuda::MempoolId_t pool_;
};

}  // namespace

std::unique_ptr<GraphMaker> make_graph_maker(c10::DeviceIndex index) { return std::make_unique<Maker>(index); }

}  // namespace yoke::dist::gpu
