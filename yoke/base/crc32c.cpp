#include "yoke/base/crc32c.h"

#include <array>
#include <bit>
#include <cstring>

namespace yoke {
namespace {

static_assert(std::endian::native == std::endian::little);

/// Entry [k][i] is the checksum of byte i followed by k zero bytes. With it, eight look-ups process eight bytes.
using CrcTables = std::array<std::array<uint32_t, 256>, 8>;

constexpr CrcTables make_crc_tables() {
  constexpr uint32_t kPolynomial = 0x82f63b78;  // its bits are reversed
  CrcTables tables{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ ((crc & 1) != 0 ? kPolynomial : 0);
    tables[0][i] = crc;
  }
  for (size_t k = 1; k < 8; ++k) {
    for (size_t i = 0; i < 256; ++i) tables[k][i] = tables[k - 1][i] >> 8 ^ tables[0][tables[k - 1][i] & 0xff];
  }
  return tables;
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  static constexpr auto kTables = make_crc_tables();
  uint32_t crc = ~0u;
  for (; bytes.size() >= 8; bytes.remove_prefix(8)) {
    uint64_t eight = 0;
    std::memcpy(&eight, bytes.data(), 8);
    eight ^= crc;
    crc = 0;
    for (size_t k = 0; k < 8; ++k) crc ^= kTables[7 - k][eight >> (8 * k) & 0xff];
  }
  for (const char byte : bytes) crc = kTables[0][(crc ^ static_cast<uint8_t>(byte)) & 0xff] ^ crc >> 8;
  return ~crc;
}

}  // namespace yoke
