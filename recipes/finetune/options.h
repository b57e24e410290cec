// recipes/finetune/options.h -- the command line of the recipe, and its presets.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "recipes/common/options.h"
#include "yoke/train/optim/optimizer.h"

namespace yoke::train {
class Run;
}

namespace finetune {

struct Options : recipes::Options {
  std::string model;       ///< Folder of a BERT or GPT-2 of transformers; empty: a small BERT with random weights.
  std::string data;        ///< Texts to train with; empty: invented reviews.
  std::string test;        ///< Texts to test with; empty: a tenth of `data`.
  int64_t lora_rank = 0;   ///< Above 0: trains adapters of this rank beside the weights.
  int64_t max_length = 0;  ///< Of a text, or of a sequence of a GPT-2, in tokens; 0: the preset's.
};

/// How a network is trained.
struct Preset {
  int64_t num_epochs = 3;
  int64_t batch_size = 32;  ///< Texts or sequences of a step, of all ranks together.
  int64_t max_length = 128;
  double max_lr = 5e-5;
  double lora_lr = 5e-4;  ///< The same for adapters.
  double warm_up = 0.1;  ///< The share of all steps in which the rate rises; then it falls towards 0, both along lines.
  double weight_decay = 0.01;
  double max_norm = 1.0;  ///< Of gradients.
  double dropout = 0.1;
};

Preset smallest();  ///< For the small BERT that begins with random weights.
Preset bert();      ///< As Devlin et al., "BERT", 2019, sec. 4.1, fine-tune it.
Preset gpt2();
Preset preset_of(const std::string& name);

/// The preset for a folder of transformers: "bert" or "gpt2".
/// Errors  kNotFound; kFailedPrecondition: its network is another one.
std::string preset_for(const std::filesystem::path& folder);

/// Registers --model (as "from"), --data, --test, --lora and --max-length as values that a resumed run takes from its
/// checkpoint.
void fix_texts(yoke::train::Run& run, Options& options);

/// AdamW. Biases and norms are not decayed.
std::unique_ptr<yoke::train::Optimizer> make_optimizer(yoke::train::NamedTensors parameters, const Preset& preset);

/// Exits after --help, and if an argument is not valid. Without --preset, that of the network in --model is chosen.
Options parse(int argc, char** argv);

}  // namespace finetune
