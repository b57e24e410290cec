// yoke/dist/detail/element_types.h -- how c10d's types of elements and reductions are called in shared memory.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include "yoke/dist/shared/kernels.h"

namespace yoke::dist {

/// nullopt: ranks do not reduce such elements, or in this way, in shared memory.
inline std::optional<shared::Type> type_of(at::ScalarType type) {
  switch (type) {
    case at::kBool: return shared::Type::kBool;
    case at::kByte: return shared::Type::kU8;
    case at::kChar: return shared::Type::kI8;
    case at::kUInt16: return shared::Type::kU16;
    case at::kShort: return shared::Type::kI16;
    case at::kUInt32: return shared::Type::kU32;
    case at::kInt: return shared::Type::kI32;
    case at::kUInt64: return shared::Type::kU64;
    case at::kLong: return shared::Type::kI64;
    case at::kHalf: return shared::Type::kF16;
    case at::kBFloat16: return shared::Type::kBF16;
    case at::kFloat: return shared::Type::kF32;
    case at::kDouble: return shared::Type::kF64;
    default: return std::nullopt;
  }
}

inline std::optional<shared::Reduction> reduction_of(const c10d::ReduceOp& op) {
  switch (op.op_) {
    case c10d::ReduceOp::SUM: return shared::Reduction::kSum;
    case c10d::ReduceOp::PRODUCT: return shared::Reduction::kProduct;
    case c10d::ReduceOp::MIN: return shared::Reduction::kMin;
    case c10d::ReduceOp::MAX: return shared::Reduction::kMax;
    default: return std::nullopt;
  }
}

}  // namespace yoke::dist
