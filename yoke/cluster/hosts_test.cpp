#include "yoke/cluster/hosts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/message_of.h"
#include "yoke/base/error.h"

namespace yoke::cluster {
namespace {

using test::message_of;
using testing::ElementsAre;
using testing::HasSubstr;

class Hostfile : public testing::Test {
 protected:
  std::filesystem::path write(const std::string& text) {
    std::ofstream(path_, std::ios::binary) << text;
    return path_;
  }
  ~Hostfile() override { std::filesystem::remove(path_); }
  std::filesystem::path path_ = testing::TempDir() + "/yoke-hosts-" + std::to_string(getpid());
};

TEST(Hosts, AreNamesListsAndCounts) {
  EXPECT_THAT(parse_hosts("a,me@b.example.org:4"),
              ElementsAre(HostEntry{"a", std::nullopt}, HostEntry{"me@b.example.org", 4}));
  EXPECT_THAT(parse_hosts("n[01-02]"), ElementsAre(HostEntry{"n01", std::nullopt}, HostEntry{"n02", std::nullopt}));
}

TEST(Hosts, MayBeAddressesOfIpv6) {
  EXPECT_THAT(
      parse_hosts("fd00::1,me@fd00::2,[fd00::3]:4,[fd00::4],n[1-2]:3"),
      ElementsAre(HostEntry{"fd00::1", std::nullopt}, HostEntry{"me@fd00::2", std::nullopt}, HostEntry{"fd00::3", 4},
                  HostEntry{"fd00::4", std::nullopt}, HostEntry{"n1", 3}, HostEntry{"n2", 3}));
}

TEST(Hosts, ThatAreMoreThanNamesAreRefused) {
  for (const char* text : {"-oProxyCommand=reboot", "a;reboot", "a b", "$(reboot)", "`reboot`", "a|b", "a'b", "a\"b",
                           "a\nb", "a/b", "\\a", "@a", "a*", "a\x1b[31m", "a&b", "a>b"}) {
    EXPECT_NE(message_of([&] { parse_hosts(text); }), "(nothing thrown)") << text;
  }
  EXPECT_THAT(message_of([] { parse_hosts("a:0"); }), HasSubstr("'0' is not a number of ranks"));
  EXPECT_THAT(message_of([] { parse_hosts("a,b,a"); }), HasSubstr("host a is named twice"));
  EXPECT_NE(message_of([] { parse_hosts(std::string(300, 'a')); }), "(nothing thrown)");
}

TEST(Hosts, ThatAreMissingOrNoListAreRefused) {
  for (const char* text :
       {"", ",", "a,", "a,,b", "n[1-2", "n1]", "n[2-1]", "n[]", "n[1-70000]", "[fd00::1", ":4", "me@"}) {
    EXPECT_NE(message_of([&] { parse_hosts(text); }), "(nothing thrown)") << text;
  }
  EXPECT_EQ(message_of([] { parse_hosts("n[1-3],n2"); }), "host n2 is named twice; give it more ranks by n2:N");
}

TEST(Hosts, HaveAsManyRanksAsAMachineCanHave) {
  EXPECT_THAT(parse_hosts("a:1,b:65536"), ElementsAre(HostEntry{"a", 1}, HostEntry{"b", 65'536}));
  for (const char* text :
       {"a:65537", "a:-1", "a:", "a:4x", "a:0x4", "a:1e2", "a:99999999999999999999", "[fd00::1]:0"}) {
    EXPECT_THAT(message_of([&] { parse_hosts(text); }), HasSubstr("is not a number of ranks from 1 to 65536")) << text;
  }
}

TEST_F(Hostfile, HasALineForEachHost) {
  EXPECT_THAT(read_hostfile(write("# mine\na slots=8 max_slots=8\r\n\n  b:2  # the small one\nc")),
              ElementsAre(HostEntry{"a", 8}, HostEntry{"b", 2}, HostEntry{"c", std::nullopt}));
}

TEST_F(Hostfile, MayHaveListsAndAddresses) {
  EXPECT_THAT(read_hostfile(write("node[1-2] slots=4\nfd00::1\n[fd00::2] slots=2\n")),
              ElementsAre(HostEntry{"node1", 4}, HostEntry{"node2", 4}, HostEntry{"fd00::1", std::nullopt},
                          HostEntry{"fd00::2", 2}));
}

TEST_F(Hostfile, SaysWhichLineIsWrong) {
  EXPECT_THAT(message_of([&] { read_hostfile(write("a\nb;reboot\n")); }),
              HasSubstr(":2: 'b;reboot' is not a valid host name"));
  EXPECT_THAT(message_of([&] { read_hostfile(write("a slots=many\n")); }),
              HasSubstr("'many' is not a number of ranks"));
  EXPECT_THAT(message_of([&] { read_hostfile(write("a fast\n")); }), HasSubstr("'fast' is unknown"));
  EXPECT_THAT(message_of([&] { read_hostfile(write("# none\n")); }),
              HasSubstr("lists no host; write one in each line: HOST, or HOST slots=N"));
  EXPECT_THAT(message_of([&] { read_hostfile(write(std::string("a\0b\n", 4))); }),
              HasSubstr("is not a valid host name"));
  EXPECT_THAT(message_of([&] { read_hostfile(write("a\nn[1-2]\n\nn2 slots=2\n")); }), HasSubstr("n2 is named twice"));
  EXPECT_THAT(message_of([&] { read_hostfile(write("a\nn[1-2\n")); }), HasSubstr(":2: host list 'n[1-2'"));
  EXPECT_THAT(message_of([] { read_hostfile("/no/such/file"); }, ErrorCode::kNotFound), HasSubstr("/no/such/file"));
}

}  // namespace
}  // namespace yoke::cluster
