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

/// This file is compiled without contraction (CMakeLists.txt): quotients are rounded before they are added.
template <class T>
void write_mean_as(const at::Tensor& mean, const std::vector<at::Tensor>& tensors, int64_t first) {
  const auto factor = static_cast<T>(1.0 / static_cast<double>(tensors.size()));
  auto* const all = mean.mutable_data_ptr<T>();
  for (int64_t begin = 0; begin < mean.numel(); begin += kTileElements) {
    const int64_t count = std::min(kTileElements, mean.numel() - begin);
    auto* const to = all + begin;
    const auto source = [&](size_t rank) { return tensors[rank].const_data_ptr<T>() + first + begin; };
    const T *const a = source(0), *const b = source(1);
#ifndef __clang__
#pragma GCC ivdep  // `to` is none of the sources
#endif
    for (int64_t i = 0; i < count; ++i) to[i] = a[i] * factor + b[i] * factor;
    for (size_t rank = 2; rank < tensors.size(); ++rank) {
      const T* const c = source(rank);
#ifndef __clang__
#pragma GCC ivdep
#endif
      for (int64_t i = 0; i < count; ++i) to[i] += c[i] * factor;
    }
  }
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
  if (type == at::kFloat) return write_mean_as<float>(mean, tensors, first);
  if (type == at::kDouble) return write_mean_as<double>(mean, tensors, first);
  std::vector<at::Tensor> quotients;
  std::vector<const std::byte*> sources;
  for (const auto& tensor : tensors) {
    quotients.push_back(tensor.narrow(0, first, mean.numel()).mul(1.0 / static_cast<double>(tensors.size())));
    sources.push_back(memory_of(quotients.back()));
  }
  shared::reduce(type == at::kHalf ? shared::Type::kF16 : shared::Type::kBF16, shared::Reduction::kSum, memory_of(mean),
                 sources, mean.numel());
}

}  // namespace yoke::dist
