#include "yoke/train/watch/detail/event_encoder.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <array>
#include <limits>
#include <string>
#include <vector>

#include "yoke/base/error.h"

namespace yoke::train::detail {
namespace {

std::string hex(const std::string& bytes) {
  std::string text;
  for (const char byte : bytes) text += fmt::format("{:02x}", static_cast<uint8_t>(byte));
  return text;
}

// Oracle: recorded bytes that TensorBoard 2.21 and PyTorch 2.11's torch.utils.tensorboard wrote for the same values.
TEST(EventEncoder, WritesTheBytesThatPyTorchWrites) {
  EXPECT_EQ(hex(encode_record(encode_version_event(1790000000.25))),
            "1800000000000000a37f4b2209000010e04eacda411a0d627261696e2e4576656e743a32e9383659");
  EXPECT_EQ(hex(encode_record(encode_summary_event(1790000001.5, 7, encode_scalar("loss", 0.625f)))),
            "1a00000000000000129bd82d09000060e04eacda4110072a0d0a0b0a046c6f7373150000203fa95cd36b");
  EXPECT_EQ(hex(encode_record(encode_summary_event(
                1790000002, 300, encode_scalar("läuft/acc", std::numeric_limits<float>::quiet_NaN())))),
            "2100000000000000017becf609000080e04eacda4110ac022a130a110a0a6cc3a47566742f616363150000c07f2607be0f");
  EXPECT_EQ(hex(encode_record(encode_restart_event(1790000003, 0))),
            "0d000000000000003c37b834090000c0e04eacda413a02080166439b95");
  const Histogram histogram{
      .min = -1, .max = 3, .num = 5, .sum = 4, .sum_squares = 12.5, .limits = {0, 1, 3}, .counts = {1, 3, 1}};
  EXPECT_EQ(
      hex(encode_record(encode_summary_event(1790000004, int64_t{1} << 40, encode_histogram("w", histogram)))),
      "7a000000000000001389867809000000e14eacda41108080808080202a680a660a01772a6109000000000000f0bf1100000000000008"
      "4019000000000000144021000000000000104029000000000000294032180000000000000000000000000000f03f000000000000084"
      "03a18000000000000f03f0000000000000840000000000000f03f0ab4a1fd");
}

}  // namespace
}  // namespace yoke::train::detail
