#include "yoke/launch/output/write_trouble.h"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>
#include <utility>

namespace yoke::launch {

void WriteTrouble::on_failure(int error_number, Time now) {
  if (!is_on()) {
    news_.push_back(
        fmt::format("cannot write {}: {}; the job goes on, up to 1 MiB is kept meanwhile, and writing is tried again",
                    name_, std::generic_category().message(error_number)));
  }
  error_number_ = error_number;
  next_try_ = now + kRetryEvery;
}

void WriteTrouble::on_not_ready(Time now) {
  if (is_on()) next_try_ = now + kRetryEvery;
}

void WriteTrouble::on_all_written() {
  if (!is_on()) return;
  next_try_.reset();
  news_.push_back(fmt::format("{} can be written again; {}", name_, missing_lines()));
}

void WriteTrouble::on_lost(std::string_view bytes) {
  if (bytes.empty()) return;
  num_whole_lost_lines_ += std::ranges::count(bytes, '\n');
  ends_inside_line_ = !bytes.ends_with('\n');
  has_told_loss_ = false;
}

void WriteTrouble::on_given_up() {
  next_try_.reset();
  if (std::exchange(has_told_loss_, true)) return;
  news_.push_back(
      fmt::format("{} from {}: {}", missing_lines(), name_, std::generic_category().message(error_number_)));
}

std::string WriteTrouble::missing_lines() const {
  const auto count = num_lost_lines();
  if (count == 0) return "nothing is missing";
  return count == 1 ? "1 line is missing" : fmt::format("{} lines are missing", count);
}

std::vector<std::string> WriteTrouble::take_news() { return std::exchange(news_, {}); }

}  // namespace yoke::launch
