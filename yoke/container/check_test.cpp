#include "yoke/container/check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pwd.h>

#include "tests/support/command.h"
#include "yoke/base/error.h"

namespace yoke::container {
namespace {

using testing::ElementsAre;
using testing::Field;
using testing::HasSubstr;
using testing::IsEmpty;

class ContainerCheck : public testing::Test {
 protected:
  std::vector<device::Finding> check(const std::string& config, std::vector<site::Account> accounts) const {
    folder_.write("config.toml", config);
    return check_rules(accounts, {{"PATH", folder_.path("bin")}, {"YOKE_SITE_CONFIG", folder_.path("config.toml")}});
  }

  test::TemporaryFolder folder_;
  const std::vector<site::Account> numbers_ = {{"64001", 64001, 64001}, {"64002", 64002, 64002}};
};

TEST_F(ContainerCheck, UsersCanDoAllByGoodRules) { EXPECT_THAT(check("", numbers_), IsEmpty()); }

TEST_F(ContainerCheck, WarnsOfWhatIsNotThere) {
  EXPECT_THAT(
      check("[container]\ndefault_engine = 'docker'\ndefault_image = '/none/lab.sif'\n", numbers_),
      ElementsAre(Field(&device::Finding::found, HasSubstr("default_engine is docker, which is not in PATH")),
                  Field(&device::Finding::found, HasSubstr("default_image is /none/lab.sif, which does not exist"))));
}

TEST_F(ContainerCheck, WarnsOfUsersWithoutSubordinateIdsForPodman) {
  folder_.write("bin/podman", "#!/bin/sh\n", true);
  const auto* const daemon = getpwnam("daemon");
  ASSERT_NE(daemon, nullptr);
  EXPECT_THAT(check("", {{"daemon", daemon->pw_uid, daemon->pw_gid}, numbers_[0]}),
              ElementsAre(Field(&device::Finding::id, "containers")))
      << "a number has no subordinate ids, and is not asked";
}

TEST_F(ContainerCheck, WrongRulesAreAnError) {
  EXPECT_THROW(check("[container]\ndefault_engin = 'podman'\n", numbers_), Error);
}

}  // namespace
}  // namespace yoke::container
