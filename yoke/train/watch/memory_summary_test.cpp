#include "yoke/train/watch/memory_summary.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/alloc_cpu.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "yoke/train/optim/adam.h"
#include "yoke/train/watch/detail/memory_growth.h"
#include "yoke/train/watch/detail/process_memory.h"

namespace yoke::train {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kKib = 1024, kMib = 1024 * kKib;

class Tree {
 public:
  Tree() : path_(fs::temp_directory_path() / ("yoke-memory-" + std::to_string(getpid()))) { fs::remove_all(path_); }
  Tree(const Tree&) = delete;
  Tree& operator=(const Tree&) = delete;
  ~Tree() { fs::remove_all(path_); }
  Tree& write(const std::string& file, const std::string& text) {
    fs::create_directories((path_ / file).parent_path());
    std::ofstream(path_ / file) << text;
    return *this;
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

TEST(ProcessMemoryTest, ReadsTheKernelsLines) {
  Tree tree;
  tree.write("proc/self/status",
             "Name:\tVmRSS: 7 kB\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\nRssAnon:\t     512 kB\nRssFile:\t 500 kB\n"
             "RssShmem:\t      12 kB\nVmSwap:\t       0 kB\nThreads:\t3\n")
      .write("proc/meminfo", "MemTotal:       4096 kB\nMemFree: 1 kB\nMemAvailable:    3000 kB\n");
  const auto memory = read_process_memory(tree.path());
  EXPECT_EQ(memory.resident_bytes, kMib);
  EXPECT_EQ(memory.peak_resident_bytes, 2 * kMib);
  EXPECT_EQ(memory.anonymous_bytes, 512 * kKib);
  EXPECT_EQ(memory.file_bytes, 500 * kKib);
  EXPECT_EQ(memory.shared_bytes, 12 * kKib);
  EXPECT_EQ(memory.swapped_bytes, 0);
  EXPECT_EQ(memory.machine_bytes, 4 * kMib);
  EXPECT_EQ(memory.machine_available_bytes, 3000 * kKib);
}

TEST(ProcessMemoryTest, TheLowestLimitCounts) {
  Tree tree;
  EXPECT_EQ(read_process_memory(tree.path()).limit_bytes, std::nullopt);
  EXPECT_EQ(read_process_memory(tree.path()).resident_bytes, std::nullopt);
  tree.write("proc/self/cgroup", "0::/job/rank\n")
      .write("proc/self/status", "VmRSS: 4 kB\n")
      .write("sys/fs/cgroup/job/rank/memory.max", "max\n")
      .write("sys/fs/cgroup/job/memory.max", "3000\n")
      .write("sys/fs/cgroup/job/memory.current", "1000\n")
      .write("sys/fs/cgroup/memory.max", "9000\n");
  EXPECT_EQ(read_process_memory(tree.path()).limit_bytes, 3000);
  EXPECT_EQ(read_process_memory(tree.path()).limit_used_bytes, 1000);
  EXPECT_EQ(read_process_memory(tree.path()).resident_bytes, 4 * kKib);
  tree.write("proc/self/cgroup", "2:memory:/a\n")
      .write("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(read_process_memory(tree.path()).limit_bytes, std::nullopt);
}

// Oracle: Linux's count of the process's pages, which grows when a tensor is written.
TEST(MemorySummaryTest, TheProcessGrowsByATensorThatIsWritten) {
  const auto before = memory_summary().process;
  ASSERT_TRUE(before.resident_bytes && before.anonymous_bytes);
  const auto tensor = at::ones({64 * kMib}, at::kByte);
  const auto after = memory_summary().process;
  EXPECT_NEAR(static_cast<double>(*after.anonymous_bytes - *before.anonymous_bytes), 64.0 * kMib, 8.0 * kMib);
  EXPECT_GE(*after.peak_resident_bytes, *after.resident_bytes);
  EXPECT_GT(*after.machine_bytes, *after.resident_bytes);
}

TEST(MemorySummaryTest, AStorageCountsOnceWhateverItsKind) {
  torch::nn::Linear model(10, 4);
  AdamW optimizer(model, {});
  model(at::ones({2, 10})).sum().backward();
  optimizer.step();
  MemoryTensors tensors;
  tensors.add_model(model).add("optimizer", optimizer.state_dict());
  tensors.add("views", NamedTensors{{"row", model->weight[0]}, {"none", at::Tensor()}});
  tensors.add("other",
              NamedTensors{{"meta", at::empty({1 << 20}, at::kMeta)}, {"part", at::ones({100}).slice(0, 0, 1)}});
  const auto summary = memory_summary(tensors);

  const auto bytes_of = [&](const std::string& kind) -> int64_t {
    int64_t bytes = -1;
    for (const auto& one : summary.kinds) {
      if (one.kind == kind) bytes = std::max<int64_t>(bytes, 0) + one.bytes;
    }
    return bytes;
  };
  constexpr int64_t kParameters = (10 * 4 + 4) * 4;
  EXPECT_EQ(bytes_of("parameters"), kParameters);
  EXPECT_EQ(bytes_of("gradients"), kParameters);
  EXPECT_EQ(bytes_of("optimizer"),
            2 * kParameters + 2 * 4 + 8);  // two moments and a step count for each parameter, and the rate
  EXPECT_EQ(bytes_of("views"), 0);
  EXPECT_EQ(bytes_of("other"), 400);  // the whole storage of the sliced tensor, and 0 for the meta tensor
  EXPECT_EQ(summary.tensors.front().name, "part");
  EXPECT_THAT(summary.tensors, Contains(testing::Field(&TensorMemory::shares, "parameters weight")));

  const auto text = summary.to_text(2);
  EXPECT_THAT(text,
              AllOf(HasSubstr("resident"), HasSubstr("optimizer"), HasSubstr("400 B"), Not(HasSubstr("exp_avg_sq"))));
  const auto json = nlohmann::json::parse(summary.to_json());
  EXPECT_EQ(json["tensors"].size(), summary.tensors.size());
  EXPECT_EQ(json["process"]["resident_bytes"], *summary.process.resident_bytes);
  EXPECT_THAT(text, HasSubstr("libtorch keeps no list of live tensors"));
}

TEST(MemorySummaryTest, WithoutTensorsItSaysWhatIsMissing) {
  const auto summary = memory_summary();
  EXPECT_TRUE(summary.tensors.empty());
  EXPECT_THAT(summary.to_text(), HasSubstr("No tensors were named"));
}

/// Stands in for a vendor's caching allocator.
class FakeAllocator : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(size_t size) override {
    void* data = c10::alloc_cpu(size);
    stats.allocated_bytes[0].increase(size);
    stats.reserved_bytes[0].increase(2 * kMib);
    return {data, data, &c10::free_cpu, c10::Device(c10::kPrivateUse1, 0)};
  }
  void copy_data(void* to, const void* from, size_t size) const override { default_copy_data(to, from, size); }
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override {}
  void recordStream(const c10::DataPtr&, c10::Stream) override {}
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex) override { return stats; }
  void resetAccumulatedStats(c10::DeviceIndex) override {}
  void resetPeakStats(c10::DeviceIndex) override {}

  c10::CachingDeviceAllocator::DeviceStats stats;
};

/// Makes a tensor on a device type that no libtorch backend implements.
at::Tensor tensor_on_fake_device(FakeAllocator& allocator, int64_t num_bytes) {
  c10::Storage storage(c10::Storage::use_byte_size_t(), static_cast<size_t>(num_bytes),
                       allocator.allocate(static_cast<size_t>(num_bytes)), &allocator, /*resizable=*/false);
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), caffe2::TypeMeta::Make<uint8_t>());
  tensor.unsafeGetTensorImpl()->set_sizes_contiguous({num_bytes});
  return tensor;
}

TEST(MemorySummaryTest, ADevicesAllocatorIsReadIfItKeepsFigures) {
  static FakeAllocator allocator;  // static, because libtorch keeps the pointer
  MemoryTensors tensors;
  tensors.add("parameters", NamedTensors{{"weight", tensor_on_fake_device(allocator, 300)}});
  const auto without = memory_summary(tensors);
  EXPECT_TRUE(without.devices.empty());
  EXPECT_FALSE(detail::allocated_bytes(c10::Device(c10::kPrivateUse1, 0)));
  EXPECT_THAT(without.unknown, Contains(HasSubstr("allocator for privateuseone:0 keeps no figures")));

  c10::SetAllocator(c10::kPrivateUse1, &allocator);
  const auto summary = memory_summary(tensors);
  ASSERT_EQ(summary.devices.size(), 1u);
  const auto& device = summary.devices[0];
  EXPECT_EQ(device.device, "privateuseone:0");
  EXPECT_EQ(device.allocated_bytes.now, 300);
  EXPECT_EQ(detail::allocated_bytes(c10::Device(c10::kPrivateUse1, 0)), 300);
  EXPECT_EQ(device.reserved_bytes.peak, 2 * kMib);
  EXPECT_EQ(device.total_bytes, std::nullopt);  // this allocator does not report it
  EXPECT_THAT(summary.to_text(), AllOf(HasSubstr("privateuseone:0"), HasSubstr("reserved from the driver"),
                                       HasSubstr("2.0 MiB"), HasSubstr("unknown of unknown")));
  EXPECT_EQ(nlohmann::json::parse(summary.to_json())["devices"][0]["allocated_bytes"]["now"], 300);
}

}  // namespace
}  // namespace yoke::train
