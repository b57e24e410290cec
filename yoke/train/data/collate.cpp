#include "yoke/train/data/collate.h"

#include <fmt/ranges.h>

#include <cstring>

#include "yoke/base/error.h"

namespace yoke::train {
namespace {

// Throws unless tensor `i` can be in one batch with the first tensor. `free_dims` leading dimensions may differ.
void check_alike(const std::vector<at::Tensor>& tensors, size_t i, size_t free_dims) {
  const auto &first = tensors.front(), &tensor = tensors[i];
  if (!tensor.defined() || !tensor.device().is_cpu()) {
    throw Error(ErrorCode::kInvalidArgument, "collate: sample {} of the batch is {}", i,
                tensor.defined() ? "not on the CPU" : "an undefined tensor");
  }
  if (tensor.scalar_type() == first.scalar_type() && tensor.dim() == first.dim() &&
      tensor.dim() >= static_cast<int64_t>(free_dims) &&
      tensor.sizes().slice(free_dims) == first.sizes().slice(free_dims)) {
    return;
  }
  throw Error(ErrorCode::kInvalidArgument,
              "collate: sample {} of the batch is [{}] {}, but the first one is [{}] {}; give the Loader a collate "
              "function for samples of different shapes, such as one that calls pad",
              i, fmt::join(tensor.sizes(), ", "), c10::toString(tensor.scalar_type()), fmt::join(first.sizes(), ", "),
              c10::toString(first.scalar_type()));
}

void copy_row(const at::Tensor& from, std::byte* to) {
  const auto row = from.resolve_conj().resolve_neg().contiguous();
  if (row.nbytes() > 0) std::memcpy(to, row.const_data_ptr(), row.nbytes());
}

}  // namespace

at::Tensor stack(const BatchRequest& request, const std::vector<at::Tensor>& tensors) {
  for (size_t i = 0; i < tensors.size(); ++i) check_alike(tensors, i, 0);
  auto sizes = tensors.empty() ? std::vector<int64_t>() : tensors.front().sizes().vec();
  sizes.insert(sizes.begin(), static_cast<int64_t>(tensors.size()));
  auto result = request.empty(sizes, tensors.empty() ? at::kFloat : tensors.front().scalar_type());
  auto* to = static_cast<std::byte*>(result.data_ptr());
  for (const auto& tensor : tensors) {
    copy_row(tensor, to);
    to += tensor.nbytes();
  }
  return result;
}

at::Tensor pad(const BatchRequest& request, const std::vector<at::Tensor>& tensors, double value) {
  int64_t longest = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    check_alike(tensors, i, 1);
    longest = std::max(longest, tensors[i].size(0));
  }
  auto sizes = tensors.empty() ? std::vector<int64_t>{0} : tensors.front().sizes().vec();
  sizes[0] = longest;
  sizes.insert(sizes.begin(), static_cast<int64_t>(tensors.size()));
  auto result = request.empty(sizes, tensors.empty() ? at::kFloat : tensors.front().scalar_type());
  result.fill_(value);
  const size_t row_bytes = tensors.empty() ? 0 : result.nbytes() / tensors.size();
  auto* to = static_cast<std::byte*>(result.data_ptr());
  for (const auto& tensor : tensors) {
    copy_row(tensor, to);
    to += row_bytes;
  }
  return result;
}

}  // namespace yoke::train
