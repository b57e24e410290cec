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

TEST(Hostlist, RefusesWhatItCannotRead) {
  for (const auto* text : {"", ",", "n1,", "n[1", "n1]", "n[]", "n[3-1]", "n[a-b]", "n[1-]", "n[0-99999999]",
                           "n[1-300][1-300]", "n[99999999999999999999]"}) {
    EXPECT_THROW(expand_hostlist(text), Error) << text;
  }
}

}  // namespace
}  // namespace yoke
