#include "yoke/dist/detail/stop_agreement.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <utility>
#include <vector>

namespace yoke::dist {
namespace {

constexpr std::chrono::milliseconds kPeriod(100);

}  // namespace

StopAgreement::StopAgreement(c10::intrusive_ptr<c10d::Backend> backend, std::function<bool()> is_told,
                             std::function<Time()> now)
    : backend_(std::move(backend)), is_told_(std::move(is_told)), now_(std::move(now)) {}

StopAgreement::~StopAgreement() {
  if (backend_) leave_shared_memory(*backend_);  // ends the all-reduce in flight
  // Gloo's destructor would wait for the all-reduce in flight. If another rank hangs, it would wait until the timeout.
  // So the backend is leaked: this rank leaves because of an exception, and the other ranks notice its end.
  if (pending_ && !pending_->isCompleted()) backend_.release();
}

bool StopAgreement::should_stop(const Wait& wait) {
  if (is_agreed_) return true;
  if (!backend_) return is_agreed_ = is_told_();
  if (--calls_left_ > 0) return false;
  const int64_t wanted = wanted_interval();
  finish(wait);
  if (is_agreed_) return true;
  message_ = at::empty({2}, at::kLong);
  auto* const message = message_.mutable_data_ptr<int64_t>();
  message[0] = is_told_() ? 1 : 0;
  message[1] = wanted;
  std::vector<at::Tensor> tensors = {message_};
  c10d::AllreduceOptions options;
  options.reduceOp = c10d::ReduceOp::MAX;
  pending_ = backend_->allreduce(tensors, options);
  last_start_ = now_();
  calls_left_ = interval_;
  return false;
}

void StopAgreement::finish(const Wait& wait) {
  if (!pending_) return;
  wait(*pending_);
  pending_.reset();
  const auto* const message = message_.const_data_ptr<int64_t>();
  is_agreed_ = message[0] != 0;
  interval_ = message[1];
}

int64_t StopAgreement::wanted_interval() const {
  if (last_start_ == Time()) return 1;
  const auto step = (now_() - last_start_) / interval_;
  return std::clamp<int64_t>(kPeriod / std::max(step, Time::duration(1)), 1, kMaxInterval);
}

}  // namespace yoke::dist
