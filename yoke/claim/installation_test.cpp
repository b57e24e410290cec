#include "yoke/claim/installation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "tests/support/command.h"
#include "yoke/base/error.h"

namespace yoke::claim {
namespace {

using device::Finding;
using device::Status;
using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::Field;
using testing::HasSubstr;
using testing::Not;

auto finding(const char* id, Status status, const char* found) {
  return AllOf(Field(&Finding::id, id), Field(&Finding::status, status), Field(&Finding::found, HasSubstr(found)));
}

class ClaimInstallation : public testing::Test {
 protected:
  ClaimInstallation() {
    chmod(folder_.path().c_str(), 0755);
    std::filesystem::create_directory(locks_);
    chmod(locks_.c_str(), 01777);
  }

  std::vector<Finding> check(const char* config = "") {
    folder_.write("config.toml", config);
    options_.environment.set("YOKE_CLAIM_DIR", locks_);
    options_.environment.set("YOKE_SITE_CONFIG", folder_.path("config.toml"));
    return check_installation(options_);
  }

  test::TemporaryFolder folder_;
  const std::string locks_ = folder_.path("locks");
  InstallationOptions options_{.accounts = {{"uid 64001", 64001, 64001}, {"uid 64002", 64002, 64002}},
                               .environment = {},
                               .check_containers =
                                   [] {
                                     return std::vector<Finding>{{"of-containers", Status::kWarn, {}, "", ""}};
                                   },
                               .check_storage =
                                   [] {
                                     return std::vector<Finding>{{"of-storage", Status::kWarn, {}, "", ""}};
                                   }};
};

TEST_F(ClaimInstallation, IsTriedAsTwoUsersAndNothingIsLeft) {
  const auto findings = check();
  if (geteuid() != 0) {
    EXPECT_THAT(findings, Contains(finding("users", Status::kSkip, "only root can try")));
    return;
  }
  EXPECT_THAT(findings, Contains(finding("users", Status::kOk, "uid 64001 and uid 64002 see and exclude each other")));
  for (const auto& entry : std::filesystem::directory_iterator(locks_)) {
    EXPECT_EQ(entry.path().filename(), "yoke-alloc") << "it is left behind";
  }
}

TEST_F(ClaimInstallation, FindingsAreInOneOrder) {
  std::vector<std::string> ids;
  for (const auto& finding : check("[claim]\nlongest = '2h'\n")) ids.push_back(finding.id);
  ids.resize(7);
  EXPECT_THAT(ids, ElementsAre("config", "of-containers", "history", "lock-folder", "of-storage", "inotify", "clock"));
}

TEST_F(ClaimInstallation, AnUnsafeFolderOfLocksFails) {
  chmod(locks_.c_str(), 0777);
  const auto findings = check();
  EXPECT_THAT(findings, Contains(finding("lock-folder", Status::kFail, locks_.c_str())));
  EXPECT_THAT(findings, Not(Contains(finding("users", Status::kOk, ""))));
}

TEST_F(ClaimInstallation, AFileOfTheSiteThatKeepsUsersFromClaimingFails) {
  EXPECT_THAT(check("[claim]\nlongset = '2h'\n"), Contains(finding("config", Status::kFail, "longset")));
  EXPECT_THAT(check("[claim.users]\nno-such-user = 2\n"),
              Contains(finding("config", Status::kWarn, "[claim.users] names users that this machine does not know")));
  options_.check_containers = []() -> std::vector<Finding> { throw Error(ErrorCode::kDataLoss, "a wrong key"); };
  EXPECT_THAT(check(), Contains(finding("config", Status::kFail, "a wrong key")));
  chmod(folder_.path("config.toml").c_str(), 0600);
  const auto findings = check();
  EXPECT_THAT(findings, Contains(finding("config", Status::kFail, "cannot be read by all users")));
  EXPECT_THAT(findings, Not(Contains(Field(&Finding::id, "lock-folder")))) << "the limits are not known";
}

}  // namespace
}  // namespace yoke::claim
