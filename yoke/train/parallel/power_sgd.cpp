#include "yoke/train/parallel/power_sgd.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linalg_qr.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/randn.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <vector>

#include "yoke/base/error.h"
#include "yoke/dist/group.h"

namespace yoke::train {
namespace {

/// Orthonormalises the columns of each matrix [1, rows, columns] in place.
void orthogonalize(const at::Tensor& matrix, double epsilon) {
  const int64_t num_columns = matrix.size(2);
  if (num_columns > 2 && matrix.scalar_type() != at::kHalf && matrix.scalar_type() != at::kBFloat16) {
    matrix.copy_(std::get<0>(at::linalg_qr(matrix)));
    return;
  }
  for (int64_t i = 0; i < num_columns; ++i) {  // Gram-Schmidt
    const auto column = matrix.narrow(2, i, 1);
    const auto norm = at::linalg_vector_norm(column, 2, at::IntArrayRef{1}, /*keepdim=*/true);
    column.div_(epsilon == 0 ? norm : norm + epsilon);
    if (i + 1 == num_columns) break;
    const auto rest = matrix.narrow(2, i + 1, num_columns - i - 1);
    rest.sub_((column * rest).sum(at::IntArrayRef{1}, /*keepdim=*/true) * column);
  }
}

/// A gradient and the two factors of its approximation p * q^T.
struct Product {
  at::Tensor matrix;  ///< [1, rows, columns], a view into the bucket.
  at::Tensor p;       ///< [1, rows, rank], a view into PowerSgd::Memory::ps.
  at::Tensor q;       ///< [1, columns, rank], a view into PowerSgd::Memory::qs.
};

class PowerSgd {
 public:
  PowerSgd(dist::Group& group, const PowerSgdOptions& options)
      : group_(group), options_(options), seeds_(static_cast<uint32_t>(options.seed)) {}

  std::function<at::Tensor()> start(const GradientBucket& bucket) {
    const auto flat = bucket.flat();
    if (flat.is_sparse() || step_ < options_.start_step) {
      if (bucket.is_last() && step_ < options_.start_step) ++step_;
      flat.div_(group_.size());
      return [flat, wait = start_all_reduce(group_, flat)] { return wait(), flat; };
    }
    return compress(bucket, flat);
  }

 private:
  /// The data that a bucket keeps until its next step.
  struct Memory {
    at::Tensor error, ps, qs;
  };

  /// The data between the start and the end of a bucket's compression.
  struct Compression {
    at::Tensor flat, original, exact_flat;
    std::vector<at::Tensor> exact;  ///< Gradients that are averaged without compression; views into flat.
    std::vector<Product> products;
    std::function<void()> wait_for_exact, wait_for_ps;
    bool is_last;
  };

  bool worth_compressing(int64_t rows, int64_t columns, int64_t rank) const {
    return static_cast<double>((rows + columns) * rank) * options_.min_compression_rate <
           static_cast<double>(rows * columns);
  }

  int64_t rank_of(const at::Tensor& matrix) const {
    return std::min({matrix.size(0), matrix.size(1), options_.matrix_rank});
  }

  /// Gives the seeds of Python's hook, which draws them by numpy.random.RandomState(seed).randint(1000000000).
  uint64_t next_seed() {
    while (true) {
      const uint32_t value = seeds_() & 0x3fffffff;
      if (value < 1'000'000'000) return value;
    }
  }

  std::function<at::Tensor()> compress(const GradientBucket& bucket, const at::Tensor& flat) {
    auto& memory = memories_[bucket.index()];
    auto work = std::make_shared<Compression>();
    work->flat = flat;
    work->is_last = bucket.is_last();
    if (options_.error_feedback) {
      if (memory.error.defined()) flat.add_(memory.error);
      work->original = flat.clone();
    }

    std::vector<at::Tensor> matrices, exact_rows;
    for (const auto& gradient : bucket.gradients()) {
      const auto matrix = gradient.dim() < 2 ? gradient.reshape({-1, 1}) : gradient.flatten(1);
      if (worth_compressing(matrix.size(0), matrix.size(1), rank_of(matrix))) {
        matrices.push_back(matrix);
      } else {
        work->exact.push_back(gradient);
        exact_rows.push_back(gradient.reshape(-1));
      }
    }
    // Matrices of one shape are stored together. Shapes are in the order of their first appearance. The random numbers
    // of Q are drawn in this order.
    std::vector<at::IntArrayRef> shapes;
    for (const auto& matrix : matrices) {
      if (std::find(shapes.begin(), shapes.end(), matrix.sizes()) == shapes.end()) shapes.push_back(matrix.sizes());
    }
    std::vector<at::Tensor> ordered;
    int64_t size_of_ps = 0, size_of_qs = 0;
    for (const auto& shape : shapes) {
      for (const auto& matrix : matrices) {
        if (matrix.sizes() != shape) continue;
        ordered.push_back(matrix);
        size_of_ps += matrix.size(0) * rank_of(matrix);
        size_of_qs += matrix.size(1) * rank_of(matrix);
      }
    }

    const bool is_cold = !options_.warm_start || !memory.ps.defined();
    if (is_cold) {
      memory.ps = at::empty({size_of_ps}, flat.options());
      memory.qs = at::empty({size_of_qs}, flat.options());
    }
    int64_t p_begin = 0, q_begin = 0;
    for (const auto& matrix : ordered) {
      const int64_t rows = matrix.size(0), columns = matrix.size(1), rank = rank_of(matrix);
      work->products.push_back({matrix.unsqueeze(0), memory.ps.narrow(0, p_begin, rows * rank).view({1, rows, rank}),
                                memory.qs.narrow(0, q_begin, columns * rank).view({1, columns, rank})});
      p_begin += rows * rank;
      q_begin += columns * rank;
    }
    if (is_cold) {
      const auto generator = at::detail::createCPUGenerator(next_seed());
      for (const auto& product : work->products) {
        product.q.copy_(at::randn(product.q.sizes(), generator, flat.options().device(at::kCPU)));
      }
    }
    for (auto& product : work->products) {
      orthogonalize(product.q, options_.orthogonalization_epsilon);
      at::bmm_out(product.p, product.matrix, product.q);
    }

    if (!exact_rows.empty()) {
      work->exact_flat = at::cat(exact_rows);
      work->wait_for_exact = start_all_reduce(group_, work->exact_flat);
    }
    if (!work->products.empty()) work->wait_for_ps = start_all_reduce(group_, memory.ps);
    return [this, work, &memory] { return finish(*work, memory); };
  }

  at::Tensor finish(Compression& work, Memory& memory) {
    if (work.wait_for_exact) {
      work.wait_for_exact();
      work.exact_flat.div_(group_.size());
      int64_t begin = 0;
      for (const auto& gradient : work.exact) {
        gradient.copy_(work.exact_flat.narrow(0, begin, gradient.numel()).view_as(gradient));
        begin += gradient.numel();
      }
    }
    if (work.wait_for_ps) {
      work.wait_for_ps();
      for (auto& product : work.products) {
        // orthogonalize() normalises p, so the sum of p over ranks has the same effect as its mean.
        orthogonalize(product.p, options_.orthogonalization_epsilon);
        at::bmm_out(product.q, product.matrix.transpose(1, 2), product.p);
      }
      group_.all_reduce(memory.qs);
      memory.qs.div_(group_.size());
      for (auto& product : work.products) at::bmm_out(product.matrix, product.p, product.q.transpose(1, 2));
    }
    if (options_.error_feedback) memory.error = work.original - work.flat;
    if (work.is_last) ++step_;
    return work.flat;
  }

  dist::Group& group_;
  const PowerSgdOptions options_;
  std::mt19937 seeds_;
  std::map<int64_t, Memory> memories_;  ///< Indexed by bucket. Insertions do not invalidate references.
  int64_t step_ = 0;
};

}  // namespace

CommunicationHook power_sgd_hook(dist::Group& group, const PowerSgdOptions& options) {
  if (options.matrix_rank < 1) {
    throw Error(ErrorCode::kInvalidArgument, "PowerSGD: matrix_rank is {}; it must be at least 1", options.matrix_rank);
  }
  if ((options.error_feedback || options.warm_start) && options.start_step < 2) {
    throw Error(
        ErrorCode::kInvalidArgument,
        "PowerSGD: start_step is {}; with error_feedback or warm_start it must be at least 2, because buckets are "
        "rebuilt after the first step",
        options.start_step);
  }
  return [state = std::make_shared<PowerSgd>(group, options)](const GradientBucket& bucket) {
    return state->start(bucket);
  };
}

}  // namespace yoke::train
