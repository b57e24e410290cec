#include "yoke/train/detail/rehearsal.h"

#include <ATen/ops/equal.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "yoke/train/detail/describe.h"

namespace yoke::train::detail {
namespace {

Rehearsal*& current_rehearsal() {
  thread_local Rehearsal* current = nullptr;
  return current;
}

}  // namespace

bool same_bytes(const at::Tensor& a, const at::Tensor& b) {
  if (a.defined() != b.defined()) return false;
  if (!a.defined()) return true;
  if (a.sizes() != b.sizes() || a.scalar_type() != b.scalar_type()) return false;
  const auto x = a.contiguous(), y = b.contiguous();
  if (!x.is_cpu()) return at::equal(x.reshape({-1}).view(at::kByte), y.reshape({-1}).view(at::kByte));
  return x.nbytes() == 0 || std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0;
}

Rehearsal* rehearsal_on_this_thread() { return current_rehearsal(); }

Rehearsal::Rehearsal() : outer_(std::exchange(current_rehearsal(), this)) {}
Rehearsal::~Rehearsal() { current_rehearsal() = outer_; }

void Rehearsal::begin_replay() {
  is_replay_ = true;
  pending_.clear();
}

void Rehearsal::sent(const void* owner, const at::Tensor& tensor) {
  const c10::NoGradGuard no_grad;
  pending_.push_back({owner, is_replay_ ? num_sent_ : collectives_.size(), tensor});
  if (!is_replay_) {
    collectives_.push_back({.sent = tensor.detach().clone(), .received = {}});
    return;
  }
  const auto i = num_sent_++;
  if (!differs_.empty() || (i < collectives_.size() && same_bytes(collectives_[i].sent, tensor))) return;
  differs_ = fmt::format("what it gives to collective {} of the step, {}", i + 1, describe(tensor));
}

void Rehearsal::received(const void* owner) {
  const c10::NoGradGuard no_grad;
  for (const auto& [its_owner, index, tensor] : pending_) {
    if (its_owner != owner || index >= collectives_.size()) continue;
    auto& result = collectives_[index].received;
    if (!is_replay_) {
      result = tensor.detach().clone();
    } else if (result.defined() && result.sizes() == tensor.sizes()) {
      tensor.copy_(result);
    }
  }
  std::erase_if(pending_, [&](const Pending& pending) { return pending.owner == owner; });
}

std::string Rehearsal::difference() const {
  if (!differs_.empty() || num_sent_ == collectives_.size()) return differs_;
  return fmt::format("the number of its collectives, {} instead of {}", num_sent_, collectives_.size());
}

}  // namespace yoke::train::detail
