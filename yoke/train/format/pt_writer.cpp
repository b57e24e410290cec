// write_pt uses pickle protocol 2, like torch.save. The pickle has no memo, because nothing in it refers back to an
// earlier object.
#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <map>
#include <span>
#include <utility>

#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/utf8.h"
#include "yoke/train/format/detail/pickle_globals.h"
#include "yoke/train/format/detail/pt_dtypes.h"
#include "yoke/train/format/detail/zip_file.h"
#include "yoke/train/format/pt_file.h"
#include "yoke/train/sharding.h"

namespace yoke::train {
namespace {

/// Writes the pickle and collects the storages that it refers to.
class Pickler {
 public:
  explicit Pickler(std::string what) : what_(std::move(what)) {}

  std::string text = "\x80\x02";
  std::vector<at::Tensor> storages;  ///< uint8 [bytes] on their devices, to be written as data/INDEX.

  void write(const PtValue& value, const std::string& place, int depth) {
    if (depth > kMaxPtDepth) refuse(place, fmt::format("is nested over {} deep", kMaxPtDepth));
    std::visit([&](const auto& alternative) { put(alternative, place, depth); },
               static_cast<const PtValue::variant&>(value));
  }

 private:
  [[noreturn]] void refuse(const std::string& place, std::string_view why) const {
    throw Error(ErrorCode::kInvalidArgument, "writing {}: the value{} {}", what_, place, why);
  }

  template <typename T>
  void append(T value) {
    text.append(reinterpret_cast<const char*>(&value), sizeof value);
  }

  void put(std::monostate, const std::string&, int) { text += 'N'; }
  void put(bool value, const std::string&, int) { text += value ? '\x88' : '\x89'; }

  void put(int64_t value, const std::string&, int) {
    if (std::in_range<int32_t>(value)) {
      text += 'J';
      append(static_cast<int32_t>(value));
    } else {
      text += "\x8a\x08";
      append(value);
    }
  }

  void put(double value, const std::string&, int) {
    text += 'G';
    append(__builtin_bswap64(std::bit_cast<uint64_t>(value)));
  }

  void put(const std::string& value, const std::string& place, int) {
    if (!is_utf8(value)) refuse(place, "is a text that is not UTF-8");
    if (value.size() > std::numeric_limits<uint32_t>::max()) refuse(place, "is a text of over 4 GiB");
    put_text(value);
  }

  void put_text(std::string_view value) {
    text += 'X';
    append(static_cast<uint32_t>(value.size()));
    text += value;
  }

  void put(const PtList& list, const std::string& place, int depth) {
    text += "](";
    put_all(list.values, place, depth);
    text += 'e';
  }

  void put(const PtTuple& tuple, const std::string& place, int depth) {
    text += '(';
    put_all(tuple.values, place, depth);
    text += 't';
  }

  void put_all(const std::vector<PtValue>& values, const std::string& place, int depth) {
    for (size_t i = 0; i < values.size(); ++i) write(values[i], fmt::format("{}[{}]", place, i), depth + 1);
  }

  void put(const PtDict& dict, const std::string& place, int depth) {
    text += "}(";
    for (const auto& [key, value] : dict.items) {
      if (!is_key(key)) refuse(place, fmt::format("has a {} for a key", key.type_name()));
      const auto* name = key.get_if<std::string>();
      const auto inner = place + (name != nullptr ? "['" + *name + "']" : "[...]");
      write(key, inner, depth + 1);
      write(value, inner, depth + 1);
    }
    text += 'u';
  }

  static bool is_key(const PtValue& value) {
    if (const auto* tuple = value.get_if<PtTuple>()) return std::ranges::all_of(tuple->values, is_key);
    return value.get_if<PtList>() == nullptr && value.get_if<PtDict>() == nullptr &&
           value.get_if<at::Tensor>() == nullptr;
  }

  void put_integers(at::IntArrayRef values) {
    text += '(';
    for (const int64_t value : values) put(value, {}, 0);
    text += 't';
  }

  void put_global(std::string_view module, std::string_view name) { text += fmt::format("c{}\n{}\n", module, name); }

  void put(const at::Tensor& tensor, const std::string& place, int) {
    if (!tensor.defined()) refuse(place, "is an undefined tensor");
    if (tensor.layout() != at::kStrided || tensor.is_meta() || tensor.is_quantized()) {
      refuse(place, "is a tensor that is sparse, quantized or without data: make it dense first");
    }
    const auto dtype = pt_dtype_name(tensor.scalar_type());
    if (!dtype) refuse(place, fmt::format("is of the dtype {}", c10::toString(tensor.scalar_type())));
    const auto class_name = storage_class_of(*dtype);
    const auto item_bytes = static_cast<int64_t>(tensor.element_size());

    // Bytes after the last whole element of a storage are left out. A storage that is viewed with two dtypes is written
    // once for each dtype.
    const auto& storage = tensor.storage();
    const auto num_elements = static_cast<int64_t>(storage.nbytes()) / item_bytes;
    const auto [known, is_new] = keys_.emplace(std::pair(storage.unsafeGetStorageImpl(), *dtype), storages.size());
    if (is_new) {
      const auto bytes = at::empty({0}, at::TensorOptions(at::kByte).device(tensor.device()));
      storages.push_back(bytes.set_(storage, 0, {num_elements * item_bytes}, {1}));
    }
    put_global("torch._utils", class_name.empty() ? "_rebuild_tensor_v3" : "_rebuild_tensor_v2");
    text += "((";
    put_text("storage");
    put_global(class_name.empty() ? "torch.storage" : "torch", class_name.empty() ? "UntypedStorage" : class_name);
    put_text(std::to_string(known->second));
    put_text("cpu");
    put(class_name.empty() ? num_elements * item_bytes : num_elements, {}, 0);
    text += "tQ";
    put(tensor.storage_offset(), {}, 0);
    put_integers(tensor.sizes());
    put_integers(tensor.strides());
    text += '\x89';                            // requires_grad is false
    put_global("collections", "OrderedDict");  // the hooks: an empty dictionary
    text += ")R";
    if (class_name.empty()) put_global("torch", *dtype);
    if (tensor.is_conj() || tensor.is_neg()) {
      text += '}';
      put_mark("conj", tensor.is_conj());
      put_mark("neg", tensor.is_neg());
    }
    text += "tR";
  }

  void put_mark(std::string_view name, bool is_set) {
    if (!is_set) return;
    put_text(name);
    text += "\x88s";
  }

  std::string what_;
  std::map<std::pair<const c10::StorageImpl*, std::string_view>, size_t> keys_;
};

/// torch.load(weights_only=True) only requires that the file has an id. torch.save also uses a hash as the id.
std::string serialization_id(std::string_view names, uint32_t crcs) {
  uint64_t hash = 14695981039346656037u;  // FNV-1a
  for (const char c : names) hash = (hash ^ static_cast<uint8_t>(c)) * 1099511628211u;
  return fmt::format("{:020}{:020}", hash, crcs);
}

}  // namespace

void write_pt(const std::filesystem::path& path, const PtValue& value) {
  const auto what = path.string();
  Pickler pickler(what);
  pickler.write(value, "", 0);
  pickler.text += '.';
  replace_file(path, [&](int fd) {
    ZipWriter zip;
    std::string names;
    uint32_t crcs = 0;
    const auto add = [&](const std::string& name, std::span<const std::byte> content) {
      const uint32_t crc = zip_crc(content);
      names += name;
      crcs = crcs * 31 + crc;
      const auto header = zip.begin("archive/" + name, std::ssize(content), crc);
      write_all(fd, header, what);
      write_all(fd, content, what);
    };
    const auto add_text = [&](const std::string& name, std::string_view text) {
      add(name, std::as_bytes(std::span(text)));
    };
    add_text("data.pkl", pickler.text);
    add_text(".format_version", "1");
    add_text(".storage_alignment", "64");
    add_text("byteorder", "little");
    for (size_t i = 0; i < pickler.storages.size(); ++i) {
      const auto bytes = pickler.storages[i].cpu();
      add("data/" + std::to_string(i), {static_cast<const std::byte*>(bytes.data_ptr()), bytes.nbytes()});
    }
    add_text("version", "3\n");
    add_text(".data/serialization_id", serialization_id(names, crcs));
    const auto directory = zip.end();
    write_all(fd, directory, what);
  });
}

PtItem pt_item(const std::string& name, const at::Tensor& tensor) {
  require_whole("to_pt", name, tensor);
  return {name, tensor};
}

PtDict to_pt(const TensorMap& tensors) { return to_pt(NamedTensors(tensors.begin(), tensors.end())); }

}  // namespace yoke::train
