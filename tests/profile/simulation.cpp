#include "tests/profile/simulation.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>
#include <random>

namespace yoke::test {
namespace {

constexpr int64_t kProcess = 4100;
constexpr int64_t kComputeStream = 7, kCollectiveStream = 20;
constexpr double kLaunchDelay = 4;     // from the end of the launch call to the kernel's start on an idle device
constexpr size_t kQueueLength = 1024;  // the most launches that a device queues; the next one blocks

/// One rank: a clock for the host, one clock for each stream, and the text of the events so far.
class Rank {
 public:
  Rank(const Training& training, int64_t rank)
      : training_(training), rank_(rank), random_(static_cast<uint64_t>(training.seed * 64 + rank)) {}

  double now() const { return host_; }
  double end_of(int64_t stream) { return streams_[stream]; }
  void wait_until(double time) { host_ = std::max(host_, time); }
  void stream_waits(int64_t stream, double time) { streams_[stream] = std::max(streams_[stream], time); }

  /// Varies a duration by a few percent, as durations vary in real trainings.
  double vary(double value) { return value * std::clamp(std::normal_distribution(1.0, 0.03)(random_), 0.9, 1.1); }

  void annotate(const std::string& name, double begin) {
    event("user_annotation", name, thread(), begin, host_ - begin);
  }
  void annotate_device(const std::string& name, double begin) {
    event("gpu_user_annotation", name, stream_track(kComputeStream), begin, streams_[kComputeStream] - begin);
  }

  /// Simulates an operation, which launches a kernel or, without a device, uses the host. Returns when its work begins.
  double operation(const std::string& op, const std::string& kernel, double us, int64_t stream = kComputeStream) {
    const double begin = host_;
    us = vary(us);
    double start = begin;
    if (training_.has_device) {
      host_ += vary(training_.launch_us) * 0.6;
      start = launch(kernel, us, stream);
      host_ += training_.launch_us * 0.1;
    } else {
      host_ += us;
    }
    event("cpu_op", op, thread(), begin, host_ - begin);
    host_ += training_.has_device ? vary(training_.launch_us) * 0.3 : 2;
    return start;
  }

  /// Adds the events of cudaLaunchKernel and of the kernel, and the flow event that connects them.
  double launch(const std::string& kernel, double us, int64_t stream, const std::string& more = "") {
    const double begin = host_;
    if (queue_.size() >= kQueueLength) {
      wait_until(queue_.front());
      queue_.pop_front();
    }
    host_ += 3;
    const double start = std::max(streams_[stream], host_ + kLaunchDelay);
    streams_[stream] = start + us;
    queue_.push_back(start);
    const auto correlation = ++correlation_;
    event("cuda_runtime", "cudaLaunchKernel", thread(), begin, host_ - begin,
          fmt::format(R"("External id": {0}, "cbid": 211, "correlation": {0})", correlation));
    event("kernel", kernel, stream_track(stream), start, us,
          fmt::format(
              R"("External id": {0}, "queued": 0, "device": {1}, "context": 1, "stream": {2}, "correlation": {0}, )"
              R"("registers per thread": 32, "shared memory": 0, "blocks per SM": 4.0, "warps per SM": 32.0, )"
              R"("grid": [528, 1, 1], "block": [256, 1, 1], "est. achieved occupancy %": 50{3})",
              correlation, rank_, stream, more));
    arrow('s', thread(), begin, correlation);
    arrow('f', stream_track(stream), start, correlation);
    return start;
  }

  void copy(const std::string& direction, double us, bool is_pinned) {
    const double begin = host_;
    host_ += 4;
    const double start = std::max(streams_[kComputeStream], host_ + kLaunchDelay);
    streams_[kComputeStream] = start + us;
    if (!is_pinned) wait_until(streams_[kComputeStream]);
    const auto correlation = ++correlation_;
    event("cuda_runtime", "cudaMemcpyAsync", thread(), begin + 1, host_ - begin - 1,
          fmt::format(R"("External id": {0}, "cbid": 41, "correlation": {0})", correlation));
    event("gpu_memcpy", direction, stream_track(kComputeStream), start, us,
          fmt::format(R"("External id": {0}, "device": {1}, "context": 1, "stream": 7, "correlation": {0}, )"
                      "\"bytes\": 4096, \"memory bandwidth (GB/s)\": 12.5",
                      correlation, rank_));
    event("cpu_op", "aten::copy_", thread(), begin, host_ - begin);
  }

  /// Simulates loss.item(), which waits for the device.
  void synchronize() {
    const double begin = host_;
    copy("Memcpy DtoH (Device -> Pageable)", 1.5, true);
    const double wait = host_;
    wait_until(streams_[kComputeStream] + 6);
    event("cuda_runtime", "cudaStreamSynchronize", thread(), wait, host_ - wait,
          fmt::format(R"("External id": {0}, "cbid": 131, "correlation": {0})", ++correlation_));
    event("cpu_op", "aten::item", thread(), begin, host_ - begin);
    host_ += 5;
  }

  void collective(double begin, double end) {
    if (training_.has_device) {
      streams_[kCollectiveStream] = end;
      event("kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
            stream_track(kCollectiveStream), begin, end - begin,
            fmt::format(
                R"("External id": {0}, "device": {1}, "stream": 20, "correlation": {0}, )"
                R"("Collective name": "allreduce", "In msg nelems": 6553600, "Group size": {2}, "dtype": "Float", )"
                R"("Process Group Name": "0", "Process Group Description": "default_pg", )"
                R"("Process Group Ranks": "[0, 1]")",
                ++correlation_, rank_, training_.num_ranks));
    } else {
      streams_[kCollectiveStream] = end;
      event("user_annotation", "gloo:all_reduce", fmt::format(R"("pid": {}, "tid": {})", kProcess, kProcess + 77),
            begin, end - begin);
    }
  }

  std::string trace(int64_t world_size) const {
    return fmt::format(
        "\n  {{\n    \"schemaVersion\": 1,\n    \"deviceProperties\": [\n    ],\n      \"record_shapes\": 0,\n"
        "      \"distributedInfo\": {{\"backend\": \"{}\", \"rank\": {}, \"world_size\": {}, \"pg_count\": 1}},\n"
        "  \"displayTimeUnit\": \"ms\",\n  \"baseTimeNanoseconds\": 1790857026000000000,\n  \"traceEvents\": [{}\n  "
        "],\n"
        "  \"traceName\": \"rank{}.json\"\n}}\n",
        training_.has_device ? "nccl" : "gloo", rank_, world_size, events_.substr(0, events_.size() - 1), rank_);
  }

 private:
  std::string thread() const { return fmt::format(R"("pid": {0}, "tid": {0})", kProcess + rank_); }
  std::string stream_track(int64_t stream) const { return fmt::format(R"("pid": {}, "tid": {})", rank_, stream); }

  void event(const std::string& category, const std::string& name, const std::string& track, double begin, double us,
             const std::string& args = R"("External id": 1,"Record function id": 0, "Ev Idx": 1)") {
    events_ += fmt::format(
        "\n  {{\n    \"ph\": \"X\", \"cat\": \"{}\", \"name\": \"{}\", {},\n    \"ts\": {:.3f}, \"dur\": {:.3f},\n"
        "    \"args\": {{\n      {}\n    }}\n  }},",
        category, name, track, kEpoch + begin, us, args);
  }
  void arrow(char phase, const std::string& track, double time, int64_t id) {
    events_ += fmt::format(
        "\n  {{\n    \"ph\": \"{}\", \"id\": {}, {}, \"ts\": {:.3f},\n    \"cat\": \"ac2g\", \"name\": \"ac2g\"{}\n  "
        "}},",
        phase, id, track, kEpoch + time, phase == 'f' ? R"(, "bp": "e")" : "");
  }

  static constexpr double kEpoch = 4527946418132.927;
  const Training& training_;
  int64_t rank_;
  std::mt19937_64 random_;
  double host_ = 0;
  std::map<int64_t, double> streams_;
  std::deque<double> queue_;
  int64_t correlation_ = 0;
  std::string events_;
};

class Simulator {
 public:
  explicit Simulator(const Training& training) : training_(training) {
    for (int64_t rank = 0; rank < training.num_ranks; ++rank) ranks_.emplace_back(training_, rank);
  }

  Simulated run() {
    for (int64_t step = 0; step < training_.num_steps; ++step) run_step(step);
    Simulated result;
    double end = 0;
    for (auto& rank : ranks_) {
      end = std::max({end, rank.now(), rank.end_of(kComputeStream)});
      result.traces.push_back(rank.trace(training_.num_ranks));
    }
    result.step_us = end;
    return result;
  }

 private:
  void run_step(int64_t number) {
    std::vector<double> begins;
    for (auto& rank : ranks_) {
      begins.push_back(rank.now());
      const double begin = rank.now();
      rank.wait_until(rank.now() + rank.vary(training_.loader_us));
      rank.annotate("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", begin);
      if (training_.has_device) {
        rank.copy(training_.is_pinned ? "Memcpy HtoD (Pinned -> Device)" : "Memcpy HtoD (Pageable -> Device)",
                  rank.vary(training_.copy_us), training_.is_pinned);
      }
      for (int64_t layer = 0; layer < training_.num_layers; ++layer) {
        run_layer(rank, "aten::linear", training_.matmul_us);
        if (layer < training_.num_syncs) rank.synchronize();
      }
      if (training_.late_us > 0 && &rank == &ranks_.back()) {
        for (int i = 0; i < 10; ++i) rank.operation("aten::linear", matmul(), training_.late_us / 10);
      }
    }
    for (int64_t layer = 0; layer < training_.num_layers; ++layer) {
      for (auto& rank : ranks_) {
        run_layer(rank, "autograd::engine::evaluate_function: AddmmBackward0", 2 * training_.matmul_us);
      }
      if (ranks_.size() > 1 && (layer + 1) % std::max<int64_t>(1, training_.num_layers / 4) == 0) all_reduce();
    }
    for (size_t i = 0; i < ranks_.size(); ++i) {
      auto& rank = ranks_[i];
      if (training_.has_device) {
        rank.stream_waits(kComputeStream, rank.end_of(kCollectiveStream));
      } else {
        rank.wait_until(rank.end_of(kCollectiveStream));
      }
      optimize(rank);
      if (training_.marks_steps) rank.annotate(fmt::format("ProfilerStep#{}", number + 5), begins[i]);
    }
  }

  std::string matmul() const {
    return training_.uses_tensor_cores
               ? "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1"
               : "ampere_sgemm_128x64_tn";
  }

  void run_layer(Rank& rank, const std::string& op, double us) {
    rank.operation(op, matmul(), us);
    for (int64_t i = 0; i < training_.num_elementwise; ++i) {
      rank.operation("aten::relu", "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>",
                     training_.elementwise_us);
    }
  }

  /// Each rank begins when its gradients are ready. All ranks end when the data are sent, after the last one has begun.
  void all_reduce() {
    std::vector<double> begins;
    for (auto& rank : ranks_) {
      const double ready = training_.has_device ? rank.end_of(kComputeStream) : rank.now();
      begins.push_back(std::max(rank.end_of(kCollectiveStream), ready));
    }
    const double end = *std::max_element(begins.begin(), begins.end()) + ranks_[0].vary(training_.collective_us);
    for (size_t i = 0; i < ranks_.size(); ++i) ranks_[i].collective(begins[i], end);
  }

  void optimize(Rank& rank) {
    const double begin = rank.now();
    double begin_on_device = 0;
    for (int64_t i = 0; i < training_.num_optimizer_kernels; ++i) {
      const double start =
          rank.operation("aten::_fused_adamw_", "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<",
                         training_.optimizer_us / static_cast<double>(training_.num_optimizer_kernels));
      if (i == 0) begin_on_device = start;
    }
    rank.annotate("Optimizer.step#AdamW.step", begin);
    if (training_.has_device) rank.annotate_device("Optimizer.step#AdamW.step", begin_on_device);
  }

  const Training training_;
  std::vector<Rank> ranks_;
};

}  // namespace

Simulated simulate(const Training& training) {
  auto twice = training;
  twice.num_steps *= 2;
  auto result = Simulator(training).run();
  // The cost of one more step. This leaves out the start, when the device is idle, and the end.
  result.step_us = (Simulator(twice).run().step_us - result.step_us) / static_cast<double>(training.num_steps);
  return result;
}

std::string trace_event(const std::string& members) {
  return R"({"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 10, "dur": 5)" + members + "}";
}

}  // namespace yoke::test
