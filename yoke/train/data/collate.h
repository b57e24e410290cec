// yoke/train/data/collate.h -- makes a batch of samples, and finds the tensors in a batch.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "yoke/train/data/samples.h"
#include "yoke/train/data/source.h"

namespace yoke::train {

/// Copies tensors of equal shapes and dtypes into the rows of one tensor [n, ...], which `request` allocates.
/// Errors  kInvalidArgument: shapes or dtypes differ; names the first sample that differs from the first one.
at::Tensor stack(const BatchRequest& request, const std::vector<at::Tensor>& tensors);

/// Copies tensors [length, ...] into one tensor [n, longest, ...] and fills the missing rows with `value`.
/// Errors  as stack, for all dimensions but the first.
at::Tensor pad(const BatchRequest& request, const std::vector<at::Tensor>& tensors, double value = 0);

/// A Loader's default collate function. Tensors [...] become a tensor [n, ...]; numbers become a tensor [n], int64 for
/// integers of any size; Samples become a Batch; pairs or tuples become one pair or tuple of batches; strings become a
/// vector. Your own collate function has the form `batch operator()(const BatchRequest&, std::vector<sample>) const`;
/// several threads call it at a time.
struct Stack {
  at::Tensor operator()(const BatchRequest& request, const std::vector<at::Tensor>& samples) const {
    return stack(request, samples);
  }

  Batch operator()(const BatchRequest& request, const std::vector<Sample>& samples) const {
    std::vector<at::Tensor> data, targets;
    for (const auto& sample : samples) {
      data.push_back(sample.data);
      targets.push_back(sample.target);
    }
    return {stack(request, data), stack(request, targets)};
  }

  std::vector<std::string> operator()(const BatchRequest&, std::vector<std::string> samples) const { return samples; }

  template <class Number>
  requires std::is_arithmetic_v<Number> at::Tensor operator()(const BatchRequest& request,
                                                              const std::vector<Number>& samples) const {
    using Item = std::conditional_t<std::is_integral_v<Number> && !std::is_same_v<Number, bool>, int64_t, Number>;
    auto result = request.empty({static_cast<int64_t>(samples.size())}, c10::CppTypeToScalarType<Item>::value);
    std::copy(samples.begin(), samples.end(), static_cast<Item*>(result.data_ptr()));
    return result;
  }

  template <class A, class B>
  auto operator()(const BatchRequest& request, std::vector<std::pair<A, B>> samples) const {
    return std::pair((*this)(request, column<A>(samples, [](auto& sample) { return std::move(sample.first); })),
                     (*this)(request, column<B>(samples, [](auto& sample) { return std::move(sample.second); })));
  }

  template <class... T>
  auto operator()(const BatchRequest& request, std::vector<std::tuple<T...>> samples) const {
    return [&]<size_t... I>(std::index_sequence<I...>) {
      return std::tuple{
          (*this)(request, column<T>(samples, [](auto& sample) { return std::move(std::get<I>(sample)); }))...};
    }
    (std::index_sequence_for<T...>());
  }

 private:
  template <class Value, class Samples, class Part>
  static std::vector<Value> column(Samples& samples, const Part& part) {
    std::vector<Value> values;
    values.reserve(samples.size());
    for (auto& sample : samples) values.push_back(part(sample));
    return values;
  }
};

using TensorVisitor = std::function<void(at::Tensor&)>;

/// Calls `f` for each tensor in a batch: a tensor, a Batch, or a pair, tuple or vector of these. Other values have no
/// tensors. For your own batch type, declare a function of this name in its namespace; a Loader for a GPU requires it.
inline void for_each_tensor(at::Tensor& tensor, const TensorVisitor& f) {
  if (tensor.defined()) f(tensor);
}

inline void for_each_tensor(Batch& batch, const TensorVisitor& f) {
  for_each_tensor(batch.data, f);
  for_each_tensor(batch.target, f);
}

template <class T>
requires std::is_arithmetic_v<T>
void for_each_tensor(T&, const TensorVisitor&) {}
inline void for_each_tensor(std::string&, const TensorVisitor&) {}

template <class A, class B>
void for_each_tensor(std::pair<A, B>& pair, const TensorVisitor& f);
template <class... T>
void for_each_tensor(std::tuple<T...>& tuple, const TensorVisitor& f);

template <class T>
void for_each_tensor(std::vector<T>& values, const TensorVisitor& f) {
  if constexpr (!std::is_arithmetic_v<T>) {
    for (auto& value : values) for_each_tensor(value, f);
  }
}

template <class A, class B>
void for_each_tensor(std::pair<A, B>& pair, const TensorVisitor& f) {
  for_each_tensor(pair.first, f);
  for_each_tensor(pair.second, f);
}

template <class... T>
void for_each_tensor(std::tuple<T...>& tuple, const TensorVisitor& f) {
  std::apply([&](auto&... values) { (for_each_tensor(values, f), ...); }, tuple);
}

/// The number of samples in a batch: dimension 0 of the batch's last tensor that is not a scalar (in a Batch, the
/// target). 0 for a batch without tensors.
template <class AnyBatch>
int64_t num_samples(AnyBatch& batch) {
  int64_t result = 0;
  if constexpr (requires(const TensorVisitor& f) { for_each_tensor(batch, f); }) {
    for_each_tensor(batch, [&](at::Tensor& tensor) {
      if (tensor.dim() > 0) result = tensor.size(0);
    });
  }
  return result;
}

}  // namespace yoke::train
