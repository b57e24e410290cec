// recipes/common/options.h -- the options that recipes with presets share, and how a resumed run gets them back.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace CLI {
class App;
class Validator;
}  // namespace CLI
namespace yoke::dist {
class World;
}
namespace yoke::train {
class Run;
struct RunOptions;
struct AutocastOptions;
}  // namespace yoke::train

namespace recipes {

struct Options {
  std::string preset;
  std::string parallel = "ddp";
  int64_t num_epochs = 0;  ///< 0: the preset's number.
  int64_t batch_size = 0;  ///< Samples of a step of all ranks together; 0: the preset's number.
  uint64_t seed = 0;
  bool resume = false;
  std::string out;
  std::string precision = "auto";
  bool deterministic = false;
  int64_t checkpoint_every = 0;  ///< In steps; 0: only at the end of each epoch.
  std::set<std::string> given;   ///< Names of the options that were on the command line.
  /// Presets of small networks, which are faster in float: autocast costs them more than bfloat16 saves.
  std::set<std::string> float_presets;
};

/// Adds --preset, --parallel, --epochs, --batch-size, --seed, --resume, --out, --precision, --deterministic and
/// --checkpoint-every. `presets` are the names that there are; the first one is the default.
void add_options(CLI::App& app, Options& options, const std::string& recipe, const std::vector<std::string>& presets);

/// For CLI::Option::check: accepts these names, and suggests one for another.
CLI::Validator one_of(const std::vector<std::string>& names);

/// Parses, and exits: after --help with 0, and with 64, as `yoke` does, if an argument is not valid. One message then
/// says why.
void parse(CLI::App& app, int argc, char** argv, Options& options);

/// What the Run of a recipe needs of its options.
yoke::train::RunOptions run_options(const Options& options, const std::string& recipe);

/// Registers --preset, --seed, --precision and --deterministic as values that a resumed run takes from its checkpoint,
/// and sets the number of threads. --parallel may change. `precision` becomes "bf16" or "fp32".
void fix(yoke::train::Run& run, yoke::dist::World& world, Options& options);

/// The same for --epochs, and for --batch-size unless it is given, with the preset's numbers in a new run. Returns the
/// number of samples in a step of one rank: batch_size divided by the ranks and rounded, at least 1.
int64_t fix_steps(yoke::train::Run& run, const yoke::dist::World& world, Options& options, int64_t num_epochs,
                  int64_t batch_size);

/// The scope for forward and loss: bfloat16 if `precision` is "bf16".
/// The steps of all epochs. Errors  kInvalidArgument: there are fewer samples than a step takes.
int64_t num_steps(const Options& options, int64_t batches_per_epoch, int64_t samples_per_rank);

yoke::train::AutocastOptions autocast(const Options& options, const yoke::dist::World& world);

/// "2 ranks on the CPU, fsdp, 2 x 64 samples a step, bf16": for the line with which a training begins.
std::string describe(const Options& options, const yoke::dist::World& world, int64_t samples_per_rank);

/// Prints where the checkpoint is and how the run goes on.
void say_how_to_resume(const yoke::train::Run& run, const yoke::dist::World& world, const Options& options,
                       const std::string& recipe);

}  // namespace recipes
