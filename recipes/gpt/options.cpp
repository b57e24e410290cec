#include "recipes/gpt/options.h"

#include <CLI/CLI.hpp>
#include <map>

#include "yoke/train/optim/adam.h"
#include "yoke/train/run/run.h"

namespace gpt {

Preset paragraph() {
  return {.network = {.max_length = 64, .width = 64, .num_layers = 2, .num_heads = 4},
          .batch_size = 8,
          .max_lr = 1e-2,
          .temperature = 0};
}

Preset page() {
  return {.network = {.max_length = 128, .width = 128, .num_layers = 3, .num_heads = 4},
          .num_epochs = 6,
          .batch_size = 8,
          .max_lr = 6e-3,
          .temperature = 0};
}

Preset small() {
  return {.network = {.max_length = 256, .width = 384, .num_layers = 6, .num_heads = 6, .dropout = 0.1},
          .num_epochs = 10,
          .batch_size = 64,
          .max_lr = 1e-3};
}

Preset gpt2() { return {.network = {}, .num_epochs = 1, .batch_size = 480, .max_lr = 6e-4, .warm_up = 0.02}; }

Preset preset_of(const Options& options, int64_t vocabulary_size) {
  const std::map<std::string, Preset (*)()> presets = {
      {"page", page}, {"paragraph", paragraph}, {"small", small}, {"gpt2", gpt2}};
  auto preset = presets.at(options.preset)();
  preset.length = preset.network.max_length;
  preset.network.vocabulary_size = vocabulary_size;
  if (options.positions == "rotary") preset.network.positions = yoke::models::Positions::kRotary;
  return preset;
}

void fix_network(yoke::train::Run& run, Options& options) {
  run.fix("tokenizer", options.tokenizer, options.given.contains("--tokenizer"));
  run.fix("positions", options.positions, options.given.contains("--positions"));
}

std::unique_ptr<yoke::train::Optimizer> make_optimizer(yoke::train::NamedTensors parameters, const Preset& preset) {
  using namespace yoke::train;
  auto [matrices, others] = split(parameters, [](auto&, auto shape) { return shape.size() > 1; });
  const AdamWOptions decayed{.beta2 = 0.95, .weight_decay = preset.weight_decay},
      plain{.beta2 = 0.95, .weight_decay = 0};
  return std::make_unique<AdamW>(
      std::vector<ParameterGroup<AdamWOptions>>{{std::move(matrices), decayed}, {std::move(others), plain}});
}

Options parse(int argc, char** argv) {
  Options options;
  CLI::App app(
      "Trains a GPT on a text, on all ranks of the job that this process belongs to, and continues a prompt.\n"
      "Usually started by: yoke train gpt [-n N] --data FILE [options]",
      "gpt");
  recipes::add_options(app, options, "gpt", {"page", "paragraph", "small", "gpt2"});
  app.add_option("--data", options.data, "The text to learn, any file")->required();
  app.add_option("--test", options.test, "Another text, whose loss is shown after each epoch");
  app.add_option("--tokenizer", options.tokenizer,
                 "bytes; or GPT-2's files: a tokenizer.json, or a folder with it or with vocab.json and merges.txt")
      ->capture_default_str();
  app.add_option("--positions", options.positions, "How the network knows the order of tokens")
      ->check(recipes::one_of({"learned", "rotary"}))
      ->capture_default_str();
  app.add_option("--prompt", options.prompt, "What to continue at the end; by default the beginning of the text");
  app.add_option("--sample", options.num_sampled, "The number of tokens that continue the prompt; 0: none")
      ->check(CLI::Range(int64_t{0}, int64_t{1'000'000}))
      ->capture_default_str();
  app.add_option("--temperature", options.temperature,
                 "0: always the most likely token; by default 0 for the presets paragraph and page, else 0.8")
      ->check(CLI::NonNegativeNumber);
  app.footer(
      "Examples:\n"
      "  yoke train gpt --data page.txt                             learns a page by heart\n"
      "  yoke train gpt --preset small --data book.txt --test other.txt\n"
      "  yoke train gpt --preset gpt2 --tokenizer gpt2/ --data text.txt --parallel fsdp -n 8\n"
      "  yoke train gpt --data page.txt --resume --out runs/gpt --prompt \"Once upon\"   continues another prompt");
  recipes::parse(app, argc, argv, options);
  return options;
}

}  // namespace gpt
