#include "yoke/train/optim/ema.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/_foreach_lerp.h>
#include <ATen/ops/scalar_tensor.h>

#include <algorithm>
#include <string>
#include <utility>

#include "yoke/base/error.h"
#include "yoke/train/detail/describe.h"
#include "yoke/train/detail/recording.h"
#include "yoke/train/sharding.h"

namespace yoke::train {
namespace {

constexpr const char* kNumUpdates = "num_updates";

}  // namespace

ExponentialMovingAverage::ExponentialMovingAverage(const NamedTensors& parameters, const NamedTensors& buffers,
                                                   const EmaOptions& options)
    : options_(options) {
  if (!(options.decay >= 0 && options.decay <= 1)) {
    throw Error(ErrorCode::kInvalidArgument, "EMA: decay {} must be in [0, 1]", options.decay);
  }
  for (const auto& [name, tensor] : parameters) {
    require_elements("EMA", name, tensor);
    if (!tensor.defined() || tensor.numel() > 0 || sharding_of(tensor) != nullptr) continue;
    throw Error(ErrorCode::kInvalidArgument, "EMA: parameter '{}' has no elements", name);
  }
  const at::NoGradGuard no_grad;
  add(parameters, /*is_averaged=*/true);
  num_parameters_ = averages_.size();
  add(buffers, options.average_buffers);
}

void ExponentialMovingAverage::add(const NamedTensors& tensors, bool is_averaged) {
  for (const auto& [name, value] : distinct(tensors)) {
    if (!value.defined()) throw Error(ErrorCode::kInvalidArgument, "EMA: tensor '{}' is undefined", name);
    for (const auto& [other, taken] : values_) {
      if (other == name) throw Error(ErrorCode::kInvalidArgument, "EMA: two tensors named '{}'", name);
    }
    const auto average = value.detach().clone();
    values_.emplace_back(name, value);
    averages_.emplace_back(name, average);
    const bool is_mean = is_averaged && (value.is_floating_point() || value.is_complex());
    const auto batch = std::find_if(batches_.begin(), batches_.end(), [&](const Batch& candidate) {
      const auto& first = candidate.values.front();
      return candidate.is_averaged == is_mean && first.device() == average.device() &&
             first.scalar_type() == average.scalar_type();
    });
    auto& into = batch != batches_.end() ? *batch : batches_.emplace_back(Batch{is_mean, {}, {}});
    into.averages.push_back(average);
    into.values.push_back(value);
  }
}

void ExponentialMovingAverage::check_not_swapped() const {
  if (is_swapped_) {
    throw Error(ErrorCode::kFailedPrecondition, "EMA: averages are swapped in; end the scope of swap_in() first");
  }
}

void ExponentialMovingAverage::check_unchanged() const {
  for (size_t i = 0; i < values_.size(); ++i) {
    const auto& [name, value] = values_[i];
    const auto& average = averages_[i].second;
    if (value.sizes() == average.sizes() && value.scalar_type() == average.scalar_type() &&
        value.device() == average.device()) {
      continue;
    }
    throw Error(ErrorCode::kFailedPrecondition,
                "EMA: '{}' is {} on {} now, its average {} on {}; make the averages once the model is where, and "
                "what, it stays",
                name, describe(value), value.device().str(), describe(average), average.device().str());
  }
}

/// Before averages are used.
void ExponentialMovingAverage::take_missing() const {
  const at::NoGradGuard no_grad;
  for (const size_t i : std::exchange(missing_, {})) averages_[i].second.copy_(values_[i].second);
}

void ExponentialMovingAverage::update() {
  detail::refuse_to_record("ExponentialMovingAverage", "update()", "call it after the recorded step");
  check_not_swapped();
  check_unchanged();
  take_missing();
  const at::NoGradGuard no_grad;
  const auto n = static_cast<double>(num_updates_);
  const double decay = options_.warm_up ? std::min(options_.decay, (1 + n) / (10 + n)) : options_.decay;
  for (const auto& batch : batches_) {
    if (batch.is_averaged && num_updates_ > 0) {
      at::_foreach_lerp_(batch.averages, batch.values, 1 - decay);
    } else {
      at::_foreach_copy_(batch.averages, batch.values);
    }
  }
  ++num_updates_;
}

void ExponentialMovingAverage::swap() {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < values_.size(); ++i) {
    const auto kept = values_[i].second.clone();
    values_[i].second.copy_(averages_[i].second);
    averages_[i].second.copy_(kept);
  }
  is_swapped_ = !is_swapped_;
}

ExponentialMovingAverage::SwappedIn ExponentialMovingAverage::swap_in() {
  check_not_swapped();
  check_unchanged();
  take_missing();
  return SwappedIn(*this);
}

ExponentialMovingAverage::SwappedIn::SwappedIn(ExponentialMovingAverage& ema) : ema_(&ema) { ema.swap(); }

ExponentialMovingAverage::SwappedIn::SwappedIn(SwappedIn&& other) noexcept : ema_(std::exchange(other.ema_, nullptr)) {}

ExponentialMovingAverage::SwappedIn::~SwappedIn() {
  if (ema_ != nullptr) ema_->swap();
}

NamedTensors ExponentialMovingAverage::averages() const {
  take_missing();
  return averages_;
}

TensorMap ExponentialMovingAverage::state_dict() const {
  check_not_swapped();
  take_missing();
  TensorMap state{{kNumUpdates, at::scalar_tensor(num_updates_, at::kLong)}};
  for (const auto& [name, average] : averages_) state.emplace("average." + name, average);
  return state;
}

void ExponentialMovingAverage::load_state_dict(const TensorMap& state) {
  check_not_swapped();
  const auto find = [&](const std::string& name) -> const at::Tensor& {
    const auto found = state.find(name);
    if (found == state.end()) throw Error(ErrorCode::kInvalidArgument, "EMA: the state lacks '{}'", name);
    return found->second;
  };
  std::vector<std::string> names;
  std::vector<size_t> missing;
  for (size_t i = 0; i < averages_.size(); ++i) {
    const auto& [name, average] = averages_[i];
    const auto& value = values_[i].second;
    names.push_back("average." + name);
    // Earlier versions averaged only the trained parameters of a DistributedDataParallel.
    if (i < num_parameters_ && !value.requires_grad() && !state.contains(names.back())) {
      missing.push_back(i);
      continue;
    }
    const auto& tensor = find(names.back());
    if (!tensor.defined() || tensor.sizes() != average.sizes() || tensor.scalar_type() != average.scalar_type()) {
      throw Error(ErrorCode::kInvalidArgument, "EMA: state '{}' is {}, the tensor {}", names.back(), describe(tensor),
                  describe(average));
    }
  }
  const auto& count = find(names.emplace_back(kNumUpdates));
  if (!count.defined() || count.numel() != 1 || count.item<int64_t>() < 0) {
    throw Error(ErrorCode::kInvalidArgument, "EMA: state '{}' is {}, not a number of updates", kNumUpdates,
                describe(count));
  }
  for (const auto& [name, tensor] : state) {
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      throw Error(ErrorCode::kInvalidArgument, "EMA: state '{}' belongs to no tensor here", name);
    }
  }
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < averages_.size(); ++i) {
    if (const auto loaded = state.find(names[i]); loaded != state.end()) averages_[i].second.copy_(loaded->second);
  }
  missing_ = std::move(missing);
  num_updates_ = count.item<int64_t>();
}

}  // namespace yoke::train
