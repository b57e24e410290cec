#include "yoke/view/axis.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

#include "yoke/base/format.h"

namespace yoke::view {
namespace {

constexpr int kMostDigits = 15;

/// Formats `value` with the digits that a multiple of 10^`exponent` needs. `largest` is the largest value on the axis.
std::string number_label(double value, int exponent, double largest) {
  if (std::fabs(value) < std::pow(10, exponent) / 4) return "0";
  const int first = static_cast<int>(std::floor(std::log10(std::fabs(value))));
  if (largest < 1e6 && exponent >= -6) return fmt::format("{:.{}f}", value, std::max(0, -exponent));
  auto text = fmt::format("{:.{}e}", value, std::clamp(first - exponent, 0, kMostDigits));
  const auto e = text.find('e');
  auto mantissa = text.substr(0, e);
  while (mantissa.find('.') != mantissa.npos && (mantissa.back() == '0' || mantissa.back() == '.')) mantissa.pop_back();
  return fmt::format("{}e{}", mantissa, std::stoi(text.substr(e + 1)));  // "1.50e+07" becomes "1.5e7"
}

std::vector<Tick> linear_ticks(double min, double max, int64_t wanted) {
  const auto parts = static_cast<double>(std::max<int64_t>(1, wanted));
  const double rough = max / parts - min / parts;  // not (max - min) / parts, which may overflow
  if (!std::isnormal(rough)) return {{min, fmt::format("{:.4g}", min)}};
  int exponent = static_cast<int>(std::floor(std::log10(rough)));
  double factor = rough / std::pow(10, exponent);
  factor = factor < 1.5 ? 1 : factor < 3.5 ? 2 : factor < 7.5 ? 5 : 10;
  const double step = factor * std::pow(10, exponent);
  if (factor == 10) ++exponent;
  if (!std::isnormal(step)) return {{min, fmt::format("{:.4g}", min)}};
  const double largest = std::max(std::fabs(min), std::fabs(max));
  std::vector<Tick> ticks;
  const double first = std::ceil(min / step - 1e-9);
  for (int64_t i = 0; i <= 2 * wanted + 2; ++i) {
    const double value = (first + static_cast<double>(i)) * step;
    if (!(value / step <= max / step + 1e-9)) break;
    auto label = number_label(value, exponent, largest);
    if (ticks.empty() || ticks.back().label != label) ticks.push_back({value, std::move(label)});
  }
  if (ticks.empty()) ticks.push_back({min, fmt::format("{:.4g}", min)});
  return ticks;
}

/// Returns the powers of ten between 10^`min` and 10^`max`; in a short range also 2 and 5 times a power of ten.
std::vector<Tick> log_ticks(double min, double max, int64_t wanted) {
  constexpr double kClose = 1e-9;
  const int first = static_cast<int>(std::ceil(min - kClose)), last = static_cast<int>(std::floor(max + kClose));
  const int stride = std::max(1, (last - first) / static_cast<int>(std::max<int64_t>(1, wanted)) + 1);
  std::vector<Tick> ticks;
  const auto add = [&](double mantissa, int exponent) {
    const double place = std::log10(mantissa) + exponent, value = mantissa * std::pow(10, exponent);
    if (place < min - kClose || place > max + kClose) return;
    ticks.push_back({value, exponent < -4 || exponent > 5 ? fmt::format("{:g}e{}", mantissa, exponent)
                                                          : fmt::format("{:g}", value)});
  };
  if (last - first >= 2) {
    for (int exponent = first; exponent <= last; exponent += stride) add(1, exponent);
  } else {
    for (int exponent = first - 1; exponent <= last; ++exponent) {
      for (const double mantissa : {1, 2, 5}) add(mantissa, exponent);
    }
  }
  return ticks.size() >= 2 ? ticks : linear_ticks(std::pow(10, min), std::pow(10, max), wanted);
}

}  // namespace

double tick_seconds(double duration, int64_t max_parts) {
  const auto parts = static_cast<double>(max_parts);
  for (const double tick : {0.1,  0.2,  0.5,  1.,   2.,    5.,    10.,   15.,     30.,     60.,
                            120., 300., 600., 900., 1800., 3600., 7200., 14'400., 21'600., 43'200.}) {
    if (duration / tick <= parts) return tick;
  }
  return 86'400 * std::ceil(duration / parts / 86'400);
}

std::string time_label(double seconds) {
  return seconds < 10 ? fmt::format("{:.2g} s", seconds) : format_duration(std::chrono::duration<double>(seconds));
}

Axis::Axis(Kind kind, double min, double max) : kind_(kind), min_(min), max_(max) {
  if (kind_ == Kind::kLog) {
    min_ = std::log10(min);
    max_ = std::log10(max);
  }
  const double least = kind_ == Kind::kLog ? 1 : 0;
  const double largest = std::max({least, std::fabs(min_), std::fabs(max_)});
  constexpr double kTooClose = 1e-12, kTooSmall = 1e-300;  // below, labels of 15 digits are equal at both ends
  if (max_ / 2 - min_ / 2 > std::max(kTooSmall, largest * kTooClose)) return;
  const double half = kind_ == Kind::kLog || largest < kTooSmall ? 0.5 : largest / 2;
  constexpr double kMax = std::numeric_limits<double>::max();
  min_ = std::max(min_ - half, -kMax);
  max_ = std::min(max_ + half, kind_ == Kind::kLog ? std::log10(kMax) : kMax);
  if (kind_ == Kind::kTime) min_ = std::max(0.0, min_);
}

double Axis::fraction(double value) const {
  if (kind_ == Kind::kLog) value = std::log10(value);
  return (value / 2 - min_ / 2) / (max_ / 2 - min_ / 2);  // both are halved, because max_ - min_ may overflow
}

std::vector<Tick> Axis::ticks(int64_t wanted) const {
  if (kind_ == Kind::kLog) return log_ticks(min_, max_, wanted);
  const double step = kind_ == Kind::kTime ? tick_seconds(max_ - min_, std::max<int64_t>(1, wanted)) : 0;
  // Time labels cannot show fractions of a second above 10 s, or very many years. Such ranges get plain numbers.
  if (!(step > 0) || step > 1e12 || (step < 1 && max_ > 10)) return linear_ticks(min_, max_, wanted);
  std::vector<Tick> ticks;
  for (double number = std::ceil(min_ / step); number * step <= max_ && std::ssize(ticks) <= wanted; ++number) {
    ticks.push_back({number * step, number == 0 ? "0" : time_label(number * step)});
  }
  return ticks.empty() ? linear_ticks(min_, max_, wanted) : ticks;
}

}  // namespace yoke::view
