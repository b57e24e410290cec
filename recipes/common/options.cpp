#include "recipes/common/options.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>

#include "yoke/base/error.h"
#include "yoke/base/shell.h"
#include "yoke/base/spelling.h"
#include "yoke/contract/error_file.h"
#include "yoke/dist/world.h"
#include "yoke/train/precision/autocast.h"
#include "yoke/train/run/run.h"

namespace recipes {

using namespace yoke;

namespace {

/// Why the command line of `app` is wrong, in the words of the command `yoke`.
std::string complaint(const CLI::App& app, const CLI::ParseError& error) {
  const auto words = app.remaining();
  std::vector<std::string> names;
  for (const auto* option : app.get_options()) names.push_back(option->get_name());
  // What another option requires comes first, and may be missing because of a misspelling.
  const bool may_be_misspelt = dynamic_cast<const CLI::RequiresError*>(&error) != nullptr && !words.empty();
  if (dynamic_cast<const CLI::ExtrasError*>(&error) == nullptr && !may_be_misspelt) return error.what();
  const auto unknown = std::ranges::find_if(words, [](const auto& word) { return word.starts_with("-"); });
  if (unknown == words.end()) return fmt::format("unexpected argument: {}", fmt::join(words, " "));
  const auto name = unknown->substr(0, unknown->find('='));
  return fmt::format("unknown option {}{}", name, did_you_mean(name, names));
}

}  // namespace

CLI::Validator one_of(const std::vector<std::string>& names) {
  return {[names](std::string& text) {
            if (std::ranges::find(names, text) != names.end()) return std::string();
            return fmt::format("{} is none of {}{}", text, fmt::join(names, ", "), did_you_mean(text, names));
          },
          fmt::format("{{{}}}", fmt::join(names, ","))};
}

void add_options(CLI::App& app, Options& options, const std::string& recipe, const std::vector<std::string>& presets) {
  options.preset = presets.front();
  app.option_defaults()->take_last();  // the last value of a repeated option counts, as in `yoke`
  app.add_option("--preset", options.preset, "The network and how it is trained")
      ->check(one_of(presets))
      ->capture_default_str();
  app.add_option("--parallel", options.parallel,
                 "ddp: each rank has all of the network; zero1: the optimizer's state is divided between ranks; fsdp: "
                 "so are the parameters")
      ->check(one_of({"ddp", "zero1", "fsdp"}))
      ->capture_default_str();
  app.add_option("--epochs", options.num_epochs, "Number of passes over all samples; by default the preset's")
      ->check(CLI::Range(int64_t{1}, int64_t{100'000}));
  app.add_option("--batch-size", options.batch_size,
                 "Samples of a step, of all ranks together; by default the preset's")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20));
  app.add_option("--seed", options.seed, "Seed of the initial weights and of the order of samples")
      ->capture_default_str();
  app.add_flag("--resume", options.resume, "Continue from the newest checkpoint of the run folder");
  app.add_option("--out", options.out,
                 fmt::format("The run folder; by default runs/{}, with the next free number if it exists", recipe));
  app.add_option("--precision", options.precision,
                 "auto: bf16 if the hardware supports it and the network is not too small for it")
      ->check(one_of({"auto", "bf16", "fp32"}))
      ->capture_default_str();
  app.add_flag("--deterministic", options.deterministic,
               "Give the same bits in every run: one thread, deterministic kernels");
  app.add_option("--checkpoint-every", options.checkpoint_every, "Save every N steps too; 0: after each epoch only")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
}

void parse(CLI::App& app, int argc, char** argv, Options& options) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help) {
    std::exit(app.exit(help));
  } catch (const CLI::ParseError& error) {
    const auto text = fmt::format("{}; see `yoke train {} --help`", complaint(app, error), app.get_name());
    // Every rank finds the mistake. A launcher that has asked for a report shows that of one rank.
    if (!record_failure("", text)) fmt::print(stderr, "{}: {}\n", app.get_name(), text);
    std::exit(exit_status(ErrorCode::kInvalidArgument));
  }
  for (const auto* option : app.get_options()) {
    if (option->count() > 0) options.given.insert(option->get_name());
  }
}

train::RunOptions run_options(const Options& options, const std::string& recipe) {
  return {.name = recipe, .folder = options.out, .resume = options.resume, .save_every = options.checkpoint_every};
}

void fix(train::Run& run, dist::World& world, Options& options) {
  run.fix("preset", options.preset, options.given.contains("--preset"));
  if (options.precision == "auto") {
    const bool is_faster = train::has_fast_bfloat16(world.device()) && !options.float_presets.contains(options.preset);
    options.precision = is_faster ? "bf16" : "fp32";
  }
  run.fix("seed", options.seed, options.given.contains("--seed"));
  run.fix("precision", options.precision, options.given.contains("--precision"));
  run.fix("deterministic", options.deterministic, options.given.contains("--deterministic"));
  if (options.deterministic) at::set_num_threads(1);
}

int64_t fix_steps(train::Run& run, const dist::World& world, Options& options, int64_t num_epochs, int64_t batch_size) {
  if (options.num_epochs == 0) options.num_epochs = num_epochs;
  if (options.batch_size == 0) options.batch_size = batch_size;
  run.fix("epochs", options.num_epochs, options.given.contains("--epochs"));
  const auto batch_size_given = options.batch_size;
  run.fix("batch_size", options.batch_size);
  // A resumed run may take another one, because its position in the data counts samples.
  if (options.given.contains("--batch-size")) options.batch_size = batch_size_given;
  return std::max<int64_t>(1, (options.batch_size + world.size() / 2) / world.size());
}

int64_t num_steps(const Options& options, int64_t batches_per_epoch, int64_t samples_per_rank) {
  if (batches_per_epoch == 0) {
    throw Error(
        ErrorCode::kInvalidArgument,
        "the training data have fewer samples than one step takes, {} on each rank: give a smaller --batch-size, "
        "or more data",
        samples_per_rank);
  }
  return options.num_epochs * batches_per_epoch;
}

train::AutocastOptions autocast(const Options& options, const dist::World& world) {
  return {.device_type = world.device().type(), .enabled = options.precision == "bf16"};
}

std::string describe(const Options& options, const dist::World& world, int64_t samples_per_rank) {
  return fmt::format("{} rank{} on {}, {}, {} x {} samples a step, {}{}", world.size(), world.size() == 1 ? "" : "s",
                     world.device().is_cpu() ? "the CPU" : "GPUs", options.parallel, world.size(), samples_per_rank,
                     options.precision, options.deterministic ? ", deterministic" : "");
}

void say_how_to_resume(const train::Run& run, const dist::World& world, const Options& options,
                       const std::string& recipe) {
  run.say(fmt::format("checkpoint    {}", run.checkpoints().path_of(run.step()).string()));
  const auto every =
      options.checkpoint_every == 0 ? "" : fmt::format(" --checkpoint-every {}", options.checkpoint_every);
  const auto batch_size =
      options.given.contains("--batch-size") ? fmt::format(" --batch-size {}", options.batch_size) : "";
  run.say(fmt::format("to resume     yoke train {} --resume --out {} -n {}{}{}", recipe,
                      shell_word(run.folder().string()), world.size(), every, batch_size));
}

}  // namespace recipes
