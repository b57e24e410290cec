#include "yoke/tune/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "yoke/base/format.h"
#include "yoke/base/json.h"
#include "yoke/base/table.h"

namespace yoke::tune {
namespace {

/// Prefers the memory of a GPU.
const MemoryUse& main_memory(const Memory& memory) {
  const auto& device = memory[static_cast<size_t>(Resource::kDevice)];
  return device.peak_bytes > 0 ? device : memory[static_cast<size_t>(Resource::kHost)];
}

std::string format_memory(const Memory& memory) {
  const auto& use = main_memory(memory);
  return use.peak_bytes > 0 ? format_bytes(use.peak_bytes) : "-";
}

/// The best run of each size; a run that failed counts only if no run worked.
std::map<int64_t, Measurement> best_runs(const Report& report) {
  std::map<int64_t, Measurement> result;
  for (const auto& run : report.measurements) {
    if (run.has_worst_case && run.outcome == Outcome::kOk) continue;
    const auto [at, is_new] = result.try_emplace(run.batch, run);
    auto& best = at->second;
    if (is_new) continue;
    const bool is_better =
        run.outcome == Outcome::kOk && (best.outcome != Outcome::kOk || run.step_seconds < best.step_seconds);
    if (is_better || (run.outcome == Outcome::kOutOfMemory && best.outcome != Outcome::kOk)) best = run;
  }
  return result;
}

std::string format_outcome(Outcome outcome) { return outcome == Outcome::kOutOfMemory ? "out of memory" : "failed"; }

std::string why_not_larger(const Report& report) {
  const auto& answer = report.answer;
  switch (answer.bound) {
    case Bound::kNoGain: return "Larger batches were measured, and are not faster.";
    case Bound::kMemory: return "Larger batches do not fit into memory.";
    case Bound::kMaximum: return fmt::format("Larger batches may be faster: --max is {}.", report.options.max);
    case Bound::kDataSet: return "Larger batches would need more samples than the data set has.";
    case Bound::kFailure: return "The program fails with larger batches.";
    case Bound::kBudget: return "The time for the search was over; larger batches may be faster (--budget).";
  }
  return "";
}

void add_memory_sentence(const Report& report, const Measurement& chosen, std::string& text) {
  const auto& use = main_memory(chosen.memory);
  if (use.peak_bytes == 0) return;
  text += fmt::format("It needs {}", format_bytes(use.peak_bytes));
  if (use.limit_bytes > 0) text += fmt::format(" of {}", format_bytes(use.limit_bytes));
  const auto fitting = report.answer.largest_fitting;
  if (fitting && *fitting < report.options.max) {
    text += fmt::format("; about {} would be the largest that fits with {:.0f} % free", *fitting,
                        100 * report.options.margin);
  }
  text += ".\n";
}

void add_learning_rate(const Report& report, const Measurement& chosen, std::string& text) {
  const auto total = chosen.batch * (report.options.is_per_rank ? chosen.num_ranks : 1);
  text += fmt::format(
      "A step has {} samples. yoke changes no learning rate: if yours was found for N samples a step, common rules "
      "multiply it by {}/N (SGD) or by the square root of that (Adam), after a warm-up.\n",
      total, total);
  if (!report.options.num_samples) return;
  text += fmt::format("An epoch of {} samples has {} steps.\n", *report.options.num_samples,
                      (*report.options.num_samples + total - 1) / total);
}

SortedJson json_of(const Memory& memory) {
  SortedJson result = SortedJson::object();
  for (size_t i = 0; i < kNumResources; ++i) {
    const std::string prefix(name(static_cast<Resource>(i)));
    const auto value = [](int64_t bytes) { return bytes > 0 ? SortedJson(bytes) : SortedJson(); };
    result[prefix + "_peak_bytes"] = value(memory[i].peak_bytes);
    result[prefix + "_limit_bytes"] = value(memory[i].limit_bytes);
  }
  return result;
}

SortedJson json_of(const Measurement& run, const SearchOptions& options) {
  SortedJson result = {{"batch_size", run.batch},
                       {"outcome", name(run.outcome)},
                       {"is_worst_case", run.has_worst_case},
                       {"ranks", run.num_ranks},
                       {"wall_seconds", run.wall_seconds}};
  if (run.outcome == Outcome::kOk) {
    if (!run.has_worst_case) {
      result["samples_per_second"] = samples_per_second(run, options.is_per_rank);
      result["step_seconds"] = run.step_seconds;
      result["spread_percent"] = run.spread_percent;
    }
    result["steps"] = run.num_steps;
    result["memory"] = json_of(run.memory);
  } else {
    result["reason"] = run.reason;
  }
  return result;
}

}  // namespace

std::string format_step(double seconds) {
  if (seconds < 1e-3) return fmt::format("{:.1f} us", seconds * 1e6);
  if (seconds < 1) return fmt::format("{:.2f} ms", seconds * 1e3);
  return fmt::format("{:.2f} s", seconds);
}

std::string to_line(const Measurement& run, const SearchOptions& options) {
  if (run.outcome != Outcome::kOk) return fmt::format("{}: {}", format_outcome(run.outcome), run.reason);
  const auto memory = format_memory(run.memory);
  if (run.has_worst_case) return fmt::format("{} with its longest samples", memory);
  return fmt::format("{} samples/s, {} a step, {}", format_rate(samples_per_second(run, options.is_per_rank)),
                     format_step(run.step_seconds), memory);
}

std::string to_table(const Report& report, int64_t width) {
  Table table{.columns = {{"batch", Align::kRight},
                          {"samples/s", Align::kRight},
                          {"step", Align::kRight},
                          {"spread", Align::kRight},
                          {"memory", Align::kRight},
                          {""}}};
  for (const auto& [batch, run] : best_runs(report)) {
    const bool is_ok = run.outcome == Outcome::kOk;
    const bool is_chosen = report.answer.chosen && report.answer.chosen->batch == batch;
    const bool is_fastest = report.answer.fastest && report.answer.fastest->batch == batch;
    table.rows.push_back(
        {std::to_string(batch), is_ok ? format_rate(samples_per_second(run, report.options.is_per_rank)) : "-",
         is_ok ? format_step(run.step_seconds) : "-", is_ok ? fmt::format("{:.1f} %", run.spread_percent) : "-",
         is_ok ? format_memory(run.memory) : "-",
         !is_ok       ? format_outcome(run.outcome)
         : is_chosen  ? "<- the answer"
         : is_fastest ? "fastest"
                      : ""});
  }
  return yoke::to_text(table, width);
}

std::string to_text(const Report& report) {
  const auto& chosen = *report.answer.chosen;
  const auto rate = samples_per_second(chosen, report.options.is_per_rank);
  std::string text = fmt::format("Batch size {}{}: {} samples/s", chosen.batch,
                                 !report.options.is_per_rank ? " for all ranks together"
                                 : chosen.num_ranks > 1      ? fmt::format(" on each of {} ranks", chosen.num_ranks)
                                                             : "",
                                 format_rate(rate));
  if (const auto& fastest = *report.answer.fastest; fastest.batch != chosen.batch) {
    const double gain = 100 * (samples_per_second(fastest, report.options.is_per_rank) / rate - 1);
    text += fmt::format(
        ". {} is faster by {:.1f} %, which is within --tolerance {:g} %; smaller batches mostly train better",
        fastest.batch, std::max(0.0, gain), 100 * report.options.tolerance);
  }
  text += ".\n" + why_not_larger(report) + "\n";
  if (const auto& line = report.answer.time; line && line->per_sample > 0) {
    text += fmt::format(
        "A step takes about {} and {} for each sample; {:.0f} % of its time does not depend on the batch.\n",
        format_step(line->fixed), format_step(line->per_sample),
        100 * line->fixed / line->at(static_cast<double>(chosen.batch)));
  }
  add_memory_sentence(report, chosen, text);
  add_learning_rate(report, chosen, text);
  if (const auto& soak = report.soak) {
    text += fmt::format("Checked for {} steps ({}): {} samples/s, {}{}.\n", soak->num_steps,
                        format_duration(std::chrono::duration<double>(soak->seconds)),
                        format_rate(soak->samples_per_second), format_memory(soak->memory),
                        soak->growth_bytes_per_step > 0 ? "" : ", memory does not grow");
  }
  return text;
}

SortedJson to_json(const Report& report) {
  const auto& answer = report.answer;
  SortedJson result = {{"batch_size", nullptr},
                       {"samples_per_second", nullptr},
                       {"is_per_rank", report.options.is_per_rank},
                       {"reason", answer.is_ignored ? "ignored" : name(answer.bound)},
                       {"largest_fitting_batch_size", nullptr},
                       {"steps_per_epoch", nullptr},
                       {"fixed_seconds", nullptr},
                       {"seconds_per_sample", nullptr},
                       {"soak", nullptr},
                       {"warnings", answer.warnings},
                       {"results", SortedJson::array()}};
  for (const auto& run : report.measurements) result["results"].push_back(json_of(run, report.options));
  if (answer.largest_fitting) result["largest_fitting_batch_size"] = *answer.largest_fitting;
  if (answer.time) {
    result["fixed_seconds"] = answer.time->fixed;
    result["seconds_per_sample"] = answer.time->per_sample;
  }
  if (answer.chosen && !answer.is_ignored) {
    const auto& chosen = *answer.chosen;
    result["batch_size"] = chosen.batch;
    result["samples_per_second"] = samples_per_second(chosen, report.options.is_per_rank);
    result["step_seconds"] = chosen.step_seconds;
    result["ranks"] = chosen.num_ranks;
    result["fastest_batch_size"] = answer.fastest->batch;
    result["memory"] = json_of(chosen.memory);
    const auto total = chosen.batch * (report.options.is_per_rank ? chosen.num_ranks : 1);
    result["samples_per_step"] = total;
    if (report.options.num_samples) result["steps_per_epoch"] = (*report.options.num_samples + total - 1) / total;
  }
  if (const auto& soak = report.soak) {
    result["soak"] = {{"steps", soak->num_steps},
                      {"seconds", soak->seconds},
                      {"samples_per_second", soak->samples_per_second},
                      {"memory", json_of(soak->memory)},
                      {"growth_bytes_per_step", soak->growth_bytes_per_step}};
  }
  return result;
}

}  // namespace yoke::tune
