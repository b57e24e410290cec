#include "yoke/train/predict/predict.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <string>

#include "yoke/base/error.h"
#include "yoke/dist/activity.h"
#include "yoke/dist/group.h"
#include "yoke/dist/on_all_ranks.h"
#include "yoke/train/predict/detail/gather_parts.h"

namespace yoke::train::detail {
namespace {

/// This rank's part of a round. Outputs of another device are on their way to the CPU.
struct Computed {
  Predictions part;
  std::shared_ptr<c10::Event> copied = nullptr;

  void wait() const {
    if (copied) copied->synchronize();
  }
};

/// Starts to copy outputs to the CPU, before later work may overwrite them: a function may return the same buffer each
/// time, as one that replays a CUDA graph does.
void start_copies(Computed& computed) {
  std::optional<c10::Device> device;
  for (auto& [_, tensor] : computed.part.outputs) {
    if (tensor.is_cpu()) continue;
    const auto copy =
        at::empty(tensor.sizes(), at::TensorOptions(tensor.scalar_type()).pinned_memory(tensor.is_cuda()));
    copy.copy_(tensor, /*non_blocking=*/true);
    device = tensor.device();
    tensor = copy;
  }
  if (!device) return;
  const c10::impl::VirtualGuardImpl guard(device->type());
  computed.copied = std::make_shared<c10::Event>(device->type());
  computed.copied->record(guard.getStream(*device));
}

class Prediction {
 public:
  Prediction(const PredictLoop& loop, dist::Group& group, PredictionSink& sink, const PredictOptions& options)
      : loop_(loop), group_(group), sink_(sink), options_(options), batch_size_(loop.loader.batch_size()) {}

  PredictResult run() {
    auto& progress = result_.progress;
    progress.num_samples = loop_.loader.num_samples();
    begin();
    const int64_t num_left = progress.num_samples - progress.num_done;
    const int64_t round_size = batch_size_ * group_.size();
    std::optional<Computed> last;  // its outputs are gathered while a GPU computes the next ones
    for (int64_t done = 0; done < num_left && !result_.stopped; done += round_size) {
      auto computed = or_fail([&] { return compute(first_ + done + group_.rank() * batch_size_); });
      if (last) deliver(std::move(*last));
      last = std::move(computed);
      if (!last->copied) deliver(*std::exchange(last, std::nullopt));
      result_.stopped = options_.should_stop && done + round_size < num_left && options_.should_stop();
    }
    if (last) deliver(std::move(*last));
    dist::on_all_ranks(group_, "the predictions were not finished", [&] {
      if (group_.rank() == 0) result_.stopped ? sink_.stop() : sink_.finish();
    });
    share_progress();
    return std::move(result_);
  }

 private:
  /// What one rank does alone. An error is reported to the others, which would otherwise only see that it is absent.
  template <class Work>
  auto or_fail(const Work& work) -> decltype(work()) {
    try {
      return work();
    } catch (...) {
      if (group_.size() == 1) throw;
      group_.fail(std::current_exception());
    }
  }

  void begin() {
    const auto same =
        std::to_string(result_.progress.num_samples) + " samples in batches of " + std::to_string(batch_size_);
    for (const auto& other : group_.all_gather_text(same)) {
      if (other == same) continue;
      throw Error(ErrorCode::kInvalidArgument,
                  "predict: rank {} has {}, and another rank {}: all ranks need the same source and batch_size",
                  group_.rank(), same, other);
    }
    dist::on_all_ranks(group_, "the predictions were not begun", [&] {
      if (group_.rank() != 0) return;
      auto& progress = result_.progress;
      progress.num_done = progress.num_resumed =
          sink_.begin({progress.num_samples, batch_size_, loop_.loader.has_names()});
      result_.bad = sink_.bad_before();
      progress.num_bad = static_cast<int64_t>(result_.bad.size());
    });
    share_progress();
    first_ = result_.progress.num_done;
    or_fail([&] { begin_batches(group_.rank(), group_.size()); });
  }

  void begin_batches(int64_t rank, int64_t num_ranks) {
    loop_.begin({.first_sample = first_, .rank = rank, .num_ranks = num_ranks});
  }

  /// Takes rank 0's numbers on all ranks.
  void share_progress() {
    auto& progress = result_.progress;
    const auto numbers = at::tensor({progress.num_done, progress.num_resumed, progress.num_bad}, at::kLong);
    const auto shared = numbers.to(group_.device());
    if (group_.size() > 1) group_.broadcast(shared);
    const auto values = shared.cpu();
    const auto* value = values.const_data_ptr<int64_t>();
    progress.num_done = value[0];
    progress.num_resumed = value[1];
    progress.num_bad = value[2];
  }

  /// Takes the next batch of which a sample can be read; it may be of a later round.
  void take_next() {
    const bool is_there = loop_.advance();
    has_batch_ = has_batch_ || is_there;
    next_sample_ = is_there ? loop_.loader.samples().front() : -1;
    const auto& bad = loop_.loader.bad_samples();
    bad_.insert(bad_.end(), bad.begin() + static_cast<int64_t>(num_bad_taken_), bad.end());
    num_bad_taken_ = bad.size();
    is_used_ = false;
  }

  /// The part of this rank in a round: the samples of the batch that begins with `first`.
  Computed compute(int64_t first) {
    Computed computed{.part = {.first_sample = first}};
    auto& part = computed.part;
    part.num_samples = std::clamp<int64_t>(result_.progress.num_samples - first, 0, batch_size_);
    const int64_t end = first + part.num_samples;
    if (is_used_) take_next();
    const auto of_later = std::ranges::stable_partition(bad_, [&](const auto& bad) { return bad.sample < end; });
    part.bad.assign(bad_.begin(), of_later.begin());
    bad_.erase(bad_.begin(), of_later.begin());
    if (next_sample_ >= first && next_sample_ < end) {
      part.samples = loop_.loader.samples();
      part.outputs = loop_.run();
      is_used_ = true;
      check_rows(part.outputs, static_cast<int64_t>(part.samples.size()));
      for (auto& [_, tensor] : part.outputs) tensor = tensor.detach();
      start_copies(computed);
    } else if (group_.size() > 1) {  // there is no such batch, or none of its samples can be read
      compute_nothing();
    }
    std::ranges::sort(part.bad, {}, &BadSample::sample);
    return computed;
  }

  /// Runs the network without a use for its outputs, because the other ranks may wait for this one in it.
  void compute_nothing() {
    if (!has_batch_) {  // this rank has no batch at all: it takes one of another rank
      begin_batches(0, 1);
      has_batch_ = loop_.advance();
    }
    if (has_batch_) loop_.run();
  }

  void deliver(Computed computed) {
    computed.wait();
    auto parts = gather_parts(group_, std::move(computed.part));
    or_fail([&] {
      for (auto& part : parts) {
        if (part.num_samples > 0) take(part);
      }
    });
  }

  void take(Predictions& part) {
    const auto& loader = loop_.loader;
    for (const int64_t sample : part.samples) part.names.push_back(loader.name_of(sample));
    for (auto& bad : part.bad) bad.name = loader.name_of(bad.sample);
    sink_.take(part);
    result_.bad.insert(result_.bad.end(), part.bad.begin(), part.bad.end());
    result_.progress.num_done += part.num_samples;
    result_.progress.num_bad = static_cast<int64_t>(result_.bad.size());
    if (options_.on_progress) options_.on_progress(result_.progress);
  }

  const PredictLoop& loop_;
  dist::Group& group_;
  PredictionSink& sink_;
  const PredictOptions& options_;
  const int64_t batch_size_;
  PredictResult result_;
  int64_t first_ = 0;           // the first sample of this run
  bool has_batch_ = false;      // the loop holds a batch
  bool is_used_ = true;         // its outputs are computed, and the next one is needed
  int64_t next_sample_ = -1;    // its first sample; -1 after the last batch
  std::vector<BadSample> bad_;  // of batches that the loader has passed, and that are not delivered
  size_t num_bad_taken_ = 0;    // of the loader's
};

}  // namespace

PredictResult predict(const PredictLoop& loop, dist::Group& group, PredictionSink& sink,
                      const PredictOptions& options) {
  const dist::Activity activity(group, "predict");
  return Prediction(loop, group, sink, options).run();
}

Predictions MemorySink::joined() const {
  std::vector<NamedTensors> outputs;
  Predictions all;
  for (const auto& part : parts_) {
    all.num_samples += part.num_samples;
    all.samples.insert(all.samples.end(), part.samples.begin(), part.samples.end());
    all.names.insert(all.names.end(), part.names.begin(), part.names.end());
    all.bad.insert(all.bad.end(), part.bad.begin(), part.bad.end());
    if (!part.samples.empty()) outputs.push_back(part.outputs);
  }
  all.outputs = join_outputs(outputs);
  return all;
}

Predictions joined_on_all_ranks(dist::Group& group, const MemorySink& sink) {
  Predictions all;
  dist::on_all_ranks(group, "the predictions were not joined", [&] { all = sink.joined(); });
  return all;
}

}  // namespace yoke::train::detail
