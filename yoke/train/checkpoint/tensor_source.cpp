#include "yoke/train/checkpoint/tensor_source.h"

#include <fmt/ranges.h>

#include <utility>

#include "yoke/base/error.h"

namespace yoke::train {

int64_t num_elements(const std::vector<int64_t>& shape) {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  return count;
}

std::string describe(at::ScalarType dtype, const std::vector<int64_t>& shape) {
  return fmt::format("{} [{}]", c10::toString(dtype), fmt::join(shape, ", "));
}

TensorSource source_of(TensorMap whole) {
  TensorSource source;
  for (const auto& [name, tensor] : whole) {
    source.tensors.emplace(name, TensorSource::Whole{tensor.scalar_type(), tensor.sizes().vec()});
  }
  source.read = [whole = std::move(whole)](const std::string& name, int64_t first, int64_t length) {
    return whole.at(name).detach().contiguous().view({-1}).narrow(0, first, length);
  };
  return source;
}

TensorSource part_of(const TensorSource& source, const std::string& part, char separator) {
  TensorSource result{.tensors = {}, .read = {}, .what = fmt::format("'{}' of {}", part, source.what)};
  const auto prefix = part + separator;
  for (const auto& [name, whole] : source.tensors) {
    if (name.starts_with(prefix)) result.tensors.emplace(name.substr(prefix.size()), whole);
  }
  result.read = [read = source.read, prefix](const std::string& name, int64_t first, int64_t length) {
    return read(prefix + name, first, length);
  };
  return result;
}

at::Tensor read_whole(const TensorSource& source, const std::string& name) {
  const auto& whole = source.tensors.at(name);
  return source.read(name, 0, num_elements(whole.shape)).view(whole.shape);
}

TensorMap read_whole(const TensorSource& source) {
  TensorMap result;
  for (const auto& [name, whole] : source.tensors) result.emplace(name, read_whole(source, name).cpu().clone());
  return result;
}

}  // namespace yoke::train
