#include "yoke/train/data/sampler.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/randperm.h>

#include "yoke/base/error.h"
#include "yoke/dist/group.h"

namespace yoke::train {

DistributedSampler::DistributedSampler(const DistributedSamplerOptions& options) : options_(options) {
  if (options.num_samples < 0) {
    throw Error(ErrorCode::kInvalidArgument, "sampler: {} samples", options.num_samples);
  }
  if (options.rank < 0 || options.rank >= options.num_ranks) {
    throw Error(ErrorCode::kInvalidArgument, "sampler: rank {} of {} ranks", options.rank, options.num_ranks);
  }
  if (options.drop_last && options.exact) {
    throw Error(ErrorCode::kInvalidArgument, "sampler: drop_last leaves samples out, but exact requires all of them");
  }
  const int64_t rest = options.num_samples % options.num_ranks;
  size_ = options.num_samples / options.num_ranks;
  if (options.exact ? options.rank < rest : !options.drop_last && rest != 0) ++size_;
}

DistributedSampler::DistributedSampler(const dist::Group& group, DistributedSamplerOptions options)
    : DistributedSampler([&] {
        options.num_ranks = group.size();
        options.rank = group.rank();
        return options;
      }()) {}

std::vector<int64_t> DistributedSampler::indices(int64_t epoch) const {
  at::Tensor order;
  const int64_t* shuffled = nullptr;
  if (options_.shuffle) {
    const auto generator = at::detail::createCPUGenerator(options_.seed + static_cast<uint64_t>(epoch));
    order = at::randperm(options_.num_samples, generator, at::TensorOptions(at::kLong));
    shuffled = order.const_data_ptr<int64_t>();
  }
  std::vector<int64_t> result(static_cast<size_t>(size_));
  int64_t position = options_.rank;
  for (auto& index : result) {
    const int64_t wrapped = position % options_.num_samples;  // padding repeats the order
    index = shuffled ? shuffled[wrapped] : wrapped;
    position += options_.num_ranks;
  }
  return result;
}

}  // namespace yoke::train
