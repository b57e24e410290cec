#include "yoke/train/format/detail/pickle_globals.h"

#include <algorithm>
#include <array>

namespace yoke::train {
namespace {

using Kind = PickleGlobal::Kind;

struct Function {
  std::string_view module, name;
  Kind kind;
};
constexpr std::array kFunctions = {
    Function{"collections", "OrderedDict", Kind::kOrderedDict},
    Function{"torch._utils", "_rebuild_tensor", Kind::kTensor},
    Function{"torch._utils", "_rebuild_tensor_v2", Kind::kTensor},
    Function{"torch._utils", "_rebuild_tensor_v3", Kind::kTensorWithDtype},
    Function{"torch._tensor", "_rebuild_from_type_v2", Kind::kTensorOfClass},
    Function{"torch", "Tensor", Kind::kTensorClass},
    Function{"torch.nn.parameter", "Parameter", Kind::kTensorClass},
    Function{"torch.autograd.variable", "Variable", Kind::kTensorClass},
    Function{"torch._utils", "_rebuild_parameter", Kind::kParameter},
    Function{"torch._utils", "_rebuild_parameter_with_state", Kind::kParameter},
    Function{"torch", "Size", Kind::kSize},
    Function{"torch", "device", Kind::kDevice},
};

struct StorageClass {
  std::string_view name, dtype;
};
constexpr std::array kStorageClasses = {
    StorageClass{"DoubleStorage", "float64"},
    StorageClass{"FloatStorage", "float32"},
    StorageClass{"HalfStorage", "float16"},
    StorageClass{"BFloat16Storage", "bfloat16"},
    StorageClass{"LongStorage", "int64"},
    StorageClass{"IntStorage", "int32"},
    StorageClass{"ShortStorage", "int16"},
    StorageClass{"CharStorage", "int8"},
    StorageClass{"ByteStorage", "uint8"},
    StorageClass{"BoolStorage", "bool"},
    StorageClass{"ComplexFloatStorage", "complex64"},
    StorageClass{"ComplexDoubleStorage", "complex128"},
};
constexpr std::string_view kStorageSuffix = "Storage";
constexpr std::array<std::string_view, 9> kOtherDtypes = {"uint16",          "uint32",          "uint64",
                                                          "complex32",       "float8_e4m3fn",   "float8_e5m2",
                                                          "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"};

/// Aliases such as torch.float are not supported: a pickle could contain them, but torch.save never writes them.
std::optional<std::string_view> find_dtype(std::string_view name) {
  for (const auto& entry : kStorageClasses) {
    if (entry.dtype == name) return entry.dtype;
  }
  const auto found = std::ranges::find(kOtherDtypes, name);
  if (found == kOtherDtypes.end()) return std::nullopt;
  return *found;
}

}  // namespace

std::optional<PickleGlobal> find_global(std::string_view module, std::string_view name) {
  for (const auto& entry : kFunctions) {
    if (entry.module == module && entry.name == name) return PickleGlobal{entry.kind, {}};
  }
  if (module == "torch.storage" && name == "UntypedStorage") return PickleGlobal{Kind::kStorage, "uint8"};
  if (module != "torch" && module != "torch.cuda") return std::nullopt;
  for (const auto& entry : kStorageClasses) {
    if (entry.name == name) return PickleGlobal{Kind::kStorage, entry.dtype};
    const auto type = entry.name.substr(0, entry.name.size() - kStorageSuffix.size());
    if (name.starts_with(type) && name.substr(type.size()) == "Tensor") return PickleGlobal{Kind::kTensorClass, {}};
  }
  if (module != "torch") return std::nullopt;
  if (const auto dtype = find_dtype(name)) return PickleGlobal{Kind::kDtype, *dtype};
  return std::nullopt;
}

std::string_view storage_class_of(std::string_view dtype) {
  for (const auto& entry : kStorageClasses) {
    if (entry.dtype == dtype) return entry.name;
  }
  return {};
}

}  // namespace yoke::train
