// yoke/launch/output/write_trouble.h -- decides what follows a failed write: when to try again, what to tell the user,
// and how much is lost. Pure.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace yoke::launch {

/// An episode begins with a failed write, and ends when all buffered output is written. A full disk, a quota or a file
/// size limit may soon be removed, so writing is retried after every error.
class WriteTrouble {
 public:
  using Clock = std::chrono::steady_clock;
  using Time = Clock::time_point;
  static constexpr std::chrono::milliseconds kRetryEvery{500};

  /// `name` is the output's name in messages, such as "standard output".
  explicit WriteTrouble(std::string name) : name_(std::move(name)) {}

  bool is_on() const { return next_try_.has_value(); }
  const std::optional<Time>& next_try() const { return next_try_; }
  bool may_try(Time now) const { return !next_try_ || now >= *next_try_; }

  void on_failure(int error_number, Time now);
  void on_not_ready(Time now);  ///< The write would have blocked (EAGAIN).
  void on_all_written();
  void on_lost(std::string_view bytes);  ///< Called with bytes that will never be written.
  void on_given_up();                    ///< Called after on_lost() when writing ends for good.

  bool has_lost() const { return num_lost_lines() > 0; }

  /// Returns the messages for the user since the last call, without line feeds.
  std::vector<std::string> take_news();

 private:
  std::string missing_lines() const;
  int64_t num_lost_lines() const { return num_whole_lost_lines_ + (ends_inside_line_ ? 1 : 0); }

  std::string name_;
  std::optional<Time> next_try_;  ///< Set only during an episode.
  int error_number_ = 0;          ///< errno of the last failure.
  int64_t num_whole_lost_lines_ = 0;
  bool ends_inside_line_ = false;
  bool has_told_loss_ = true;
  std::vector<std::string> news_;
};

}  // namespace yoke::launch
