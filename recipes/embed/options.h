// recipes/embed/options.h -- the command line of the recipe, and its presets.
#pragma once

#include <cstdint>
#include <string>

#include "recipes/common/options.h"

namespace embed {

struct Options : recipes::Options {
  /// Folder with config.json, model.safetensors and tokenizer.json, as Hugging Face has them; empty: a small BERT with
  /// random weights, and pairs of invented words.
  std::string model;
  std::string data;          ///< Pairs to train with, two sentences in a line with a tab between them.
  std::string test;          ///< More pairs, among which partners are searched after each epoch; empty: none.
  int64_t max_length = 256;  ///< Of a sentence in tokens, as sentence-transformers has it for MiniLM.
};

/// How a network is trained.
struct Preset {
  int64_t num_epochs = 1;
  int64_t batch_size = 64;  ///< Pairs of a step, of all ranks together.
  double max_lr = 5e-5;
  double warm_up = 0.1;  ///< The share of all steps.
  double weight_decay = 0.01;
  double max_norm = 1.0;      ///< Of gradients.
  double temperature = 0.05;  ///< Divides cosines: a scale of 20, sentence-transformers' default.
};

Preset smallest();  ///< For the small BERT that knows nothing yet.
Preset minilm();    ///< For weights that others have trained.

/// Exits after --help, and if an argument is not valid.
Options parse(int argc, char** argv);

}  // namespace embed
