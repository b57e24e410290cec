// yoke/scaling/plan.h -- predicts a training for numbers of devices, and says what was assumed. Pure.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "yoke/base/table.h"
#include "yoke/scaling/memory.h"
#include "yoke/scaling/model.h"
#include "yoke/view/chart.h"

namespace yoke::scaling {

struct PlanOptions {
  std::vector<Strategy> strategies = {Strategy::kDdp};
  int64_t max_devices = 4096;
  bool divides_batch = false;  ///< Strong scaling: the batch of one device is divided among all.
  /// Steps that a training on one device would take. Jobs of more devices train on the same number of samples.
  double num_steps = 100'000;
  Topology topology;
  ModelOptions model;
  MemoryOptions memory;
  bool is_memory_measured = false;  ///< Whether MemoryOptions::other_bytes comes from a measurement.
};

/// Where the figures of a workload come from.
struct Origin {
  bool is_step_measured = false;  ///< Otherwise the user has given how long it is.
  bool has_device = false;        ///< The times of gradients come from a trace with the work of a GPU.
  bool is_slowdown_measured = false;
  std::vector<std::string> sentences;  ///< What was measured, and how.
};

struct Prediction {
  Strategy strategy = Strategy::kDdp;
  int64_t num_devices = 1;
  bool is_measured = false;         ///< The step of one device, unless a loader makes it longer.
  bool is_given = false;            ///< The same, where the user has said how long it is.
  bool is_memory_measured = false;  ///< The memory of one device. All else is predicted.
  StepPrediction step;
  double efficiency = 1;  ///< The share of the throughput of so many devices that do not communicate.
  double gpu_hours = 0;
  Memory memory;
};

/// What a strategy reaches on the most devices with the best size of its messages, if that is clearly more.
struct BetterSize {
  Strategy strategy = Strategy::kDdp;
  int64_t size = 0;  ///< MiB of a bucket; FSDP: units.
  double efficiency = 0;
};

struct Plan {
  std::vector<Prediction> predictions;   ///< By strategy, then by number of devices: 1, 2, 4, ... max_devices.
  std::vector<BetterSize> better_sizes;  ///< One at most for each strategy.
  std::vector<std::string> assumptions;  ///< Sentences.
};

Plan make_plan(const Workload& workload, const Origin& origin, const PlanOptions& options);

nlohmann::ordered_json to_json(const Plan& plan);
Table to_table(const Plan& plan);
/// Efficiency and GPU-hours by number of devices.
view::Chart to_chart(const Plan& plan);
/// The answer as a sentence for each strategy; empty if there is only one device.
std::string to_sentence(const Plan& plan);

}  // namespace yoke::scaling
