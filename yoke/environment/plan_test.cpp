#include "yoke/environment/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "yoke/base/error.h"

namespace yoke::environment {
namespace {

using testing::AllOf;
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
  CreateRequest request = {.folder = "/data/env",
                           .python = "/usr/bin/python3",
                           .requirements = "/home/ada/requirements.txt",
                           .packages = {{.requirements = {{"torch", "<2.12"}, {"torchvision", ""}},
                                         .index_url = "https://index/cu128",
                                         .build = "cu128",
                                         .reason = ""}}};
  const auto steps = steps_of(request);
  ASSERT_EQ(steps.size(), 3U);
  EXPECT_THAT(steps[0].argv, ElementsAre("/usr/bin/python3", "-I", "-m", "venv", "/data/env"));
  EXPECT_EQ(steps[0].kind, Step::Kind::kVenv);
  EXPECT_THAT(steps[1].argv,
              ElementsAre("/data/env/bin/python", "-I", "-m", "pip", "install", "--disable-pip-version-check",
                          "--index-url", "https://index/cu128", "torch<2.12", "torchvision"));
  EXPECT_EQ(steps[1].indices, Indices::kOnlyGiven);
  EXPECT_EQ(steps[1].purpose, "install torch<2.12, torchvision from https://index/cu128");
  EXPECT_THAT(steps[2].argv,
              ElementsAre("/data/env/bin/python", "-I", "-m", "pip", "install", "--disable-pip-version-check", "-c",
                          "/data/env/yoke-constraints.txt", "--extra-index-url", "https://index/cu128", "-r",
                          "/home/ada/requirements.txt", "torch", "torchvision"));
  EXPECT_EQ(steps[2].indices, Indices::kAll);
  request.has_hashes = true;
  EXPECT_EQ(steps_of(request)[2].argv.back(), "/home/ada/requirements.txt") << "pip would demand a hash of torch";
  request = {.folder = "/data/env", .python = "python3", .requirements = "/r.txt", .names = {"torch"}};
  EXPECT_THAT(steps_of(request)[1].argv, ElementsAre("/data/env/bin/python", "-I", "-m", "pip", "install",
                                                     "--disable-pip-version-check", "-r", "/r.txt", "torch"));
  EXPECT_EQ(steps_of({.folder = "/data/env", .python = "python3"}).size(), 1U);
}

TEST(Plan, WhatWasPromisedIsThereAtTheEnd) {
  const auto problem = [](const CreateRequest& request, const std::map<std::string, std::string>& chosen,
                          const PipFacts& at_end) -> std::string {
    try {
      check_kept(request, chosen, at_end);
      return "";
    } catch (const Error& error) {
      return error.what();
    }
  };
  const CreateRequest request = {.folder = "/env", .requirements = "r.txt", .names = {"torchvision"}};
  PipFacts at_end = {.versions = {{"torch", "2.14.0+cu126"}, {"torchvision", "0.29.0+cu126"}}};
  EXPECT_EQ(problem(request, {{"torch", "2.14.0+cu126"}}, at_end), "");
  EXPECT_THAT(problem(request, {{"torch", "2.13.0+cu126"}}, at_end),
              AllOf(HasSubstr("torch 2.14.0+cu126 at the end"), HasSubstr("torch 2.13.0+cu126 was chosen")));
  EXPECT_THAT(problem(request, {{"tensorflow", "2.20"}}, at_end), HasSubstr("no tensorflow at the end"));
  at_end.unmet = {"lightning (-r r.txt (line 2))"};
  EXPECT_THAT(problem(request, {}, at_end), HasSubstr("lacks what its requirements name"));
  at_end.versions.erase("torchvision");
  EXPECT_THAT(problem(request, {}, at_end), HasSubstr("/env has no torchvision; name it in r.txt"));
}

TEST(Plan, FailuresHaveANextStep) {
  using Kind = Step::Kind;
  // The first is what Debian's python3 says without python3-venv, the others are pip's.
  EXPECT_THAT(advice_for(Kind::kVenv,
                         "The virtual environment was not created successfully because ensurepip is not\n"
                         "available.  On Debian/Ubuntu systems, you need to install the python3-venv\n"),
              HasSubstr("apt install python3-venv"));
  EXPECT_THAT(advice_for(Kind::kInstall, "ERROR: No matching distribution found for numpyy"), HasSubstr("misspelt"));
  for (const auto kind : {Kind::kVenv, Kind::kInstall}) {
    EXPECT_THAT(advice_for(kind, "OSError: [Errno 28] No space left on device"), HasSubstr("make room"));
    EXPECT_THAT(advice_for(kind, "something new"), HasSubstr("run the same command again"));
  }
  EXPECT_THAT(advice_for(Kind::kVenv, ""), HasSubstr("--python")) << "there are no lines above";
}

TEST(Plan, ActivationIsThatOfTheScript) {
  const auto environment = activated({{"PATH", "/bin"}, {"PYTHONHOME", "/x"}}, "/data/env");
  EXPECT_EQ(environment.find("PATH"), "/data/env/bin:/bin");
  EXPECT_EQ(environment.find("VIRTUAL_ENV"), "/data/env");
  EXPECT_EQ(environment.find("PYTHONHOME"), std::nullopt);
}

}  // namespace
}  // namespace yoke::environment
