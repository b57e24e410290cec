#include "yoke/train/data/detail/normalization_tables.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

namespace yoke::train::detail {
namespace {

template <typename T, typename Round>
ByteTables<T> make_tables(const Normalization& normalization, Round round) {
  ByteTables<T> tables(normalization.mean.size());
  for (size_t c = 0; c < tables.size(); ++c) {
    // All operations are in float32 and in this order, like those of torchvision's ToTensor and Normalize.
    const auto mean = static_cast<float>(normalization.mean[c]), stddev = static_cast<float>(normalization.stddev[c]);
    for (size_t x = 0; x < 256; ++x) tables[c][x] = round((static_cast<float>(x) / 255.0f - mean) / stddev);
  }
  return tables;
}

}  // namespace

NormalizationTables make_normalization_tables(const Normalization& normalization, at::ScalarType dtype) {
  if (dtype == at::kFloat) return make_tables<float>(normalization, [](float value) { return value; });
  if (dtype == at::kBFloat16) {
    return make_tables<uint16_t>(normalization, [](float value) { return c10::BFloat16(value).x; });
  }
  return make_tables<uint16_t>(normalization, [](float value) { return c10::Half(value).x; });
}

}  // namespace yoke::train::detail
