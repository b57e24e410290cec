// yoke/train/format/pt_value.h -- Python's plain data with tensors in it, as torch.save stores it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace yoke::train {

struct PtValue;
struct PtItem;

struct PtList {
  std::vector<PtValue> values;
};
struct PtTuple {
  std::vector<PtValue> values;
};

/// A dictionary in its order. Keys are texts, integers, bools, floats, None, or tuples of these.
struct PtDict {
  std::vector<PtItem> items;

  /// The value under a text; nullptr when there is none.
  const PtValue* find(std::string_view key) const;
};

/// None, bool, int, float, str, list, tuple, dict or tensor, and nothing else of Python.
struct PtValue : std::variant<std::monostate, bool, int64_t, double, std::string, PtList, PtTuple, PtDict, at::Tensor> {
  using variant::variant;

  /// The value, if it is of this type: `value.get_if<PtDict>()`.
  template <typename T>
  const T* get_if() const {
    return std::get_if<T>(this);
  }

  /// "None", "bool", ... as Python calls it.
  std::string_view type_name() const;
};

struct PtItem {
  PtValue key, value;
};

}  // namespace yoke::train
