// yoke/base/crc32c.h -- the checksum of TensorBoard's files.
#pragma once

#include <cstdint>
#include <string_view>

namespace yoke {

/// CRC-32C (Castagnoli), which TensorFlow's records and iSCSI (RFC 3720) use.
uint32_t crc32c(std::string_view bytes);

}  // namespace yoke
