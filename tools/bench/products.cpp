// The exercises about matrix products: matmul, sync and two-devices.
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mv.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <thread>

#include "tools/bench/measure.h"
#include "yoke/base/affinity.h"
#include "yoke/base/cpu_set.h"
#include "yoke/base/error.h"
#include "yoke/train/device/devices.h"

namespace yoke::exercise {
namespace {

const std::map<std::string, at::ScalarType> kTypes = {
    {"float32", at::kFloat}, {"bfloat16", at::kBFloat16}, {"float16", at::kHalf}, {"float64", at::kDouble}};

struct Product {
  at::Tensor a, b, c;

  Product(int64_t size, at::ScalarType dtype, c10::Device device)
      : a(at::randn({size, size}, at::TensorOptions(device)).to(dtype)),
        b(at::randn({size, size}, at::TensorOptions(device)).to(dtype)),
        c(at::empty({size, size}, at::TensorOptions(device).dtype(dtype))) {}

  void multiply() { at::mm_out(c, a, b); }

  /// Throws unless C x = A (B x) for a random x. A wrong product passes only by chance.
  /// Source  Freivalds, "Probabilistic machines can use less running time", 1977.
  void check() {
    multiply();
    const auto x = at::randn({c.size(1)}, at::TensorOptions(c.device()).dtype(at::kDouble));
    const auto wide = [](const at::Tensor& tensor) { return tensor.to(at::kDouble); };
    const auto expected = at::mv(wide(a), at::mv(wide(b), x));
    const auto difference = at::mv(wide(c), x).sub(expected).norm().item<double>() / expected.norm().item<double>();
    const auto dtype = c.scalar_type();
    const double allowed = dtype == at::kDouble ? 1e-10 : dtype == at::kFloat ? 1e-2 : 5e-2;  // float may use TF32
    if (difference < allowed) return;
    throw Error(ErrorCode::kInternal, "a product of {0}x{0} matrices on {1} is wrong: relative error {2:.3g}",
                c.size(0), c.device().str(), difference);
  }
};

std::vector<c10::Device> all_devices() {
  std::vector<c10::Device> devices = {c10::Device(c10::kCPU)};
  for (int64_t i = 0; i < train::num_gpus(); ++i) devices.push_back(train::try_gpu(i));
  return devices;
}

std::vector<int64_t> sizes_for(const Task& task, c10::Device device) {
  std::vector<int64_t> usual = {32, 64, 128, 256, 512, 1024, 2048};
  if (!device.is_cpu()) usual.insert(usual.end(), {4096, 8192});
  return task.chosen(task.sizes, {32, 256}, usual);
}

/// Throws if two factors and a product of each size do not fit into this machine's memory.
void check_sizes(const std::vector<int64_t>& sizes, double bytes_per_size) {
  double num_bytes = 0;
  for (const int64_t size : sizes) num_bytes += bytes_per_size * static_cast<double>(size) * static_cast<double>(size);
  check_memory(num_bytes);
}

}  // namespace

Json run_matmul(const Task& task, Progress& progress) {
  const at::NoGradGuard no_grad;
  std::vector<Case> cases;
  Json results = Json::array();
  for (const auto& name : task.dtypes.empty() ? std::vector<std::string>{"float32"} : task.dtypes) {
    check_sizes(sizes_for(task, c10::Device(c10::kCPU)), 3.0 * static_cast<double>(c10::elementSize(kTypes.at(name))));
    for (const auto device : all_devices()) {
      for (const int64_t size : sizes_for(task, device)) {
        const auto product = std::make_shared<Product>(size, kTypes.at(name), device);
        progress.show(fmt::format("checking {} on {}", size, device.str()));
        product->check();
        cases.push_back({fmt::format("{} on {}", size, device.str()), [product, device](int64_t count) {
                           for (int64_t i = 0; i < count; ++i) product->multiply();
                           wait_for(device);
                         }});
        results.push_back({{"device", device.str()}, {"dtype", name}, {"size", size}});
      }
    }
  }
  const auto times = measure(cases, {.seconds = task.seconds}, progress);
  for (size_t i = 0; i < cases.size(); ++i) {
    add_times(results[i], "time", times[i]);
    const auto size = results[i]["size"].get<double>();
    results[i]["gflops"] = 2 * size * size * size / times[i].median() / 1e9;
  }
  return {{"results", results}};
}

namespace {

/// The matrix products of the exercise sync, and the different ways to log their norms.
class LoggedProducts {
 public:
  LoggedProducts(int64_t count, c10::Device device) : product_(100, at::kFloat, device), each_(count), end_(count) {
    log_ = at::zeros({count}, at::TensorOptions(device));
    for (int64_t i = 0; i < count; ++i) slots_.push_back(log_[i]);
  }

  void without_log() {
    for (size_t i = 0; i < each_.size(); ++i) product_.multiply();
    wait_for(product_.c.device());
  }
  void read_each() {
    for (auto& value : each_) {
      product_.multiply();
      value = at::linalg_vector_norm(product_.c).item<float>();
    }
  }
  void read_at_end() {
    for (auto& slot : slots_) {
      product_.multiply();
      at::linalg_vector_norm_out(slot, product_.c);
    }
    const auto read = log_.cpu();
    std::copy_n(read.const_data_ptr<float>(), end_.size(), end_.begin());
  }
  void check() {
    product_.check();
    read_each();
    read_at_end();
    if (each_ != end_ || !(each_.front() > 0)) throw Error(ErrorCode::kInternal, "the two logs of norms differ");
  }

 private:
  Product product_;
  at::Tensor log_;
  std::vector<at::Tensor> slots_;
  std::vector<float> each_, end_;
};

}  // namespace

Json run_sync(const Task& task, Progress& progress) {
  const at::NoGradGuard no_grad;
  const auto device = train::try_gpu();
  std::vector<Case> cases;
  Json results = Json::array();
  const auto counts = task.chosen({}, {200, 1000}, {200, 400, 600, 800, 1000});
  const std::vector<std::pair<const char*, void (LoggedProducts::*)()>> ways = {{"none", &LoggedProducts::without_log},
                                                                                {"end", &LoggedProducts::read_at_end},
                                                                                {"each", &LoggedProducts::read_each}};
  for (const int64_t count : counts) {
    const auto products = std::make_shared<LoggedProducts>(count, device);
    products->check();
    for (const auto& way : ways) {
      cases.push_back({fmt::format("{} products, log: {}", count, way.first), [products, way](int64_t repetitions) {
                         for (int64_t i = 0; i < repetitions; ++i) ((*products).*way.second)();
                       }});
      results.push_back({{"log", way.first}, {"num_products", count}});
    }
  }
  const auto times = measure(cases, {.seconds = task.seconds}, progress);
  for (size_t i = 0; i < cases.size(); ++i) add_times(results[i], "time", times[i]);
  Json object{{"device", device.str()}};
  if (device.is_cpu()) object["notes"] = {"no GPU here: on a GPU, each reading waits for the device, which then idles"};
  object["results"] = results;
  return object;
}

namespace {

/// A thread that executes one task at a time, on its own CPUs.
class Place {
 public:
  Place(CpuSet cpus, int num_threads) : thread_([this, cpus, num_threads] { serve(cpus, num_threads); }) {}
  ~Place() {
    post({});
    thread_.join();
  }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;

  void start(std::function<void()> work) { post(std::move(work)); }
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !has_work_; });
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  }

 private:
  void post(std::function<void()> work) {
    const std::lock_guard lock(mutex_);
    work_ = std::move(work);
    has_work_ = true;
    changed_.notify_all();
  }
  void serve(const CpuSet& cpus, int num_threads) {
    if (!cpus.empty()) prefer_cpus(to_kernel_mask(cpus));  // libtorch's threads inherit the CPUs from this thread
    at::set_num_threads(num_threads);
    const at::NoGradGuard no_grad;
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return has_work_; });
      if (!work_) return;
      const auto work = std::move(work_);
      lock.unlock();
      std::exception_ptr error;
      try {
        work();
      } catch (...) {
        error = std::current_exception();
      }
      lock.lock();
      error_ = error;
      has_work_ = false;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::function<void()> work_;
  bool has_work_ = false;
  std::exception_ptr error_;
  std::thread thread_;  // last, because the thread uses the members above
};

/// Divides the CPUs of this process into two halves.
std::pair<CpuSet, CpuSet> halves_of_cpus() {
  const auto cpus = allowed_cpus().to_vector();
  std::pair<CpuSet, CpuSet> halves;
  if (cpus.size() < 2) return halves;
  for (size_t i = 0; i < cpus.size(); ++i) (i < cpus.size() / 2 ? halves.first : halves.second).add(cpus[i]);
  return halves;
}

/// Two GPUs, a GPU and the CPU, or two halves of the CPU.
struct TwoDevices {
  c10::Device first, second;
  std::string first_name, second_name, note;
  CpuSet first_cpus, second_cpus;
};

TwoDevices find_two_devices() {
  const c10::Device cpu(c10::kCPU);
  if (train::num_gpus() >= 2) {
    const auto one = train::try_gpu(0), other = train::try_gpu(1);
    return {one, other, one.str(), other.str(), "", {}, {}};
  }
  if (train::num_gpus() == 1) {
    const auto gpu = train::try_gpu(0);
    return {gpu, cpu, gpu.str(), "the CPU", "one GPU here: the CPU stands in for the second device", {}, {}};
  }
  const auto [one, other] = halves_of_cpus();
  const auto name = [](const CpuSet& cpus) {
    return cpus.empty() ? "the CPU" : (cpus.size() == 1 ? "CPU " : "CPUs ") + cpus.to_list();
  };
  return {cpu,
          cpu,
          name(one),
          name(other),
          one.empty()
              ? "no GPU and one CPU here: two threads of one CPU stand in for two devices"
              : "no GPU here: two threads of the CPU, each with a half of the processors, stand in for two devices",
          one,
          other};
}

}  // namespace

Json run_two_devices(const Task& task, Progress& progress) {
  const auto two = find_two_devices();
  const int all = at::get_num_threads();
  const auto threads = [&](const CpuSet& cpus) {
    return cpus.empty() ? all : std::max(1, std::min(all, static_cast<int>(cpus.size())));
  };
  Place first(two.first_cpus, threads(two.first_cpus)), second(two.second_cpus, threads(two.second_cpus));
  std::vector<Case> cases;
  Json results = Json::array();
  const auto sizes = task.chosen(task.sizes, {64, 256}, {64, 128, 256, 512, 1024, 2048});
  check_sizes(sizes, 2 * 3 * 4);
  for (const int64_t size : sizes) {
    const auto one = std::make_shared<Product>(size, at::kFloat, two.first);
    const auto other = std::make_shared<Product>(size, at::kFloat, two.second);
    one->check();
    other->check();
    const auto work = [](const std::shared_ptr<Product>& product) {
      return [product] {
        product->multiply();
        wait_for(product->c.device());
      };
    };
    cases.push_back({fmt::format("{} in sequence", size), [&, one, other, work](int64_t count) {
                       for (int64_t i = 0; i < count; ++i) {
                         first.start(work(one));
                         first.wait();
                         second.start(work(other));
                         second.wait();
                       }
                     }});
    cases.push_back({fmt::format("{} at once", size), [&, one, other, work](int64_t count) {
                       for (int64_t i = 0; i < count; ++i) {
                         first.start(work(one));
                         second.start(work(other));
                         first.wait();
                         second.wait();
                       }
                     }});
    results.push_back({{"size", size}});
  }
  const auto times = measure(cases, {.seconds = task.seconds}, progress);
  for (size_t i = 0; i < results.size(); ++i) {
    add_times(results[i], "in_sequence", times[2 * i]);
    add_times(results[i], "at_once", times[2 * i + 1]);
    add_speedup(results[i], times[2 * i], times[2 * i + 1]);
  }
  Json object{{"devices", {{"first", two.first_name}, {"second", two.second_name}}}};
  if (!two.note.empty()) object["notes"] = {two.note};
  object["results"] = results;
  return object;
}

}  // namespace yoke::exercise
