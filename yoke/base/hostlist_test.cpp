#include "yoke/base/hostlist.h"

#include <gtest/gtest.h>

#include "yoke/base/error.h"

namespace yoke {
namespace {

using Hosts = std::vector<std::string>;

TEST(Hostlist, ExpandsWhatSlurmWrites) {
  EXPECT_EQ(expand_hostlist("localhost"), Hosts{"localhost"});
  EXPECT_EQ(expand_hostlist("n1,n2"), (Hosts{"n1", "n2"}));
  EXPECT_EQ(expand_hostlist("nid[005123-005125]"), (Hosts{"nid005123", "nid005124", "nid005125"}));
  EXPECT_EQ(expand_hostlist("n[01-02,7],login"), (Hosts{"n01", "n02", "n7", "login"}));
  EXPECT_EQ(expand_hostlist("r[1-2]n[3-4]-ib"), (Hosts{"r1n3-ib", "r1n4-ib", "r2n3-ib", "r2n4-ib"}));
  EXPECT_EQ(expand_hostlist("n[9-11]"), (Hosts{"n9", "n10", "n11"}));
}

TEST(Hostlist, ExpandsTenThousandNodes) {
  const auto hosts = expand_hostlist("n[00001-09000],r[1-2,07-10]-g[0-1],gpu[001-988]");
  ASSERT_EQ(hosts.size(), 9000U + 12 + 988);
  EXPECT_EQ(hosts.front(), "n00001");
  EXPECT_EQ(hosts[9000], "r1-g0");
  EXPECT_EQ(hosts[9005], "r07-g1");
  EXPECT_EQ(hosts.back(), "gpu988");
}

TEST(Hostlist, ExpandsNumbersOfNodes) {
  EXPECT_EQ(expand_counts("2(x3),1"), (std::vector<int64_t>{2, 2, 2, 1}));
  EXPECT_EQ(expand_counts("4"), std::vector<int64_t>{4});
  EXPECT_EQ(expand_counts("1(x10000)").size(), 10'000U);
  for (const auto* text : {"", "a", "2(x", "2(x3", "2(x0)", "-1", "1(x70000)", "1,"}) {
    EXPECT_TRUE(expand_counts(text).empty()) << text;
  }
}

TEST(Hostlist, RefusesWhatItCannotRead) {
  for (const auto* text : {"", ",", "n1,", "n[1", "n1]", "n[]", "n[3-1]", "n[a-b]", "n[1-]", "n[0-99999999]",
                           "n[1-300][1-300]", "n[99999999999999999999]"}) {
    EXPECT_THROW(expand_hostlist(text), Error) << text;
  }
}

}  // namespace
}  // namespace yoke
