#include "yoke/train/image/mix.h"

#include <ATen/ops/one_hot.h>
#include <ATen/ops/roll.h>

#include <algorithm>
#include <cmath>

#include "yoke/train/data/detail/check.h"

namespace yoke::train {
namespace {

void check_mix(const Batch& batch, int64_t num_classes, double alpha) {
  detail::check_that(
      batch.data.dim() == 4 && batch.data.is_floating_point() && batch.target.dim() == 1 &&
          batch.target.scalar_type() == at::kLong && batch.target.size(0) == batch.data.size(0),
      "mixing a batch needs floating-point images [B, C, H, W] and int64 targets [B], before other mixing");
  detail::check_that(num_classes > 0 && alpha > 0, "mixing a batch needs positive num_classes and alpha, not {} and {}",
                     num_classes, alpha);
}

at::Tensor mix(const at::Tensor& own, double share) { return own.roll(1, 0).mul_(1 - share).add_(own, share); }

at::Tensor mix_targets(const Batch& batch, int64_t num_classes, double share) {
  return mix(at::one_hot(batch.target, num_classes).to(at::kFloat), share);
}

// A random number in (0, 1).
double open_uniform(SampleRandom& random) { return std::max(random.uniform(), 0x1p-54); }

}  // namespace

// Two rejection methods. For alpha <= 1: Jöhnk, "Erzeugung von betaverteilten und gammaverteilten Zufallszahlen", 1964,
// computed in logarithms, because powers with the exponent 1 / alpha become 0 for a small alpha. For alpha > 1:
// algorithm BB of Cheng, "Generating beta variates with nonintegral shape parameters", CACM 1978.
double draw_beta(double alpha, SampleRandom& random) {
  while (alpha <= 1) {
    const double x = std::log(open_uniform(random)) / alpha, y = std::log(open_uniform(random)) / alpha;
    if (std::exp(x) + std::exp(y) <= 1) return 1 / (1 + std::exp(y - x));
  }
  const double sum = 2 * alpha, beta = 1 / std::sqrt(alpha), gamma = alpha + 1 / beta;
  while (true) {
    const double u = open_uniform(random), z = u * u * open_uniform(random);
    const double v = beta * std::log(u / (1 - u)), w = alpha * std::exp(v);
    if (gamma * v - std::log(4) + sum * std::log(sum / (alpha + w)) >= std::log(z)) return w / (alpha + w);
  }
}

Batch mixup(const Batch& batch, int64_t num_classes, double alpha, SampleRandom& random) {
  check_mix(batch, num_classes, alpha);
  const double share = draw_beta(alpha, random);
  return {mix(batch.data, share), mix_targets(batch, num_classes, share)};
}

Batch cutmix(const Batch& batch, int64_t num_classes, double alpha, SampleRandom& random) {
  check_mix(batch, num_classes, alpha);
  const int64_t height = batch.data.size(2), width = batch.data.size(3);
  const double half_side = 0.5 * std::sqrt(1 - draw_beta(alpha, random));
  struct Span {
    int64_t begin, end;
  };
  const auto around = [&](int64_t size) {
    const int64_t centre = random.below(size), half = static_cast<int64_t>(half_side * static_cast<double>(size));
    return Span{std::max<int64_t>(centre - half, 0), std::min(centre + half, size)};
  };
  const Span x = around(width), y = around(height);
  auto data = batch.data.clone();
  data.slice(2, y.begin, y.end)
      .slice(3, x.begin, x.end)
      .copy_(batch.data.slice(2, y.begin, y.end).slice(3, x.begin, x.end).roll(1, 0));
  const auto area = static_cast<double>((x.end - x.begin) * (y.end - y.begin));
  return {std::move(data), mix_targets(batch, num_classes, 1 - area / static_cast<double>(width * height))};
}

}  // namespace yoke::train
