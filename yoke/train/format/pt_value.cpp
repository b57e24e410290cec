#include "yoke/train/format/pt_value.h"

#include <array>

namespace yoke::train {

const PtValue* PtDict::find(std::string_view key) const {
  for (const auto& item : items) {
    const auto* text = item.key.get_if<std::string>();
    if (text != nullptr && *text == key) return &item.value;
  }
  return nullptr;
}

std::string_view PtValue::type_name() const {
  constexpr std::array<std::string_view, 9> kNames = {"None", "bool",  "int",  "float", "str",
                                                      "list", "tuple", "dict", "tensor"};
  return kNames[index()];
}

}  // namespace yoke::train
