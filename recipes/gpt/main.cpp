// recipes/gpt/main.cpp -- trains a GPT on a text on every rank; the whole loop is in this file.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <utility>

#include "recipes/common/parallel.h"
#include "recipes/common/training.h"
#include "recipes/gpt/options.h"
#include "recipes/gpt/text_windows.h"
#include "yoke/contract/program.h"
#include "yoke/infer/run.h"
#include "yoke/models/generate.h"
#include "yoke/models/gpt.h"
#include "yoke/models/pretrained.h"
#include "yoke/train/checkpoint/module_state.h"
#include "yoke/train/checkpoint/tensor_slice.h"
#include "yoke/train/cpu_speed.h"
#include "yoke/train/data/loader.h"
#include "yoke/train/meter.h"
#include "yoke/train/optim/one_cycle.h"
#include "yoke/train/precision/autocast.h"
#include "yoke/train/run/run.h"
#include "yoke/train/seed.h"

namespace gpt {
namespace {

using namespace yoke;
using Net = recipes::Parallel<models::Gpt>;

at::Tensor loss_of(const at::Tensor& logits, const at::Tensor& target) {
  return at::cross_entropy_loss(logits.flatten(0, 1), target.flatten());  // [batch * length, vocabulary]
}

/// Collective: the mean loss per token of another text. Each rank computes its share of the sequences.
double evaluate(models::Gpt& model, Net& net, train::Loader<TextWindows>& loader, dist::World& world,
                const train::AutocastOptions& precision) {
  const at::NoGradGuard no_grad;
  model->eval();
  train::Mean loss;
  for (const auto& batch : loader.epoch(0)) {
    const train::Autocast autocast(precision);
    loss.add(loss_of(net(batch.data), batch.target), batch.target.numel());
  }
  model->train();
  return loss.read(world);
}

/// Collective with fsdp. Returns the prompt's continuation.
std::string sample(models::Gpt& model, Net& net, const models::Tokenizer& tokenizer, const std::string& prompt,
                   models::GenerateOptions options, const dist::World& world) {
  options.max_length = model->options().max_length;
  options.num_allowed = tokenizer.size();
  options.end = tokenizer.token("<|endoftext|>");
  model->eval();
  const auto forward = [&](const at::Tensor& next, models::GptCache& cache) { return net(next, &cache); };
  return tokenizer.decode(models::generate(forward, tokenizer.encode(prompt), options, world.device()));
}

void train_network(Options options) {
  train::flush_denormals();
  dist::World world;
  train::Run run(world, recipes::run_options(options, "gpt"));
  recipes::fix(run, world, options);
  fix_network(run, options);
  const auto tokenizer = models::read_tokenizer(options.tokenizer);
  const auto preset = preset_of(options, tokenizer->size());
  const auto batch_size = recipes::fix_steps(run, world, options, preset.num_epochs, preset.batch_size);
  const auto length = preset.length;
  const auto text = read_tokens(options.data, *tokenizer, length);
  const auto num_random = std::max(text.size(0) / length, preset.min_steps * batch_size * world.size());
  train::Loader<TextWindows> loader(
      {text, {.length = length, .num_random = num_random}}, world,
      {.batch_size = batch_size, .shuffle = false, .seed = options.seed, .drop_last = true});
  std::unique_ptr<train::Loader<TextWindows>> test;
  if (!options.test.empty()) {
    TextWindows windows(read_tokens(options.test, *tokenizer, length * world.size()), {.length = length});
    test = std::make_unique<train::Loader<TextWindows>>(
        std::move(windows), world,
        train::LoaderOptions{.batch_size = std::max<int64_t>(2, batch_size), .shuffle = false, .exact = true});
  }

  train::seed({.seed = options.seed, .deterministic = options.deterministic});  // all ranks get the same weights
  models::Gpt model(preset.network);
  model->to(world.device());
  Net net(model, world, {.how = options.parallel, .units = model->fsdp_units()},
          [&](train::NamedTensors parameters) { return make_optimizer(std::move(parameters), preset); });
  const train::OneCycleOptions schedule{.total_steps = recipes::num_steps(options, loader.num_batches(), batch_size),
                                        .max_lr = preset.max_lr,
                                        .pct_start = preset.warm_up,
                                        .div_factor = 20,
                                        .final_div_factor = 1};  // ends as it begins
  const auto precision = recipes::autocast(options, world);
  train::seed({.seed = options.seed, .rank = world.rank(), .deterministic = options.deterministic});

  net.add_to(run.state());
  recipes::add_rest(run, options);
  run.say(fmt::format("gpt: {}, {} tokens of {}, into {}", recipes::describe(options, world, batch_size), length,
                      options.tokenizer, run.folder().string()));
  for (auto& epoch : run.epochs(loader, options.num_epochs)) {
    for (const auto& batch : epoch) {
      const auto loss = [&] {
        const train::Autocast autocast(precision);
        return loss_of(net(batch.data), batch.target);
      }();
      loss.backward();
      net.clip_grad_norm(preset.max_norm);
      net.step(train::one_cycle_lr(run.schedule_step(), schedule));
      net.zero_grad();
      run.log("train_loss", loss, batch.target.numel());
    }
    if (run.stopped()) break;
    if (test) run.log("test_loss", evaluate(model, net, *test, world, precision));
  }

  if (!run.stopped() && options.num_sampled > 0) {
    const auto first = tokenizer->decode({text.const_data_ptr<int64_t>(), static_cast<size_t>(length / 4)});
    const auto prompt = options.prompt.empty() ? first : options.prompt;
    const models::GenerateOptions sampling{
        .num_tokens = options.num_sampled,
        .temperature = options.temperature.value_or(preset.temperature),
        .generator = at::detail::createCPUGenerator(options.seed)};  // the same on all ranks
    run.say(fmt::format("sample        {}|{}", prompt, sample(model, net, *tokenizer, prompt, sampling, world)));
  }
  if (!run.stopped() && options.positions == "learned") {
    const auto folder = run.folder() / "model";
    const auto tensors = train::gather_tensors(world, train::named_tensors(*model));
    recipes::on_rank_zero(world, [&] {
      models::write_gpt(folder, model->options(), tensors, tokenizer->token("<|endoftext|>"));
      if (std::filesystem::is_directory(options.tokenizer)) models::copy_tokenizer(options.tokenizer, folder);
    });
    run.say(fmt::format("model         {}, for transformers", folder.string()));
  }
  recipes::say_how_to_resume(run, world, options, "gpt");
  world.shutdown();
}

/// The network of a checkpoint, for `yoke infer`.
infer::Model network_of(const train::StoredCheckpoint& checkpoint, c10::Device device) {
  Options options;
  options.preset = infer::fixed_value(checkpoint, "preset");
  options.tokenizer = infer::fixed_value(checkpoint, "tokenizer");
  options.positions = infer::fixed_value(checkpoint, "positions");
  const std::shared_ptr<const models::Tokenizer> tokenizer = models::read_tokenizer(options.tokenizer);
  models::Gpt model(preset_of(options, tokenizer->size()).network);
  infer::load_network(checkpoint, *model, device);
  auto result = infer::model_of_gpt(model);
  result.tokenizer = tokenizer;
  return result;
}

}  // namespace
}  // namespace gpt

int main(int argc, char** argv) {
  if (const auto status = yoke::infer::main_of_recipe(argc, argv, gpt::network_of)) return *status;
  const auto options = gpt::parse(argc, argv);
  return yoke::run_program("gpt", [&] { gpt::train_network(options); });
}
