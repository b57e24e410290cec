// recipes/embed/main.cpp -- trains a BERT on pairs of sentences on every rank; the whole loop is in this file.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <utility>

#include "recipes/common/parallel.h"
#include "recipes/common/training.h"
#include "recipes/embed/options.h"
#include "recipes/embed/pairs.h"
#include "yoke/base/error.h"
#include "yoke/contract/program.h"
#include "yoke/dist/gradient.h"
#include "yoke/infer/run.h"
#include "yoke/models/bert.h"
#include "yoke/models/pretrained.h"
#include "yoke/train/checkpoint/module_state.h"
#include "yoke/train/checkpoint/tensor_slice.h"
#include "yoke/train/cpu_speed.h"
#include "yoke/train/data/loader.h"
#include "yoke/train/optim/adam.h"
#include "yoke/train/optim/one_cycle.h"
#include "yoke/train/precision/autocast.h"
#include "yoke/train/run/run.h"
#include "yoke/train/seed.h"

namespace embed {
namespace {

using namespace yoke;
using Net = recipes::Parallel<models::Bert>;

at::Tensor vectors_of(Net& net, const models::PaddedTokens& batch) {
  return models::sentence_embeddings(net(batch.tokens, batch.mask), batch.mask);
}

/// Collective: the share of first sentences whose nearest second sentence, among those of all ranks, is their own.
double evaluate(models::Bert& model, Net& net, train::Loader<Pairs>& loader, dist::World& world) {
  const at::NoGradGuard no_grad;
  model->eval();
  std::vector<at::Tensor> firsts, seconds;
  for (const auto& batch : loader.epoch(0)) {
    const auto halves = vectors_of(net, batch).chunk(2);
    firsts.push_back(halves[0]);
    seconds.push_back(halves[1]);
  }
  model->train();
  const auto all = [&](const std::vector<at::Tensor>& parts) {
    return dist::gradient::all_gather_rows(world, at::cat(parts)).rows;
  };
  const auto found = all(firsts).matmul(all(seconds).t()).argmax(1);
  return found.eq(at::arange(found.size(0), found.options())).to(at::kFloat).mean().item<double>();
}

void train_network(Options options) {
  train::flush_denormals();
  dist::World world;
  train::Run run(world, recipes::run_options(options, "embed"));
  recipes::fix(run, world, options);
  run.fix("from", options.model, options.given.contains("--model"));
  run.fix("data", options.data, options.given.contains("--data"));
  run.fix("test", options.test, options.given.contains("--test"));
  const auto preset = options.preset == "smallest" ? smallest() : minilm();
  const auto batch_size = recipes::fix_steps(run, world, options, preset.num_epochs, preset.batch_size);
  if (options.model.empty()) write_smallest(run.folder() / "start", world, options);

  const std::filesystem::path from = options.model;
  models::Bert model(models::read_bert_options(from / "config.json"));
  const std::shared_ptr<const models::Tokenizer> tokenizer = models::read_tokenizer(from);
  models::load_bert(from, *model);
  options.max_length = std::min(options.max_length, model->options().max_length);
  model->to(world.device());
  Net net(model, world, {.how = options.parallel, .units = model->fsdp_units()}, [&](train::NamedTensors parameters) {
    return std::make_unique<train::AdamW>(std::move(parameters),
                                          train::AdamWOptions{.weight_decay = preset.weight_decay});
  });
  train::seed({.seed = options.seed, .rank = world.rank(), .deterministic = options.deterministic});
  net.add_to(run.state());
  recipes::add_rest(run, options);
  run.say(fmt::format("embed: {}, into {}", recipes::describe(options, world, batch_size), run.folder().string()));

  train::Loader<Pairs> loader({options.data, {tokenizer, options.max_length}}, world,
                              {.batch_size = batch_size, .seed = options.seed, .drop_last = true});
  std::unique_ptr<train::Loader<Pairs>> test;
  if (!options.test.empty()) {
    test =
        std::make_unique<train::Loader<Pairs>>(Pairs(options.test, {tokenizer, options.max_length}), world,
                                               train::LoaderOptions{.batch_size = 32, .shuffle = false, .exact = true});
  }
  // The step after the last one has the rate 0, as in transformers. So a training of a single step learns, too.
  const auto num_steps = recipes::num_steps(options, loader.num_batches(), batch_size);
  const train::OneCycleOptions schedule{.total_steps = num_steps + 1,
                                        .max_lr = preset.max_lr,
                                        .pct_start = preset.warm_up,
                                        .anneal = train::Anneal::kLinear};
  const auto precision = recipes::autocast(options, world);
  for (auto& epoch : run.epochs(loader, options.num_epochs)) {
    for (const auto& batch : epoch) {
      const auto loss = [&] {
        const train::Autocast autocast(precision);
        const auto halves = vectors_of(net, batch).chunk(2);                          // [pairs, width] each
        const auto all = dist::gradient::all_gather(world, halves[1]).flatten(0, 1);  // [ranks * pairs, width]
        const auto own = at::arange(batch.num_pairs(), at::kLong).to(world.device()) + world.rank() * batch.num_pairs();
        return at::cross_entropy_loss(halves[0].matmul(all.t()).to(at::kFloat) / preset.temperature, own);
      }();
      loss.backward();
      net.clip_grad_norm(preset.max_norm);
      net.step(train::one_cycle_lr(run.schedule_step(), schedule));
      net.zero_grad();
      run.log("train_loss", loss, batch.num_pairs());
    }
    if (run.stopped()) break;
    if (test) run.log("test_accuracy", evaluate(model, net, *test, world));
  }
  const auto tensors = train::gather_tensors(world, train::named_tensors(*model));
  const auto folder = run.folder() / "model";
  recipes::on_rank_zero(world, [&] {
    models::write_bert(folder, model->options(), tensors);
    models::copy_tokenizer(from, folder);
  });
  run.say(fmt::format("model         {}, for transformers", folder.string()));
  recipes::say_how_to_resume(run, world, options, "embed");
  world.shutdown();
}

}  // namespace
}  // namespace embed

int main(int argc, char** argv) {
  if (const auto status = yoke::infer::main_of_recipe(argc, argv, recipes::model_of_folder_only)) return *status;
  const auto options = embed::parse(argc, argv);
  return yoke::run_program("embed", [&] { embed::train_network(options); });
}
