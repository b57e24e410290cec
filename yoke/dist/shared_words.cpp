#include "yoke/dist/detail/shared_words.h"

#include <c10/core/ScalarType.h>
#include <fmt/format.h>

#include <torch/csrc/distributed/c10d/Types.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "yoke/dist/detail/element_types.h"
#include "yoke/dist/shared/exchange.h"

namespace yoke::dist {
namespace {

using c10d::OpType;

struct Kind {
  const char* name = nullptr;
  bool reduces = false, has_root = false, has_elements = true;
};

Kind kind_of(OpType type) {
  switch (type) {
    case OpType::ALLREDUCE: return {"all_reduce", true};
    case OpType::ALLREDUCE_COALESCED: return {"all_reduce of a list", true};
    case OpType::REDUCE: return {"reduce", true, true};
    case OpType::_REDUCE_SCATTER_BASE: return {"reduce_scatter", true};
    case OpType::BROADCAST: return {"broadcast", false, true};
    case OpType::ALLGATHER: return {"all_gather"};
    case OpType::_ALLGATHER_BASE: return {"all_gather_into"};
    case OpType::GATHER: return {"gather", false, true};
    case OpType::SCATTER: return {"scatter", false, true};
    case OpType::ALLTOALL_BASE: return {"all_to_all"};
    case OpType::ALLTOALL: return {"all_to_all of a list"};
    case OpType::BARRIER: return {"barrier", false, false, false};
    default: return {"another collective", false, false, false};
  }
}

const char* name_of_reduction(uint32_t reduction) {
  if (reduction == shared::kSumOfMean) return "MEAN";
  switch (static_cast<shared::Reduction>(reduction)) {
    case shared::Reduction::kSum: return "SUM";
    case shared::Reduction::kProduct: return "PRODUCT";
    case shared::Reduction::kMin: return "MIN";
    case shared::Reduction::kMax: return "MAX";
  }
  return "another reduction";
}

/// A reduction has the number of a shared::Type, in which complex numbers are pairs of real ones.
at::ScalarType scalar_type_of(const Kind& kind, uint32_t type) {
  if (!kind.reduces) return static_cast<at::ScalarType>(type);
  for (const auto one : {at::kBool, at::kByte, at::kChar, at::kUInt16, at::kShort, at::kUInt32, at::kInt, at::kUInt64,
                         at::kLong, at::kHalf, at::kBFloat16, at::kFloat, at::kDouble}) {
    if (type_of(one) == static_cast<shared::Type>(type)) return one;
  }
  return at::ScalarType::Undefined;
}

}  // namespace

std::string describe_call(const shared::Header& header) {
  const auto kind = kind_of(static_cast<OpType>(header.kind));
  std::string text = kind.name;
  if (kind.has_elements) {
    const auto type = scalar_type_of(kind, header.type);
    const auto size = static_cast<int64_t>(type == at::ScalarType::Undefined ? 1 : c10::elementSize(type));
    const auto number = header.bytes < 0 ? "" : fmt::format("{} ", header.bytes / size);
    text += fmt::format(" of {}{}", number, c10::toString(type));
  }
  if (kind.reduces) text += fmt::format(" with {}", name_of_reduction(header.reduction));
  if (kind.has_root) text += fmt::format("{} root {}", kind.reduces ? " and" : " with", header.root);
  return text;
}

}  // namespace yoke::dist
