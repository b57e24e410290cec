#include "yoke/cli/frame/missing_program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/command.h"

namespace yoke::cli {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using yoke::test::TemporaryFolder;

std::string reason(const TemporaryFolder& folder) {
  const auto libexec = std::filesystem::path(folder.path("libexec/yoke"));
  return why_missing({.executable = folder.path("bin/yoke"), .libexec = libexec, .share = folder.path("share/yoke")},
                     libexec / "yoke-bench", "yoke_tool_bench");
}

TEST(MissingProgram, IsBuiltByATargetOfTheBuildTree) {
  const TemporaryFolder folder;
  folder.write("CMakeCache.txt", "# This is the CMakeCache file.\nYOKE_TESTS:BOOL=ON\nYOKE_TORCH:BOOL=ON\n");
  EXPECT_EQ(reason(folder), folder.path("libexec/yoke/yoke-bench") + " is not built yet; cmake --build " +
                                folder.path() + " --target yoke_tool_bench");
}

TEST(MissingProgram, NeedsAnotherBuildIfThisOneIsWithoutLibtorch) {
  const TemporaryFolder folder;
  folder.write("CMakeCache.txt", "YOKE_TESTS:BOOL=ON\nYOKE_TORCH:BOOL=OFF\n");
  EXPECT_THAT(reason(folder), HasSubstr(" is a build without libtorch (YOKE_TORCH=OFF); "));
  EXPECT_THAT(reason(folder), EndsWith(" --target yoke yoke_tool_bench"));
}

TEST(MissingProgram, OfAnInstallationWasNotInItsBuild) {
  const TemporaryFolder folder;
  EXPECT_THAT(reason(folder), HasSubstr("where it came by pip, `pip install yoke-torch`, otherwise"));
  EXPECT_THAT(reason(folder), Not(HasSubstr("cmake --build")));
}

}  // namespace
}  // namespace yoke::cli
