#include "yoke/contract/profile_protocol.h"

#include <gtest/gtest.h>

namespace yoke {
namespace {

TEST(ProfileProtocol, ReadsWhatItWrites) {
  const ProfileHello hello{
      .rank = 2, .world_size = 8, .local_world_size = 4, .pid = 4121, .start_ticks = 99, .attempt = 1, .num_steps = 17};
  EXPECT_EQ(parse_hello(to_line(hello)), hello);
  for (const auto detail : {ProfileDetail::kOperations, ProfileDetail::kAnnotations, ProfileDetail::kShapes}) {
    const ProfileRequest request{.folder = "/tmp/a \"b\"\n", .first = 7, .warmup = 2, .active = 6, .detail = detail};
    EXPECT_EQ(parse_request(to_line(request)), request);
    EXPECT_EQ(to_line(request).find('\n'), std::string::npos);
  }
  for (const auto& news : {ProfileNews{.num_steps = 3}, ProfileNews{.trace = "/tmp/rank0.json"},
                           ProfileNews{.failure = "the disk is full"}}) {
    EXPECT_EQ(parse_news(to_line(news)), news);
  }
}

TEST(ProfileProtocol, RefusesAnythingElse) {
  for (const auto* line : {"", "{", "[]", "3", "null", "{\"rank\":0}", "{\"trace\":3}", "{\"num_steps\":\"x\"}"}) {
    EXPECT_FALSE(parse_hello(line)) << line;
    EXPECT_FALSE(parse_request(line)) << line;
    EXPECT_FALSE(parse_news(line)) << line;
  }
  ProfileHello hello{.rank = 4, .world_size = 4};
  EXPECT_FALSE(parse_hello(to_line(hello))) << "rank 4 of 4";
}

}  // namespace
}  // namespace yoke
