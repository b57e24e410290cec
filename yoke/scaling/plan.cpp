#include "yoke/scaling/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "yoke/base/format.h"
#include "yoke/base/json.h"

namespace yoke::scaling {
namespace {

/// At least `digits` significant digits, and no exponent: "2.88", "2780".
std::string plain_number(double value, int digits) {
  if (value > 0 && value < 1e-4) return "<0.0001";
  const bool is_whole = value >= std::pow(10.0, digits - 1) - 0.5;
  return is_whole ? fmt::format("{:.0f}", value) : fmt::format("{:.{}g}", value, digits);
}

std::string duration_words(double seconds) {
  if (seconds < 1e-3) return plain_number(seconds * 1e6, 3) + " us";
  return seconds < 1 ? plain_number(seconds * 1e3, 3) + " ms" : plain_number(seconds, 4) + " s";
}

std::string percent_words(double share) { return fmt::format("{:.1f} %", 100 * share); }

std::string_view title_of(Strategy strategy) {
  return strategy == Strategy::kDdp ? "DDP" : strategy == Strategy::kZero1 ? "ZeRO-1" : "FSDP";
}

std::vector<int64_t> counts_up_to(int64_t max_devices) {
  std::vector<int64_t> counts;
  for (int64_t n = 1; n < max_devices; n *= 2) counts.push_back(n);
  counts.push_back(max_devices);
  return counts;
}

bool has(const PlanOptions& options, Strategy strategy) {
  return std::ranges::find(options.strategies, strategy) != options.strategies.end();
}

void add_traffic_assumptions(const Workload& workload, const PlanOptions& options, std::vector<std::string>& list) {
  const auto buckets = buckets_of(workload, options.model.first_bucket_bytes, options.model.bucket_bytes);
  if (has(options, Strategy::kDdp) || has(options, Strategy::kZero1)) {
    list.push_back(
        fmt::format("Gradients of {} are sent in {}, each as soon as its last gradient is ready; "
                    "one bucket is sent at a time.",
                    format_bytes(workload.gradient_bytes()), counted(buckets.size(), "bucket")));
  }
  if (has(options, Strategy::kZero1)) {
    list.emplace_back(
        "ZeRO-1 scatters the sums of gradients during backward, and gathers the parameters of each bucket after the "
        "optimizer's step, during which nothing is computed.");
  }
  if (has(options, Strategy::kFsdp)) {
    const auto units = units_of(workload, options.model.num_units);
    list.push_back(fmt::format(
        "FSDP has {}, the largest of {}; the parameters of the next unit are gathered while one is computed. "
        "A unit's share of forward is that of its backward.",
        counted(units.size(), "unit"),
        format_bytes(units.empty() ? 0 : std::ranges::max(units, {}, &Bucket::bytes).bytes)));
  }
  list.emplace_back(
      "A collective takes the fastest of a ring, a tree and a hierarchy of rings inside and between nodes; other jobs "
      "do not use the network.");
  const double contention = options.model.contention;
  list.push_back(contention >= 1 ? std::string("While a device communicates, it does not compute.")
                 : contention > 0
                     ? fmt::format("While a device communicates, it computes {:.0f} % slower.", 100 * contention)
                     : "Communication does not slow computing down.");
}

std::vector<std::string> assumptions_of(const Workload& workload, const Origin& origin, const PlanOptions& options) {
  auto list = origin.sentences;
  list.push_back(
      fmt::format("One device computes for {} in a step: {} until backward begins, {} of backward and {} of the "
                  "optimizer{}.",
                  duration_words(workload.step_seconds()), duration_words(workload.forward_seconds),
                  duration_words(workload.backward_seconds), duration_words(workload.optimizer_seconds),
                  origin.is_step_measured ? "" : ", as given"));
  if (origin.has_device) {
    list.emplace_back(
        "Backward is two thirds of the step without the optimizer, because a device works later than its host, and the "
        "trace does not say which work is that of backward. Gradients are ready on the device in the order, and at the "
        "shares of backward, in which the host launched their last operation.");
  }
  if (options.topology.devices_per_node > 1) {
    list.push_back(fmt::format("Inside a node of {}, a link has {}.", options.topology.devices_per_node,
                               options.topology.intra.source));
  }
  if (options.max_devices > options.topology.devices_per_node) {
    list.push_back(fmt::format("Between nodes, all links of a node together have {}.", options.topology.inter.source));
  }
  add_traffic_assumptions(workload, options, list);
  if (options.model.neighbour_slowdown != 1) {
    list.push_back(
        fmt::format("Computing takes {:.3g} times as long if other devices compute too, on the slowest of them{}.",
                    options.model.neighbour_slowdown, origin.is_slowdown_measured ? " (measured)" : " (given)"));
  } else {
    list.push_back(fmt::format("Devices do not slow each other down, and take the same time for a step{}.",
                               origin.is_slowdown_measured ? " (measured)" : ""));
  }
  list.emplace_back(
      options.divides_batch
          ? "The batch of one device is divided among all: forward and backward get shorter in proportion, "
            "which small batches do not reach."
          : "Each device has the batch of the step on one device, so a step of n devices trains on n times as "
            "many samples.");
  list.emplace_back("All devices are of the same kind; failures, checkpoints and evaluations are not included.");
  if (workload.loader_seconds > 0) {
    list.push_back(fmt::format("The loader of a device needs {} for {}.", duration_words(workload.loader_seconds),
                               options.divides_batch
                                   ? "the batch of one device, and in proportion less for a part of it"
                                   : "a batch, on any number of devices"));
  } else {
    list.emplace_back("Loading takes as long on many devices as on one, or is hidden there too.");
  }
  list.push_back(fmt::format(
      "Memory is {} parameters {}, their gradients and the state of {}, buckets or gathered units{}.",
      format_rate(static_cast<double>(options.memory.num_parameters)),
      options.memory.precision == Precision::kMixed ? "of 16 bits with a copy in float32" : "in float32",
      name(options.memory.optimizer),
      options.memory.other_bytes > 0
          ? fmt::format(", and {} for activations and all else ({}){}", format_bytes(options.memory.other_bytes),
                        options.is_memory_measured ? "measured" : "given",
                        options.divides_batch ? ", in proportion less for a part of the batch" : "")
          : "; activations are not included"));
  if (origin.is_step_measured) {
    list.push_back(fmt::format("Of one device, the step {} measured; GPU-hours{} predicted, as all other figures.",
                               options.is_memory_measured ? "and the memory were" : "was",
                               options.is_memory_measured ? " are" : " and memory are"));
  }
  list.push_back(
      fmt::format("GPU-hours are those of a training that takes {:.0f} steps on one device.", options.num_steps));
  return list;
}

/// Tries other sizes of buckets or numbers of units on the largest number of devices. If one of them is faster, the
/// first result was not the limit of the strategy.
std::optional<BetterSize> better_size(const Workload& workload, const PlanOptions& options, const Prediction& last) {
  const auto n = last.num_devices;
  if (n < 2) return std::nullopt;
  const auto work = options.divides_batch ? divided(workload, n) : workload;
  const bool has_units = last.strategy == Strategy::kFsdp;
  std::optional<BetterSize> best;
  for (int64_t size = 1; size <= 4096; size *= 2) {
    auto model = options.model;
    model.strategy = last.strategy;
    if (has_units) {
      model.num_units = size;
    } else {
      model.bucket_bytes = size << 20;
      model.first_bucket_bytes = std::min(model.first_bucket_bytes, model.bucket_bytes);
    }
    const double efficiency =
        last.efficiency * last.step.step_seconds / predict_step(work, n, options.topology, model).step_seconds;
    constexpr double kClear = 0.01;
    if (efficiency > (best ? best->efficiency : last.efficiency + kClear))
      best = BetterSize{last.strategy, size, efficiency};
  }
  return best;
}

/// The label of a step: of one device it may be measured, or what the user has given.
std::string_view label_of(const Prediction& prediction) {
  return prediction.is_measured ? "measured" : prediction.is_given ? "given" : "predicted";
}

std::vector<std::string> measured_members(const Prediction& prediction) {
  std::vector<std::string> members;
  if (prediction.is_measured) members.emplace_back("step_seconds");
  if (prediction.is_memory_measured) members.emplace_back("memory_bytes");
  return members;
}

}  // namespace

Plan make_plan(const Workload& workload, const Origin& origin, const PlanOptions& options) {
  Plan plan;
  const double one = predict_step(workload, 1, options.topology, options.model).step_seconds;
  const double share = gathered_share(units_of(workload, options.model.num_units));
  for (const auto strategy : options.strategies) {
    auto model = options.model;
    model.strategy = strategy;
    for (const int64_t n : counts_up_to(options.max_devices)) {
      const auto count = static_cast<double>(n);
      Prediction prediction{.strategy = strategy, .num_devices = n};
      prediction.step =
          predict_step(options.divides_batch ? divided(workload, n) : workload, n, options.topology, model);
      const bool is_the_step = n == 1 && prediction.step.loader_wait_seconds == 0;
      prediction.is_measured = is_the_step && origin.is_step_measured;
      prediction.is_given = is_the_step && !origin.is_step_measured;
      const double seconds = prediction.step.step_seconds;
      prediction.efficiency = one / (options.divides_batch ? count * seconds : seconds);
      const double num_steps = options.divides_batch ? options.num_steps : options.num_steps / count;
      prediction.gpu_hours = count * num_steps * seconds / 3600;
      auto memory = options.memory;
      if (options.divides_batch) memory.other_bytes /= n;
      memory.gathered_share = share;
      prediction.is_memory_measured = n == 1 && options.is_memory_measured;
      prediction.memory = memory_of(strategy, n, memory);
      plan.predictions.push_back(prediction);
    }
    if (auto better = better_size(workload, options, plan.predictions.back())) plan.better_sizes.push_back(*better);
  }
  plan.assumptions = assumptions_of(workload, origin, options);
  return plan;
}

nlohmann::ordered_json to_json(const Plan& plan) {
  const auto rows = json_list(plan.predictions, [](const auto& one) {
    return Json{{"strategy", name(one.strategy)},
                {"num_devices", one.num_devices},
                {"label", label_of(one)},
                {"step_seconds", one.step.step_seconds},
                {"efficiency", one.efficiency},
                {"gpu_hours", one.gpu_hours},
                {"memory_bytes", one.memory.total()},
                {"measured", measured_members(one)},
                {"exposed_communication_seconds", one.step.exposed_seconds},
                {"communication_seconds", one.step.communication_seconds},
                {"loader_wait_seconds", one.step.loader_wait_seconds}};
  });
  const auto better = json_list(plan.better_sizes, [](const auto& one) {
    return Json{{"strategy", name(one.strategy)},
                {one.strategy == Strategy::kFsdp ? "units" : "bucket_mib", one.size},
                {"efficiency", one.efficiency}};
  });
  return {{"predictions", rows}, {"better_sizes", better}, {"assumptions", plan.assumptions}};
}

Table to_table(const Plan& plan) {
  Table table;
  table.columns = {{"strategy"},
                   {"devices", Align::kRight},
                   {""},
                   {"step", Align::kRight},
                   {"efficiency", Align::kRight},
                   {"GPU-hours", Align::kRight},
                   {"memory", Align::kRight},
                   {"exposed", Align::kRight, 0, 1}};
  for (const auto& one : plan.predictions) {
    table.rows.push_back({std::string(title_of(one.strategy)), std::to_string(one.num_devices),
                          label_of(one) == "predicted" ? "predicted" : fmt::format("step {}", label_of(one)),
                          duration_words(one.step.step_seconds), percent_words(one.efficiency),
                          plain_number(one.gpu_hours, 3), format_bytes(one.memory.total()),
                          duration_words(one.step.exposed_seconds)});
  }
  return table;
}

view::Chart to_chart(const Plan& plan) {
  view::ChartPanel efficiency{.title = "efficiency in % (predicted)", .x_title = "devices", .x_is_log = true};
  view::ChartPanel hours{.title = "GPU-hours (predicted)", .x_title = "devices", .x_is_log = true};
  for (const auto& one : plan.predictions) {
    const auto title = std::string(title_of(one.strategy));
    for (auto* panel : {&efficiency, &hours}) {
      if (panel->lines.empty() || panel->lines.back().name != title) panel->lines.push_back({title, {}});
    }
    const auto x = static_cast<double>(one.num_devices);
    efficiency.lines.back().points.push_back({x, 100 * one.efficiency});
    hours.lines.back().points.push_back({x, one.gpu_hours});
  }
  return {.has_log_y = false, .panels = {std::move(efficiency), std::move(hours)}};
}

std::string to_sentence(const Plan& plan) {
  std::string text;
  for (size_t i = 0; i < plan.predictions.size(); ++i) {
    const auto& first = plan.predictions[i];  // of a strategy; a single device
    const auto* last_good = &first;
    for (; i + 1 < plan.predictions.size() && plan.predictions[i + 1].strategy == first.strategy; ++i) {
      const auto& next = plan.predictions[i + 1];
      if (last_good == &plan.predictions[i] && next.efficiency >= 0.9) last_good = &next;
    }
    const auto& most = plan.predictions[i];
    if (&most == &first) continue;
    text += fmt::format("{}: {} devices are predicted to reach {} of the throughput of as many single devices",
                        title_of(most.strategy), most.num_devices, percent_words(most.efficiency));
    if (last_good == &first) text += "; 90 % is not reached";
    if (last_good != &first && last_good != &most) {
      text += fmt::format("; at least 90 % is reached up to {}", last_good->num_devices);
    }
    for (const auto& better : plan.better_sizes) {
      if (better.strategy != most.strategy) continue;
      text += fmt::format("; with --{} {}, they reach {}", better.strategy == Strategy::kFsdp ? "units" : "bucket",
                          better.size, percent_words(better.efficiency));
    }
    text += ".\n";
  }
  return text;
}

}  // namespace yoke::scaling
