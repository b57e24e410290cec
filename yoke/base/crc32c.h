// yoke/base/crc32c.h -- the checksum of TensorBoard's files.
#pragma once

#include <cstdint>
#include <string_view>

namespace yoke {

/// CRC-32C (Castagnoli) of TensorFlow's records and of iSCSI (RFC 3720).
uint32_t crc32c(std::string_view bytes);

}  // namespace yoke
