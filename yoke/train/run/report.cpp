#include "yoke/train/run/detail/report.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <string_view>

#include "yoke/base/environment.h"
#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/format.h"
#include "yoke/base/text.h"
#include "yoke/contract/variables.h"

namespace yoke::train {
namespace {

constexpr size_t kMaxMetricsBytes = 100'000'000;

constexpr std::string_view kEpoch = "epoch", kRate = "samples_per_second", kSeconds = "seconds";

std::string title_of(std::string name) {
  std::ranges::replace(name, '_', ' ');
  return name;
}

/// Four decimals, or as many as a small number needs, such as a learning rate of 3e-05.
std::string shown(double value) {
  return value != 0 && std::abs(value) < 1e-3 ? fmt::format("{:.4g}", value) : fmt::format("{:.4f}", value);
}

}  // namespace

EpochTable::EpochTable(std::filesystem::path folder, int64_t num_kept, const Warn& warn)
    : path_(std::move(folder) / "metrics.csv") {
  std::error_code ignored;
  if (num_kept > 0 && std::filesystem::exists(path_, ignored)) read(num_kept, warn);
}

void EpochTable::read(int64_t num_kept, const Warn& warn) {
  const auto file = read_regular_file(path_, kMaxMetricsBytes);
  size_t num_columns = 0;
  int64_t num_unfit = 0;
  for (auto line : yoke::lines_of(file)) {
    if (line.ends_with('\r')) line.remove_suffix(1);
    const auto cells = yoke::split(line, ',');
    if (num_columns == 0) {
      num_columns = cells.size();
      if (num_columns < 3 || cells[0] != kEpoch || cells[num_columns - 2] != kRate || cells.back() != kSeconds) {
        throw Error(ErrorCode::kFailedPrecondition,
                    "{} was not written by a Run, or was changed: its columns are not epoch, figures, {} and {}; move "
                    "it away to resume the run",
                    path_.string(), kRate, kSeconds);
      }
      names_.assign(cells.begin() + 1, cells.end() - 2);
      continue;
    }
    const auto epoch = cells.empty() ? std::nullopt : parse_int(cells[0]);
    if (!epoch || *epoch > num_kept || cells.size() < 3) continue;
    auto& row = rows_.emplace_back();
    row = {std::string(cells[0]), {}, std::string(cells[cells.size() - 2]), std::string(cells.back())};
    if (cells.size() == num_columns) {
      row.figures.assign(cells.begin() + 1, cells.end() - 2);
    } else {
      ++num_unfit;
    }
  }
  if (num_unfit == 0) return;
  const auto old = path_.string() + ".old";
  std::filesystem::copy_file(path_, old, std::filesystem::copy_options::overwrite_existing);
  warn(fmt::format(
      "{}: {} row{} not as many cells as the header, so the columns of their figures are not known: these figures are "
      "left out, and {} keeps them",
      path_.string(), num_unfit, num_unfit == 1 ? " has" : "s have", old));
}

void EpochTable::add(const EpochRow& row) {
  auto& line = rows_.emplace_back();
  line = {std::to_string(row.number),
          {},
          fmt::format("{:.0f}", row.samples_per_second),
          fmt::format("{:.3f}", row.time.count())};
  for (const auto& [name, value] : row.figures) {
    const auto column = static_cast<size_t>(std::ranges::find(names_, name) - names_.begin());
    if (column == names_.size()) names_.push_back(name);
    line.figures.resize(std::max(line.figures.size(), column + 1));
    line.figures[column] = fmt::format("{:.9g}", value);  // distinguishes all float32
  }
  print(row);
  write();
}

void EpochTable::print(const EpochRow& row) {
  auto head = fmt::format("{:>5}", kEpoch), text = fmt::format("{:>5}", row.number);
  for (const auto& name : names_) {
    const auto title = title_of(name);
    const auto found = std::ranges::find(row.figures, name, &std::pair<std::string, double>::first);
    const auto width = std::max<size_t>(title.size(), 9);
    head += fmt::format("  {:>{}}", title, width);
    text += fmt::format("  {:>{}}", found == row.figures.end() ? "-" : shown(found->second), width);
  }
  if (num_titles_ != names_.size() + 1) fmt::print("{}  {:>9}  {:>6}\n", head, "samples/s", "time");
  num_titles_ = names_.size() + 1;
  fmt::print("{}  {:>9}  {:>6}\n", text, format_rate(row.samples_per_second), format_duration(row.time));
  std::fflush(stdout);
}

void EpochTable::write() const {
  std::string all;
  const auto add = [&](std::string_view epoch, const std::vector<std::string>& figures, std::string_view rate,
                       std::string_view seconds) {
    all += epoch;
    for (size_t i = 0; i < names_.size(); ++i) (all += ',') += i < figures.size() ? figures[i] : "";
    fmt::format_to(std::back_inserter(all), ",{},{}\n", rate, seconds);
  };
  add(kEpoch, names_, kRate, kSeconds);
  for (const auto& row : rows_) add(row.epoch, row.figures, row.samples_per_second, row.seconds);
  replace_file(path_, all);
}

Progress::Progress(bool is_rank_0, int64_t num_epochs, int64_t steps_per_epoch, int64_t first_step)
    : visible_(is_rank_0 && (isatty(STDOUT_FILENO) == 1 || std::getenv(variable::kTerminal) != nullptr)),
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
