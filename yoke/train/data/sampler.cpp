#include "yoke/train/data/sampler.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/randperm.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "yoke/base/error.h"
#include "yoke/dist/group.h"
#include "yoke/train/data/detail/check.h"
#include "yoke/train/data/detail/epoch_division.h"
#include "yoke/train/data/detail/permutation.h"

namespace yoke::train {
namespace {

using detail::check_that;

// PyTorch's permutation of this many numbers takes 10 ms; one of 100 million numbers would take seconds and 800 MB.
constexpr int64_t kMaxRandperm = 1 << 20;

Order permutation(int64_t num_samples, uint64_t seed, int64_t epoch) {
  if (num_samples > kMaxRandperm) return detail::Permutation(num_samples, seed, epoch);
  const auto generator = at::detail::createCPUGenerator(seed + static_cast<uint64_t>(epoch));
  const auto order = at::randperm(num_samples, generator, at::TensorOptions(at::kLong));
  return [order, samples = order.const_data_ptr<int64_t>()](int64_t position) { return samples[position]; };
}

Order order_of(std::vector<int64_t> samples) {
  return [samples = std::make_shared<const std::vector<int64_t>>(std::move(samples))](int64_t position) {
    return (*samples)[static_cast<size_t>(position)];
  };
}

// The samples of each class, in their original order.
std::vector<std::vector<int64_t>> by_class(const std::vector<int64_t>& classes) {
  std::vector<std::vector<int64_t>> result;
  for (size_t sample = 0; sample < classes.size(); ++sample) {
    check_that(classes[sample] >= 0, "sampler: sample {} has the class {}", sample, classes[sample]);
    const auto index = static_cast<size_t>(classes[sample]);
    if (index >= result.size()) {
      check_that(index < (1 << 24), "sampler: sample {} has the class {}, and classes above 2^24 are not supported",
                 sample, classes[sample]);
      result.resize(index + 1);
    }
    result[index].push_back(static_cast<int64_t>(sample));
  }
  return result;
}

}  // namespace

Sampler in_order(int64_t num_samples) {
  check_that(num_samples >= 0, "sampler: {} samples", num_samples);
  return {num_samples, [](int64_t) -> Order { return [](int64_t position) { return position; }; }};
}

Sampler shuffled(int64_t num_samples, uint64_t seed) {
  check_that(num_samples >= 0, "sampler: {} samples", num_samples);
  return {num_samples, [=](int64_t epoch) { return permutation(num_samples, seed, epoch); }};
}

Sampler shuffled(std::vector<int64_t> samples, uint64_t seed) {
  const auto size = static_cast<int64_t>(samples.size());
  return {size, [part = order_of(std::move(samples)), size, seed](int64_t epoch) -> Order {
            return [part, order = permutation(size, seed, epoch)](int64_t position) { return part(order(position)); };
          }};
}

Sampler weighted(const std::vector<double>& weights, int64_t num_positions, uint64_t seed) {
  check_that(num_positions >= 0, "sampler: {} positions", num_positions);
  auto sums = std::make_shared<std::vector<double>>();
  sums->reserve(weights.size());
  double total = 0;
  for (size_t sample = 0; sample < weights.size(); ++sample) {
    check_that(weights[sample] >= 0 && std::isfinite(weights[sample]), "sampler: sample {} has the weight {}", sample,
               weights[sample]);
    sums->push_back(total += weights[sample]);
  }
  check_that((total > 0 && std::isfinite(total)) || num_positions == 0, "sampler: the sum of all weights is {}", total);
  return {num_positions, [sums, seed, total](int64_t epoch) -> Order {
            return [sums, seed, epoch, total](int64_t position) -> int64_t {
              const double drawn = SampleRandom(seed, epoch, position).uniform(0, total);
              // upper_bound skips samples of weight zero, whose interval is empty. If `drawn` is rounded up to `total`,
              // the last sample with a positive weight is drawn.
              auto found = std::upper_bound(sums->begin(), sums->end(), drawn);
              if (found == sums->end()) found = std::lower_bound(sums->begin(), sums->end(), total);
              return found - sums->begin();
            };
          }};
}

Sampler balanced(const std::vector<int64_t>& classes, uint64_t seed) {
  auto samples = by_class(classes);
  std::erase_if(samples, [](const auto& of_class) { return of_class.empty(); });
  check_that(!samples.empty(), "sampler: there are no samples");
  size_t largest = 0;
  for (const auto& of_class : samples) largest = std::max(largest, of_class.size());
  const auto num_classes = static_cast<int64_t>(samples.size());
  const auto num_positions = static_cast<int64_t>(largest) * num_classes;
  const auto shared = std::make_shared<const std::vector<std::vector<int64_t>>>(std::move(samples));
  return {num_positions, [=](int64_t epoch) -> Order {
            // Each class has one permutation per epoch, which is repeated as often as needed. The k-th sample drawn
            // from a class is element k of these repetitions.
            return [=, places = permutation(num_positions, seed, epoch)](int64_t position) {
              const int64_t place = places(position), of = place % num_classes, k = place / num_classes;
              const auto& of_class = (*shared)[static_cast<size_t>(of)];
              const auto size = static_cast<int64_t>(of_class.size());
              const detail::Permutation chosen(size, SampleRandom::mix(seed) + static_cast<uint64_t>(of), epoch);
              return of_class[static_cast<size_t>(chosen(k % size))];
            };
          }};
}

Sampler by_length(std::vector<int64_t> lengths, const ByLengthOptions& o) {
  check_that(o.batch_size >= 1 && o.num_batches >= 1, "sampler: batch_size {} and num_batches {} must be 1 or more",
             o.batch_size, o.num_batches);
  const auto num_samples = static_cast<int64_t>(lengths.size());
  return {num_samples,
          [lengths = std::make_shared<const std::vector<int64_t>>(std::move(lengths)), num_samples, o](int64_t epoch) {
            const auto order = permutation(num_samples, o.seed, epoch);
            std::vector<int64_t> samples(static_cast<size_t>(num_samples));
            for (int64_t i = 0; i < num_samples; ++i) samples[static_cast<size_t>(i)] = order(i);
            const int64_t piece = o.batch_size > num_samples / o.num_batches ? std::max<int64_t>(num_samples, 1)
                                                                             : o.batch_size * o.num_batches;
            for (int64_t first = 0; first < num_samples; first += piece) {
              std::stable_sort(samples.begin() + first, samples.begin() + std::min(first + piece, num_samples),
                               [&](int64_t a, int64_t b) {
                                 return (*lengths)[static_cast<size_t>(a)] > (*lengths)[static_cast<size_t>(b)];
                               });
            }
            // Only full batches are shuffled: a shorter last batch stays last.
            const int64_t num_batches = num_samples / o.batch_size;
            const detail::Permutation batches(num_batches, o.seed, epoch);
            std::vector<int64_t> result(samples);
            for (int64_t b = 0; b < num_batches; ++b) {
              std::copy_n(samples.begin() + batches(b) * o.batch_size, o.batch_size, result.begin() + b * o.batch_size);
            }
            return order_of(std::move(result));
          }};
}

Sampler shuffled_shards(const std::vector<int64_t>& shard_sizes, int64_t window, uint64_t seed) {
  check_that(window >= 1, "sampler: a window of {} samples", window);
  std::vector<int64_t> firsts = {0};  // first sample of each shard, in the source's order
  for (const int64_t size : shard_sizes) {
    check_that(size >= 0, "sampler: a shard of {} samples", size);
    firsts.push_back(firsts.back() + size);
  }
  const int64_t total = firsts.back();
  return {total, [=](int64_t epoch) -> Order {
            const auto num_shards = static_cast<int64_t>(firsts.size()) - 1;
            const detail::Permutation shards(num_shards, seed, epoch);
            std::vector<int64_t> begins = {0}, sources;  // first sample of each shard, in this epoch's order
            for (int64_t i = 0; i < num_shards; ++i) {
              const auto shard = static_cast<size_t>(shards(i));
              sources.push_back(firsts[shard]);
              begins.push_back(begins.back() + firsts[shard + 1] - firsts[shard]);
            }
            return [=](int64_t position) {
              const int64_t number = position / window, first = number * window;
              const detail::Permutation inside(std::min(window, total - first),
                                               seed + 1 + static_cast<uint64_t>(number), epoch);
              const int64_t place = first + inside(position - first);
              const auto shard = std::upper_bound(begins.begin(), begins.end(), place) - begins.begin() - 1;
              return sources[static_cast<size_t>(shard)] + place - begins[static_cast<size_t>(shard)];
            };
          }};
}

std::vector<std::vector<int64_t>> random_split(int64_t num_samples, const std::vector<double>& fractions,
                                               uint64_t seed) {
  check_that(num_samples >= 0, "sampler: {} samples", num_samples);
  double sum = 0;
  for (const double fraction : fractions) {
    check_that(fraction >= 0 && fraction <= 1, "sampler: a fraction of {}", fraction);
    sum += fraction;
  }
  check_that(std::abs(sum - 1) < 1e-6, "sampler: the fractions add up to {}, not to 1", sum);
  std::vector<int64_t> sizes;
  int64_t rest = num_samples;
  for (const double fraction : fractions) {
    sizes.push_back(static_cast<int64_t>(std::floor(static_cast<double>(num_samples) * fraction)));
    rest -= sizes.back();
  }
  for (int64_t i = 0; i < rest; ++i) ++sizes[static_cast<size_t>(i) % sizes.size()];

  const auto order = permutation(num_samples, seed, 0);
  std::vector<std::vector<int64_t>> parts;
  int64_t position = 0;
  for (const int64_t size : sizes) {
    auto& part = parts.emplace_back();
    for (int64_t i = 0; i < size; ++i) part.push_back(order(position++));
  }
  return parts;
}

std::vector<std::vector<int64_t>> stratified_split(const std::vector<int64_t>& classes,
                                                   const std::vector<double>& fractions, uint64_t seed) {
  std::vector<std::vector<int64_t>> parts(fractions.size());
  for (const auto& samples : by_class(classes)) {
    const auto of_class = random_split(static_cast<int64_t>(samples.size()), fractions, seed++);
    for (size_t part = 0; part < parts.size(); ++part) {
      for (const int64_t i : of_class[part]) parts[part].push_back(samples[static_cast<size_t>(i)]);
    }
  }
  return parts;
}

DistributedSampler::DistributedSampler(const DistributedSamplerOptions& options) : options_(options) {
  if (options.rank < 0 || options.rank >= options.num_ranks) {
    throw Error(ErrorCode::kInvalidArgument, "sampler: rank {} of {} ranks", options.rank, options.num_ranks);
  }
  check_that(!options.drop_last || !options.exact,
             "sampler: drop_last leaves samples out, but exact requires all of them");
  if (!options_.sampler) {
    options_.sampler = options.shuffle ? shuffled(options.num_samples, options.seed) : in_order(options.num_samples);
  }
}

DistributedSampler::DistributedSampler(const dist::Group& group, DistributedSamplerOptions options)
    : DistributedSampler([&] {
        options.num_ranks = group.size();
        options.rank = group.rank();
        return options;
      }()) {}

detail::EpochDivision DistributedSampler::division(int64_t first) const {
  return detail::EpochDivision({.num_positions = num_positions(),
                                .first = first,
                                .num_ranks = options_.num_ranks,
                                .rank = options_.rank,
                                .exact = options_.exact,
                                .drop_last = options_.drop_last});
}

int64_t DistributedSampler::size(int64_t first) const { return division(first).num_samples(); }

Order DistributedSampler::order(int64_t epoch, int64_t first) const {
  return [whole = options_.sampler->order(epoch), num_positions = num_positions(),
          division = division(first)](int64_t own) {
    return whole(division.position(own) % num_positions);  // padding repeats the order from its beginning
  };
}

std::vector<int64_t> DistributedSampler::indices(int64_t epoch, int64_t first) const {
  const auto order_of_rank = order(epoch, first);
  std::vector<int64_t> result(static_cast<size_t>(size(first)));
  for (size_t i = 0; i < result.size(); ++i) result[i] = order_of_rank(static_cast<int64_t>(i));
  return result;
}

}  // namespace yoke::train
