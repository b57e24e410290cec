// How long do averaging the gradients of all ranks and the step of AdamW take, one after the other and as one pass over
// shared memory? Each round measures three ways, in turn, on ten matrices of 1024 x 1024 and their biases:
//
//   gloo    an all-reduce of all gradients over Gloo, then AdamW
//   shared  the same in shared memory
//   fused   a Sharded<AdamW> that averages in its step, in shared memory
//
//   yoke run --no-prefix -n 2 -- bench_fused_step [--rounds N]
//
// Rank 0 prints medians in ms, and the medians of the rounds' ratios to `fused`. The results are compared, too.
#include <ATen/Parallel.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <cstdlib>
#include <string_view>
#include <vector>

#include "yoke/base/clock.h"
#include "yoke/base/environment.h"
#include "yoke/base/median.h"
#include "yoke/dist/world.h"
#include "yoke/train/cpu_speed.h"
#include "yoke/train/optim/adam.h"
#include "yoke/train/shard/sharded_optimizer.h"

namespace {

using namespace yoke;

train::NamedTensors make_parameters() {
  train::NamedTensors parameters;
  for (int i = 0; i < 10; ++i) {
    parameters.emplace_back(fmt::format("weight{}", i), at::zeros({1024, 1024}).requires_grad_());
    parameters.emplace_back(fmt::format("bias{}", i), at::zeros({1024}).requires_grad_());
  }
  return parameters;
}

/// The gradients of whole parameters in one flat tensor.
struct Plain {
  Plain() : parameters(make_parameters()), optimizer(parameters) {
    int64_t size = 0;
    for (const auto& [name, tensor] : parameters) size += tensor.numel();
    flat = at::zeros({size});
    int64_t begin = 0;
    for (const auto& [name, tensor] : parameters) {
      tensor.mutable_grad() = flat.narrow(0, begin, tensor.numel()).view(tensor.sizes());
      begin += tensor.numel();
    }
  }
  train::NamedTensors parameters;
  train::AdamW optimizer;
  at::Tensor flat;
};

double measure(dist::World& world, const auto& body) {
  constexpr int kCount = 3;
  world.barrier();
  const auto begin = Clock::now();
  for (int i = 0; i < kCount; ++i) body();
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count() / kCount;
}

}  // namespace

int main(int argc, char** argv) {
  int64_t rounds = 15;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::string_view(argv[i]) == "--rounds") rounds = parse_int(argv[i + 1]).value();
  }
  at::set_num_threads(1);
  train::flush_denormals();
  dist::World shared;
  setenv("YOKE_SHARED_MEMORY", "0", 1);
  dist::World gloo;

  Plain of_gloo, of_shared;
  const auto parameters = make_parameters();
  train::Sharded<train::AdamW> fused({{parameters, {}}}, shared, {.gradients = train::GradientMean::kInStep});
  const float own = 0.5F + static_cast<float>(shared.rank());
  for (const auto& [name, tensor] : parameters) (tensor * own).sum().backward();

  const auto reduce_and_step = [own](dist::World& world, Plain& plain) {
    world.all_reduce(plain.flat, dist::ReduceOp::kMean);
    plain.optimizer.step();
  };
  std::vector<double> times[3], ratios[2];
  for (int64_t round = 0; round <= rounds; ++round) {
    of_gloo.flat.fill_(own);
    of_shared.flat.fill_(own);
    const double of_round[] = {measure(gloo, [&] { reduce_and_step(gloo, of_gloo); }),
                               measure(shared, [&] { reduce_and_step(shared, of_shared); }),
                               measure(shared, [&] { fused.step(); })};
    if (round == 0) continue;  // to warm up
    for (size_t way = 0; way < 3; ++way) times[way].push_back(of_round[way]);
    for (size_t way = 0; way < 2; ++way) ratios[way].push_back(of_round[way] / of_round[2]);
  }
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (!at::equal(parameters[i].second, of_gloo.parameters[i].second)) return 1;
    if (!at::equal(parameters[i].second, of_shared.parameters[i].second)) return 1;
  }
  if (shared.rank() == 0) {
    fmt::print("{:>8} {:>8} {:>14}\n", "", "ms", "times fused");
    fmt::print("{:>8} {:>8.1f} {:>14.2f}\n", "gloo", median(times[0]), median(ratios[0]));
    fmt::print("{:>8} {:>8.1f} {:>14.2f}\n", "shared", median(times[1]), median(ratios[1]));
    fmt::print("{:>8} {:>8.1f}\n", "fused", median(times[2]));
  }
  gloo.shutdown();
  shared.shutdown();
  return 0;
}
