// ShardedOptimizer in memory that all ranks share: averaging, updating and sending is one pass over the memory, piece
// by piece, each of which stays in the processor's caches.
#include <ATen/Parallel.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "yoke/dist/shared_tensors.h"
#include "yoke/train/detail/averaged_in_step.h"
#include "yoke/train/shard/sharded_optimizer.h"

namespace yoke::train {
namespace {

/// A multiple of 64 bytes. A piece's gradients, parameters and states of all kinds are in the caches at once.
constexpr int64_t kBytesOfPiece = 128 << 10;

}  // namespace

/// Collective. With gradients in shared memory, too, if this averages them. Those of earlier buckets stay there.
void ShardedOptimizer::share_memory() {
  shares_memory_ = std::ranges::all_of(buckets_, [](const auto& bucket) { return !bucket.flats.empty(); });
  if (gradients_ != GradientMean::kInStep) return;
  for (auto& bucket : buckets_) {
    if (!shares_memory_) break;
    if (!bucket.gradients.empty()) continue;
    bucket.gradients = dist::share_tensors(world_, bucket.layout.num_elements(), bucket.flat.options());
    shares_memory_ = !bucket.gradients.empty();
  }
  const at::AutoDispatchBelowADInplaceOrView below_autograd;  // so that zero_grad and versions do not see views
  const auto how = shares_memory_ ? detail::InStep::kInSharedMemory : detail::InStep::kByMessages;
  size_t index = 0;
  idle_marks_.clear();
  for (auto& bucket : buckets_) {
    for (size_t i = 0; i < bucket.parameters.size(); ++i) {
      if (index++ < marks_.size()) continue;
      const auto& item = bucket.layout.items()[i];
      if (shares_memory_) {
        const auto place =
            bucket.gradients[static_cast<size_t>(world_.rank())].narrow(0, item.offset, item.num_elements);
        bucket.places.push_back(place.view(item.shape));
      }
      marks_.push_back(std::make_shared<detail::AveragedInStep>(bucket.parameters[i].second,
                                                                shares_memory_ ? bucket.places[i] : at::Tensor(), how));
    }
  }
  for (const auto& bucket : idle_) {
    for (const auto& [name, parameter] : bucket.parameters) {
      idle_marks_.push_back(std::make_shared<detail::AveragedInStep>(parameter, at::Tensor(), how));
    }
  }
}

/// Gradients that autograd has not moved into shared memory are copied there; those that are missing are zeros.
void ShardedOptimizer::fill_places() {
  for (auto& bucket : buckets_) {
    for (size_t i = 0; i < bucket.parameters.size(); ++i) {
      const auto& gradient = bucket.parameters[i].second.grad();
      if (!gradient.defined()) {
        bucket.places[i].zero_();
      } else if (!gradient.is_same(bucket.places[i])) {
        bucket.places[i].copy_(gradient);
      }
    }
  }
}

/// Once for each number of threads.
void ShardedOptimizer::divide_into_pieces() {
  std::vector<Piece> all;
  for (size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
    const int64_t size = buckets_[bucket].layout.rank_elements();
    const int64_t of_piece = kBytesOfPiece / static_cast<int64_t>(buckets_[bucket].flat.element_size());
    for (int64_t first = 0; first < size; first += of_piece) {
      all.push_back({.bucket = bucket, .first = first, .size = std::min(of_piece, size - first), .mean = {}});
    }
  }
  const auto num_lanes = std::min(static_cast<size_t>(at::get_num_threads()), all.size());
  if (pieces_.size() == num_lanes) return;
  pieces_.assign(num_lanes, {});
  in_pieces_.lanes.assign(num_lanes, {});
  local_->replan();
  std::unordered_map<const c10::TensorImpl*, size_t> indices;
  for (size_t i = 0; i < local_->parameters().size(); ++i) {
    indices[local_->parameters()[i].second.unsafeGetTensorImpl()] = i;
  }
  for (size_t lane = 0; lane < num_lanes; ++lane) {
    at::Tensor mean;  // of all pieces of the lane, one after the other
    for (size_t i = all.size() * lane / num_lanes; i < all.size() * (lane + 1) / num_lanes; ++i) {
      const auto& options = buckets_[all[i].bucket].flat.options();
      if (!mean.defined() || mean.dtype() != options.dtype()) {
        mean = at::empty({kBytesOfPiece / static_cast<int64_t>(options.dtype().itemsize())}, options);
      }
      all[i].mean = mean.narrow(0, 0, all[i].size);
      in_pieces_.lanes[lane].push_back(step_piece(all[i], indices));
      pieces_[lane].push_back(all[i]);
    }
  }
}

/// The parts of slices that lie in a piece.
StepPiece ShardedOptimizer::step_piece(const Piece& piece,
                                       const std::unordered_map<const c10::TensorImpl*, size_t>& indices) const {
  StepPiece result;
  const auto& bucket = buckets_[piece.bucket];
  for (size_t i = 0; i < bucket.slices.size(); ++i) {
    const auto part = bucket.layout.part(i, world_.rank());
    const auto begin = std::max(part.offset, piece.first);
    const auto end = std::min(part.offset + part.length, piece.first + piece.size);
    const auto index = indices.find(bucket.slices[i].unsafeGetTensorImpl());
    if (begin >= end || index == indices.end()) continue;
    result.parts.push_back({.parameter = index->second,
                            .first = begin - part.offset,
                            .size = end - begin,
                            .gradient = piece.mean.narrow(0, begin - piece.first, end - begin)});
  }
  return result;
}

void ShardedOptimizer::for_each_piece(const std::function<void(const Piece& piece)>& use) {
  divide_into_pieces();
  at::parallel_for(0, std::ssize(pieces_), 1, [&](int64_t begin, int64_t end) {
    const c10::NoGradGuard no_grad;
    for (int64_t lane = begin; lane < end; ++lane) {
      for (const auto& piece : pieces_[static_cast<size_t>(lane)]) use(piece);
    }
  });
}

/// Writes this rank's piece of the parameters into those of the other ranks. REQUIRES: none is lost.
void ShardedOptimizer::publish(const Piece& piece) const {
  const auto& bucket = buckets_[piece.bucket];
  const auto bytes = static_cast<int64_t>(bucket.flat.element_size());
  const auto offset = (world_.rank() * bucket.layout.rank_elements() + piece.first) * bytes;
  const auto memory_of = [&](const at::Tensor& flat) {
    return static_cast<std::byte*>(flat.mutable_data_ptr()) + offset;
  };
  const auto* const from = memory_of(bucket.flat);
  for (const auto& flat : bucket.flats) {
    if (flat.is_same(bucket.flat)) continue;
    std::memcpy(memory_of(flat), from, static_cast<size_t>(piece.size * bytes));
  }
}

/// Averages this rank's ranges for a step that needs all of them first: to clip, to unscale, or without fused kernels.
void ShardedOptimizer::reduce_in_memory(const at::Tensor& has_gradient) {
  std::vector<at::Tensor> shards;
  for (const auto& bucket : buckets_) {
    shards.push_back(at::empty({bucket.layout.rank_elements()}, bucket.flat.options()));
  }
  for_each_piece([&](const Piece& piece) {
    const auto& bucket = buckets_[piece.bucket];
    dist::write_mean(shards[piece.bucket].narrow(0, piece.first, piece.size), bucket.gradients,
                     world_.rank() * bucket.layout.rank_elements() + piece.first);
  });
  const auto* flag = has_gradient.const_data_ptr<uint8_t>();
  for (size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
    for (size_t i = 0; i < buckets_[bucket].slices.size(); ++i) {
      const auto part = buckets_[bucket].layout.part(i, world_.rank());
      const auto& slice = buckets_[bucket].slices[i];
      slice.mutable_grad() =
          *flag++ != 0 ? shards[bucket].narrow(0, part.offset, part.length).view(slice.sizes()) : at::Tensor();
    }
  }
  world_.barrier();  // gradients may change now
}

/// REQUIRES: all ranks have entered their steps, or some are lost.
void ShardedOptimizer::step_in_memory(const at::Tensor& has_gradient) {
  divide_into_pieces();
  const auto* flag = has_gradient.const_data_ptr<uint8_t>();
  for (auto& bucket : buckets_) {
    for (size_t i = 0; i < bucket.slices.size(); ++i) {
      // This says that there is a gradient. Its mean is elsewhere, piece by piece.
      bucket.slices[i].mutable_grad() = *flag++ != 0 ? bucket.slices[i].detach() : at::Tensor();
    }
  }
  in_pieces_.before = [this](size_t lane, size_t i) {
    const auto& piece = pieces_[lane][i];
    const auto& bucket = buckets_[piece.bucket];
    dist::write_mean(piece.mean, bucket.gradients, world_.rank() * bucket.layout.rank_elements() + piece.first);
  };
  // After a loss, the others may still be copying the state before this step.
  const bool publishes = !world_.needs_recovery();
  in_pieces_.after = [this, publishes](size_t lane, size_t i) {
    if (publishes) publish(pieces_[lane][i]);
  };
  step_local([this](Optimizer& local) { local.step_in_pieces(in_pieces_); });
  finish_slices();
  world_.barrier();
}

}  // namespace yoke::train
