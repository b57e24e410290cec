#include "recipes/fashion_mnist/report.h"

#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <vector>

#include "yoke/base/error.h"
#include "yoke/base/format.h"

namespace fashion_mnist {
namespace {

constexpr const char* kColumns = "epoch,train_loss,test_loss,test_accuracy,samples_per_second,seconds";

std::vector<std::string> first_lines(const std::filesystem::path& path, int64_t count) {
  std::vector<std::string> lines;
  std::ifstream file(path);
  for (std::string line; static_cast<int64_t>(lines.size()) < count && std::getline(file, line);) lines.push_back(line);
  return lines;
}

}  // namespace

Report::Report(const std::filesystem::path& folder, int64_t num_kept) {
  const auto path = folder / "metrics.csv";
  const auto kept = num_kept > 0 ? first_lines(path, num_kept + 1) : std::vector<std::string>{kColumns};
  csv_.open(path, std::ios::trunc);
  for (const auto& line : kept) csv_ << line << '\n';
  csv_.flush();
  if (!csv_) throw yoke::Error(yoke::ErrorCode::kUnavailable, "cannot write {}", path.string());
  fmt::print("{:>5}  {:>10}  {:>9}  {:>13}  {:>9}  {:>6}\n", "epoch", "train loss", "test loss", "test accuracy",
             "samples/s", "time");
}

void Report::add(const Epoch& epoch) {
  fmt::print("{:>5}  {:>10.4f}  {:>9.4f}  {:>13.4f}  {:>9}  {:>6}\n", epoch.number, epoch.train_loss, epoch.test_loss,
             epoch.test_accuracy, yoke::format_rate(epoch.samples_per_second),
             yoke::format_duration(std::chrono::duration<double>(epoch.seconds)));
  std::fflush(stdout);
  csv_ << fmt::format("{},{:.6f},{:.6f},{:.4f},{:.0f},{:.3f}\n", epoch.number, epoch.train_loss, epoch.test_loss,
                      epoch.test_accuracy, epoch.samples_per_second, epoch.seconds);
  csv_.flush();
}

Progress::Progress(bool visible, int64_t num_epochs, int64_t steps_per_epoch, int64_t samples_per_step,
                   int64_t first_step)
    : visible_(visible),
      num_epochs_(num_epochs),
      steps_per_epoch_(steps_per_epoch),
      samples_per_step_(samples_per_step),
      first_step_(first_step) {}

bool Progress::due() const { return visible_ && Clock::now() >= next_; }

void Progress::show(int64_t step, double loss) {
  const std::chrono::duration<double> elapsed = Clock::now() - start_;
  const auto done = static_cast<double>(step - first_step_);
  const double per_step = elapsed.count() / done;
  const auto left = static_cast<double>(num_epochs_ * steps_per_epoch_ - step) * per_step;
  fmt::print("epoch {}/{}  step {}/{}  loss {:.4f}  {} samples/s  {} left\r", step / steps_per_epoch_ + 1, num_epochs_,
             step % steps_per_epoch_, steps_per_epoch_, loss,
             yoke::format_rate(static_cast<double>(samples_per_step_) / per_step),
             yoke::format_duration(std::chrono::duration<double>(left)));
  std::fflush(stdout);
  next_ = Clock::now() + std::chrono::milliseconds(200);
}

}  // namespace fashion_mnist
