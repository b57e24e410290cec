#include "yoke/train/run/detail/report.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <sstream>

#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/format.h"

namespace yoke::train {
namespace {

constexpr size_t kMaxMetricsBytes = 100'000'000;

std::string title_of(std::string name) {
  std::ranges::replace(name, '_', ' ');
  return name;
}

}  // namespace

Report::Report(std::filesystem::path folder, int64_t num_kept) : path_(std::move(folder) / "metrics.csv") {
  if (num_kept == 0) return;
  std::error_code ignored;
  if (!std::filesystem::exists(path_, ignored)) return;
  std::istringstream file(read_regular_file(path_, kMaxMetricsBytes));
  for (std::string line; std::ssize(lines_) <= num_kept && std::getline(file, line);) lines_.push_back(line);
}

void Report::add(const EpochRow& row) {
  std::string columns = "epoch", head = fmt::format("{:>5}", "epoch");
  std::string values = std::to_string(row.number), text = fmt::format("{:>5}", row.number);
  for (const auto& [name, value] : row.figures) {
    columns += "," + name;
    values += fmt::format(",{:.6f}", value);
    const auto title = title_of(name);
    const auto width = std::max<size_t>(title.size(), 9);
    head += fmt::format("  {:>{}}", title, width);
    text += fmt::format("  {:>{}.4f}", value, width);
  }
  if (!has_header_) fmt::print("{}  {:>9}  {:>6}\n", head, "samples/s", "time");
  has_header_ = true;
  fmt::print("{}  {:>9}  {:>6}\n", text, format_rate(row.samples_per_second), format_duration(row.time));
  std::fflush(stdout);

  if (lines_.empty()) lines_.push_back(columns + ",samples_per_second,seconds");
  lines_.push_back(fmt::format("{},{:.0f},{:.3f}", values, row.samples_per_second, row.time.count()));
  std::string all;
  for (const auto& line : lines_) all += line + "\n";
  replace_file(path_, [&](int fd) { write_all(fd, std::as_bytes(std::span(all)), path_.string()); });
}

Progress::Progress(bool is_rank_0, int64_t num_epochs, int64_t steps_per_epoch, int64_t first_step)
    : visible_(is_rank_0 && (isatty(STDOUT_FILENO) == 1 || std::getenv("YOKE_TERMINAL") != nullptr)),
      num_epochs_(num_epochs),
      steps_per_epoch_(steps_per_epoch),
      first_step_(first_step) {}

bool Progress::due() const { return visible_ && Clock::now() >= next_; }

void Progress::show(int64_t step, const std::string& figure, int64_t num_samples) {
  const std::chrono::duration<double> elapsed = Clock::now() - start_;
  const auto done = static_cast<double>(step - first_step_);
  const auto left = static_cast<double>(num_epochs_ * steps_per_epoch_ - step) * elapsed / done;
  fmt::print("epoch {}/{}  step {}/{}  {}  {} samples/s  {} left\r", (step - 1) / steps_per_epoch_ + 1, num_epochs_,
             (step - 1) % steps_per_epoch_ + 1, steps_per_epoch_, figure,
             format_rate(static_cast<double>(num_samples) / elapsed.count()), format_duration(left));
  std::fflush(stdout);
  next_ = Clock::now() + std::chrono::milliseconds(200);
}

}  // namespace yoke::train
