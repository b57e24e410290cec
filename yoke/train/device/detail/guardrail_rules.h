// yoke/train/device/detail/guardrail_rules.h -- decides which calls DeviceGuardrails catches, and writes its messages.
#pragma once

#include <ATen/core/enum_tag.h>
#include <c10/core/Device.h>
#include <c10/util/ArrayRef.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "yoke/train/device/guardrails.h"

namespace yoke::train {

/// What has to be checked when an operator is called.
enum class GuardrailCheck {
  kNone,
  kName,       ///< Never caught itself. If another operator is caught inside it, the message names this outer operator.
  kCopy,       ///< copy_(self, src, non_blocking)
  kSync,       ///< The operator waits for every device of its tensors.
  kMaskIndex,  ///< The operator waits only if an index is a mask.
  kRepeat,     ///< The operator waits only if the size of its output is not given.
};

/// `name` is the operator's name with its overload: "aten::index.Tensor".
GuardrailCheck guardrail_check(std::string_view name, c10::ArrayRef<at::Tag> tags);

struct CopyFacts {
  c10::Device from = c10::kCPU, to = c10::kCPU;
  bool is_empty = false;
  bool non_blocking = false;
  bool host_is_pinned = false;       ///< True if one side is on the CPU and its memory is pinned.
  bool is_backward_of_copy = false;  ///< True if autograd copies a gradient back. Such a copy never has `non_blocking`.
};

/// Returns how a copy is counted; nullopt if it is not caught.
std::optional<GuardrailKind> judge_copy(const CopyFacts& copy, const GuardrailOptions& options);

/// Returns whether `device` is an accelerator, for whose work the host has to wait.
bool is_waited_for(c10::Device device);

/// The message of the error: what, where, why, and what to do.
std::string guardrail_message(const GuardrailPlace& place);

/// Returns a text such as "train_step(Net&) (trainer.cpp:42), in the backward of MulBackward0".
std::string place_text(const GuardrailPlace& place);

std::string guardrail_text(const std::vector<GuardrailPlace>& places);
std::string guardrail_json(const std::vector<GuardrailPlace>& places);

}  // namespace yoke::train
