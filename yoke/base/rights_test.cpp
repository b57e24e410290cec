#include "yoke/base/rights.h"

#include <grp.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/command.h"
#include "yoke/base/error.h"
#include "yoke/base/file.h"

namespace yoke {
namespace {

TEST(Rights, OwnOnesChangeNothing) {
  int num_calls = 0;
  with_rights({.uid = geteuid(), .gid = 4321}, [&] { num_calls += getegid() == 4321 ? 100 : 1; });
  EXPECT_EQ(num_calls, 1);
}

TEST(Rights, OfAPeerAreThoseOfItsProcess) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  const UniqueFd near(ends[0]), far(ends[1]);
  const auto rights = rights_of_peer(near.value());
  ASSERT_TRUE(rights);
  EXPECT_EQ(rights->uid, geteuid());
  EXPECT_EQ(rights->gid, getegid());
  std::vector<gid_t> groups(static_cast<size_t>(getgroups(0, nullptr)));
  ASSERT_EQ(getgroups(static_cast<int>(groups.size()), groups.data()), static_cast<int>(groups.size()));
  EXPECT_EQ(rights->groups, groups);
  EXPECT_FALSE(rights_of_peer(-1));
}

TEST(Rights, OfAnotherUserAreTakenForAMoment) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to be somebody else";
  const test::TemporaryFolder folder;
  chmod(folder.path().c_str(), 0755);
  for (const auto& [name, mode] : {std::pair("root", 0600), std::pair("group", 0640)}) {
    folder.write(name, "x");
    chmod(folder.path(name).c_str(), static_cast<mode_t>(mode));
  }
  ASSERT_EQ(chown(folder.path("group").c_str(), 0, 4400), 0);
  const Rights somebody{.uid = 4321, .gid = 4321, .groups = {4400}};
  EXPECT_THROW(with_rights(somebody, [&] { read_file(folder.path("root")); }), Error);
  std::string text;
  with_rights(somebody, [&] { text = read_file(folder.path("group")); });
  EXPECT_EQ(text, "x");
  EXPECT_THROW(with_rights({.uid = 4321, .gid = 4321, .groups = {}}, [&] { read_file(folder.path("group")); }), Error);
  EXPECT_EQ(read_file(folder.path("root")), "x") << "and the own ones are back";
}

}  // namespace
}  // namespace yoke
