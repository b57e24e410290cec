#include "yoke/train/format/pt_file.h"

#include <fmt/ranges.h>

#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "yoke/base/error.h"
#include "yoke/train/format/detail/pickle.h"
#include "yoke/train/format/detail/pt_dtypes.h"
#include "yoke/train/format/detail/pt_layout.h"
#include "yoke/train/format/tensor_mapping.h"

namespace yoke::train {
namespace {

namespace fs = std::filesystem;

/// Throws kDataLoss with the file's name and the reason.
template <typename... Args>
[[noreturn]] void fail(const std::string& what, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(ErrorCode::kDataLoss, "{}: {}", what, fmt::format(format, std::forward<Args>(args)...));
}

/// A text that is equal for equal keys of a dictionary; nullopt if the value cannot be a key.
std::optional<std::string> identity_of(const PtValue& key) {
  if (const auto* tuple = key.get_if<PtTuple>()) {
    std::string text = "t" + std::to_string(tuple->values.size());
    for (const auto& value : tuple->values) {
      const auto part = identity_of(value);
      if (!part) return std::nullopt;
      text += fmt::format(" {}:{}", part->size(), *part);
    }
    return text;
  }
  if (key.get_if<std::monostate>() != nullptr) return "n";
  if (const auto* text = key.get_if<std::string>()) return "s" + *text;
  // In Python, 1, 1.0 and True are the same key.
  if (const auto* flag = key.get_if<bool>()) return fmt::format("i{}", *flag ? 1 : 0);
  if (const auto* number = key.get_if<int64_t>()) return fmt::format("i{}", *number);
  if (const auto* number = key.get_if<double>()) {
    constexpr double kLimit = 9e18;
    if (std::abs(*number) < kLimit && *number == std::trunc(*number)) {
      return fmt::format("i{}", static_cast<int64_t>(*number));
    }
    return fmt::format("f{}", *number);
  }
  return std::nullopt;
}

/// Turns the pickle's objects into values and tensors.
class Builder {
 public:
  Builder(const TensorMapping& mapping, const PtLayout& layout, const std::string& what)
      : mapping_(mapping),
        layout_(layout),
        pickle_(layout.pickle),
        what_(what),
        max_values_(10'000 + 2 * static_cast<int64_t>(pickle_.num_bytes)) {}

  PtValue build(PickleRef ref, int depth) {
    if (depth > kMaxPtDepth) fail(what_, "values are nested over {} deep", kMaxPtDepth);
    if (++num_values_ > max_values_) fail(what_, "its pickle says the same objects over and over");
    const auto& node = pickle_.nodes[ref];
    if (const auto* flag = std::get_if<bool>(&node)) return *flag;
    if (const auto* number = std::get_if<int64_t>(&node)) return *number;
    if (const auto* number = std::get_if<double>(&node)) return *number;
    if (const auto* text = std::get_if<std::string_view>(&node)) return count_text(*text);
    if (const auto* list = std::get_if<PickleList>(&node)) return PtList{values(list->items, depth)};
    if (const auto* tuple = std::get_if<PickleTuple>(&node)) return PtTuple{values(tuple->items, depth)};
    if (const auto* dict = std::get_if<PickleDict>(&node)) return dictionary(*dict, depth);
    if (const auto* tensor = std::get_if<PickleTensor>(&node)) return build_tensor(*tensor);
    if (const auto* name = std::get_if<PickleGlobal>(&node)) {
      if (name->kind != PickleGlobal::Kind::kDtype) fail(what_, "a class or function stands where a value should");
      return "torch." + std::string(name->dtype);
    }
    if (const auto* opaque = std::get_if<PickleOpaque>(&node)) fail(what_, "{}", reason_of(*opaque));
    if (std::holds_alternative<PickleStorage>(node)) fail(what_, "a storage stands alone; only tensors are read");
    return {};
  }

 private:
  std::string count_text(std::string_view text) {
    num_values_ += static_cast<int64_t>(text.size()) / 256;
    return std::string(text);
  }

  std::vector<PtValue> values(const std::vector<PickleRef>& refs, int depth) {
    std::vector<PtValue> result;
    for (const auto ref : refs) result.push_back(build(ref, depth + 1));
    return result;
  }

  PtDict dictionary(const PickleDict& dict, int depth) {
    PtDict result;
    std::set<std::string> keys;
    for (const auto& [key_ref, value_ref] : dict.items) {
      auto key = build(key_ref, depth + 1);
      const auto identity = identity_of(key);
      if (!identity) fail(what_, "a dictionary has a {} for a key", key.type_name());
      if (!keys.insert(*identity).second) fail(what_, "a dictionary has the same key twice");
      result.items.push_back({std::move(key), build(value_ref, depth + 1)});
    }
    return result;
  }

  at::Tensor build_tensor(const PickleTensor& tensor) {
    const auto& storage = std::get<PickleStorage>(pickle_.nodes[tensor.storage]);
    const std::string name = layout_.name_of(storage.key);
    const auto dtype = pt_dtype(tensor.dtype), storage_dtype = pt_dtype(storage.dtype);
    if (!dtype || !storage_dtype) fail(what_, "{} is of the dtype {}", name, tensor.dtype);
    const auto found = layout_.storages.find(storage.key);
    if (found == layout_.storages.end()) fail(what_, "the {} '{}' is missing", layout_.noun, name);
    const auto& part = found->second;
    const auto storage_item = static_cast<int64_t>(c10::elementSize(*storage_dtype));
    int64_t bytes = 0;
    if (__builtin_mul_overflow(storage.num_elements, storage_item, &bytes) || bytes != part.entry.content_bytes) {
      fail(what_, "the {} '{}' has {} bytes, and the pickle says {} elements of {}", layout_.noun, name,
           part.entry.content_bytes, storage.num_elements, storage.dtype);
    }
    check_range(tensor, *dtype, storage.count * storage_item, name);
    const auto item = static_cast<int64_t>(c10::elementSize(*dtype));
    if (storage.first * storage_item % item != 0) fail(what_, "a part of '{}' begins inside an element", name);
    auto& known = storages_[storage.key];
    if (!known) known = load_storage(mapping_, part, name, what_);
    if (*dtype == at::kBool && bools_.insert(storage.key).second &&
        !are_bools({static_cast<const std::byte*>(known.data()), static_cast<size_t>(bytes)})) {
      fail(what_, "the {} '{}' has a bool that is neither 0 nor 1", layout_.noun, name);
    }
    const int64_t offset = storage.first * storage_item / item + tensor.offset;
    auto result = view_of(known, *dtype, offset, tensor.sizes, tensor.strides);
    if (tensor.conjugated && !result.is_complex()) fail(what_, "{} is conjugated, and {}", name, tensor.dtype);
    if (tensor.negated && !result.is_complex() && !result.is_floating_point()) {
      fail(what_, "{} is negated, and {}", name, tensor.dtype);
    }
    result._set_conj(tensor.conjugated);
    result._set_neg(tensor.negated);
    return result;
  }

  /// Checks that every element is inside the storage and that no product of sizes overflows.
  void check_range(const PickleTensor& tensor, at::ScalarType dtype, int64_t storage_bytes,
                   const std::string& name) const {
    const auto refuse = [&] {
      fail(what_, "a tensor of size [{}], stride [{}] and offset {} does not fit in '{}' with its {} bytes",
           fmt::join(tensor.sizes, ", "), fmt::join(tensor.strides, ", "), tensor.offset, name, storage_bytes);
    };
    if (tensor.sizes.size() != tensor.strides.size() || tensor.offset < 0) refuse();
    int64_t last = tensor.offset, num_elements = 1;
    bool is_empty = false;
    for (size_t i = 0; i < tensor.sizes.size(); ++i) {
      const int64_t size = tensor.sizes[i], stride = tensor.strides[i];
      int64_t reach = 0;
      if (size < 0 || stride < 0) refuse();
      is_empty = is_empty || size == 0;
      if (size == 0) continue;
      if (__builtin_mul_overflow(num_elements, size, &num_elements) ||
          __builtin_mul_overflow(size - 1, stride, &reach) || __builtin_add_overflow(last, reach, &last)) {
        refuse();
      }
    }
    const int64_t item_bytes = static_cast<int64_t>(c10::elementSize(dtype));
    if (__builtin_mul_overflow(num_elements, item_bytes, &num_elements)) refuse();
    // An empty tensor is never read. torch.load accepts any offset up to this bound for such a tensor.
    const int64_t count = storage_bytes / item_bytes;
    if (is_empty ? tensor.offset > count : last >= count) refuse();
  }

  const TensorMapping& mapping_;
  const PtLayout& layout_;
  const Pickle& pickle_;
  const std::string& what_;
  const int64_t max_values_;  // shared objects become copies, so a short pickle could otherwise become a huge list
  int64_t num_values_ = 0;
  std::map<std::string_view, c10::Storage> storages_;
  std::set<std::string_view> bools_;
};

/// Follows `keys` through nested dictionaries; nullopt if a key does not exist.
std::optional<PickleRef> find_node(const Pickle& pickle, const std::vector<std::string>& keys) {
  auto ref = pickle.root;
  for (const auto& key : keys) {
    const auto* dict = std::get_if<PickleDict>(&pickle.nodes[ref]);
    if (dict == nullptr) return std::nullopt;
    std::optional<PickleRef> found;
    for (const auto& [key_ref, value_ref] : dict->items) {
      const auto* text = std::get_if<std::string_view>(&pickle.nodes[key_ref]);
      // The key appears twice, so the whole file is refused later.
      if (text != nullptr && *text == key && found) return std::nullopt;
      if (text != nullptr && *text == key) found = value_ref;
    }
    if (!found) return std::nullopt;
    ref = *found;
  }
  return ref;
}

/// The value that `keys` lead to, also if other parts of the file cannot be read. If the keys do not exist, the whole
/// content.
struct FoundValue {
  PtValue value;
  bool is_found = false;
};
FoundValue read_value(const TensorMapping& mapping, const PtLayout& layout, const std::vector<std::string>& keys,
                      const std::string& what) {
  const auto node = find_node(layout.pickle, keys);
  return {Builder(mapping, layout, what).build(node.value_or(layout.pickle.root), 0), node.has_value()};
}

/// Leaves out what a state_dict has besides tensors: None, and a module's extra state, which may be any object.
void keep_tensors(Pickle& pickle, PickleRef ref) {
  auto* dict = std::get_if<PickleDict>(&pickle.nodes[ref]);
  if (dict == nullptr) return;
  std::erase_if(dict->items, [&](const auto& item) {
    const auto& value = pickle.nodes[item.second];
    const auto* name = std::get_if<std::string_view>(&pickle.nodes[item.first]);
    const bool is_extra = name != nullptr && (*name == "_extra_state" || name->ends_with("._extra_state"));
    return std::holds_alternative<std::monostate>(value) || (is_extra && !std::holds_alternative<PickleTensor>(value));
  });
}

}  // namespace

PtValue read_pt(const fs::path& path) {
  const TensorMapping mapping(path);
  return read_value(mapping, open_pt(mapping, path.string()), {}, path.string()).value;
}

TensorMap read_state_dict(const fs::path& path, const std::vector<std::string>& keys) {
  const TensorMapping mapping(path);
  auto layout = open_pt(mapping, path.string());
  if (const auto node = find_node(layout.pickle, keys)) keep_tensors(layout.pickle, *node);
  const auto found = read_value(mapping, layout, keys, path.string());
  const PtValue* value = &found.value;
  std::string place = path.string();
  const auto refuse = [&](const std::string& why) -> void {
    throw Error(ErrorCode::kInvalidArgument, "{}: {}", place, why);
  };
  const auto names_in = [](const PtDict& dict) {
    std::vector<std::string> names;
    for (const auto& item : dict.items) {
      const auto* name = item.key.get_if<std::string>();
      if (names.size() < 10 && name != nullptr) names.push_back("'" + *name + "'");
    }
    return fmt::format("{}{}", fmt::join(names, ", "), names.size() < dict.items.size() ? ", ..." : "");
  };
  const auto how_to_go_on = [&](const PtDict& dict) -> std::string {
    std::string before;
    for (const auto& key : keys) before += fmt::format("\"{}\", ", key);
    std::vector<std::string> inner;  // the tensors are probably in one of these dictionaries
    for (const auto& item : dict.items) {
      const auto* name = item.key.get_if<std::string>();
      const bool is_dict = name != nullptr && item.value.get_if<PtDict>() != nullptr;
      if (is_dict && inner.size() < 10) inner.push_back(fmt::format("{{{}\"{}\"}}", before, *name));
    }
    if (inner.empty()) return "read_pt reads everything";
    return fmt::format("give the keys of the dictionary with the tensors: {}", fmt::join(inner, " or "));
  };
  for (const auto& key : keys) {
    if (found.is_found) {
      place += "['" + key + "']";
      continue;
    }
    const auto* dict = value->get_if<PtDict>();
    if (dict == nullptr) refuse(fmt::format("there is a {}, where '{}' was looked for", value->type_name(), key));
    value = dict->find(key);
    if (value == nullptr) refuse(fmt::format("there is no '{}'; there is {}", key, names_in(*dict)));
    place += "['" + key + "']";
  }
  const auto* dict = value->get_if<PtDict>();
  if (dict == nullptr) refuse(fmt::format("a {}, not a dictionary of tensors", value->type_name()));
  TensorMap tensors;
  for (const auto& item : dict->items) {
    const auto* name = item.key.get_if<std::string>();
    const auto* tensor = item.value.get_if<at::Tensor>();
    if (name == nullptr) refuse(fmt::format("a key is a {}, not a name", item.key.type_name()));
    if (tensor == nullptr) {
      refuse(fmt::format("'{}' is a {}, not a tensor; {}", *name, item.value.type_name(), how_to_go_on(*dict)));
    }
    tensors.emplace(*name, *tensor);
  }
  return tensors;
}

}  // namespace yoke::train
