#include "yoke/train/watch/detail/event_encoder.h"

#include <array>
#include <bit>
#include <cstring>

#include "yoke/base/crc32c.h"

namespace yoke::train::detail {
namespace {

// Numbers are stored with the byte order of memory, and protobuf requires little-endian.
static_assert(std::endian::native == std::endian::little);

template <typename T>
void append_bytes(std::string& to, T value) {
  std::array<char, sizeof(T)> bytes;
  std::memcpy(bytes.data(), &value, sizeof(T));
  to.append(bytes.data(), bytes.size());
}

/// Appends fields of a protobuf message, and leaves out those that have proto3's default value, as protobuf does.
class Message {
 public:
  Message& add_double(int field, double value) {
    if (std::bit_cast<uint64_t>(value) == 0) return *this;
    append_key(field, kFixed64);
    append_bytes(bytes_, value);
    return *this;
  }

  Message& add_int(int field, int64_t value) {
    if (value == 0) return *this;
    append_key(field, kVarint);
    append_varint(static_cast<uint64_t>(value));
    return *this;
  }

  /// Writes a member of a `oneof`, even if it has the default value.
  Message& add_float_of_oneof(int field, float value) {
    append_key(field, kFixed32);
    append_bytes(bytes_, value);
    return *this;
  }

  /// Appends a string, or a nested message.
  Message& add_bytes(int field, std::string_view value) {
    append_key(field, kLengthDelimited);
    append_varint(value.size());
    bytes_ += value;
    return *this;
  }

  Message& add_packed(int field, const std::vector<double>& values) {
    if (values.empty()) return *this;
    std::string packed;
    for (const double value : values) append_bytes(packed, value);
    return add_bytes(field, packed);
  }

  std::string take() { return std::move(bytes_); }

 private:
  static constexpr unsigned kVarint = 0, kFixed64 = 1, kLengthDelimited = 2, kFixed32 = 5;

  void append_key(int field, unsigned wire_type) { append_varint(static_cast<uint64_t>(field) << 3 | wire_type); }

  void append_varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
    bytes_ += static_cast<char>(value);
  }

  std::string bytes_;
};

/// The CRC-32C of `bytes`, rotated and offset: a plain CRC is weak for data that contain CRCs.
uint32_t masked_crc(std::string_view bytes) { return std::rotr(crc32c(bytes), 15) + 0xa282ead8; }

std::string encode_value(Message value) { return Message().add_bytes(1, value.take()).take(); }

}  // namespace

std::string encode_scalar(std::string_view tag, float value) {
  return encode_value(Message().add_bytes(1, tag).add_float_of_oneof(2, value));
}

std::string encode_histogram(std::string_view tag, const Histogram& histogram) {
  const auto encoded = Message()
                           .add_double(1, histogram.min)
                           .add_double(2, histogram.max)
                           .add_double(3, histogram.num)
                           .add_double(4, histogram.sum)
                           .add_double(5, histogram.sum_squares)
                           .add_packed(6, histogram.limits)
                           .add_packed(7, histogram.counts)
                           .take();
  return encode_value(Message().add_bytes(1, tag).add_bytes(5, encoded));
}

std::string encode_image(std::string_view tag, const EncodedImage& image) {
  const auto encoded = Message()
                           .add_int(1, image.height)
                           .add_int(2, image.width)
                           .add_int(3, image.num_channels)
                           .add_bytes(4, image.png)
                           .take();
  return encode_value(Message().add_bytes(1, tag).add_bytes(4, encoded));
}

std::string encode_summary_event(double wall_time, int64_t step, std::string_view summary) {
  return Message().add_double(1, wall_time).add_int(2, step).add_bytes(5, summary).take();
}

std::string encode_version_event(double wall_time) {
  return Message().add_double(1, wall_time).add_bytes(3, "brain.Event:2").take();
}

std::string encode_restart_event(double wall_time, int64_t step) {
  constexpr int kStart = 1;
  return Message().add_double(1, wall_time).add_int(2, step).add_bytes(7, Message().add_int(1, kStart).take()).take();
}

std::string encode_record(std::string_view event) {
  std::string record;
  append_bytes(record, static_cast<uint64_t>(event.size()));
  append_bytes(record, masked_crc(record));
  record += event;
  append_bytes(record, masked_crc(event));
  return record;
}

}  // namespace yoke::train::detail
