// yoke/train/device/detail/guardrail_rules.h -- decides which calls DeviceGuardrails catches, and words what it found.
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
  kName,       ///< Nothing; but if another operator is caught inside it, its name is the one that the program called.
  kCopy,       ///< copy_(self, src, non_blocking)
  kSync,       ///< It waits for every device of its tensors.
  kMaskIndex,  ///< It waits only if an index is a mask.
  kRepeat,     ///< It waits only if the size of its output is not given.
};

/// `name` is an operator's with its overload: "aten::index.Tensor".
GuardrailCheck guardrail_check(std::string_view name, c10::ArrayRef<at::Tag> tags);

struct CopyFacts {
  c10::Device from = c10::kCPU, to = c10::kCPU;
  bool is_empty = false;
  bool non_blocking = false;
  bool host_is_pinned = false;       ///< The side that is on the CPU, if there is one.
  bool is_backward_of_copy = false;  ///< Autograd copies the gradient back; it never says `non_blocking`.
};

/// Whether a copy is caught, and as what.
std::optional<GuardrailKind> judge_copy(const CopyFacts& copy, const GuardrailOptions& options);

/// Whether waiting for a tensor on `device` is waiting for an accelerator.
bool is_waited_for(c10::Device device);

/// The message of the error: what, where, why, and what to do.
std::string guardrail_message(const GuardrailPlace& place);

/// "train_step(Net&) (trainer.cpp:42), in the backward of MulBackward0"
std::string place_text(const GuardrailPlace& place);

std::string guardrail_text(const std::vector<GuardrailPlace>& places);
std::string guardrail_json(const std::vector<GuardrailPlace>& places);

}  // namespace yoke::train
