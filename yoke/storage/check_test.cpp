#include "yoke/storage/check.h"

#include <gtest/gtest.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "tests/support/command.h"

namespace yoke::storage {
namespace {

using device::Status;

TEST(StorageCheck, RootTriesEachRootAsTwoUsers) {
  const test::TemporaryFolder folder;
  const auto* const daemon = getpwnam("daemon");
  ASSERT_NE(daemon, nullptr);
  const site::Account user{"daemon", daemon->pw_uid, daemon->pw_gid}, number{"uid 64001", 64001, 64001};
  const Environment environment = {{"YOKE_SITE_CONFIG", folder.path("config.toml")}};
  const auto status_of = [&](const std::string& config, const std::vector<site::Account>& accounts) {
    folder.write("config.toml", config);
    const auto findings = check_roots(accounts, environment);
    return findings.size() == 1 ? findings[0].status : Status::kFail;
  };
  EXPECT_EQ(status_of("[storage.data]\npath = '/data/{usr}'\n", {user}), Status::kFail);
  folder.write("config.toml", "");
  EXPECT_TRUE(check_roots({user}, environment).empty()) << "the site has no roots";

  const auto scratch = folder.path("scratch");
  std::filesystem::create_directory(scratch);
  const auto config = "[storage.scratch]\npath = '" + scratch + "/{user}'\n";
  if (geteuid() != 0) {
    EXPECT_EQ(status_of(config, {user}), Status::kSkip) << "only root can be another user";
    return;
  }
  chmod(folder.path().c_str(), 0755);
  EXPECT_EQ(status_of(config + "create = true\n", {user}), Status::kWarn) << "daemon may not write there";
  chmod(scratch.c_str(), 01777);
  EXPECT_EQ(status_of(config + "create = true\n", {user}), Status::kOk);
  EXPECT_EQ(status_of(config + "create = true\n", {number}), Status::kSkip) << "a number has no folder";
  EXPECT_EQ(status_of(config, {user}), Status::kWarn) << "nobody makes the folder";
  std::filesystem::create_directory(scratch + "/daemon");
  EXPECT_EQ(status_of(config, {user}), Status::kWarn) << "it is root's";
  ASSERT_EQ(chown((scratch + "/daemon").c_str(), daemon->pw_uid, daemon->pw_gid), 0);
  EXPECT_EQ(status_of(config, {user}), Status::kOk);
}

}  // namespace
}  // namespace yoke::storage
