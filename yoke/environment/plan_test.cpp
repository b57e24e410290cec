#include "yoke/environment/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "yoke/base/error.h"

namespace yoke::environment {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(Plan, NamesStayInTheirFolder) {
  for (const char* name : {"torch", "Torch-2.11_cu130", "3d"}) EXPECT_NO_THROW(check_name(name)) << name;
  for (const char* name : {"", ".", "..", ".hidden", "-r", "a/b", "../x", "a b", "a\nb", "ä", "a;b"}) {
    EXPECT_THROW(check_name(name), Error) << name;
  }
  EXPECT_THROW(check_name(std::string(65, 'a')), Error);
  EXPECT_NO_THROW(check_name(std::string(64, 'a')));
  for (const char* word : {"./x", "/x", "a/", ".", ".."}) EXPECT_TRUE(is_folder(word)) << word;
  EXPECT_FALSE(is_folder("x"));
}

TEST(Plan, AnEnvironmentIsMadeAndFilledByItsOwnPip) {
  const auto steps = steps_of({.folder = "/data/env",
                               .python = "/usr/bin/python3",
                               .requirements = "/home/ada/requirements.txt",
                               .packages = {{{"torch<2.12"}, "https://index/cu128", ""}}});
  ASSERT_EQ(steps.size(), 3U);
  EXPECT_THAT(steps[0].argv, ElementsAre("/usr/bin/python3", "-m", "venv", "/data/env"));
  EXPECT_EQ(steps[0].kind, Step::Kind::kVenv);
  EXPECT_THAT(steps[1].argv, ElementsAre("/data/env/bin/python", "-m", "pip", "install", "--disable-pip-version-check",
                                         "--index-url", "https://index/cu128", "torch<2.12"));
  EXPECT_EQ(steps[1].purpose, "install torch<2.12 from https://index/cu128");
  EXPECT_THAT(steps[2].argv, ElementsAre("/data/env/bin/python", "-m", "pip", "install", "--disable-pip-version-check",
                                         "-r", "/home/ada/requirements.txt"));
  EXPECT_EQ(steps_of({.folder = "/data/env", .python = "python3"}).size(), 1U);
}

TEST(Plan, FailuresHaveANextStep) {
  using Kind = Step::Kind;
  // The first is what Debian's python3 says without python3-venv, the others are pip's.
  EXPECT_THAT(advice_for(Kind::kVenv,
                         "The virtual environment was not created successfully because ensurepip is not\n"
                         "available.  On Debian/Ubuntu systems, you need to install the python3-venv\n"),
              HasSubstr("apt install python3-venv"));
  EXPECT_THAT(advice_for(Kind::kInstall, "ERROR: No matching distribution found for numpyy"), HasSubstr("misspelt"));
  EXPECT_THAT(advice_for(Kind::kInstall, "OSError: [Errno 28] No space left on device"), HasSubstr("make room"));
  EXPECT_THAT(advice_for(Kind::kInstall, "something new"), HasSubstr("run the same command again"));
}

TEST(Plan, ActivationIsThatOfTheScript) {
  const auto environment = activated({{"PATH", "/bin"}, {"PYTHONHOME", "/x"}}, "/data/env");
  EXPECT_EQ(environment.find("PATH"), "/data/env/bin:/bin");
  EXPECT_EQ(environment.find("VIRTUAL_ENV"), "/data/env");
  EXPECT_EQ(environment.find("PYTHONHOME"), std::nullopt);
}

}  // namespace
}  // namespace yoke::environment
