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

/// A dictionary that keeps the order of its items. Keys are texts, integers, bools, floats, None, or tuples of these.
struct PtDict {
  std::vector<PtItem> items;

  /// Returns the value of a text key; nullptr if there is no such key.
  const PtValue* find(std::string_view key) const;
};

/// Python's None, bool, int, float, str, list, tuple, dict or tensor, and no other type.
struct PtValue : std::variant<std::monostate, bool, int64_t, double, std::string, PtList, PtTuple, PtDict, at::Tensor> {
  using variant::variant;

  /// Returns the value if it has this type, otherwise nullptr: `value.get_if<PtDict>()`.
  template <typename T>
  const T* get_if() const {
    return std::get_if<T>(this);
  }

  /// Python's name of the type: "None", "bool", ...
  std::string_view type_name() const;
};

struct PtItem {
  PtValue key, value;
};

}  // namespace yoke::train
