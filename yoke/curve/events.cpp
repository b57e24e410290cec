// Parses TensorBoard's event files. Source  tensorflow/core/util/event.proto, framework/summary.proto and
// framework/tensor.proto; for the format of records, tensorflow/core/lib/io/record_writer.cc.
#include <fmt/format.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

#include "yoke/base/crc32c.h"
#include "yoke/curve/log.h"

namespace yoke::curve {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr size_t kHeaderBytes = 12, kFooterBytes = 4;

template <typename T>
T value_at(std::string_view bytes, size_t place) {
  T value;
  std::memcpy(&value, bytes.data() + place, sizeof(T));
  return value;
}

uint32_t masked_crc(std::string_view bytes) { return std::rotr(crc32c(bytes), 15) + 0xa282ead8; }

enum WireType { kVarint = 0, kFixed64 = 1, kLengthDelimited = 2, kFixed32 = 5 };

/// A field of a protobuf message.
struct Field {
  uint64_t number = 0;
  uint64_t wire_type = 0;
  uint64_t integer = 0;    ///< The value if wire_type is kVarint.
  std::string_view bytes;  ///< The content for any other wire_type.

  template <typename T>
  T as() const {
    return bytes.size() == sizeof(T) ? value_at<T>(bytes, 0) : T();
  }
};

/// Iterates over the fields of a protobuf message.
class Fields {
 public:
  explicit Fields(std::string_view message) : rest_(message) {}

  /// Returns nullopt at the end of the message, or at bytes that are not a field. is_whole() tells these cases apart.
  std::optional<Field> next() {
    if (rest_.empty()) return std::nullopt;
    Field field;
    const auto key = varint();
    if (!key) return std::nullopt;
    field.number = *key >> 3;
    field.wire_type = *key & 7;
    uint64_t size = 0;
    if (field.wire_type == kVarint || field.wire_type == kLengthDelimited) {
      const auto number = varint();
      if (!number) return std::nullopt;
      (field.wire_type == kVarint ? field.integer : size) = *number;
    } else if (field.wire_type == kFixed64 || field.wire_type == kFixed32) {
      size = field.wire_type == kFixed64 ? 8 : 4;
    } else {
      return refuse();
    }
    if (size > rest_.size()) return refuse();
    field.bytes = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return field;
  }

  bool is_whole() const { return is_whole_; }

  std::optional<uint64_t> varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 70 && !rest_.empty(); shift += 7) {
      const auto byte = static_cast<uint8_t>(rest_.front());
      rest_.remove_prefix(1);
      if (shift < 64) value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    is_whole_ = false;
    return std::nullopt;
  }

 private:
  std::nullopt_t refuse() {
    is_whole_ = false;
    return std::nullopt;
  }
  std::string_view rest_;
  bool is_whole_ = true;
};

double from_half(uint16_t bits) {
  const int exponent = bits >> 10 & 0x1f, fraction = bits & 0x3ff;
  const double value = exponent == 31  ? (fraction != 0 ? std::numeric_limits<double>::quiet_NaN() : HUGE_VAL)
                       : exponent == 0 ? std::ldexp(fraction, -24)
                                       : std::ldexp(fraction + 1024, exponent - 25);
  return (bits & 0x8000) != 0 ? -value : value;
}

double from_bfloat16(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

/// A value of the enum DataType in types.proto, and the field of TensorProto that holds values of this type.
struct TensorType {
  uint64_t number;
  uint64_t field;
  size_t bytes;
  double (*from_content)(std::string_view);
  double (*from_integer)(uint64_t);  ///< Null if the field holds floating-point numbers as bytes.
};
template <typename T>
double content_as(std::string_view bytes) {
  return static_cast<double>(value_at<T>(bytes, 0));
}
template <typename T>
double integer_as(uint64_t value) {
  return static_cast<double>(static_cast<T>(value));
}
constexpr auto kTensorTypes = std::to_array<TensorType>({
    {1, 5, 4, content_as<float>, nullptr},
    {2, 6, 8, content_as<double>, nullptr},
    {3, 7, 4, content_as<int32_t>, integer_as<int32_t>},
    {4, 7, 1, content_as<uint8_t>, integer_as<int32_t>},
    {5, 7, 2, content_as<int16_t>, integer_as<int32_t>},
    {6, 7, 1, content_as<int8_t>, integer_as<int32_t>},
    {9, 10, 8, content_as<int64_t>, integer_as<int64_t>},
    {10, 11, 1, content_as<uint8_t>, integer_as<uint8_t>},
    {14, 13, 2, [](std::string_view bytes) { return from_bfloat16(value_at<uint16_t>(bytes, 0)); },
     [](uint64_t value) { return from_bfloat16(static_cast<uint16_t>(value)); }},
    {17, 7, 2, content_as<uint16_t>, integer_as<int32_t>},
    {19, 13, 2, [](std::string_view bytes) { return from_half(value_at<uint16_t>(bytes, 0)); },
     [](uint64_t value) { return from_half(static_cast<uint16_t>(value)); }},
    {22, 16, 4, content_as<uint32_t>, integer_as<uint32_t>},
    {23, 17, 8, content_as<uint64_t>, integer_as<uint64_t>},
});

/// Returns the number in a tensor with one element; nullopt for other tensors, such as histograms, images and texts.
std::optional<double> scalar_of(std::string_view tensor) {
  const TensorType* type = nullptr;
  int64_t num_elements = 1;
  std::optional<std::string_view> content;
  Fields fields(tensor);
  while (const auto field = fields.next()) {
    if (field->number == 1) {
      for (const auto& known : kTensorTypes) {
        if (known.number == field->integer) type = &known;
      }
    } else if (field->number == 2) {
      Fields shape(field->bytes);
      while (const auto dimension = shape.next()) {
        if (dimension->number != 2) continue;
        uint64_t size = 0;  // protobuf omits a size of 0
        Fields parts(dimension->bytes);
        while (const auto part = parts.next()) size = part->number == 1 ? part->integer : size;
        if (size != 1) num_elements = 0;
      }
    } else if (field->number == 4) {
      content = field->bytes;
    }
  }
  if (!fields.is_whole() || type == nullptr || num_elements != 1) return std::nullopt;
  if (content && !content->empty()) {
    return content->size() == type->bytes ? std::optional(type->from_content(*content)) : std::nullopt;
  }
  std::optional<double> value = 0.0;  // protobuf may omit a default value
  int64_t count = 0;
  Fields again(tensor);
  while (const auto field = again.next()) {
    if (field->number != type->field) continue;
    ++count;
    if (type->from_integer == nullptr) {
      value = field->bytes.size() == type->bytes ? std::optional(type->from_content(field->bytes)) : std::nullopt;
    } else if (field->wire_type == kVarint) {
      value = type->from_integer(field->integer);
    } else {
      const auto integer = Fields(field->bytes).varint();
      value = integer ? std::optional(type->from_integer(*integer)) : std::nullopt;
    }
  }
  return count <= 1 ? value : std::nullopt;
}

}  // namespace

bool EventParser::is_event_file(std::string_view bytes) {
  return bytes.size() >= kHeaderBytes && value_at<uint32_t>(bytes, 8) == masked_crc(bytes.substr(0, 8));
}

size_t EventParser::take(std::string_view bytes, bool /*is_end*/) {
  if (is_lost_) return bytes.size();
  size_t place = 0;
  while (bytes.size() - place >= kHeaderBytes) {
    const auto record = bytes.substr(place);
    if (!is_event_file(record)) {
      is_lost_ = true;
      damaged(fmt::format("the record at byte {} has a damaged length; nothing behind it can be read", offset_));
      return bytes.size();
    }
    const auto size = value_at<uint64_t>(record, 0);
    // The file ends inside this record: it is still being written, or was cut off.
    if (size > record.size() - kHeaderBytes || record.size() - kHeaderBytes - size < kFooterBytes) break;
    const auto event = record.substr(kHeaderBytes, size);
    if (value_at<uint32_t>(record, kHeaderBytes + size) != masked_crc(event)) {
      damaged(fmt::format("the checksum of the record at byte {} is wrong", offset_));
    } else if (!take_event(event)) {
      damaged(fmt::format("the record at byte {} is not an event", offset_));
    }
    const auto length = kHeaderBytes + size + kFooterBytes;
    place += length;
    offset_ += length;
  }
  return place;
}

bool EventParser::take_event(std::string_view event) {
  double time = 0;
  int64_t step = 0;
  std::string_view summary;
  bool is_restart = false;
  Fields fields(event);
  while (const auto field = fields.next()) {
    if (field->number == 1) time = field->as<double>();
    if (field->number == 2) step = static_cast<int64_t>(field->integer);
    if (field->number == 5) summary = field->bytes;
    if (field->number == 7) {
      constexpr uint64_t kStart = 1;
      Fields session(field->bytes);
      while (const auto part = session.next())
        is_restart = is_restart || (part->number == 1 && part->integer == kStart);
    }
  }
  if (!fields.is_whole()) return false;
  if (is_restart) log().forget_from(static_cast<double>(step));
  const Position place{static_cast<double>(step), std::numeric_limits<double>::quiet_NaN(), time};
  Fields values(summary);
  while (const auto entry = values.next()) {
    if (entry->number != 1 || entry->wire_type != kLengthDelimited) continue;
    std::string_view tag;
    std::optional<double> number;
    Fields parts(entry->bytes);
    while (const auto part = parts.next()) {
      if (part->number == 1) tag = part->bytes;
      if (part->number == 2 && part->wire_type == kFixed32) number = part->as<float>();
      if (part->number == 8) number = scalar_of(part->bytes);
    }
    if (!parts.is_whole()) return false;
    if (number) log().add(tag, place, *number);
  }
  return values.is_whole();
}

}  // namespace yoke::curve
