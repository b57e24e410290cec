#include <gtest/gtest.h>

#include "yoke/tui/sampler.h"

namespace yoke::tui {
namespace {

TEST(Host, LoadHasThreeNumbers) {
  EXPECT_EQ(parse_loadavg("12.10 0.84 10.26 3/1234 56789\n"), (std::array{12.10, 0.84, 10.26}));
  for (const char* text : {"", "1.0 2.0", "a b c", "-1 0 0"}) EXPECT_EQ(parse_loadavg(text), std::nullopt) << text;
}

TEST(Host, SwapIsWhatIsNotFree) {
  const auto host = parse_meminfo("MemTotal:  100 kB\nSwapCached:  7 kB\nSwapTotal:   8192 kB\nSwapFree:  8000 kB\n");
  EXPECT_EQ(host.swap_total_bytes, 8192 * 1024);
  EXPECT_EQ(host.swap_used_bytes, 192 * 1024);
}

TEST(Host, WhatIsNotToldIsNotKnown) {
  for (const char* text :
       {"", "SwapTotal: 5 kB\n", "SwapTotal: x\nSwapFree: 1 kB\n", "SwapTotal: 1 kB\nSwapFree: 2 kB\n"}) {
    EXPECT_EQ(parse_meminfo(text), Host{}) << text;
  }
  EXPECT_EQ(read_host("/nonexistent"), Host{});
}

}  // namespace
}  // namespace yoke::tui
