// The exercises about training steps: batch and precision.
#include <fmt/format.h>

#include <cmath>

#include "tools/bench/measure.h"
#include "tools/bench/networks.h"
#include "yoke/base/error.h"
#include "yoke/train/device/devices.h"
#include "yoke/train/precision/autocast.h"
#include "yoke/train/seed.h"

namespace yoke::exercise {
namespace {

NetworkOptions network_for(const std::string& model, c10::Device device) {
  return {.name = model, .sample_sizes = {1, 28, 28}, .device = device};
}

Case steps_of(std::string name, const NetworkOptions& options, int64_t batch_size, bool is_mixed) {
  const auto training = std::make_shared<Training>(options);
  const auto batch = random_images(batch_size, options.device);
  return {std::move(name), [training, batch, is_mixed, device = options.device](int64_t count) {
            for (int64_t i = 0; i < count; ++i) training->step(batch, is_mixed);
            wait_for(device);
          }};
}

std::vector<std::string> models_of(const Task& task, std::vector<std::string> usual) {
  return task.models.empty() ? usual : task.models;
}

}  // namespace

Json run_batch(const Task& task, Progress& progress) {
  const auto device = train::try_gpu();
  auto usual = std::vector<int64_t>{1, 4, 16, 64, 256, 1024, 4096};
  if (!device.is_cpu()) usual.insert(usual.end(), {16'384, 65'536});
  std::vector<Case> cases;
  Json results = Json::array();
  for (const auto& model : models_of(task, {"mlp"})) {
    for (const int64_t size : task.chosen(task.batch_sizes, {1, 16, 256}, usual)) {
      cases.push_back(
          steps_of(fmt::format("{} with batches of {}", model, size), network_for(model, device), size, false));
      results.push_back({{"model", model}, {"batch_size", size}});
    }
  }
  const auto times = measure(cases, {.seconds = task.seconds}, progress);
  for (size_t i = 0; i < cases.size(); ++i) {
    add_times(results[i], "step", times[i]);
    results[i]["samples_per_second"] = results[i]["batch_size"].get<double>() / times[i].median();
  }
  return {{"device", device.str()}, {"results", results}};
}

namespace {

/// Throws if the first step of a network has a different loss under autocast.
void check_losses(const NetworkOptions& options, int64_t batch_size) {
  train::seed({.seed = 2});
  const auto batch = random_images(batch_size, options.device);
  const double exact = Training(options).step(batch, false).item<double>();
  const double mixed = Training(options).step(batch, true).item<double>();
  if (std::fabs(exact - mixed) <= 0.05 * std::fabs(exact)) return;
  throw Error(ErrorCode::kInternal, "the loss of {} is {} in float32 and {} in mixed precision", options.name, exact,
              mixed);
}

}  // namespace

Json run_precision(const Task& task, Progress& progress) {
  const auto device = train::try_gpu();
  std::vector<Case> cases;
  Json results = Json::array();
  for (const auto& model : models_of(task, {"mlp", "cnn", "small"})) {
    const auto network = network_for(model, device);
    for (const int64_t size : task.chosen(task.batch_sizes, {16, 64}, {8, 64, 512})) {
      check_losses(network, size);
      const auto name = fmt::format("{} with batches of {}", model, size);
      cases.push_back(steps_of(name + " in float32", network, size, false));
      cases.push_back(steps_of(name + " in mixed precision", network, size, true));
      results.push_back({{"model", model}, {"batch_size", size}});
    }
  }
  const auto times = measure(cases, {.seconds = task.seconds}, progress);
  for (size_t i = 0; i < results.size(); ++i) {
    add_times(results[i], "float32_step", times[2 * i]);
    add_times(results[i], "mixed_step", times[2 * i + 1]);
    add_speedup(results[i], times[2 * i], times[2 * i + 1]);
  }
  Json object{{"device", device.str()}, {"mixed_dtype", "bfloat16"}};
  if (!train::has_fast_bfloat16(device)) {
    object["notes"] = {fmt::format("{} has no bfloat16 in hardware, and emulates it", device.str())};
  }
  object["results"] = results;
  return object;
}

}  // namespace yoke::exercise
