// recipes/finetune/fine_tune.h -- the loop, for either network.
#pragma once

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <tuple>
#include <utility>

#include "recipes/common/parallel.h"
#include "recipes/common/training.h"
#include "recipes/finetune/options.h"
#include "recipes/finetune/texts.h"
#include "yoke/base/error.h"
#include "yoke/models/bert.h"
#include "yoke/models/gpt.h"
#include "yoke/models/lora.h"
#include "yoke/train/checkpoint/module_state.h"
#include "yoke/train/checkpoint/tensor_slice.h"
#include "yoke/train/data/loader.h"
#include "yoke/train/meter.h"
#include "yoke/train/optim/one_cycle.h"
#include "yoke/train/precision/autocast.h"
#include "yoke/train/run/run.h"
#include "yoke/train/seed.h"

namespace finetune {

/// What a training has besides its network and its texts.
struct Training {
  Options options;
  Preset preset;
  int64_t batch_size = 0;  ///< Of a rank.
  yoke::dist::World& world;
  yoke::train::Run& run;
};

/// Returns the logits [targets, classes or tokens] of a batch.
inline at::Tensor logits_of(recipes::Parallel<yoke::models::BertClassifier>& net, const Batch& batch) {
  return net(batch.tokens, batch.mask).to(at::kFloat);
}
inline at::Tensor logits_of(recipes::Parallel<yoke::models::Gpt>& net, const Batch& batch) {  // without padding
  return net(batch.tokens).flatten(0, 1).to(at::kFloat);
}

/// Collective. Returns the loss and the accuracy over all texts, or over all tokens.
template <class Model>
std::pair<double, double> evaluate(Model& model, recipes::Parallel<Model>& net, yoke::train::Loader<Texts>& loader,
                                   yoke::dist::World& world, const yoke::train::AutocastOptions& precision) {
  using namespace yoke;
  const at::NoGradGuard no_grad;
  model->eval();
  train::Mean loss;
  train::Accuracy accuracy;
  for (const auto& batch : loader.epoch(0)) {
    const train::Autocast autocast(precision);
    const auto logits = logits_of(net, batch), target = batch.target.flatten();
    loss.add(at::cross_entropy_loss(logits, target), target.numel());
    accuracy.add(logits, target);
  }
  model->train();
  const auto means = train::read_all(world, {&loss, &accuracy});
  return {means[0], means[1]};
}

/// Collective. Trains the network, and writes it into the run's folder `model`. `write` writes the folder of the
/// network, whose whole tensors it gets, on rank 0.
template <class Model>
void fine_tune(Model& model, const Sets& sets, const Training& training,
               const std::function<void(const std::filesystem::path&, const yoke::train::NamedTensors&)>& write) {
  using namespace yoke;
  const auto& options = training.options;
  const auto& preset = training.preset;
  const auto batch_size = training.batch_size;
  auto& world = training.world;
  auto& run = training.run;
  const models::LoraOptions adapters{.rank = options.lora_rank};
  if (options.lora_rank > 0) models::add_lora(*model, adapters);
  model->to(world.device());
  recipes::Parallel<Model> net(
      model, world, {.how = options.parallel, .units = model->fsdp_units()},
      [&](train::NamedTensors parameters) { return make_optimizer(std::move(parameters), preset); });
  train::Loader<Texts> loader(sets.train, world, {.batch_size = batch_size, .seed = options.seed, .drop_last = true});
  train::Loader<Texts> test_loader(sets.test, world,
                                   {.batch_size = std::max<int64_t>(2, batch_size), .shuffle = false, .exact = true});
  if (loader.num_batches() == 0) {
    throw Error(ErrorCode::kInvalidArgument, "{} texts or sequences are fewer than a batch of {}; use --batch-size",
                sets.train.size(), batch_size * world.size());
  }
  // The step after the last one has the rate 0, as in transformers. So a training of a single step learns, too.
  const auto num_steps = recipes::num_steps(options, loader.num_batches(), batch_size);
  const train::OneCycleOptions schedule{.total_steps = num_steps + 1,
                                        .max_lr = options.lora_rank > 0 ? preset.lora_lr : preset.max_lr,
                                        .pct_start = preset.warm_up,
                                        .anneal = train::Anneal::kLinear};
  const auto precision = recipes::autocast(options, world);
  train::seed({.seed = options.seed, .rank = world.rank(), .deterministic = options.deterministic});

  net.add_to(run.state());
  recipes::add_rest(run, options);
  double test_loss = 0, accuracy = 0;
  const auto test = [&] { std::tie(test_loss, accuracy) = evaluate(model, net, test_loader, world, precision); };
  auto epochs = run.epochs(loader, options.num_epochs);
  if (run.epoch() == options.num_epochs) test();  // the resumed run was already complete
  for (auto& epoch : epochs) {
    for (const auto& batch : epoch) {
      const auto loss = [&] {
        const train::Autocast autocast(precision);
        return at::cross_entropy_loss(logits_of(net, batch), batch.target.flatten());
      }();
      loss.backward();
      net.clip_grad_norm(preset.max_norm);
      net.step(train::one_cycle_lr(run.schedule_step(), schedule));
      net.zero_grad();
      run.log("train_loss", loss, batch.target.numel());
    }
    if (run.stopped()) return;
    test();
    run.log("test_loss", test_loss);
    run.log("test_accuracy", accuracy);
  }

  run.say(fmt::format("test accuracy {:.4f}, test loss {:.4f}", accuracy, test_loss));
  const auto whole = train::gather_tensors(world, train::named_tensors(*model));
  recipes::on_rank_zero(world, [&] {
    write(run.folder() / "model", options.lora_rank > 0 ? models::merge_lora(whole, adapters) : whole);
    models::copy_tokenizer(options.model, run.folder() / "model");
    if (options.lora_rank > 0) models::write_lora(run.folder() / "adapter", whole, adapters, options.model);
  });
  run.say(fmt::format("model         {}, for transformers", (run.folder() / "model").string()));
  if (options.lora_rank > 0) run.say(fmt::format("adapter       {}, for peft", (run.folder() / "adapter").string()));
}

}  // namespace finetune
