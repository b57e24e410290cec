#include "yoke/claim/inherit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "yoke/base/error.h"

namespace yoke::claim {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(Inherit, IsAllThatIsHeldOrWhatWasAskedFor) {
  const InheritRequest all = {.held = {"2", "5", "7"}};
  EXPECT_THAT(choose_inherited(all), ElementsAre(0, 1, 2));
  auto two = all;
  two.num_devices = 2;
  EXPECT_THAT(choose_inherited(two), ElementsAre(0, 1));
  auto named = all;
  named.only = {"7", "2"};
  EXPECT_THAT(choose_inherited(named), ElementsAre(0, 2));
  named.num_devices = 1;
  EXPECT_THAT(choose_inherited(named), ElementsAre(2));
}

TEST(Inherit, LeavesDevicesToOtherHeirsWhereThatIsPossible) {
  InheritRequest request = {.held = {"2", "5", "7"}, .heirs = {{.pid = 9, .positions = {0}}}, .num_devices = 1};
  EXPECT_THAT(choose_inherited(request), ElementsAre(1));
  request.heirs.push_back({.pid = 10, .positions = {1, 2}});
  EXPECT_THAT(choose_inherited(request), ElementsAre(0)) << "all are used, so they are shared";
}

TEST(Inherit, IsNeverMoreThanTheClaimHas) {
  const auto refusal = [](const InheritRequest& request) -> std::string {
    try {
      choose_inherited(request);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kFailedPrecondition);
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(refusal({.held = {"2", "5"}, .num_devices = 3, .holder = 41}),
              HasSubstr("3 devices are wanted, and the claim under which this runs (process 41) has devices 2, 5"));
  EXPECT_THAT(refusal({.held = {"2"}, .only = {{"0"}}}), HasSubstr("device 0 is wanted, and the claim"));
  EXPECT_THAT(refusal({.held = {"2", "5"}, .num_devices = 2, .only = {{"5"}}}), HasSubstr("nothing else was claimed"));
}

}  // namespace
}  // namespace yoke::claim
