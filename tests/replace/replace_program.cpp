// A training for tests/replace, whose ranks are killed. It has batch norm, dropout and Adam, so its state has buffers,
// random numbers of each rank and values of the optimizer.
//
//   replace_program run FOLDER STEPS [HOW]    with a train::Run
//   replace_program accumulate FOLDER STEPS [HOW]   the same; two optimizers step after each second and third batch
//
//   replace_program loop FOLDER STEPS [HOW]         with a loop of its own, as in docs/replace.md
//   replace_program accumulating_loop FOLDER STEPS [HOW]    the same; the optimizer steps after each third batch
//
//   replace_program apart FOLDER 0              ranks that never meet, and have kept states of different steps
//
// HOW is ddp (the default), recorded (the same, with a step that is replayed), phases (the same as ddp, and the first
// layer is frozen in every second epoch), zero1 or fsdp. After it may come the
// width of the network, 64 otherwise, and the path of a file with the number of the step after which rank 0 waits,
// until the file has a larger one. Each rank prints its pid, rank 0 also each step that it has made. In the end each
// rank writes its whole state into FOLDER/final-RANK.
#include <ATen/ops/arange.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/full.h>
#include <fmt/format.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "yoke/base/environment.h"
#include "yoke/contract/program.h"
#include "yoke/dist/ranks_lost.h"
#include "yoke/dist/world.h"
#include "yoke/train/checkpoint/kept_states.h"
#include "yoke/train/data/loader.h"
#include "yoke/train/meter.h"
#include "yoke/train/optim/adam.h"
#include "yoke/train/parallel/distributed_data_parallel.h"
#include "yoke/train/record/recorded.h"
#include "yoke/train/run/run.h"
#include "yoke/train/seed.h"
#include "yoke/train/shard/fully_sharded_data_parallel.h"
#include "yoke/train/shard/sharded_optimizer.h"
#include "yoke/train/shard/unit.h"

namespace {

using namespace yoke;
namespace nn = torch::nn;

struct Network : nn::Module {
  train::Unit<nn::LinearImpl> first{nullptr}, second{nullptr};
  nn::BatchNorm1d norm{nullptr};
  nn::Dropout dropout{nullptr};
  explicit Network(int64_t width) {
    first = register_module("first", train::Unit<nn::LinearImpl>(16, width));
    norm = register_module("norm", nn::BatchNorm1d(width));
    dropout = register_module("dropout", nn::Dropout(0.3));
    second = register_module("second", train::Unit<nn::LinearImpl>(width, 4));
  }
  at::Tensor forward(const at::Tensor& x) { return second(dropout(norm(first(x)).relu())); }
};

constexpr int64_t kStepsPerEpoch = 10, kBatch = 8;
constexpr int64_t kLost = 3;  // the rank that a test kills where ranks are apart

train::Samples some_samples(const dist::World& world) {
  const auto count = kStepsPerEpoch * kBatch * world.size();
  const auto x = at::arange(count * 16).to(at::kFloat).view({count, 16}).sin();
  return {.data = x, .target = at::arange(count) % 4};
}

std::string gate;  // a file

int64_t last_step_before_gate() {
  std::ifstream file(gate);
  int64_t step = 0;
  file >> step;
  return step;
}

/// EXIT0=RANK:STEP: the rank that ends with status 0 after that step.
bool exits_after(const dist::World& world, int64_t step) {
  const char* const exits = std::getenv("EXIT0");
  return exits != nullptr && fmt::format("{}:{}", world.rank(), step) == exits;
}

void say_step(const dist::World& world, int64_t step) {
  if (exits_after(world, step)) std::exit(0);
  if (world.rank() != 0) return;
  fmt::print("step {}\n", step);
  std::fflush(stdout);
  while (!gate.empty() && step >= last_step_before_gate()) usleep(10'000);
}

/// The bits of everything that the training has changed.
void write_state(const train::TrainState& state, const std::string& path) {
  const auto own = state.own_state();
  std::string bytes;
  const auto add = [&](const std::string& name, const at::Tensor& tensor) {
    const auto dense = tensor.detach().cpu().contiguous();
    bytes += name + "\n" + std::string(static_cast<const char*>(dense.const_data_ptr()), dense.nbytes()) + "\n";
  };
  for (const auto& slice : own.slices) add(slice.name, slice.values);
  for (const auto& [name, row] : own.rows) add(name, row);
  std::ofstream(path, std::ios::binary) << bytes;
}

constexpr double kRate = 0.01;

struct Replicated {
  train::DistributedDataParallel<Network> net;
  train::AdamW optimizer;
  Replicated(Network& network, dist::World& world) : net(network, world), optimizer(net.parameters(), {.lr = kRate}) {}
};

/// Its step is a train::Recorded.
struct RecordedReplicated : Replicated {
  using Replicated::Replicated;
  static constexpr bool kIsRecorded = true;
};

/// Made again for each epoch and after each loss, as in docs/distributed-data-parallel.md.
struct InPhases {
  struct Remade {
    Network& network;
    std::optional<train::DistributedDataParallel<Network>> ddp;
    Network& model() const { return network; }
    at::Tensor operator()(const at::Tensor& x) { return (*ddp)(x); }
  } net;
  train::AdamW optimizer;
  std::optional<std::pair<int64_t, int64_t>> made_for;

  InPhases(Network& network, dist::World& world) : net{network, {}}, optimizer(network, {.lr = kRate}) {
    net.ddp.emplace(network, world);
  }
  void begin_batch(dist::World& world, int64_t epoch) {
    const std::pair now(epoch, world.generation());
    if (made_for == now) return;
    for (auto& parameter : net.network.first->parameters()) parameter.requires_grad_(epoch % 2 == 1);
    net.ddp.emplace(net.network, world);
    made_for = now;
  }
};

struct DividedState {
  train::Sharded<train::AdamW> optimizer;
  train::DistributedDataParallel<Network> net;
  DividedState(Network& network, dist::World& world)
      : optimizer(network, world, {.lr = kRate}, {.gradients = train::GradientMean::kInStep}),
        net(network, world, {.average_in_step = true}) {}
};

struct Divided {
  train::FullyShardedDataParallel<Network> net;
  train::AdamW optimizer;
  Divided(Network& network, dist::World& world)
      : net(network, world, {.units = {"first", "second"}}), optimizer(net.parameters(), {.lr = kRate}) {}
};

template <class Parallel>
struct Training : Parallel {
  using Parallel::net, Parallel::optimizer;
  train::Samples samples;
  train::Loader<train::Samples> loader;

  Training(Network& network, dist::World& world)
      : Parallel(network, world),
        samples(some_samples(world)),
        loader(samples, world, {.batch_size = kBatch, .seed = 3, .num_workers = 1}) {
    train::seed({.seed = 5, .rank = world.rank(), .deterministic = true});
    fmt::print("pid {}\n", getpid());
    std::fflush(stdout);
  }
  at::Tensor step(const train::Batch& batch) {
    if constexpr (requires { Parallel::kIsRecorded; }) {
      return recorded(batch.data, batch.target);
    } else {
      return step(batch, 0, 1);
    }
  }
  /// Accumulates the gradients of `period` batches. `number`: of batches before this one.
  at::Tensor step(const train::Batch& batch, int64_t number, int64_t period) {
    const bool is_last = (number + 1) % period == 0;
    if (number % period == 0) optimizer.zero_grad();
    const auto backward = [&] {
      const auto loss = at::cross_entropy_loss(net(batch.data), batch.target);
      loss.backward();
      return loss.detach();
    };
    const auto loss = [&] {
      if constexpr (requires { net.no_sync(); }) {
        if (!is_last) {
          const auto accumulating = net.no_sync();
          return backward();
        }
      }
      return backward();
    }();
    if (is_last) optimizer.step();
    return loss;
  }

  std::function<at::Tensor(const at::Tensor& x, const at::Tensor& y)> whole_step =
      [this](const auto& x, const auto& y) { return step(train::Batch{.data = x, .target = y}, 0, 1); };
  train::Recorded<decltype(whole_step)> recorded{whole_step};
};

template <class Parallel>
void with_run(Training<Parallel>& all, dist::World& world, const std::string& folder, int64_t num_steps,
              int64_t period) {
  auto& network = all.net.model();
  train::Run run(world, {.name = "replace",
                         .folder = folder + "/run",
                         .checkpoints = {.keep_best = 1, .metric = "loss"},
                         .log_steps = true,
                         .check_replicas_every = 3});
  run.state().add("model", all.net).add("optimizer", all.optimizer).add_generators();
  nn::Linear second(4, 4);  // alike on all ranks, with an optimizer that steps after other batches than the first one
  train::AdamW second_optimizer(train::parameters_of(second), {.lr = kRate});
  run.state().add("second", second).add("second_optimizer", second_optimizer);
  for (auto& epoch : run.epochs(all.loader, num_steps / kStepsPerEpoch)) {
    network.train();
    for (const auto& batch : epoch) {
      if constexpr (requires { all.begin_batch(world, run.epoch()); }) all.begin_batch(world, run.epoch());
      run.log("loss", period == 1 ? all.step(batch) : all.step(batch, run.step(), period), batch.target.size(0));
      second(at::full({4}, 0.01 * static_cast<double>(run.step()))).square().mean().backward();
      if (period == 1 || run.step() % 2 == 1) {
        second_optimizer.step();
        second_optimizer.zero_grad();
      }
      say_step(world, run.step() + 1);
    }
    train::Mean test;
    const at::NoGradGuard no_grad;
    network.eval();
    test.add(all.net(all.samples.data).square().mean(), 1);
    run.log("test", test.read(world));
  }
  write_state(run.state(), fmt::format("{}/final-{}", folder, world.rank()));
}

template <class Parallel>
void with_loop(Training<Parallel>& all, dist::World& world, const std::string& folder, int64_t num_steps,
               int64_t period) {
  train::Mean loss;
  train::TrainState state(world);
  state.add("model", all.net).add("optimizer", all.optimizer).add("loss", loss).add_generators();
  train::KeptStates kept(world, state);
  int64_t step = 0;
  bool is_there = !world.needs_recovery();
  while (!is_there || step < num_steps) {
    try {
      if (!is_there) {
        world.recover();
        step = kept.restore().step;
        is_there = true;
      }
      all.loader.resume({step / kStepsPerEpoch, step % kStepsPerEpoch * all.loader.samples_per_batch()});
      for (const auto& batch : all.loader.epoch(step / kStepsPerEpoch)) {
        kept.keep(step);
        loss.add(period == 1 ? all.step(batch) : all.step(batch, step, period), batch.target.size(0));
        say_step(world, ++step);
      }
    } catch (const dist::RanksLost&) {
      is_there = false;
    }
  }
  write_state(state, fmt::format("{}/final-{}", folder, world.rank()));
}

void keep_apart() {
  dist::World world;
  nn::Linear network(4, 4);
  train::TrainState state(world);
  state.add(fmt::format("model-{}", world.rank()), network);
  train::KeptStates kept(world, state);
  try {
    if (world.needs_recovery()) throw dist::RanksLost("this process takes the place of one", {});
    for (int64_t step = 0; step < 10 * (world.rank() + 1); ++step) kept.keep(step);
    fmt::print("pid {}\n", getpid());
    std::fflush(stdout);
    while (world.rank() == kLost) pause();
    world.barrier();
  } catch (const dist::RanksLost&) {
    world.recover();
    kept.restore();
  }
}

template <class Parallel>
void run(const std::string& mode, const std::string& folder, int64_t num_steps, int64_t width) {
  dist::World world;
  train::seed({.seed = 1, .deterministic = true});
  Network network(width);
  Training<Parallel> all(network, world);
  {
    const at::NoGradGuard no_grad;
    network.eval();
    all.net(all.samples.data);  // as a program may do before its loop
    network.train();
  }
  if constexpr (requires { all.begin_batch(world, 0); }) {
    with_run(all, world, folder, num_steps, 1);
  } else if (mode.ends_with("loop")) {
    with_loop(all, world, folder, num_steps, mode == "loop" ? 1 : 3);
  } else {
    with_run(all, world, folder, num_steps, mode == "accumulate" ? 3 : 1);  // which does not divide an epoch
  }
  if constexpr (requires { Parallel::kIsRecorded; }) fmt::print("replays {}\n", all.recorded.num_replays());
  world.shutdown();
}

}  // namespace

int main(int argc, char** argv) {
  return run_program("replace_program", [&] {
    if (argc < 4)
      throw Error(
          ErrorCode::kInvalidArgument,
          "usage: replace_program run|accumulate|loop|accumulating_loop|apart FOLDER STEPS [HOW [WIDTH [GATE]]]");
    const auto num_steps = parse_int(argv[3]).value_or(0);
    const std::string mode = argv[1], how = argc > 4 ? argv[4] : "ddp";
    if (mode == "apart") return keep_apart();
    if (argc > 6) gate = argv[6];
    const auto width = argc > 5 ? parse_int(argv[5]).value_or(0) : 64;
    how == "zero1"      ? run<DividedState>(mode, argv[2], num_steps, width)
    : how == "fsdp"     ? run<Divided>(mode, argv[2], num_steps, width)
    : how == "phases"   ? run<InPhases>(mode, argv[2], num_steps, width)
    : how == "recorded" ? run<RecordedReplicated>(mode, argv[2], num_steps, width)
                        : run<Replicated>(mode, argv[2], num_steps, width);
  });
}
