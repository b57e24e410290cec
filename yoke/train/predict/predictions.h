// yoke/train/predict/predictions.h -- what a network says about the samples of a source, and what takes it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "yoke/train/data/loader.h"
#include "yoke/train/named_tensors.h"

namespace yoke::train {

/// The outputs for neighbouring samples of a source.
struct Predictions {
  int64_t first_sample = 0, num_samples = 0;  ///< The samples [first_sample, first_sample + num_samples).
  std::vector<int64_t> samples = {};          ///< The samples of the rows, ascending: all but the bad ones.
  std::vector<std::string> names = {};        ///< Of the rows; see LoaderBase::name_of.
  NamedTensors outputs = {};                  ///< Each [rows, ...], on the CPU; see named_outputs(). None without rows.
  std::vector<BadSample> bad = {};            ///< Samples that could not be read, ascending.
};

/// What is known of a source before its first prediction.
struct PredictedSource {
  int64_t num_samples = 0;
  int64_t batch_size = 1;
  bool has_names = false;  ///< If false, names are the numbers of the samples.
};

/// Takes predictions, on rank 0 alone and in the order of the source: a PredictionFile, or a class of yours. What it
/// throws ends predict() on all ranks.
class PredictionSink {
 public:
  virtual ~PredictionSink() = default;
  /// Called once, first. Returns how many of the first samples an earlier run has predicted; they are left out.
  virtual int64_t begin(const PredictedSource& /*source*/) { return 0; }
  virtual void take(const Predictions& part) = 0;  ///< The parts follow each other without a gap.
  virtual void stop() {}                           ///< Called instead of finish() if predict() was told to stop.
  virtual void finish() {}                         ///< Called after the last sample.
  virtual std::vector<BadSample> bad_before() const { return {}; }  ///< Bad samples among those that begin() returned.
};

namespace detail {

inline std::string output_name(const std::string& of, int64_t index) {
  return (of.empty() ? "output" : of) + "." + std::to_string(index);
}
inline std::string output_name(const std::string& of, const std::string& key) {
  return of.empty() ? key : of + "." + key;
}

template <class Output>
void add_outputs(const std::string& name, const Output& output, NamedTensors& to) {
  int64_t index = 0;
  if constexpr (std::is_convertible_v<const Output&, const at::Tensor&>) {
    to.emplace_back(name.empty() ? "output" : name, output);
  } else if constexpr (requires { output.has_value(); }) {
    if (output.has_value()) add_outputs(name, *output, to);
  } else if constexpr (requires { output.each_tensor([](const at::Tensor&) {}); }) {
    output.each_tensor([&](const at::Tensor& tensor) { to.emplace_back(output_name(name, index++), tensor); });
  } else if constexpr (requires { std::string(output.begin()->first); }) {  // a map, or NamedTensors
    for (const auto& [key, value] : output) add_outputs(output_name(name, key), value, to);
  } else if constexpr (requires { std::string(output.begin()->key()); }) {  // torch::OrderedDict
    for (const auto& item : output) add_outputs(output_name(name, item.key()), item.value(), to);
  } else if constexpr (requires { output.begin(); }) {
    for (const auto& item : output) add_outputs(output_name(name, index++), item, to);
  } else if constexpr (requires { std::tuple_size<Output>::value; }) {
    std::apply([&](const auto&... item) { (add_outputs(output_name(name, index++), item, to), ...); }, output);
  } else {
    static_assert(std::is_convertible_v<const Output&, const at::Tensor&>,
                  "predictions are tensors [batch, ...]: return a tensor, or a vector, tuple, map or optional of them, "
                  "or give the type a member `template <class Take> void each_tensor(const Take& take) const`");
  }
}

}  // namespace detail

/// The tensors in the result of a forward, under names. A tensor alone is "output". The elements of a vector or tuple,
/// and what a struct's each_tensor() gives, are "output.0", "output.1" and so on. The values of a map, of NamedTensors
/// and of a torch::OrderedDict have their keys. In nested results, names are joined by a dot: "hidden.3".
template <class Output>
NamedTensors named_outputs(const Output& output) {
  NamedTensors result;
  detail::add_outputs("", output, result);
  return result;
}

}  // namespace yoke::train
