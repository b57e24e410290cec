// The check of scripts/gpu-check that compares recorded steps (yoke/train/record) with the steps themselves.
#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/train/models.h"
#include "tests/gpu/checks.h"
#include "yoke/train/device/devices.h"
#include "yoke/train/optim/adam.h"
#include "yoke/train/optim/clip_grad.h"
#include "yoke/train/record/recorded.h"

namespace yoke::gpu_check {
namespace {

using Clock = std::chrono::steady_clock;

/// A training of a network from the same start, with or without recording.
class Training {
 public:
  Training(c10::Device device, const std::string& name, bool is_recorded, bool check)
      : is_recorded_(is_recorded),
        step_([this](const at::Tensor& x, const at::Tensor& y) { return step(x, y); },
              {.check = check, .check_every = 1}) {
    at::manual_seed(0);
    model_ = bench::make_model(name);
    at::manual_seed(1);
    for (int i = 0; i < 8; ++i) {
      const auto batch = model_->make_batch();
      batches_.push_back({batch.x.to(device), batch.y.to(device)});
    }
    train::to(*model_, device);
    optimizer_ = std::make_unique<train::AdamW>(model_->named_parameters().pairs());
  }

  at::Tensor next() {
    const auto& batch = batches_[num_steps_++ % batches_.size()];
    optimizer_->set_lr(1e-3 / static_cast<double>(num_steps_));
    return is_recorded_ ? step_(batch.x, batch.y) : step(batch.x, batch.y).detach();
  }

  /// Milliseconds of a step. The program waits for the device once.
  double time(int num_steps) {
    const auto began = Clock::now();
    at::Tensor loss;
    for (int i = 0; i < num_steps; ++i) loss = next();
    loss.item<double>();
    return std::chrono::duration<double, std::milli>(Clock::now() - began).count() / num_steps;
  }

  const train::RecordedBase& recorded() const { return step_; }

 private:
  at::Tensor step(const at::Tensor& x, const at::Tensor& y) {
    optimizer_->zero_grad();
    const auto loss = model_->forward(x, y);
    loss.backward();
    train::clip_grad_norm(optimizer_->parameters(), {.max_norm = 1});
    optimizer_->step();
    return loss;
  }

  bool is_recorded_;
  train::Recorded<std::function<at::Tensor(const at::Tensor&, const at::Tensor&)>> step_;
  std::shared_ptr<bench::Model> model_;
  std::unique_ptr<train::AdamW> optimizer_;
  std::vector<bench::Batch> batches_;
  size_t num_steps_ = 0;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace

Json recorded(c10::Device device, const std::string& name, int64_t num_steps) {
  if (device.is_cpu()) at::set_num_threads(1);
  constexpr int kChecked = 12, kChunk = 10;
  Training checked(device, name, true, true), eager(device, name, false, false);
  Json losses = Json::array();
  for (int i = 0; i < kChecked; ++i) {
    const auto ours = checked.next().item<double>(), right = eager.next().item<double>();
    losses.push_back({ours, right});
    expect(std::abs(ours - right) <= 1e-3 * std::max(1.0, std::abs(right)), "the same loss in step " + losses.dump());
  }
  expect(checked.recorded().why_not().empty(), "a recorded step, but: " + checked.recorded().why_not());
  expect(checked.recorded().num_replays() == kChecked - 3, "a replay in each later step");

  Training fast(device, name, true, false);
  fast.time(kChunk);
  std::vector<double> of_eager, of_recorded;
  for (int64_t i = 0; i < num_steps; i += kChunk) {
    of_eager.push_back(eager.time(kChunk));
    of_recorded.push_back(fast.time(kChunk));
  }
  expect(fast.recorded().why_not().empty(), "a recorded step, but: " + fast.recorded().why_not());
  return {{"device", device.str()},
          {"losses", losses},
          {"eager_ms", median(of_eager)},
          {"recorded_ms", median(of_recorded)},
          {"times_better", median(of_eager) / median(of_recorded)}};
}

}  // namespace yoke::gpu_check
