#include "yoke/infer/report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "yoke/base/clock.h"
#include "yoke/base/format.h"
#include "yoke/base/json.h"
#include "yoke/base/text.h"
#include "yoke/contract/variables.h"

namespace yoke::infer {
namespace {

using SecondsOf = std::chrono::duration<double>;

constexpr int kWidthDrawn = 72;     // of a line that overwrites another one
constexpr size_t kMostNamed = 50;   // bad samples on the screen; --json names all
constexpr size_t kMostLeftOut = 3;  // names of files

double done_here(const train::PredictProgress& progress) {
  return static_cast<double>(progress.num_done - progress.num_resumed);
}

}  // namespace

Report::Report(const Request& request, ReportFacts facts, bool is_shown)
    : request_(request),
      facts_(std::move(facts)),
      is_shown_(is_shown),
      is_on_terminal_(isatty(STDERR_FILENO) == 1 || std::getenv(variable::kTerminal) != nullptr),
      start_(Clock::now()),
      next_(start_ + std::chrono::milliseconds(is_on_terminal_ ? 200 : 30'000)) {
  if (!is_shown_ || facts_.is_complete) return;
  fmt::print(stderr, "{}, {}, {} on {}, batches of {}{}\n", facts_.kind, facts_.input,
             counted(facts_.num_ranks, "rank"), facts_.device == "cpu" ? "the CPU" : "GPUs", facts_.batch_size,
             facts_.is_found ? " (found by trying; --batch-size chooses)" : "");
  if (facts_.left_out.empty()) return;
  fmt::print(stderr, "{} in {} left out ({}{}): samples are .jpg, .jpeg and .png, or .tar in a folder without these\n",
             counted(std::ssize(facts_.left_out), "file"), printable(request_.input.string()),
             printable(fmt::format("{}", fmt::join(first_left_out(), ", "))),
             facts_.left_out.size() > kMostLeftOut ? ", ..." : "");
}

std::vector<std::string> Report::first_left_out() const {
  const auto& all = facts_.left_out;
  return {all.begin(), all.begin() + std::min(std::ssize(all), static_cast<std::ptrdiff_t>(kMostLeftOut))};
}

void Report::show(const train::PredictProgress& progress) {
  const auto now = Clock::now();
  if (!is_shown_ || now < next_) return;
  next_ = now + std::chrono::milliseconds(is_on_terminal_ ? 200 : 30'000);
  const double seconds = SecondsOf(now - start_).count();
  const double left =
      static_cast<double>(progress.num_samples - progress.num_done) * seconds / std::max(1.0, done_here(progress));
  const auto text = fmt::format("{}  {} left{}", rate_of(progress, seconds), format_duration(SecondsOf(left)),
                                progress.num_bad > 0 ? fmt::format("  {} bad", progress.num_bad) : "");
  is_drawn_ = is_on_terminal_;
  fmt::print(stderr, "{:<{}}{}", text, is_drawn_ ? kWidthDrawn : 0, is_drawn_ ? '\r' : '\n');
  std::fflush(stderr);
}

std::string Report::rate_of(const train::PredictProgress& progress, double seconds) const {
  return fmt::format("{} of {} samples  {} samples/s", progress.num_done, progress.num_samples,
                     format_rate(done_here(progress) / std::max(seconds, 1e-9)));
}

void Report::finish(const train::PredictResult& result) const {
  if (!is_shown_) return;
  const double seconds = SecondsOf(Clock::now() - start_).count();
  const auto& progress = result.progress;
  // The last line that was drawn would show through shorter ones.
  if (is_drawn_) fmt::print(stderr, "{:<{}}\n", rate_of(progress, seconds), kWidthDrawn);
  const auto out = printable(request_.out.string());
  for (size_t i = 0; i < std::min(result.bad.size(), kMostNamed); ++i) {
    const auto& bad = result.bad[i];
    fmt::print(stderr, "bad sample {}{}: {}\n", bad.sample,
               bad.name == std::to_string(bad.sample) ? "" : " (" + printable(bad.name) + ")", printable(bad.error));
  }
  if (result.bad.size() > kMostNamed) {
    fmt::print(stderr, "{} more bad samples; --json names all\n", result.bad.size() - kMostNamed);
  }
  if (request_.json) {
    print_json(result, seconds);
  } else if (facts_.is_complete) {
    fmt::print(
        "{} is complete already: nothing was computed, and it is not known whether the same model, input and options "
        "made it; --force makes it anew\n",
        out);
  } else if (!result.stopped) {
    fmt::print("{}  {} in {}, {} samples/s{}{}\n", out, counted(progress.num_samples, "sample"),
               format_duration(SecondsOf(seconds)), format_rate(done_here(progress) / std::max(seconds, 1e-9)),
               progress.num_resumed > 0 ? fmt::format(", {} of them in earlier runs", progress.num_resumed) : "",
               progress.num_bad > 0 ? fmt::format(", {} bad", progress.num_bad) : "");
  }
  if (result.stopped) {
    fmt::print(stderr, "stopped after {} of {} samples; to go on: {} --resume\n", progress.num_done,
               progress.num_samples, request_.command);
  }
  std::fflush(stdout);
}

void Report::print_json(const train::PredictResult& result, double seconds) const {
  const auto& progress = result.progress;
  const auto text = [](const std::string& bytes) { return json_string<Json>(bytes); };
  const auto known = [&](auto value) { return facts_.is_complete ? Json() : Json(value); };
  Json json{{"model", text(request_.model.string())},
            {"kind", facts_.kind},
            {"input", text(request_.input.string())},
            {"out", text(request_.out.string())},
            {"was_complete", facts_.is_complete},
            {"num_samples", known(progress.num_samples)},
            {"num_done", known(progress.num_done)},
            {"num_resumed", known(progress.num_resumed)},
            {"stopped", result.stopped},
            {"seconds", seconds},
            {"samples_per_second", done_here(progress) / std::max(seconds, 1e-9)},
            {"num_ranks", facts_.num_ranks},
            {"device", facts_.device},
            {"batch_size", known(facts_.batch_size)},
            {"num_left_out", facts_.left_out.size()},
            {"left_out", json_list(first_left_out(), text)}};
  json["bad"] = json_list(result.bad, [&](const train::BadSample& bad) {
    return Json{{"sample", bad.sample}, {"name", text(bad.name)}, {"error", text(bad.error)}};
  });
  fmt::print("{}\n", json_line(json));
}

}  // namespace yoke::infer
