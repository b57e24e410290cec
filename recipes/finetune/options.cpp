#include "recipes/finetune/options.h"

#include <CLI/CLI.hpp>
#include <filesystem>

#include "yoke/base/error.h"
#include "yoke/models/pretrained.h"
#include "yoke/train/optim/adam.h"
#include "yoke/train/run/run.h"

namespace finetune {

Preset smallest() {
  return {.num_epochs = 6, .max_length = 32, .max_lr = 1e-3, .lora_lr = 1e-2, .warm_up = 0.2, .dropout = 0};
}
Preset bert() { return {}; }
Preset gpt2() { return {.batch_size = 16, .max_length = 512}; }

Preset preset_of(const std::string& name) { return name == "smallest" ? smallest() : name == "bert" ? bert() : gpt2(); }

std::string preset_for(const std::filesystem::path& folder) {
  const auto type = yoke::models::read_model_type(folder / "config.json");
  if (type == "bert" || type == "gpt2") return type;
  throw yoke::Error(yoke::ErrorCode::kFailedPrecondition,
                    "{}: a network of the type {} cannot be trained here; those of the types bert and gpt2 can",
                    folder.string(), type);
}

void fix_texts(yoke::train::Run& run, Options& options) {
  run.fix("from", options.model, options.given.contains("--model"));
  run.fix("data", options.data, options.given.contains("--data"));
  run.fix("test", options.test, options.given.contains("--test"));
  run.fix("lora", options.lora_rank, options.given.contains("--lora"));
  run.fix("max_length", options.max_length, options.given.contains("--max-length"));
}

std::unique_ptr<yoke::train::Optimizer> make_optimizer(yoke::train::NamedTensors parameters, const Preset& preset) {
  using namespace yoke::train;
  auto [matrices, others] = split(parameters, [](auto&, auto shape) { return shape.size() > 1; });
  const AdamWOptions decayed{.weight_decay = preset.weight_decay}, plain{.weight_decay = 0};
  return std::make_unique<AdamW>(
      std::vector<ParameterGroup<AdamWOptions>>{{std::move(matrices), decayed}, {std::move(others), plain}});
}

Options parse(int argc, char** argv) {
  Options options;
  CLI::App app(
      "Trains a BERT to classify texts, or a GPT-2 to continue them, on all ranks of the job that this process "
      "belongs\n"
      "to. Networks are folders of Hugging Face's transformers, before and after.\n"
      "Usually started by: yoke train finetune [-n N] --model DIR --data FILE [options]",
      "finetune");
  recipes::add_options(app, options, "finetune", {"smallest", "bert", "gpt2"});
  options.float_presets = {"smallest"};
  auto* model = app.add_option(
      "--model", options.model,
      "Folder of config.json, model.safetensors and a tokenizer's files; what its network is decides what is "
      "trained, and --preset. Without it, a small BERT begins with random weights");
  auto* data =
      app.add_option(
             "--data", options.data,
             "Texts: .csv with the columns text and label, .jsonl with such members, or for a GPT-2 any file with a "
             "text in each line. Without it, the recipe invents reviews")
          ->needs(model);
  app.add_option("--test", options.test, "More of them to test with; without it, a tenth of --data")->needs(data);
  app.add_option("--lora", options.lora_rank,
                 "Train adapters of this rank beside the weights, which stay as they are; 0: all weights")
      ->check(CLI::Range(int64_t{0}, int64_t{1024}))
      ->capture_default_str();
  app.add_option("--max-length", options.max_length,
                 "Tokens of a text, of which the rest is left out, or of a GPT-2's sequences; by default the preset's")
      ->check(CLI::Range(int64_t{3}, int64_t{1} << 20));
  app.footer(
      "Examples:\n"
      "  yoke train finetune                                          a small BERT on invented reviews\n"
      "  yoke train finetune --model bert-base-uncased/ --data reviews.csv --test more.csv\n"
      "  yoke train finetune --model gpt2/ --data poems.txt --lora 8 -n gpu --parallel fsdp\n"
      "  yoke train finetune --resume --out runs/finetune -n 1");
  recipes::parse(app, argc, argv, options);
  return options;
}

}  // namespace finetune
