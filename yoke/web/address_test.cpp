#include "yoke/web/address.h"

#include <gtest/gtest.h>

#include "yoke/base/error.h"

namespace yoke::web {
namespace {

TEST(Address, WhatIsMissingIsLoopbackAndTheUsualPort) {
  struct Case {
    const char* text;
    const char* address;
  };
  for (const auto& [text, address] : {Case{"", "127.0.0.1:19477"},
                                      {"9000", "127.0.0.1:9000"},
                                      {":9000", "127.0.0.1:9000"},
                                      {"0", "127.0.0.1:0"},
                                      {"localhost", "127.0.0.1:19477"},
                                      {"localhost:8", "127.0.0.1:8"},
                                      {"127.0.0.2", "127.0.0.2:19477"},
                                      {"0.0.0.0:9000", "0.0.0.0:9000"},
                                      {"10.1.2.3:65535", "10.1.2.3:65535"},
                                      {"::1", "[::1]:19477"},
                                      {"[::1]", "[::1]:19477"},
                                      {"[::]:9000", "[::]:9000"}}) {
    EXPECT_EQ(parse_address(text).to_string(), address) << text;
  }
}

TEST(Address, RefusesWhatItCannotListenOn) {
  for (const auto* text : {"gpu01:9000", "10.1.2.3:65536", "10.1.2.3:-1", "10.1.2.3:http", "1.2.3", "99999", "[::1",
                           "[::1]x:9", "::1:x", "::1:80", "fe80::1:9000", "10.1.2.3 :9", "http://127.0.0.1:9000"}) {
    EXPECT_THROW(parse_address(text), Error) << text;
  }
}

TEST(Address, KnowsLoopback) {
  EXPECT_TRUE(parse_address("").is_loopback());
  EXPECT_TRUE(parse_address("127.9.9.9:1").is_loopback());
  EXPECT_TRUE(parse_address("[::1]:1").is_loopback());
  EXPECT_FALSE(parse_address("0.0.0.0").is_loopback());
  EXPECT_FALSE(parse_address("[::]:1").is_loopback());
}

TEST(Address, NamesOfOtherSitesAreNoLocalHost) {
  for (const auto* host : {"", "localhost", "localhost:19477", "LOCALHOST", "LocalHost.:80", "localhost.", "127.0.0.1",
                           "127.0.0.1:19477", "[::1]", "[::1]:19477", "10.0.0.7:1", "[::ffff:127.0.0.1]:65535"}) {
    EXPECT_TRUE(is_local_host_header(host)) << host;
  }
  for (const auto* host : {"evil.example",
                           "evil.example:19477",
                           "localhost.evil.example",
                           "127.0.0.1.evil.example",
                           "[::1].evil.example",
                           "[::1].evil.example:19477",
                           "[::1",
                           "[::1]x",
                           "[localhost]",
                           "[]",
                           "::1",
                           ".",
                           ":80",
                           "localhost..",
                           "localhost:",
                           "localhost:80x",
                           "localhost:65536",
                           "localhost:-1",
                           "localhost:80:80",
                           "localhost evil.example",
                           "localhost,evil.example",
                           "127.0.0.1@evil.example"}) {
    EXPECT_FALSE(is_local_host_header(host)) << host;
  }
}

}  // namespace
}  // namespace yoke::web
