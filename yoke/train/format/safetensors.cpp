#include "yoke/train/format/safetensors.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/train/format/safetensors_reader.h"
#include "yoke/train/sharding.h"

namespace yoke::train {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian, and nothing here swaps bytes");

using json = nlohmann::json;

constexpr int64_t kLengthBytes = 8;
constexpr int64_t kMaxHeaderBytes = 100'000'000;  // the limit of the reference reader
constexpr size_t kMaxDims = 64;                   // torch's own iterators allow no more than 64 either

struct DtypeName {
  at::ScalarType dtype;  // Undefined if libtorch lacks it
  std::string_view name;
  int64_t num_bits = 8 * static_cast<int64_t>(c10::elementSize(dtype));
};
constexpr auto kFloat4 = at::ScalarType::Float4_e2m1fn_x2;  // two elements of the format in a byte
const std::array kDtypes = {
    DtypeName{at::kDouble, "F64"},
    DtypeName{at::kFloat, "F32"},
    DtypeName{at::kHalf, "F16"},
    DtypeName{at::kBFloat16, "BF16"},
    DtypeName{at::ScalarType::Float8_e4m3fn, "F8_E4M3"},
    DtypeName{at::ScalarType::Float8_e4m3fnuz, "F8_E4M3FNUZ"},
    DtypeName{at::ScalarType::Float8_e5m2, "F8_E5M2"},
    DtypeName{at::ScalarType::Float8_e5m2fnuz, "F8_E5M2FNUZ"},
    DtypeName{at::ScalarType::Float8_e8m0fnu, "F8_E8M0"},
    DtypeName{at::ScalarType::ComplexFloat, "C64"},
    DtypeName{at::kLong, "I64"},
    DtypeName{at::kInt, "I32"},
    DtypeName{at::kShort, "I16"},
    DtypeName{at::kChar, "I8"},
    DtypeName{at::kByte, "U8"},
    DtypeName{at::ScalarType::UInt16, "U16"},
    DtypeName{at::ScalarType::UInt32, "U32"},
    DtypeName{at::ScalarType::UInt64, "U64"},
    DtypeName{at::kBool, "BOOL"},
    DtypeName{kFloat4, "F4", 4},
    DtypeName{at::ScalarType::Undefined, "F6_E2M3", 6},
    DtypeName{at::ScalarType::Undefined, "F6_E3M2", 6},
};

const DtypeName* dtype_of(std::string_view name) {
  const auto found = std::ranges::find(kDtypes, name, &DtypeName::name);
  return found == kDtypes.end() ? nullptr : &*found;
}

std::optional<std::string_view> name_of(at::ScalarType dtype) {
  for (const auto& entry : kDtypes) {
    if (entry.dtype == dtype) return entry.name;
  }
  return std::nullopt;
}

int64_t element_bytes(at::ScalarType dtype) { return static_cast<int64_t>(c10::elementSize(dtype)); }

/// Bytes of a dense tensor; nullopt if the number does not fit in int64, or the elements end inside a byte. A size of 0
/// does not hide an overflow, because the strides are products of the other sizes.
std::optional<int64_t> dense_bytes(int64_t num_bits, const std::vector<int64_t>& shape) {
  const int64_t unit = num_bits % 8 == 0 ? 8 : 1;  // whole bytes are not counted in bits, which would overflow earlier
  int64_t units = num_bits / unit;
  bool empty = false;
  for (const int64_t size : shape) {
    empty = empty || size == 0;
    if (size != 0 && __builtin_mul_overflow(units, size, &units)) return std::nullopt;
  }
  if (empty) return 0;
  if (unit == 8) return units;
  return units % 8 == 0 ? std::optional(units / 8) : std::nullopt;
}

/// Accepts exactly the header's grammar, one JSON event at a time. So a malicious header is refused before it causes a
/// large allocation.
class HeaderReader : public nlohmann::json_sax<json> {
 public:
  explicit HeaderReader(const std::string& what) : what_(what) {}

  std::vector<TensorSlot> slots;
  StringMap metadata;

  bool null() override {
    if (depth_ != 1 || !in_metadata_) refuse("null");
    return true;  // the reference reader takes null for absent metadata
  }
  bool boolean(bool) override { refuse("a boolean"); }
  bool number_integer(number_integer_t) override { refuse("a negative number"); }
  bool number_float(number_float_t, const string_t&) override { refuse("a fraction or a number over 64 bits"); }
  bool binary(binary_t&) override { refuse("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (!in_array_) refuse("a number");
    if (value > static_cast<number_unsigned_t>(std::numeric_limits<int64_t>::max())) refuse("a number over 63 bits");
    auto& numbers = field_ == "shape" ? slot_.shape : offsets_;
    if (numbers.size() >= (field_ == "shape" ? kMaxDims : 2)) refuse("too many numbers");
    numbers.push_back(static_cast<int64_t>(value));
    return true;
  }

  bool string(string_t& value) override {
    if (depth_ == 2 && in_metadata_) {
      metadata[field_] = std::move(value);
    } else if (depth_ == 2 && field_ == "dtype") {
      const auto dtype = dtype_of(value);
      if (dtype == nullptr) fail("tensor '{}' has the unknown dtype '{}'", slot_.name, value);
      slot_.dtype = dtype->dtype;
      slot_.dtype_name = dtype->name;
    } else {
      refuse("a string");
    }
    return true;
  }

  bool start_object(size_t) override {
    if (depth_ == 2 || in_array_) refuse("an object");
    ++depth_;
    fields_.clear();
    return true;
  }

  bool key(string_t& name) override {
    if (depth_ == 1) {
      if (!names_.insert(name).second) fail("the name '{}' appears twice", name);
      in_metadata_ = name == "__metadata__";
      slot_ = {.name = std::move(name)};
      offsets_.clear();
      return true;
    }
    if (!fields_.insert(name).second) fail("'{}' of '{}' appears twice", name, top_name());
    if (!in_metadata_ && name != "dtype" && name != "shape" && name != "data_offsets") {
      fail("tensor '{}' has the unknown field '{}'", slot_.name, name);
    }
    field_ = std::move(name);
    return true;
  }

  bool end_object() override {
    if (depth_-- == 2 && !in_metadata_) finish_tensor();
    return true;
  }

  bool start_array(size_t) override {
    if (depth_ != 2 || in_metadata_ || in_array_ || field_ == "dtype") refuse("a list");
    in_array_ = true;
    return true;
  }

  bool end_array() override {
    in_array_ = false;
    return true;
  }

  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception&) override {
    fail("the header is not a JSON object (at its byte {})", position);
  }

 private:
  template <typename... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    throw Error(ErrorCode::kDataLoss, what_ + ": " + fmt::format(format, std::forward<Args>(args)...));
  }

  [[noreturn]] void refuse(std::string_view found) const {
    if (depth_ == 0) fail("the header is {}, not an object", found);
    if (depth_ == 1) fail("'{}' is {}, not an object", top_name(), found);
    fail("'{}' of '{}' is or has {}", field_, top_name(), found);
  }

  std::string_view top_name() const { return in_metadata_ ? std::string_view("__metadata__") : slot_.name; }

  void finish_tensor() {
    for (const std::string field : {"dtype", "shape", "data_offsets"}) {
      if (!fields_.contains(field)) fail("tensor '{}' has no {}", slot_.name, field);
    }
    if (offsets_.size() != 2 || offsets_[0] > offsets_[1]) {
      fail("the data_offsets of tensor '{}' are not a begin and an end", slot_.name);
    }
    slot_.begin_byte = offsets_[0];
    slot_.end_byte = offsets_[1];
    const auto bytes = dense_bytes(dtype_of(slot_.dtype_name)->num_bits, slot_.shape);
    if (!bytes) fail("the shape of tensor '{}' overflows, or ends inside a byte", slot_.name);
    if (*bytes != slot_.end_byte - slot_.begin_byte) {
      fail("tensor '{}' has {} bytes, its dtype and shape need {}", slot_.name, slot_.end_byte - slot_.begin_byte,
           *bytes);
    }
    if (slot_.dtype == kFloat4) {
      if (slot_.shape.empty() || slot_.shape.back() % 2 != 0) {
        slot_.dtype = at::ScalarType::Undefined;  // libtorch cannot have half of a pair
      } else {
        slot_.shape.back() /= 2;
      }
    }
    slots.push_back(std::move(slot_));
  }

  const std::string& what_;
  int depth_ = 0;  // 1: the header; 2: a tensor or __metadata__
  bool in_array_ = false;
  bool in_metadata_ = false;
  TensorSlot slot_;
  std::string field_;
  std::vector<int64_t> offsets_;
  std::set<std::string> names_, fields_;
};

std::string to_json(const std::string& text, const std::string& what) {
  try {
    return json(text).dump();
  } catch (const json::exception&) {
    throw Error(ErrorCode::kInvalidArgument, "writing safetensors: {} is not UTF-8", what);
  }
}

std::string slot_json(TensorSlot slot) {
  if (slot.dtype == kFloat4) slot.shape.back() *= 2;
  return fmt::format(R"({{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", *name_of(slot.dtype),
                     fmt::join(slot.shape, ","), slot.begin_byte, slot.end_byte);
}

void require_writable(const std::string& name, const at::Tensor& tensor) {
  const auto refuse = [&](std::string_view why) {
    throw Error(ErrorCode::kInvalidArgument, "writing safetensors: tensor '{}' {}", name, why);
  };
  if (name == "__metadata__") refuse("has a name that the format reserves");
  if (!tensor.defined()) refuse("is undefined");
  if (tensor.layout() != at::kStrided) refuse("is not strided: convert it with to_dense() first");
  if (tensor.is_meta()) refuse("is without data");
  if (!name_of(tensor.scalar_type())) {
    refuse(fmt::format("is of the dtype {}, which the format lacks", c10::toString(tensor.scalar_type())));
  }
  if (tensor.scalar_type() == kFloat4 && tensor.dim() == 0) refuse("is a pair of elements without a dimension");
  if (static_cast<size_t>(tensor.dim()) > kMaxDims) refuse(fmt::format("has over {} dimensions", kMaxDims));
}

}  // namespace

SafetensorsHeader parse_safetensors_header(std::span<const std::byte> file, const std::string& what) {
  const auto size = static_cast<int64_t>(file.size());
  if (size < kLengthBytes) throw Error(ErrorCode::kDataLoss, "{}: {} bytes are not a safetensors file", what, size);
  uint64_t length = 0;
  std::memcpy(&length, file.data(), sizeof length);
  if (length > static_cast<uint64_t>(kMaxHeaderBytes)) {
    throw Error(ErrorCode::kDataLoss, "{}: not a safetensors file, or its header of {} bytes is over the limit of {}",
                what, length, kMaxHeaderBytes);
  }
  SafetensorsHeader header{.num_bytes = kLengthBytes + static_cast<int64_t>(length)};
  if (header.num_bytes > size) {
    throw Error(ErrorCode::kDataLoss,
                "{}: truncated, or not a safetensors file: {} bytes, but its header alone needs {}", what, size,
                header.num_bytes);
  }
  const auto* begin = reinterpret_cast<const char*>(file.data()) + kLengthBytes;
  if (length == 0 || *begin != '{') throw Error(ErrorCode::kDataLoss, "{}: the header is not a JSON object", what);
  HeaderReader reader(what);
  if (const void* zero = std::memchr(begin, '\0', length)) {  // which the parser would take for the end
    const auto position = static_cast<const char*>(zero) - begin;
    throw Error(ErrorCode::kDataLoss, "{}: the header is not a JSON object (at its byte {})", what, position);
  }
  json::sax_parse(begin, begin + length, &reader);
  header.slots = std::move(reader.slots);
  header.metadata = std::move(reader.metadata);

  std::ranges::sort(header.slots, {}, [](const TensorSlot& slot) { return std::pair(slot.begin_byte, slot.end_byte); });
  int64_t covered = 0;
  for (const auto& slot : header.slots) {
    if (slot.begin_byte != covered) {
      throw Error(ErrorCode::kDataLoss, "{}: tensor '{}' begins at byte {} of the data, where {} was expected", what,
                  slot.name, slot.begin_byte, covered);
    }
    covered = slot.end_byte;
  }
  if (covered != size - header.num_bytes) {
    throw Error(ErrorCode::kDataLoss, "{}: {}: {} bytes of data, and its header says {}", what,
                covered > size - header.num_bytes ? "truncated" : "longer than it should be", size - header.num_bytes,
                covered);
  }
  return header;
}

SafetensorsLayout lay_out_safetensors(const TensorMap& tensors, const StringMap& metadata) {
  SafetensorsLayout layout;
  for (const auto& [name, tensor] : tensors) {
    require_writable(name, tensor);
    require_whole("safetensors", name, tensor);
    layout.order.push_back(name);
  }
  std::ranges::stable_sort(layout.order, std::ranges::greater(),
                           [&](const auto& name) { return element_bytes(tensors.at(name).scalar_type()); });

  std::vector<std::string> entries;
  if (!metadata.empty()) {
    std::vector<std::string> pairs;
    for (const auto& [key, value] : metadata) {
      const std::string what = "metadata '" + key + "'";
      pairs.push_back(to_json(key, what) + ":" + to_json(value, what));
    }
    entries.push_back(fmt::format(R"("__metadata__":{{{}}})", fmt::join(pairs, ",")));
  }
  int64_t offset = 0;
  for (const auto& name : layout.order) {
    const auto& tensor = tensors.at(name);
    const int64_t begin = std::exchange(offset, offset + static_cast<int64_t>(tensor.nbytes()));
    entries.push_back(to_json(name, "the tensor name '" + name + "'") + ":" +
                      slot_json({name, tensor.scalar_type(), tensor.sizes().vec(), begin, offset}));
  }
  std::string text = fmt::format("{{{}}}", fmt::join(entries, ","));
  text.resize((text.size() + 7) / 8 * 8, ' ');
  if (static_cast<int64_t>(text.size()) > kMaxHeaderBytes) {
    throw Error(ErrorCode::kInvalidArgument, "writing safetensors: names and metadata need {} bytes, the limit is {}",
                text.size(), kMaxHeaderBytes);
  }
  const uint64_t length = text.size();
  layout.header.assign(reinterpret_cast<const char*>(&length), sizeof length);
  layout.header += text;
  layout.num_bytes = static_cast<int64_t>(layout.header.size()) + offset;
  return layout;
}

void stream_tensors(const SafetensorsLayout& layout, const TensorMap& tensors,
                    const std::function<void(std::span<const std::byte>)>& sink) {
  for (const auto& name : layout.order) {
    const auto& tensor = tensors.at(name);
    const auto bits = tensor.scalar_type() == kFloat4 ? tensor.view(at::kByte) : tensor;  // has few operators
    auto dense = bits.detach().cpu().resolve_conj().resolve_neg().contiguous();
    if (dense.scalar_type() == at::kBool)
      dense = dense.view(at::kByte).ne(0);  // if a bool tensor views other bytes, an element may be neither 0 nor 1
    sink({static_cast<const std::byte*>(dense.data_ptr()), dense.nbytes()});
  }
}

TensorFile read_safetensors(const std::filesystem::path& path) {
  const SafetensorsReader reader(path);
  TensorFile file{.tensors = {}, .metadata = reader.metadata()};
  for (const auto& name : reader.names()) {
    const auto tensor = reader.tensor(name);
    const bool is_paired = tensor.scalar_type() == kFloat4;  // which has few operators
    file.tensors.emplace(name, is_paired ? tensor.view(at::kByte).clone().view(tensor.scalar_type()) : tensor.clone());
  }
  return file;
}

TensorMap by_name(const NamedTensors& tensors) {
  TensorMap result;
  for (const auto& [name, tensor] : tensors) {
    if (result.emplace(name, tensor).second) continue;
    throw Error(ErrorCode::kInvalidArgument, "there are two tensors '{}'", name);
  }
  return result;
}

void write_safetensors(const std::filesystem::path& path, const TensorMap& tensors, const StringMap& metadata) {
  const auto layout = lay_out_safetensors(tensors, metadata);
  replace_file(path, [&](int fd) {
    write_all(fd, layout.header, path.string());
    stream_tensors(layout, tensors, [&](auto bytes) { write_all(fd, bytes, path.string()); });
  });
}

}  // namespace yoke::train
