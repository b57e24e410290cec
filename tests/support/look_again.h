// tests/support/look_again.h -- how often a test looks whether what it waits for has happened.
#pragma once

#include <algorithm>
#include <chrono>

namespace yoke::test {

/// Many tests wait at a time, and some conditions are dear, such as to read the environment of all processes. So the
/// pauses grow with the time waited: a twentieth of it, between 2 and 20 ms.
class LookAgain {
 public:
  explicit LookAgain(std::chrono::milliseconds limit) : begin_(Clock::now()), limit_(limit) {}

  bool is_too_late() const { return Clock::now() - begin_ >= limit_; }
  std::chrono::milliseconds pause() const {
    using std::chrono::milliseconds;
    const auto waited = std::chrono::duration_cast<milliseconds>(Clock::now() - begin_);
    return std::clamp(waited / 20, milliseconds(2), milliseconds(20));
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point begin_;
  std::chrono::milliseconds limit_;
};

}  // namespace yoke::test
