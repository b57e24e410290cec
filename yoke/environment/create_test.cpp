#include "yoke/environment/create.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "tests/support/command.h"
#include "tests/support/message_of.h"
#include "yoke/base/file.h"
#include "yoke/environment/store.h"

namespace yoke::environment {
namespace {

namespace fs = std::filesystem;
using test::message_of;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

constexpr const char* kFacts = R"({"settings": {"index-url": "https://mirror"}, "has_hashes": false,
  "versions": {"torch": "2.14.0+cu126"}, "unmet": [], "unread": "", "torch_minors": null, "named": []})";

/// A Python that makes environments with a copy of itself, and notes what pip is asked for. tests/environment has a
/// real one.
class CreateEnvironment : public testing::Test {
 protected:
  CreateEnvironment() {
    folder_.write("facts", kFacts);
    make_python(R"(mkdir -p "$4/bin" && cp "$0" "$4/bin/python")");
  }
  void make_python(const std::string& venv) const {
    folder_.write("bin/python3",
                  "#!/bin/sh\nexport PATH=/usr/bin:/bin\ncase \"$2 $3\" in\n\"-m venv\") " + venv +
                      ";;\n\"-m pip\") shift 3; echo \"$*\" >>" + folder_.path("pip") + ";;\n*) cat " +
                      folder_.path("facts") + ";;\nesac\n",
                  true);
  }
  CreateOptions options() {
    return {.target = folder_.path("work"),
            .script = "yoke_environment.py",
            .environment = {{"PATH", folder_.path("bin")}, {"HOME", folder_.path()}},
            .read_drivers = []() -> Drivers { throw Error(ErrorCode::kUnavailable, "the drivers do not answer"); },
            .tell = [this](Told /*what*/, const std::string& text) { news_.push_back(text); }};
  }

  test::TemporaryFolder folder_;
  std::vector<std::string> news_;
};

TEST_F(CreateEnvironment, MakesAnEmptyOneOnce) {
  const auto created = create_environment(options());
  EXPECT_EQ(created.folder, folder_.path("work"));
  EXPECT_EQ(created.promised, "");
  EXPECT_EQ(read_mark(created.folder).value().stage, Stage::kReady);
  EXPECT_THAT(news_, ElementsAre("step 1 of 1: make the environment " + folder_.path("work")));
  EXPECT_THAT(message_of([&] { create_environment(options()); }, ErrorCode::kFailedPrecondition),
              HasSubstr("exists; `yoke env remove` removes it"));
}

TEST_F(CreateEnvironment, InstallsAndPromisesWhatIsThereAtTheEnd) {
  folder_.write("requirements.txt", "numpy\n");
  auto wanted = options();
  wanted.with = {"torch"};
  wanted.index_url = "https://index/cu126";
  wanted.requirements = folder_.path("requirements.txt");
  EXPECT_EQ(create_environment(wanted).promised, ", with torch 2.14.0+cu126");
  const auto pip = read_file(folder_.path("pip"));
  EXPECT_THAT(pip, HasSubstr("--index-url https://index/cu126 torch"));
  EXPECT_THAT(pip, HasSubstr("-r " + folder_.path("requirements.txt") + " torch"));
  EXPECT_EQ(read_file(constraints_of(folder_.path("work"))), "torch==2.14.0+cu126\n");
  EXPECT_THAT(news_, testing::Contains(StartsWith("step 3 of 3: install what ")));
}

TEST_F(CreateEnvironment, AFailureIsExplainedAndTheSameCallGoesOn) {
  make_python("echo No module named ensurepip; exit 1");
  EXPECT_THAT(message_of([&] { create_environment(options()); }, ErrorCode::kFailedPrecondition),
              StartsWith(folder_.path("work") + ": venv: the program ended with status 1; "));
  EXPECT_EQ(read_mark(folder_.path("work")).value().stage, Stage::kCreating);
  make_python("true");
  EXPECT_THAT(message_of([&] { create_environment(options()); }, ErrorCode::kFailedPrecondition),
              HasSubstr("ended without an error, and made no "));
  make_python(R"(mkdir -p "$4/bin" && cp "$0" "$4/bin/python")");
  EXPECT_NO_THROW(create_environment(options()));
}

TEST_F(CreateEnvironment, RefusesWhatItCannotMake) {
  folder_.write("work/file", "");
  EXPECT_THAT(message_of([&] { create_environment(options()); }, ErrorCode::kFailedPrecondition),
              HasSubstr("exists, and `yoke env create` has not made it"));
  auto missing = options();
  missing.python = "python9";
  EXPECT_THAT(message_of([&] { create_environment(missing); }, ErrorCode::kNotFound), HasSubstr("no Python python9"));
  auto silent = options();
  silent.with = {"torch"};
  EXPECT_EQ(message_of([&] { plan_environment(silent); }, ErrorCode::kUnavailable), "the drivers do not answer");
}

volatile std::sig_atomic_t num_interrupts = 0;

TEST_F(CreateEnvironment, ASignalUndoesWhatWasBegun) {
  make_python("kill -INT $PPID");
  const auto before = std::signal(SIGINT, [](int) { num_interrupts = num_interrupts + 1; });
  EXPECT_THROW(create_environment(options()), Error);
  std::signal(SIGINT, before);
  EXPECT_EQ(num_interrupts, 1) << "it acts when all is undone";
  EXPECT_FALSE(fs::exists(folder_.path("work")));
}

}  // namespace
}  // namespace yoke::environment
