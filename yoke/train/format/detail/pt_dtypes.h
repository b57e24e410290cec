// yoke/train/format/detail/pt_dtypes.h -- torch's names of the dtypes: "float32", "bfloat16".
#pragma once

#include <c10/core/ScalarType.h>

#include <optional>
#include <string_view>

namespace yoke::train {

std::optional<at::ScalarType> pt_dtype(std::string_view name);
std::optional<std::string_view> pt_dtype_name(at::ScalarType dtype);

}  // namespace yoke::train
