// recipes/finetune/main.cpp -- takes a BERT or a GPT-2 of transformers, and its texts, to the loop in fine_tune.h.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "recipes/finetune/fine_tune.h"
#include "recipes/finetune/options.h"
#include "recipes/finetune/texts.h"
#include "yoke/contract/program.h"
#include "yoke/infer/run.h"
#include "yoke/models/pretrained.h"
#include "yoke/models/text/tokenizer.h"
#include "yoke/train/cpu_speed.h"

namespace finetune {
namespace {

using namespace yoke;
namespace fs = std::filesystem;

void check_vocabulary(const fs::path& from, int64_t num_tokens, int64_t num_known) {
  if (num_tokens <= num_known) return;
  throw Error(ErrorCode::kInvalidArgument,
              "{}: the tokenizer has {} tokens, but the network knows {}; copy its own files there", from.string(),
              num_tokens, num_known);
}

void train_network(Options options) {
  train::flush_denormals();
  dist::World world;
  if (!options.model.empty() && !options.given.contains("--preset")) options.preset = preset_for(options.model);
  train::Run run(world, recipes::run_options(options, "finetune"));
  recipes::fix(run, world, options);
  fix_texts(run, options);
  const auto preset = preset_of(options.preset);
  const auto batch_size = recipes::fix_steps(run, world, options, preset.num_epochs, preset.batch_size);
  if (options.model.empty() || options.data.empty()) write_smallest(run.folder() / "start", world, options);
  if (options.max_length == 0) options.max_length = preset.max_length;

  const fs::path from = options.model;
  const auto tokenizer = models::read_tokenizer(from);
  const auto begin = [&](const std::string& texts) {
    run.say(fmt::format("finetune: {}, {}, {}, into {}", from.string(), texts,
                        recipes::describe(options, world, batch_size), run.folder().string()));
  };
  train::seed({.seed = options.seed, .deterministic = options.deterministic});  // all ranks get the same weights
  if (preset_for(from) == "gpt2") {
    auto network = models::read_gpt_options(from / "config.json");
    network.dropout = preset.dropout;
    options.max_length = std::min(options.max_length, network.max_length);
    check_vocabulary(from, tokenizer->size(), network.vocabulary_size);
    const auto sets = read_sequences(options, *tokenizer, world.size());
    models::Gpt model(network);
    models::load_gpt(from, *model);
    begin(fmt::format("{} sequences of {} tokens", sets.train.size(), options.max_length));
    fine_tune(model, sets, {options, preset, batch_size, world, run}, [&](auto& to, auto& tensors) {
      models::write_gpt(to, network, tensors, tokenizer->token("<|endoftext|>"));
    });
  } else {
    auto network = models::read_bert_classifier_options(from / "config.json");
    network.bert.dropout = preset.dropout;
    options.max_length = std::min(options.max_length, network.bert.max_length);
    check_vocabulary(from, tokenizer->size(), network.bert.vocabulary_size);
    const auto sets = read_labelled(options, network.labels, *tokenizer, world.size());
    network.labels = sets.labels;
    models::BertClassifier model(network);
    const auto fresh = models::load_bert_classifier(from, *model);
    begin(fmt::format("{} texts of {} classes{}", sets.train.size(), sets.labels.size(),
                      fresh.empty() || run.resumed() ? "" : fmt::format(" (new: {})", fmt::join(fresh, ", "))));
    fine_tune(model, sets, {options, preset, batch_size, world, run},
              [&](auto& to, auto& tensors) { models::write_bert_classifier(to, network, tensors); });
  }
  recipes::say_how_to_resume(run, world, options, "finetune");
  world.shutdown();
}

}  // namespace
}  // namespace finetune

int main(int argc, char** argv) {
  if (const auto status = yoke::infer::main_of_recipe(argc, argv, recipes::model_of_folder_only)) return *status;
  const auto options = finetune::parse(argc, argv);
  return yoke::run_program("finetune", [&] { finetune::train_network(options); });
}
