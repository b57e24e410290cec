// yoke/base/crc32.h -- the two checksums of the file formats that yoke reads and writes.
#pragma once

#include <cstdint>
#include <string_view>

namespace yoke {

/// CRC-32 of zlib, gzip and PNG.
uint32_t crc32(std::string_view bytes);

/// CRC-32C (Castagnoli) of TensorFlow's records and of iSCSI (RFC 3720).
uint32_t crc32c(std::string_view bytes);

}  // namespace yoke
