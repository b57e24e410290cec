#include "yoke/base/crc32c.h"

#include <gtest/gtest.h>

#include <string>

namespace yoke {
namespace {

// The check value of CRC-32C, and the examples of RFC 3720, B.4.
TEST(Crc32c, IsThatOfTheStandard) {
  EXPECT_EQ(crc32c("123456789"), 0xe3069283);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aa);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43);
  EXPECT_EQ(crc32c(""), 0u);
}

}  // namespace
}  // namespace yoke
