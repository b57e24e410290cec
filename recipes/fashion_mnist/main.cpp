// recipes/fashion_mnist/main.cpp -- trains the network on every rank; the whole loop is in this file.
#include <ATen/ops/cross_entropy_loss.h>
#include <c10/core/InferenceMode.h>
#include <fmt/format.h>

#include <memory>
#include <tuple>
#include <utility>

#include "recipes/common/training.h"
#include "recipes/fashion_mnist/model.h"
#include "recipes/fashion_mnist/options.h"
#include "yoke/contract/program.h"
#include "yoke/dist/world.h"
#include "yoke/infer/run.h"
#include "yoke/train/cpu_speed.h"
#include "yoke/train/data/idx.h"
#include "yoke/train/data/loader.h"
#include "yoke/train/evaluate.h"
#include "yoke/train/meter.h"
#include "yoke/train/optim/one_cycle.h"
#include "yoke/train/optim/sgd.h"
#include "yoke/train/parallel/distributed_data_parallel.h"
#include "yoke/train/precision/autocast.h"
#include "yoke/train/run/run.h"
#include "yoke/train/seed.h"

namespace fashion_mnist {
namespace {

using namespace yoke;

/// Settings that the command line cannot change. A search found these values; see README.md.
struct Preset {
  double max_lr = 0.2;
  double momentum = 0.9;
  double weight_decay = 5e-4;
  double label_smoothing = 0.1;
  double warm_up = 0.2;  ///< The share of all steps.
};

train::Normalization normalization() { return {{0.2860}, {0.3530}}; }

train::LoaderOptions loader_options(int64_t batch_size, const dist::World& world) {
  return {.batch_size = batch_size,
          .num_workers = world.device().is_cpu() ? 0 : 2,  // on the CPU, workers would compete with the training
          .normalization = normalization(),
          .memory_format = at::MemoryFormat::ChannelsLast};
}

/// Collective: each rank tests its share of the samples. Returns the loss and the accuracy over all ranks.
std::pair<double, double> evaluate(Network& network, const train::Samples& samples, dist::World& world,
                                   const train::AutocastOptions& precision) {
  const c10::InferenceMode no_autograd;
  const auto evaluating = train::evaluate(network);
  train::Mean loss;
  train::Accuracy accuracy;
  auto options = loader_options(500, world);
  options.shuffle = false;
  options.exact = true;
  train::Loader loader(samples, world, options);
  for (const auto& batch : loader.epoch(0)) {
    const train::Autocast autocast(precision);
    const auto logits = network.forward(batch.data);
    loss.add(at::cross_entropy_loss(logits, batch.target), batch.target.size(0));
    accuracy.add(logits, batch.target);
  }
  const auto means = train::read_all(world, {&loss, &accuracy});
  return {means[0], means[1]};
}

void train_network(Options options) {
  train::flush_denormals();
  train::keep_freed_memory();
  dist::World world;
  train::Run run(world, {.name = "fashion-mnist",
                         .folder = options.out,
                         .resume = options.resume,
                         .save_every = options.checkpoint_every});
  const bool auto_bfloat16 = options.precision == "auto" && train::has_fast_bfloat16(world.device());
  if (options.precision == "auto") options.precision = auto_bfloat16 ? "bf16" : "fp32";
  const Preset preset;
  const int64_t batch_size = std::max<int64_t>(1, (options.batch_size + world.size() / 2) / world.size());
  int64_t samples_per_step = batch_size * world.size();
  run.fix("epochs", options.num_epochs, options.given.contains("--epochs"));
  run.fix("seed", options.seed, options.given.contains("--seed"));
  run.fix("precision", options.precision, options.given.contains("--precision"));
  run.fix("deterministic", options.deterministic, options.given.contains("--deterministic"));
  run.fix("samples_per_step", samples_per_step, /*given=*/true);  // checked on resume: the number of ranks may differ
  if (options.deterministic) at::set_num_threads(1);

  const auto data = train::read_fashion_mnist(options.data);
  auto loading = loader_options(batch_size, world);
  loading.seed = options.seed;
  loading.drop_last = true;
  train::Loader loader(data.train, world, loading);

  train::seed({.seed = options.seed, .deterministic = options.deterministic});  // all ranks get the same weights
  Network network;
  network.to(world.device());
  recipes::to_channels_last(network);
  train::DistributedDataParallel net(network, world, {.broadcast_buffers = false, .gradient_as_bucket_view = true});
  train::Sgd optimizer(net, {.momentum = preset.momentum, .weight_decay = preset.weight_decay, .nesterov = true});
  const train::OneCycleOptions schedule{.total_steps = options.num_epochs * loader.num_batches(),
                                        .max_lr = preset.max_lr,
                                        .pct_start = preset.warm_up,
                                        .anneal = train::Anneal::kLinear};
  const train::AutocastOptions precision{.device_type = world.device().type(), .enabled = options.precision == "bf16"};
  train::seed({.seed = options.seed, .rank = world.rank(), .deterministic = options.deterministic});

  run.state().add("model", net).add("optimizer", optimizer).add_generators();
  run.state().add_num_threads(options.deterministic ? train::ThreadRule::kAdopt : train::ThreadRule::kWarn);
  run.say(fmt::format("fashion-mnist: {} rank{} on {}, {} x {} samples a step, {}{}, into {}", world.size(),
                      world.size() == 1 ? "" : "s", world.device().is_cpu() ? "the CPU" : "GPUs", world.size(),
                      batch_size, options.precision, options.deterministic ? ", deterministic" : "",
                      run.folder().string()));
  double test_loss = 0, accuracy = 0;
  const auto test = [&] { std::tie(test_loss, accuracy) = evaluate(network, data.test, world, precision); };
  auto epochs = run.epochs(loader, options.num_epochs);
  if (run.epoch() == options.num_epochs) test();  // the resumed run was already complete
  for (auto& epoch : epochs) {
    for (const auto& batch : epoch) {
      const auto loss = [&] {
        const train::Autocast autocast(precision);
        return at::cross_entropy_loss(net(batch.data), batch.target, {}, at::Reduction::Mean, -100,
                                      preset.label_smoothing);
      }();
      loss.backward();
      optimizer.step(train::one_cycle_lr(run.step(), schedule));
      optimizer.zero_grad();
      run.log("train_loss", loss, batch.target.size(0));
    }
    if (run.stopped()) break;
    net.sync_buffers();
    test();
    run.log("test_loss", test_loss);
    run.log("test_accuracy", accuracy);
  }

  if (!run.stopped()) run.say(fmt::format("test accuracy {:.4f}", accuracy));
  run.say(fmt::format("checkpoint    {}", run.checkpoints().path_of(run.step()).string()));
  run.say(fmt::format("to resume     yoke train fashion-mnist --resume --out {} -n {}", run.folder().string(),
                      world.size()));
  world.shutdown();
}

/// The network of a checkpoint, for `yoke infer`. Images are made grey.
infer::Model network_of(const train::StoredCheckpoint& checkpoint, c10::Device device) {
  const auto network = std::make_shared<Network>();
  infer::load_network(checkpoint, *network, device);
  recipes::to_channels_last(*network);
  return infer::model_of_images(
      [network](const at::Tensor& x) { return network->forward(x.mean(1, /*keepdim=*/true)); },
      {.height = 28,
       .width = 28,
       .shorter_side = 28,
       .normalization = normalization(),
       .memory_format = at::MemoryFormat::ChannelsLast});
}

}  // namespace
}  // namespace fashion_mnist

int main(int argc, char** argv) {
  if (const auto status = yoke::infer::main_of_recipe(argc, argv, fashion_mnist::network_of)) return *status;
  const auto options = fashion_mnist::parse(argc, argv);
  return yoke::run_program("fashion-mnist", [&] { fashion_mnist::train_network(options); });
}
