#include "yoke/dist/shared_tensors.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/mul.h>

#include <algorithm>
#include <array>
#include <memory>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "yoke/dist/detail/shared_memory.h"
#include "yoke/dist/group.h"
#include "yoke/dist/shared/arena.h"
#include "yoke/dist/shared/kernels.h"

namespace yoke::dist {
namespace {

/// A tile of all ranks stays in the first cache.
constexpr int64_t kTileElements = 1024;

template <class T>
void divide(std::byte* to, const std::byte* from, int64_t count, double factor) {
  auto* const quotients = reinterpret_cast<T*>(to);
  const auto* const values = reinterpret_cast<const T*>(from);
  for (int64_t i = 0; i < count; ++i) quotients[i] = values[i] * static_cast<T>(factor);
}

std::byte* memory_of(const at::Tensor& tensor) { return static_cast<std::byte*>(tensor.mutable_data_ptr()); }

}  // namespace

std::vector<at::Tensor> share_tensors(Group& group, int64_t num_elements, const at::TensorOptions& options) {
  if (group.size() == 1 || !group.device().is_cpu()) return {};
  const auto backend = group.process_group().getBackend(c10::DeviceType::CPU);
  const auto arena = arena_of(*backend);
  if (arena == nullptr) return {};  // of all ranks or none
  const auto own = backend->allocateTensor(num_elements, options);
  const auto place = arena->find(memory_of(own), static_cast<int64_t>(own.nbytes()));
  const auto numbers = at::empty({3}, at::kLong);
  std::ranges::copy(std::array{place.offset, place.bytes, place.inside}, numbers.mutable_data_ptr<int64_t>());
  const auto places = group.all_gather(numbers);
  std::vector<at::Tensor> tensors;
  for (int64_t rank = 0; rank < group.size(); ++rank) {
    const auto* const of_rank = places.const_data_ptr<int64_t>() + 3 * rank;
    if (of_rank[0] < 0) return {};
    if (rank == group.rank()) {
      tensors.push_back(own);
      continue;
    }
    auto* const memory = arena->map({.offset = of_rank[0], .bytes = of_rank[1], .inside = of_rank[2]});
    tensors.push_back(at::from_blob(
        memory, {num_elements}, [arena](void*) {}, options));
  }
  return tensors;
}

void write_mean(const at::Tensor& mean, const std::vector<at::Tensor>& tensors, int64_t first) {
  const auto type = mean.scalar_type();
  const int64_t bytes = static_cast<int64_t>(mean.element_size()), tile_bytes = kTileElements * bytes;
  const double factor = 1.0 / static_cast<double>(tensors.size());
  const auto shared_type = type == at::kFloat    ? shared::Type::kF32
                           : type == at::kDouble ? shared::Type::kF64
                           : type == at::kHalf   ? shared::Type::kF16
                                                 : shared::Type::kBF16;
  const auto quotients = at::empty({static_cast<int64_t>(tensors.size()), kTileElements}, mean.options());
  std::vector<const std::byte*> sources;
  for (size_t rank = 0; rank < tensors.size(); ++rank) {
    sources.push_back(memory_of(quotients) + static_cast<int64_t>(rank) * tile_bytes);
  }
  for (int64_t begin = 0; begin < mean.numel(); begin += kTileElements) {
    const int64_t count = std::min(kTileElements, mean.numel() - begin);
    for (size_t rank = 0; rank < tensors.size(); ++rank) {
      const auto* const from = memory_of(tensors[rank]) + (first + begin) * bytes;
      auto* const to = memory_of(quotients) + static_cast<int64_t>(rank) * tile_bytes;
      if (type == at::kFloat) {
        divide<float>(to, from, count, factor);
      } else if (type == at::kDouble) {
        divide<double>(to, from, count, factor);
      } else {
        auto row = quotients.select(0, static_cast<int64_t>(rank)).narrow(0, 0, count);
        at::mul_out(row, tensors[rank].narrow(0, first + begin, count), at::Scalar(factor));
      }
    }
    shared::reduce(shared_type, shared::Reduction::kSum, memory_of(mean) + begin * bytes, sources, count);
  }
}

}  // namespace yoke::dist
