#include "yoke/train/format/detail/pt_dtypes.h"

#include <array>
#include <utility>

namespace yoke::train {
namespace {

constexpr std::array<std::pair<std::string_view, at::ScalarType>, 21> kPtDtypes = {{
    {"float64", at::kDouble},
    {"float32", at::kFloat},
    {"float16", at::kHalf},
    {"bfloat16", at::kBFloat16},
    {"int64", at::kLong},
    {"int32", at::kInt},
    {"int16", at::kShort},
    {"int8", at::kChar},
    {"uint8", at::kByte},
    {"bool", at::kBool},
    {"complex64", at::ScalarType::ComplexFloat},
    {"complex128", at::ScalarType::ComplexDouble},
    {"uint16", at::ScalarType::UInt16},
    {"uint32", at::ScalarType::UInt32},
    {"uint64", at::ScalarType::UInt64},
    {"complex32", at::ScalarType::ComplexHalf},
    {"float8_e4m3fn", at::ScalarType::Float8_e4m3fn},
    {"float8_e5m2", at::ScalarType::Float8_e5m2},
    {"float8_e4m3fnuz", at::ScalarType::Float8_e4m3fnuz},
    {"float8_e5m2fnuz", at::ScalarType::Float8_e5m2fnuz},
    {"float8_e8m0fnu", at::ScalarType::Float8_e8m0fnu},
}};

}  // namespace

std::optional<at::ScalarType> pt_dtype(std::string_view name) {
  for (const auto& entry : kPtDtypes) {
    if (entry.first == name) return entry.second;
  }
  return std::nullopt;
}

std::optional<std::string_view> pt_dtype_name(at::ScalarType dtype) {
  for (const auto& entry : kPtDtypes) {
    if (entry.second == dtype) return entry.first;
  }
  return std::nullopt;
}

}  // namespace yoke::train
