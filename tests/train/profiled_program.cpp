// A training for tests of `yoke profile`, in C++ on yoke, with a planted bottleneck or with bad manners.
//
//   profiled_program CASE [--steps N] [--step-ms N]
//
// CASE is a bottleneck as `yoke profile` calls it, `none`, or one of the others below. `--step-ms` sleeps in each step.
#include <sched.h>
#include <torch/csrc/autograd/profiler_legacy.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <string>

#include "yoke/train.h"

namespace train = yoke::train;
namespace dist = yoke::dist;

namespace {

/// Samples that take 1 ms each.
struct SlowSource {
  int64_t size() const { return 100'000; }
  at::Tensor sample(int64_t index) const {
    usleep(1000);  // clock: the work of a sample
    return at::full({256}, static_cast<double>(index % 10));
  }
};

struct Net : torch::nn::Module {
  Net(int64_t inputs, int64_t width)
      : first(register_module("first", torch::nn::Linear(inputs, width))),
        second(register_module("second", torch::nn::Linear(width, 10))) {}
  at::Tensor forward(const at::Tensor& x) { return second(torch::relu(first(x))); }
  torch::nn::Linear first, second;
};

class Training {
 public:
  Training(std::string name, dist::World& world)
      : name_(std::move(name)),
        world_(world),
        net_(std::make_shared<Net>(256, name_ == "communication" ? 16'384 : 512)),
        table_(at::zeros({name_ == "optimizer" ? 12'000'000 : 4}, at::requires_grad())),
        sgd_(*net_, {.lr = 1e-4}),
        adam_(train::NamedTensors{{"table", table_}}, {.lr = 1e-4}),
        x_(at::randn({batch_of(name_), 256})),
        y_(at::randint(10, {x_.size(0)})),
        slow_loader_(SlowSource(), {.batch_size = 24, .num_workers = 0}) {
    if (world.size() > 1) parallel_.emplace(*net_, world);
    if (name_ == "threads") at::set_num_threads(1);
    table_.mutable_grad() = at::ones_like(table_);
  }

  void run(int64_t num_steps, int64_t step_ms) {
    const auto epoch = slow_loader_.epoch(0);
    for (int64_t step = 0; step < num_steps; ++step) {
      compute(name_ == "data_loading" ? *slow_loader_.next() : x_);
      if (step_ms > 0) usleep(static_cast<useconds_t>(step_ms * 1000));  // clock: the work of a step
      misbehave(step);
      optimizer_step();
      if (name_ == "gan") adam_.step();
    }
  }

 private:
  /// Samples in a step: few, where the network's arithmetic must be small beside what is planted, also on a processor
  /// that is slow at it.
  static int64_t batch_of(const std::string& name) {
    return name == "communication" || name == "small_operations" ? 8 : name == "optimizer" ? 64 : 1024;
  }

  void compute(const at::Tensor& x) {
    sgd_.zero_grad();
    if (name_ == "small_operations") {
      auto total = at::zeros({});
      for (int i = 0; i < 3000; ++i) total = total + total * total;
    }
    // A rank that computes more has more of its own work, and no more communication.
    const int repeats = name_ == "skew" && world_.rank() == 1 ? 12 : 1;
    for (int i = 1; i < repeats; ++i) net_->forward(x);
    torch::nn::functional::cross_entropy(parallel_ ? (*parallel_)(x) : net_->forward(x), y_.narrow(0, 0, x.size(0)))
        .backward();
  }

  void optimizer_step() { name_ == "optimizer" ? adam_.step() : sgd_.step(); }

  void misbehave(int64_t step) {
    if (step != 9) return;  // recorded, if 5 steps are left out, and 2 warm up
    if (name_ == "crash") abort();
    if (name_ == "fail") throw std::runtime_error("step 9 failed");
    if (name_ == "fork" && fork() == 0) {
      for (int i = 0; i < 20; ++i) train::end_step(this);
      _exit(0);
    }
  }

  const std::string name_;
  dist::World& world_;
  std::shared_ptr<Net> net_;
  std::optional<train::DistributedDataParallel<Net>> parallel_;  ///< With several ranks.
  at::Tensor table_;
  train::Sgd sgd_;
  train::AdamW adam_;
  const at::Tensor x_, y_;
  train::Loader<SlowSource> slow_loader_;
};

/// One thread on one processor for each rank: with more, libtorch's threads wait for each other while tests of other
/// programs run.
void use_one_processor(int64_t rank) {
  cpu_set_t allowed, own;
  sched_getaffinity(0, sizeof allowed, &allowed);
  auto skip = rank % CPU_COUNT(&allowed);
  int cpu = 0;
  while (!CPU_ISSET(cpu, &allowed) || skip-- > 0) ++cpu;
  CPU_ZERO(&own);
  CPU_SET(cpu, &own);
  sched_setaffinity(0, sizeof own, &own);
  at::set_num_threads(1);
}

}  // namespace

int main(int argc, char** argv) {
  return yoke::run_program("profiled_program", [&] {
    int64_t num_steps = 40, step_ms = 0;
    for (int i = 2; i + 1 < argc; i += 2) (strcmp(argv[i], "--steps") == 0 ? num_steps : step_ms) = atoll(argv[i + 1]);
    const std::string name = argv[1];
    if (name == "no_step") return;
    if (name != "threads") use_one_processor(yoke::read_rank_env(yoke::Environment::of_process()).rank);
    dist::World world;
    std::optional<torch::autograd::profiler::RecordProfile> own;
    Training training(name, world);
    if (name == "own_profiler") own.emplace("/dev/null");
    training.run(num_steps, step_ms);
    own.reset();
    if (world.rank() == 0) printf("trained %ld steps\n", static_cast<long>(num_steps));
    world.shutdown();
  });
}
