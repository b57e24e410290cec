// yoke/train/data/detail/normalization_tables.h -- a Normalization as tables of the 256 values of a byte. Internal.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <variant>

#include "yoke/train/data/detail/gather.h"
#include "yoke/train/data/normalization.h"

namespace yoke::train::detail {

/// Tables of float values, or of the bits of a half-precision type.
using NormalizationTables = std::variant<ByteTables<float>, ByteTables<uint16_t>>;

/// Makes one table for each entry of `normalization`. REQUIRES: dtype is kFloat, kBFloat16 or kHalf.
NormalizationTables make_normalization_tables(const Normalization& normalization, at::ScalarType dtype);

}  // namespace yoke::train::detail
