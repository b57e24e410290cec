#include "yoke/curve/log.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace yoke::curve {

void Log::add(std::string_view metric, const Position& place, double value) {
  if (next_ >= curves_.size() || curves_[next_].metric != metric) {
    const auto found = numbers_.find(metric);
    next_ = found != numbers_.end() ? found->second : curves_.size();
    if (next_ == curves_.size()) {
      numbers_.emplace(metric, next_);
      curves_.push_back({.metric = std::string(metric)});
    }
  }
  auto& curve = curves_[next_];
  curve.values.push_back(value);
  curve.steps.push_back(place.step);
  curve.epochs.push_back(place.epoch);
  curve.times.push_back(place.time);
  next_ = next_ + 1 < curves_.size() ? next_ + 1 : 0;
}

void Log::forget_from(double step) {
  for (auto& curve : curves_) {
    size_t num_kept = 0;
    for (size_t i = 0; i < curve.values.size(); ++i) {
      if (curve.steps[i] >= step) continue;
      for (auto* column : {&curve.values, &curve.steps, &curve.epochs, &curve.times})
        (*column)[num_kept] = (*column)[i];
      ++num_kept;
    }
    for (auto* column : {&curve.values, &curve.steps, &curve.epochs, &curve.times}) column->resize(num_kept);
  }
}

void Log::finish() {
  std::erase_if(curves_, [](const Curve& curve) { return curve.values.empty(); });
  for (auto& curve : curves_) {
    for (auto* column : {&curve.steps, &curve.epochs, &curve.times}) {
      if (std::ranges::all_of(*column, [](double place) { return std::isnan(place); })) *column = {};
    }
    if (!curve.steps.empty() || !curve.epochs.empty() || !curve.times.empty()) continue;
    for (size_t i = 0; i < curve.values.size(); ++i) curve.steps.push_back(static_cast<double>(i));
  }
}

void Parser::damaged(std::string what) {
  if (num_damaged_++ == 0) damage_ = std::move(what);
}

void Parser::doubt(std::string_view what) {
  if (doubt_.empty()) doubt_ = what;
}

}  // namespace yoke::curve
