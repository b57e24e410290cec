// recipes/gpt/options.h -- the command line of the recipe, and its presets.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "recipes/common/options.h"
#include "yoke/models/gpt.h"
#include "yoke/train/optim/optimizer.h"

namespace yoke::train {
class Run;
}

namespace gpt {

struct Options : recipes::Options {
  std::string data;                   ///< The text to learn.
  std::string test;                   ///< Another text, whose loss is computed after each epoch; empty: none.
  std::string tokenizer = "bytes";    ///< See models::read_tokenizer.
  std::string positions = "learned";  ///< Or "rotary".
  std::string prompt;                 ///< Continued at the end; empty: the text's first words.
  int64_t num_sampled = 256;          ///< Tokens that continue the prompt.
  std::optional<double> temperature;  ///< The default is the preset's.
};

/// A network and how it is trained.
struct Preset {
  yoke::models::GptOptions network;
  int64_t length = 0;  ///< Of sequences, in tokens; preset_of() sets it.
  int64_t num_epochs = 3;
  int64_t batch_size = 16;  ///< Sequences of a step, of all ranks together.
  int64_t min_steps = 100;  ///< An epoch is a pass over the text, or so many steps if that is more.
  double max_lr = 3e-3;
  double warm_up = 0.1;  ///< The share of all steps.
  double weight_decay = 0.1;
  double max_norm = 1.0;  ///< Of gradients.
  double temperature = 0.8;
};

Preset paragraph();  ///< 0.12 million parameters: learns a few sentences by heart in ten seconds on a CPU.
Preset page();       ///< 0.6 million parameters: the same for a page.
Preset small();      ///< 10.8 million parameters and 256 tokens, for a book.
Preset gpt2();       ///< GPT-2's smallest size, 124 million parameters and 1,024 tokens.
/// The preset that the options name.
Preset preset_of(const Options& options, int64_t vocabulary_size);

/// Registers --tokenizer and --positions as values that a resumed run takes from its checkpoint.
void fix_network(yoke::train::Run& run, Options& options);

/// AdamW. Biases and norms are not decayed.
std::unique_ptr<yoke::train::Optimizer> make_optimizer(yoke::train::NamedTensors parameters, const Preset& preset);

/// Exits after --help, and if an argument is not valid.
Options parse(int argc, char** argv);

}  // namespace gpt
