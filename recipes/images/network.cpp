#include "recipes/images/network.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>

#include "yoke/base/error.h"
#include "yoke/models/weights.h"
#include "yoke/train/optim/adam.h"
#include "yoke/train/optim/sgd.h"

namespace images {

using namespace yoke;

namespace {

std::shared_ptr<models::ImageModel> make(models::ResNetOptions options, int64_t num_classes) {
  options.num_classes = num_classes;
  return std::make_shared<models::ResNetImpl>(options);
}
std::shared_ptr<models::ImageModel> make(models::ViTOptions options, int64_t num_classes) {
  options.num_classes = num_classes;
  return std::make_shared<models::ViTImpl>(options);
}

template <class Optimizer, class Options>
std::unique_ptr<train::Optimizer> with_groups(const train::NamedTensors& parameters, const Options& decayed) {
  auto rest = decayed;
  rest.weight_decay = 0;
  auto [weights, others] = train::split(parameters, [](const std::string& name, at::IntArrayRef shape) {
    return shape.size() > 1 && name != "cls_token" && name != "pos_embed";
  });
  std::vector<train::ParameterGroup<Options>> groups{{std::move(weights), decayed}, {std::move(others), rest}};
  return std::make_unique<Optimizer>(std::move(groups));
}

}  // namespace

std::shared_ptr<models::ImageModel> make_network(const Preset& preset, int64_t num_classes, const std::string& init,
                                                 const std::function<void(const std::string&)>& say) {
  const auto model = std::visit([&](const auto& options) { return make(options, num_classes); }, preset.network);
  if (init.empty()) {
    const at::NoGradGuard no_grad;
    for (auto& parameter : model->parameters()) {
      if (parameter.dim() > 1 && preset.first_weights != 1) parameter.mul_(preset.first_weights);
    }
    return model;
  }
  const auto kept = [&] {
    const auto weights = models::read_weights(init);
    try {
      return models::load_weights(model->adapted(weights), *model, {.head = model->head()});
    } catch (const Error& error) {
      throw Error(ErrorCode::kDataLoss, "--init {}: {}: is it of another network than the preset's?", init,
                  error.what());
    }
  }();
  const bool is_new = std::ranges::find(kept, model->head() + ".weight") != kept.end();
  say(fmt::format("weights of {}{}", init,
                  is_new ? fmt::format("; the last layer is new, for {} classes", num_classes) : ""));
  return model;
}

std::unique_ptr<train::Optimizer> make_optimizer(const Preset& preset, const train::NamedTensors& parameters) {
  if (preset.adamw) {
    return with_groups<train::AdamW>(parameters, train::AdamWOptions{.weight_decay = preset.weight_decay});
  }
  return with_groups<train::Sgd>(
      parameters, train::SgdOptions{.momentum = 0.9, .weight_decay = preset.weight_decay, .nesterov = true});
}

train::Schedule schedule_of(const Preset& preset, int64_t num_steps) {
  const auto warm_up =
      std::clamp<int64_t>(static_cast<int64_t>(preset.warm_up * static_cast<double>(num_steps)), 1, num_steps);
  return train::sequence({{warm_up, train::linear_lr({.lr = preset.lr, .start_factor = 0.05, .num_steps = warm_up})},
                          {num_steps, train::cosine_annealing_lr(
                                          {.lr = preset.lr, .num_steps = std::max<int64_t>(1, num_steps - warm_up)})}});
}

}  // namespace images
