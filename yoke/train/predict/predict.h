// yoke/train/predict/predict.h -- what a network says about every sample of a source, computed by all ranks.
//
//     train::Loader loader(train::ImageFolder("photos"), world, {.batch_size = 64});
//     train::PredictionFile file("out.jsonl", {.resume = true});
//     train::predict(net, loader, world, file);              // a line for each image, in the order of the folder
//     const auto all = train::predict(net, loader, world);   // or in memory: on rank 0, all.outputs[0].second [N, ...]
#pragma once

#include <c10/core/GradMode.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "yoke/train/data/loader.h"
#include "yoke/train/evaluate.h"
#include "yoke/train/predict/predictions.h"

namespace yoke::dist {
class Group;
}

namespace yoke::train {

/// How far predict() is.
struct PredictProgress {
  int64_t num_samples = 0;  ///< In the source.
  int64_t num_done = 0;     ///< Predicted or bad, in this run and in those that it continues.
  int64_t num_resumed = 0;  ///< Of these, done in earlier runs.
  int64_t num_bad = 0;
};

struct PredictOptions {
  /// Called on all ranks after each round of batches, with the same result on all, such as
  /// `[&] { return world.should_stop(); }`. If it is true, predict() ends early.
  std::function<bool()> should_stop = nullptr;
  std::function<void(const PredictProgress&)> on_progress = nullptr;  ///< Called on rank 0 after each round.
};

struct PredictResult {
  PredictProgress progress;         ///< The same on all ranks.
  bool stopped = false;             ///< The same on all ranks.
  std::vector<BadSample> bad = {};  ///< On rank 0: all samples that could not be read, those of earlier runs too.
};

namespace detail {

/// The loop of predict() over the batches of any loader.
struct PredictLoop {
  const LoaderBase& loader;
  std::function<void(const SourceOrder&)> begin;
  std::function<bool()> advance;      ///< Takes the next batch. At the end it returns false and keeps the last one.
  std::function<NamedTensors()> run;  ///< The outputs of the batch.
};
PredictResult predict(const PredictLoop& loop, dist::Group& group, PredictionSink& sink, const PredictOptions& options);

class FunctionSink : public PredictionSink {
 public:
  explicit FunctionSink(std::function<void(const Predictions&)> function) : function_(std::move(function)) {}
  void take(const Predictions& part) override { function_(part); }

 private:
  std::function<void(const Predictions&)> function_;
};

/// Joins all parts.
class MemorySink : public PredictionSink {
 public:
  void take(const Predictions& part) override { parts_.push_back(part); }
  Predictions joined() const;  ///< Errors  kInvalidArgument: the outputs of batches differ in names, dtypes or sizes.

 private:
  std::vector<Predictions> parts_;
};
/// Joins on rank 0. What fails there is an error on all ranks.
Predictions joined_on_all_ranks(dist::Group& group, const MemorySink& sink);

/// A module, a holder or pointer of one, or a wrapper such as DistributedDataParallel; not a function.
template <class Network>
concept IsNetwork = requires(Network& network) {
  static_cast<torch::nn::Module&>(network);
}
|| requires(Network& network) { static_cast<torch::nn::Module&>(*network); }
|| requires(Network& network) { static_cast<torch::nn::Module&>(plain_module_of(network.model())); };

template <class Network, class Input>
auto forward_of(Network& network, Input& input) {
  if constexpr (requires { network(input); }) {
    return network(input);
  } else if constexpr (requires { network.forward(input); }) {
    return network.forward(input);
  } else {
    return network->forward(input);
  }
}

template <class Network, class AnyBatch>
auto outputs_of(Network& network, AnyBatch& batch) {
  if constexpr (!IsNetwork<Network>) {
    return network(batch);
  } else if constexpr (requires { at::Tensor(batch.data); }) {
    return forward_of(network, batch.data);
  } else {
    return forward_of(network, batch);
  }
}

}  // namespace detail

/// Collective. Computes outputs for every sample of the loader's source, once, and passes them to `sink` on rank 0, in
/// the order of the source.
///
/// Network  a module, a DistributedDataParallel, a FullyShardedDataParallel, or any function. A network is called with
///          `batch.data`, or with the batch if it has no such member, in evaluation mode (see evaluate.h). A function
///          is called with the batch, and chooses the modes itself. Gradients are disabled. The result is a tensor of
///          shape [batch, ...] or a structure of them (see named_outputs). On a rank without a batch in the last round,
///          the network is called with an earlier one, so that it may communicate.
/// Loader   any, unless its source is a stream. Its order does not matter: rank r computes the batches r, r + ranks,
///          r + 2 ranks and so on of the source (see Loader::in_order). So the batches, and with equal kernels the bits
///          of the results, are the same on any number of ranks, and after a resume. With max_bad_samples, each rank
///          leaves out up to so many samples that cannot be read; they are listed in the parts and in the result.
/// Memory   the outputs of one batch of each rank; on a GPU of two, because a batch is gathered while the next one is
///          computed.
/// Sink     decides what an earlier run has done already (PredictionFile with .resume). `sink` is used on rank 0 alone.
/// Errors   kInvalidArgument: an output has not a row for each sample (names it); kFailedPrecondition: the source is a
///          stream; kDataLoss: too many samples, or the first batch of a sharded network's rank, cannot be read; what
///          the network or the sink throws. All are reported to the other ranks.
template <class Network, class AnyLoader>
PredictResult predict(Network&& network, AnyLoader& loader, dist::Group& group, PredictionSink& sink,
                      const PredictOptions& options = {}) {
  std::optional<typename AnyLoader::value_type> batch;
  const auto run = [&] {
    const c10::NoGradGuard no_grad;
    return named_outputs(detail::outputs_of(network, *batch));
  };
  const auto advance = [&] {
    auto next = loader.next();
    if (!next) return false;
    batch.emplace(std::move(*next));
    return true;
  };
  const detail::PredictLoop loop{.loader = loader,
                                 .begin = [&](const SourceOrder& order) { loader.in_order(order); },
                                 .advance = advance,
                                 .run = run};
  if constexpr (detail::IsNetwork<std::remove_reference_t<Network>>) {
    const auto evaluating = train::evaluate(network);
    return detail::predict(loop, group, sink, options);
  } else {
    return detail::predict(loop, group, sink, options);
  }
}

/// The same for a function: `[&](const Predictions& part) { ... }`.
template <class Network, class AnyLoader>
PredictResult predict(Network&& network, AnyLoader& loader, dist::Group& group,
                      std::function<void(const Predictions&)> take, const PredictOptions& options = {}) {
  detail::FunctionSink sink(std::move(take));
  return train::predict(network, loader, group, sink, options);
}

/// The same in memory: returns all predictions on rank 0, and nothing on other ranks.
/// Errors  also kInvalidArgument: the outputs of batches differ in names, dtypes or sizes.
template <class Network, class AnyLoader>
Predictions predict(Network&& network, AnyLoader& loader, dist::Group& group) {
  detail::MemorySink sink;
  train::predict(network, loader, group, sink);
  return detail::joined_on_all_ranks(group, sink);
}

}  // namespace yoke::train
