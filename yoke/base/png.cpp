#include "yoke/base/png.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "yoke/base/crc32.h"
#include "yoke/base/error.h"

namespace yoke {
namespace {

void append_big_endian(std::string& to, uint32_t value) {
  for (int shift = 24; shift >= 0; shift -= 8) to += static_cast<char>(value >> shift);
}

void append_chunk(std::string& to, std::string_view type, std::string_view content) {
  append_big_endian(to, static_cast<uint32_t>(content.size()));
  const auto begin = to.size();
  to.append(type).append(content);
  append_big_endian(to, crc32(std::string_view(to).substr(begin)));
}

uint32_t adler32(std::string_view bytes) {
  uint32_t a = 1, b = 0;
  for (const char byte : bytes) {
    a = (a + static_cast<uint8_t>(byte)) % 65521;
    b = (b + a) % 65521;
  }
  return b << 16 | a;
}

/// A block of deflate (RFC 1951) with the fixed codes.
class FixedBlock {
 public:
  explicit FixedBlock(std::string& to) : to_(to) {
    append(1, 1);  // the last block
    append(1, 2);  // with fixed codes
  }

  void add_literal(uint8_t byte) { add_symbol(byte); }

  /// A copy of `length` bytes, 3 to 258, that begin `distance` bytes before, 1 to 32768.
  void add_copy(size_t length, size_t distance) {
    const auto code = code_of(length - 3, 4);  // each number of additional bits has four codes, after the first eight
    if (length == 258) {
      add_symbol(285);
    } else {
      add_symbol(257 + code.number);
      append(code.rest, code.num_bits);
    }
    const auto back = code_of(distance - 1, 2);
    append_reversed(static_cast<uint32_t>(back.number), 5);
    append(back.rest, back.num_bits);
  }

  void finish() {
    add_symbol(256);
    if (num_pending_ > 0) append(0, 8 - num_pending_);
  }

 private:
  struct Code {
    size_t number = 0;
    uint32_t rest = 0;
    int num_bits = 0;
  };

  /// The code for `value` where the first 2 * `group` codes have a value each, or two, and every next `group` of codes
  /// covers twice as many values.
  static Code code_of(size_t value, size_t group) {
    int num_bits = 0;
    while ((value >> num_bits) >= 2 * group) ++num_bits;
    return {.number = static_cast<size_t>(num_bits) * group + (value >> num_bits),
            .rest = static_cast<uint32_t>(value & ((size_t{1} << num_bits) - 1)),
            .num_bits = num_bits};
  }

  void add_symbol(size_t symbol) {
    const auto code = static_cast<uint32_t>(symbol);
    if (code < 144) return append_reversed(0x30 + code, 8);
    if (code < 256) return append_reversed(0x190 + code - 144, 9);
    if (code < 280) return append_reversed(code - 256, 7);
    append_reversed(0xc0 + code - 280, 8);
  }

  void append_reversed(uint32_t code, int num_bits) {
    for (int bit = num_bits - 1; bit >= 0; --bit) append(code >> bit & 1, 1);
  }

  void append(uint32_t bits, int num_bits) {
    pending_ |= bits << num_pending_;
    for (num_pending_ += num_bits; num_pending_ >= 8; num_pending_ -= 8, pending_ >>= 8) {
      to_ += static_cast<char>(pending_);
    }
  }

  std::string& to_;
  uint32_t pending_ = 0;
  int num_pending_ = 0;
};

}  // namespace

std::string compress_drawing(std::string_view bytes) {
  constexpr size_t kShortest = 4, kLongest = 258, kFarthest = 32768, kHashBits = 15;
  std::string result = "\x78\x01";
  FixedBlock block(result);
  std::vector<size_t> last(size_t{1} << kHashBits, bytes.size());  // where four bytes with this hash were seen last
  for (size_t i = 0; i < bytes.size();) {
    size_t length = 0, from = bytes.size();
    if (bytes.size() - i >= kShortest) {
      uint32_t four = 0;
      std::memcpy(&four, bytes.data() + i, 4);
      from = std::exchange(last[four * 2654435761u >> (32 - kHashBits)], i);
      if (from < i && i - from <= kFarthest) {
        const auto limit = std::min(kLongest, bytes.size() - i);
        while (length < limit && bytes[from + length] == bytes[i + length]) ++length;
      }
    }
    if (length >= kShortest) {
      block.add_copy(length, i - from);
      i += length;
    } else {
      block.add_literal(static_cast<uint8_t>(bytes[i]));
      ++i;
    }
  }
  block.finish();
  append_big_endian(result, adler32(bytes));
  return result;
}

// Source  Portable Network Graphics, W3C Recommendation, third edition.
std::string encode_png(std::span<const uint8_t> pixels, int64_t height, int64_t width, int64_t num_channels,
                       const Compress& compress) {
  constexpr int64_t kMaxSide = 1 << 16;
  if (height < 1 || width < 1 || height > kMaxSide || width > kMaxSide || num_channels < 1 || num_channels > 4 ||
      std::ssize(pixels) != height * width * num_channels) {
    throw Error(ErrorCode::kInvalidArgument,
                "an image has 1 to 4 channels and sides of 1 to {} pixels, not [{}, {}, {}]", kMaxSide, num_channels,
                height, width);
  }
  constexpr char kColorTypes[] = {0, 4, 2, 6};
  std::string header;
  append_big_endian(header, static_cast<uint32_t>(width));
  append_big_endian(header, static_cast<uint32_t>(height));
  header += '\x08';  // bits of a channel
  header += kColorTypes[num_channels - 1];
  header.append(3, '\0');  // the only compression, the only family of filters, not interlaced

  const auto row_bytes = static_cast<size_t>(width * num_channels);
  std::string rows;
  rows.reserve((row_bytes + 1) * static_cast<size_t>(height));
  for (size_t row = 0; row < static_cast<size_t>(height); ++row) {
    rows += '\0';  // not filtered
    rows.append(reinterpret_cast<const char*>(pixels.data()) + row * row_bytes, row_bytes);
  }

  std::string png = "\x89PNG\r\n\x1a\n";
  append_chunk(png, "IHDR", header);
  append_chunk(png, "IDAT", compress(rows));
  append_chunk(png, "IEND", "");
  return png;
}

}  // namespace yoke
