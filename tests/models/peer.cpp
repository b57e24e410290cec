// The C++ half of exchange.py and step.py, which compare yoke/models with Python's libraries.
//
//     yoke_models_peer exchange NETWORK WEIGHTS INPUT OUTPUT
//         loads WEIGHTS, computes with the images "x" of INPUT, and writes OUTPUT.safetensors with the logits "y",
//         OUTPUT.weights.safetensors and OUTPUT.weights.pt
//     yoke_models_peer steps NETWORK BATCH SIZE PRECISION
//         for each line N of its input, trains N steps and prints the seconds that they took
#include <ATen/ops/arange.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <c10/core/InferenceMode.h>
#include <fmt/format.h>

#include <chrono>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <utility>

#include "recipes/common/training.h"
#include "yoke/base/error.h"
#include "yoke/contract/program.h"
#include "yoke/dist/world.h"
#include "yoke/models/bert.h"
#include "yoke/models/gpt.h"
#include "yoke/models/resnet.h"
#include "yoke/models/vit.h"
#include "yoke/models/weights.h"
#include "yoke/train/cpu_speed.h"
#include "yoke/train/format/safetensors.h"
#include "yoke/train/optim/adam.h"
#include "yoke/train/optim/sgd.h"
#include "yoke/train/precision/autocast.h"

namespace yoke {
namespace {

std::shared_ptr<models::ImageModel> make(const std::string& network) {
  if (network == "resnet18") return std::make_shared<models::ResNetImpl>(models::resnet18());
  if (network == "resnet50") return std::make_shared<models::ResNetImpl>(models::resnet50());
  if (network == "vit_small") return std::make_shared<models::ViTImpl>(models::vit_small());
  if (network == "vit_base") return std::make_shared<models::ViTImpl>(models::vit_base());
  throw Error(ErrorCode::kInvalidArgument, "no network {}", network);
}

void exchange(const std::string& network, const std::string& weights, const std::string& input,
              const std::string& output) {
  const auto model = make(network);
  models::load_weights(model->adapted(models::read_weights(weights)), *model);
  model->eval();
  const c10::InferenceMode no_autograd;
  const auto x = train::read_safetensors(input).tensors.at("x");
  train::write_safetensors(output + ".safetensors", train::TensorMap{{"y", model->forward(x)}});
  dist::World world;
  models::save_weights(world, *model, output + ".weights.safetensors");
  models::save_weights(world, *model, output + ".weights.pt");
  world.shutdown();
}

/// Returns the mean loss of a batch, with inputs and targets that it keeps.
using Loss = std::function<at::Tensor()>;

/// A network to train, and its optimizer.
struct Case {
  Loss loss;
  std::unique_ptr<train::Optimizer> optimizer;
};

Case case_of(const std::shared_ptr<models::ImageModel>& model, int64_t batch, int64_t side, int64_t num_classes) {
  recipes::to_channels_last(*model);
  const auto x = at::randn({batch, 3, side, side}).contiguous(at::MemoryFormat::ChannelsLast);
  const auto y = at::randint(num_classes, {batch}, at::kLong);
  return {[=] { return at::cross_entropy_loss(model->forward(x), y); },
          std::make_unique<train::Sgd>(*model, train::SgdOptions{.lr = 0.01, .momentum = 0.9, .weight_decay = 1e-4})};
}

Case case_of(models::Gpt model, int64_t batch, int64_t length) {
  const auto tokens = at::randint(model->options().vocabulary_size, {batch, length + 1}, at::kLong);
  const auto x = tokens.narrow(1, 0, length).contiguous(), y = tokens.narrow(1, 1, length).flatten();
  auto optimizer = std::make_unique<train::AdamW>(*model, train::AdamWOptions{.lr = 1e-4});
  return {[=]() mutable { return at::cross_entropy_loss(model(x).flatten(0, 1), y); }, std::move(optimizer)};
}

/// The loss of sentences that belong together in pairs, as in the recipe embed.
Case case_of(models::Bert model, int64_t batch, int64_t length) {
  const auto x = at::randint(model->options().vocabulary_size, {2 * batch, length}, at::kLong);
  const auto y = at::arange(batch, at::kLong);
  auto optimizer = std::make_unique<train::AdamW>(*model, train::AdamWOptions{.lr = 1e-5});
  return {[=]() mutable {
            const auto mask = at::ones(x.sizes(), at::kBool);
            const auto halves = models::sentence_embeddings(model(x, mask), mask).chunk(2);
            return at::cross_entropy_loss(halves[0].matmul(halves[1].t()).to(at::kFloat) / 0.05, y);
          },
          std::move(optimizer)};
}

Case make_case(const std::string& network, int64_t batch, int64_t size) {
  if (network == "gpt2") return case_of(models::Gpt(models::GptOptions{}), batch, size);
  if (network == "gpt_page") {
    return case_of(models::Gpt(models::GptOptions{
                       .vocabulary_size = 256, .max_length = 128, .width = 128, .num_layers = 3, .num_heads = 4}),
                   batch, size);
  }
  if (network == "minilm") return case_of(models::Bert(models::minilm_l6()), batch, size);
  if (network == "cifar_resnet18") {
    return case_of(std::make_shared<models::ResNetImpl>(models::cifar_resnet18()), batch, size, 10);
  }
  if (network == "smallest_vit") {
    const models::ViTOptions options{
        .image_size = size, .patch_size = 8, .width = 64, .depth = 2, .num_heads = 4, .num_classes = 4};
    return case_of(std::make_shared<models::ViTImpl>(options), batch, size, 4);
  }
  return case_of(make(network), batch, size, 1000);
}

void time_steps(const std::string& network, int64_t batch, int64_t size, const std::string& precision) {
  train::flush_denormals();
  train::keep_freed_memory();
  const auto it = make_case(network, batch, size);
  for (int count = 0; std::cin >> count;) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < count; ++i) {
      const auto loss = [&] {
        const train::Autocast autocast({.enabled = precision == "bf16"});
        return it.loss();
      }();
      it.optimizer->zero_grad();
      loss.backward();
      it.optimizer->step();
    }
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    std::cout << seconds.count() << std::endl;
  }
}

}  // namespace
}  // namespace yoke

int main(int argc, char** argv) {
  return yoke::run_program("peer", [&] {
    const std::string what = argc == 6 ? argv[1] : "";
    if (what == "exchange") {
      yoke::exchange(argv[2], argv[3], argv[4], argv[5]);
    } else if (what == "steps") {
      yoke::time_steps(argv[2], std::stoll(argv[3]), std::stoll(argv[4]), argv[5]);
    } else {
      throw yoke::Error(yoke::ErrorCode::kInvalidArgument, "see the comment at the beginning of peer.cpp");
    }
  });
}
