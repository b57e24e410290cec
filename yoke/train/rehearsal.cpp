#include "yoke/train/detail/rehearsal.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/equal.h>
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

/// Kernels may give NaN another sign or payload, as their loops over vectors and over the rest do.
bool differ_in_nan_alone(const at::Tensor& a, const at::Tensor& b) {
  if (!a.is_floating_point()) return false;
  const auto size = a.itemsize();
  if (size != 2 && size != 4 && size != 8) return false;
  const c10::NoGradGuard no_grad;
  const auto bits = size == 2 ? at::kShort : size == 4 ? at::kInt : at::kLong;
  const auto both_nan = a.ne(a).logical_and_(b.ne(b));
  return a.view(bits).eq(b.view(bits)).logical_or_(both_nan).all().item<bool>();
}

}  // namespace

bool same_bytes(const at::Tensor& a, const at::Tensor& b) {
  if (a.defined() != b.defined()) return false;
  if (!a.defined()) return true;
  if (a.sizes() != b.sizes() || a.scalar_type() != b.scalar_type()) return false;
  const auto x = a.contiguous(), y = b.contiguous();
  const bool are_same = x.is_cpu()
                            ? x.nbytes() == 0 || std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0
                            : at::equal(x.reshape({-1}).view(at::kByte), y.reshape({-1}).view(at::kByte));
  return are_same || differ_in_nan_alone(x, y);
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
