#include "yoke/site/account.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pwd.h>
#include <unistd.h>

#include "yoke/base/error.h"

namespace yoke::site {
namespace {

TEST(SiteAccounts, AreTwoOrdinaryUsersOrNumbers) {
  const auto accounts = find_accounts({});
  ASSERT_EQ(accounts.size(), 2U);
  EXPECT_NE(accounts[0].uid, accounts[1].uid);
  for (const auto& account : accounts) {
    EXPECT_GE(account.uid, 1000U);
    const auto* const entry = getpwuid(account.uid);
    EXPECT_EQ(has_user(account), entry != nullptr) << account.name;
    EXPECT_EQ(account.name, entry != nullptr ? entry->pw_name : "uid " + std::to_string(account.uid));
  }
}

TEST(SiteAccounts, MayBeNamed) {
  const auto accounts = find_accounts({"daemon", "nobody"});
  ASSERT_EQ(accounts.size(), 2U);
  EXPECT_EQ(accounts[0].uid, getpwnam("daemon")->pw_uid);
  EXPECT_EQ(accounts[1].name, "nobody");
  EXPECT_THROW(find_accounts({"no-such-user", "daemon"}), Error);
  EXPECT_THROW(find_accounts({"root", "daemon"}), Error);
}

TEST(SiteAccounts, WorkIsDoneByOneWhoMayBecomeTheUser) {
  const auto* const self = getpwuid(geteuid());
  Account account{.name = self != nullptr ? self->pw_name : "uid", .uid = geteuid(), .gid = getegid()};
  if (geteuid() == 0) account = {.name = "uid 64001", .uid = 64001, .gid = 64001};
  const auto text = as_user(account, [] { return std::to_string(geteuid()) + "/" + std::to_string(getgid()); });
  if (geteuid() != 0) {
    EXPECT_THAT(text, testing::StartsWith("cannot become ")) << "only root may set groups";
    return;
  }
  EXPECT_EQ(text, "64001/64001");
  EXPECT_EQ(as_user(account, []() -> std::string { throw Error(ErrorCode::kNotFound, "it is gone"); }), "it is gone");
  EXPECT_EQ(as_user(account, []() -> std::string { _exit(1); }), "") << "it ended without an answer";
}

}  // namespace
}  // namespace yoke::site
