// The C++ half of exchange.py and step.py, which compare yoke/models with Python's libraries.
//
//     yoke_models_peer exchange NETWORK WEIGHTS INPUT OUTPUT
//         loads WEIGHTS, computes with the images "x" of INPUT, and writes OUTPUT.safetensors with the logits "y",
//         OUTPUT.weights.safetensors and OUTPUT.weights.pt
//     yoke_models_peer steps NETWORK BATCH SIDE PRECISION
//         for each line N of its input, trains N steps and prints the seconds that they took
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <c10/core/InferenceMode.h>
#include <fmt/format.h>

#include <chrono>
#include <iostream>
#include <memory>
#include <string>

#include "recipes/common/training.h"
#include "yoke/base/error.h"
#include "yoke/contract/program.h"
#include "yoke/dist/world.h"
#include "yoke/models/resnet.h"
#include "yoke/models/vit.h"
#include "yoke/models/weights.h"
#include "yoke/train/cpu_speed.h"
#include "yoke/train/format/safetensors.h"
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

void time_steps(const std::string& network, int64_t batch, int64_t side, const std::string& precision) {
  train::flush_denormals();
  train::keep_freed_memory();
  const auto model = make(network);
  recipes::to_channels_last(*model);
  train::Sgd optimizer(*model, {.lr = 0.01, .momentum = 0.9, .weight_decay = 1e-4});
  const auto x = at::randn({batch, 3, side, side}).contiguous(at::MemoryFormat::ChannelsLast);
  const auto y = at::randint(1000, {batch}, at::kLong);
  for (int count = 0; std::cin >> count;) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < count; ++i) {
      const auto loss = [&] {
        const train::Autocast autocast({.enabled = precision == "bf16"});
        return at::cross_entropy_loss(model->forward(x), y);
      }();
      optimizer.zero_grad();
      loss.backward();
      optimizer.step();
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
