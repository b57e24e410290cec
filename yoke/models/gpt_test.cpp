// Tests of GPT: the names and outputs of transformers' GPT-2, the cache, rotary positions, sharding, sampling.
#include "yoke/models/gpt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <map>

#include "fakes/run_ranks.h"
#include "tests/support/message_of.h"
#include "yoke/models/generate.h"
#include "yoke/models/lora.h"
#include "yoke/train/checkpoint/module_state.h"
#include "yoke/train/optim/clip_grad.h"
#include "yoke/train/shard/fully_sharded_data_parallel.h"

namespace yoke::models {
namespace {

using testing::HasSubstr;

GptOptions small_gpt(Positions positions = Positions::kLearned) {
  return {
      .vocabulary_size = 50, .max_length = 16, .width = 24, .num_layers = 2, .num_heads = 3, .positions = positions};
}

// The shapes are those of Hugging Face's gpt2; the number of parameters is that of its model card's 124M.
TEST(Gpt, HasTheNamesAndShapesOfTransformers) {
  const Gpt gpt(GptOptions{.num_layers = 1});
  std::map<std::string, std::vector<int64_t>> shapes;
  int64_t count = 0;
  for (const auto& [name, tensor] : train::named_tensors(*gpt)) shapes[name] = tensor.sizes().vec();
  for (const auto& [name, tensor] : train::distinct(train::parameters_of(gpt))) count += tensor.numel();
  const std::map<std::string, std::vector<int64_t>> expected = {
      {"transformer.wte.weight", {50257, 768}},
      {"transformer.wpe.weight", {1024, 768}},
      {"transformer.h.0.ln_1.weight", {768}},
      {"transformer.h.0.ln_1.bias", {768}},
      {"transformer.h.0.attn.c_attn.weight", {768, 2304}},
      {"transformer.h.0.attn.c_attn.bias", {2304}},
      {"transformer.h.0.attn.c_proj.weight", {768, 768}},
      {"transformer.h.0.attn.c_proj.bias", {768}},
      {"transformer.h.0.ln_2.weight", {768}},
      {"transformer.h.0.ln_2.bias", {768}},
      {"transformer.h.0.mlp.c_fc.weight", {768, 3072}},
      {"transformer.h.0.mlp.c_fc.bias", {3072}},
      {"transformer.h.0.mlp.c_proj.weight", {3072, 768}},
      {"transformer.h.0.mlp.c_proj.bias", {768}},
      {"transformer.ln_f.weight", {768}},
      {"transformer.ln_f.bias", {768}},
      {"lm_head.weight", {50257, 768}},
  };
  EXPECT_EQ(shapes, expected);
  EXPECT_EQ(count + 11 * 7'087'872, 124'439'808) << "with eleven more layers";
}

TEST(Gpt, SeesNoLaterToken) {
  torch::manual_seed(0);
  for (const auto positions : {Positions::kLearned, Positions::kRotary}) {
    Gpt gpt(small_gpt(positions));
    const auto tokens = torch::randint(50, {2, 10});
    auto changed = tokens.clone();
    changed.index_put_({torch::indexing::Slice(), 6}, (tokens.select(1, 6) + 1) % 50);
    const auto before = gpt(tokens), after = gpt(changed);
    EXPECT_TRUE(torch::allclose(before.narrow(1, 0, 6), after.narrow(1, 0, 6), 1e-5, 1e-6));
    EXPECT_FALSE(torch::allclose(before.narrow(1, 6, 4), after.narrow(1, 6, 4), 1e-5, 1e-6));
  }
}

// Values are not rotated, so that a text of equal tokens gives equal logits everywhere; and the order of earlier tokens
// matters.
TEST(Gpt, RotaryPositionsAreDistances) {
  torch::manual_seed(0);
  Gpt rotary(small_gpt(Positions::kRotary)), learned(small_gpt());
  const auto same = torch::full({1, 12}, 7);
  const auto differs = [&](Gpt& gpt) {
    const auto logits = gpt(same);
    return !torch::allclose(logits.select(1, 0), logits.select(1, 11), 1e-4, 1e-5);
  };
  EXPECT_FALSE(differs(rotary));
  EXPECT_TRUE(differs(learned));

  const auto tokens = torch::tensor({3, 1, 4, 1, 5, 9, 2, 6}).unsqueeze(0);
  const auto exchanged = tokens.index_select(1, torch::tensor({2, 1, 0, 3, 4, 5, 6, 7}));
  for (auto* block : {&rotary, &learned}) {  // the weights are small, and so are the differences
    EXPECT_FALSE(torch::allclose((*block)(tokens).select(1, 7), (*block)(exchanged).select(1, 7), 1e-6, 1e-8));
  }
}

// Oracle: one forward over the whole text.
TEST(Gpt, ACacheGivesTheLogitsOfTheWholeText) {
  torch::manual_seed(0);
  const torch::NoGradGuard no_grad;
  for (const auto positions : {Positions::kLearned, Positions::kRotary}) {
    Gpt gpt(small_gpt(positions));
    const auto tokens = torch::randint(50, {2, 12});
    const auto whole = gpt(tokens);
    GptCache cache;
    std::vector<at::Tensor> parts;
    int64_t first = 0;
    for (const int64_t length : {5, 1, 4, 2}) {
      parts.push_back(gpt(tokens.narrow(1, first, length), &cache));
      first += length;
    }
    EXPECT_EQ(cache.length, 12);
    EXPECT_TRUE(torch::allclose(torch::cat(parts, 1), whole, 1e-4, 1e-5));
    EXPECT_THAT(test::message_of([&] { gpt(tokens.narrow(1, 0, 5), &cache); }), HasSubstr("1 to 16, less the 12"));
  }
}

TEST(Gpt, RefusesWhatCannotBe) {
  const auto message = [](GptOptions options) { return test::message_of([&] { const Gpt gpt(options); }); };
  EXPECT_THAT(message({.width = 10, .num_heads = 3}), HasSubstr("3 heads do not divide a width of 10"));
  EXPECT_THAT(message({.num_layers = 0}), HasSubstr("num_layers is 0"));
  EXPECT_THAT(message({.width = 9, .num_heads = 3, .positions = Positions::kRotary}), HasSubstr("even width"));
  EXPECT_THAT(message({.dropout = 1}), HasSubstr("outside [0, 1)"));
  Gpt gpt(small_gpt());
  EXPECT_THAT(test::message_of([&] { gpt(torch::zeros({1, 17}, torch::kLong)); }), HasSubstr("1 to 16"));
}

// Oracle: one process. The tied weight belongs to the outermost unit, and blocks are units of a ModuleList.
TEST(Gpt, IsShardedByItsBlocks) {
  torch::manual_seed(0);
  const auto tokens = torch::randint(50, {4, 9});
  const auto x = tokens.narrow(1, 0, 8), y = tokens.narrow(1, 1, 8);
  const auto loss_of = [](const at::Tensor& logits, const at::Tensor& target) {
    return torch::nn::functional::cross_entropy(logits.flatten(0, 1), target.flatten());
  };
  Gpt whole(small_gpt());
  const auto initial = train::by_name(train::named_tensors(*whole));
  std::map<std::string, at::Tensor> copies;
  for (const auto& [name, tensor] : initial) copies[name] = tensor.detach().clone();
  loss_of(whole(x), y).backward();
  fakes::run_ranks(2, [&](dist::World& world) {
    Gpt part(small_gpt());
    train::load_module(train::TensorMap(copies), *part);
    train::FullyShardedDataParallel net(part, world, {.units = part->fsdp_units()});
    loss_of(net(x.narrow(0, 2 * world.rank(), 2)), y.narrow(0, 2 * world.rank(), 2)).backward();
    const auto expected = train::norms(train::distinct(train::parameters_of(whole))).gradients;
    const auto norm = net.clip_grad_norm(1e9);
    EXPECT_TRUE(torch::allclose(norm, expected, 1e-4, 1e-6)) << norm << expected;
  });
}

// Oracle: the merged weights in a network without adapters.
TEST(Lora, TrainsAdaptersAloneAndMergesThem) {
  torch::manual_seed(0);
  Gpt gpt(small_gpt()), merged(small_gpt());
  const auto tokens = torch::randint(50, {2, 9});
  const auto before = gpt(tokens).detach();
  const auto frozen = gpt->named_parameters()["transformer.h.0.attn.c_attn.weight"].detach().clone();
  const LoraOptions options{.rank = 3, .alpha = 5};
  add_lora(*gpt, options);
  EXPECT_TRUE(torch::equal(gpt(tokens), before)) << "B is 0";

  std::vector<std::string> trained;
  for (const auto& [name, parameter] : train::parameters_of(gpt)) {
    if (parameter.requires_grad()) trained.push_back(name);
  }
  EXPECT_THAT(trained, testing::ElementsAre(
                           "transformer.h.0.attn.c_attn.lora_A.weight", "transformer.h.0.attn.c_attn.lora_B.weight",
                           "transformer.h.1.attn.c_attn.lora_A.weight", "transformer.h.1.attn.c_attn.lora_B.weight"));
  for (int i = 0; i < 2; ++i) {  // the gradient of A is 0 while B is
    gpt(tokens).square().mean().backward();
    const torch::NoGradGuard no_grad;
    for (auto& [name, parameter] : train::parameters_of(gpt)) {
      if (!parameter.requires_grad()) continue;
      EXPECT_TRUE(parameter.grad().defined()) << name;
      parameter -= parameter.grad() * 10;
      parameter.mutable_grad().reset();
    }
  }
  EXPECT_TRUE(torch::equal(gpt->named_parameters()["transformer.h.0.attn.c_attn.weight"], frozen));
  const auto after = gpt(tokens).detach();
  EXPECT_FALSE(torch::allclose(after, before, 1e-4, 1e-5));
  train::load_module(merge_lora(train::named_tensors(*gpt), options), *merged);
  EXPECT_TRUE(torch::allclose(merged(tokens), after, 1e-4, 1e-5));
  EXPECT_THAT(test::message_of([&] { add_lora(*gpt); }, ErrorCode::kFailedPrecondition), HasSubstr("already"));
}

TEST(Generate, ChoosesAsTheOptionsSay) {
  const auto logits = torch::log(torch::tensor({0.1, 0.5, 0.15, 0.25}));
  torch::manual_seed(0);
  EXPECT_EQ(choose_token(logits, {.temperature = 0}), 1);
  const auto seen = [&](GenerateOptions options) {
    std::map<int64_t, int> counts;
    for (int i = 0; i < 400; ++i) ++counts[choose_token(logits, options)];
    return counts;
  };
  EXPECT_THAT(seen({}), testing::SizeIs(4));
  EXPECT_THAT(seen({.top_k = 2}), testing::UnorderedElementsAre(testing::Key(1), testing::Key(3)));
  EXPECT_THAT(seen({.top_p = 0.7}), testing::UnorderedElementsAre(testing::Key(1), testing::Key(3)));
  EXPECT_THAT(seen({.top_p = 0.4}), testing::UnorderedElementsAre(testing::Key(1)));
  EXPECT_NEAR(seen({.temperature = 1})[1], 200, 60) << "six deviations";
  EXPECT_GT(seen({.temperature = 0.2})[1], 350);
}

// A network that knows the order: the next token is the sum of the last two modulo 10.
TEST(Generate, ContinuesBeyondTheLengthOfTheNetwork) {
  std::vector<int64_t> lengths;
  const auto forward = [&](const at::Tensor& tokens, GptCache& cache) {
    lengths.push_back(tokens.size(1));
    cache.layers.resize(1);
    auto& seen = cache.layers[0].keys;
    seen = seen.defined() ? torch::cat({seen, tokens}, 1) : tokens;
    cache.length = seen.size(1);
    EXPECT_LE(cache.length, 8);
    const auto next = (seen.select(1, -1) + seen.select(1, -2)) % 10;
    return torch::one_hot(next, 10).to(torch::kFloat).unsqueeze(1);
  };
  const auto tokens = generate(forward, {1, 1}, {.num_tokens = 14, .max_length = 8, .temperature = 0});
  EXPECT_THAT(tokens, testing::ElementsAre(2, 3, 5, 8, 3, 1, 4, 5, 9, 4, 3, 7, 0, 7));
  EXPECT_THAT(lengths, testing::ElementsAre(2, 1, 1, 1, 1, 1, 1, 4, 1, 1, 1, 1, 4, 1));
  EXPECT_THAT(generate(forward, {1, 1}, {.num_tokens = 14, .max_length = 8, .temperature = 0, .end = 8}),
              testing::ElementsAre(2, 3, 5));
  for (const auto token :
       generate(forward, {1, 1}, {.num_tokens = 9, .max_length = 8, .num_allowed = 5, .temperature = 0})) {
    EXPECT_LT(token, 5);
  }
  EXPECT_THAT(test::message_of([&] { generate(forward, {}, {.max_length = 8}); }), HasSubstr("no tokens"));
}

}  // namespace
}  // namespace yoke::models
