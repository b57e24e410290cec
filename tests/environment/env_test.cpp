// Tests `yoke env` with the real venv and pip, and with packages from a folder instead of a network.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>

#include "tests/support/fake_machine.h"

namespace yoke::test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;
using Words = std::vector<std::string>;

/// Writes a wheel of a package with one module: python3 -c ... FOLDER NAME
constexpr const char* kMakeWheel = R"(
import sys, zipfile
folder, name = sys.argv[1:]
info = f"{name}-1.0.dist-info/"
with zipfile.ZipFile(f"{folder}/{name}-1.0-py3-none-any.whl", "w") as wheel:
    wheel.writestr(f"{name}.py", f"print('this is {name}')\n")
    wheel.writestr(info + "METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    wheel.writestr(info + "WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    wheel.writestr(info + "RECORD", "")
)";

struct Environments : TemporaryFolder {
  Environments() { fs::create_directory(path("wheels")); }
  CommandOptions options(Words words) const {
    words.insert(words.begin(), YOKE_COMMAND);
    return {.argv = std::move(words),
            .environment = {{"HOME", path("home")},
                            {"PIP_NO_INDEX", "1"},
                            {"PIP_FIND_LINKS", path("wheels")},
                            {"PIP_NO_CACHE_DIR", "1"}},
            .without = {"XDG_DATA_HOME", "VIRTUAL_ENV", "COLUMNS"},
            .folder = path()};
  }
  Result yoke(Words words) const { return run(options(std::move(words))); }
  void make_wheel(const std::string& name) const {
    ASSERT_EQ(run({.argv = {"python3", "-c", kMakeWheel, path("wheels"), name}}).exit_code, 0);
  }
  std::string state_of_only() const {
    const auto listed = Json::parse(yoke({"env", "list", "--json"}).out).at("environments");
    return listed.size() == 1 ? listed[0].at("state").get<std::string>() : "not one";
  }
};

TEST(Env, IsMadeListedUsedAndRemoved) {
  const Environments user;
  user.make_wheel("yoketest");
  user.write("requirements.txt", "yoketest\n");
  const auto made = user.yoke({"env", "create", "work", "-r", "requirements.txt"});
  ASSERT_EQ(made.exit_code, 0) << made.err;
  EXPECT_THAT(made.out, AllOf(HasSubstr("is ready"), HasSubstr("yoke env run work -- python")));
  EXPECT_THAT(made.err, AllOf(HasSubstr("step 1 of 2"), HasSubstr("step 2 of 2"), HasSubstr("yoketest")));
  EXPECT_EQ(user.state_of_only(), "ready");
  EXPECT_THAT(user.yoke({"env", "list"}).out, AllOf(StartsWith("NAME"), HasSubstr("work"), HasSubstr("ready")));
  EXPECT_EQ(user.yoke({"env", "run", "work", "--", "python", "-c", "import yoketest"}).out, "this is yoketest\n");
  EXPECT_EQ(user.yoke({"env", "run", "work", "python", "-c", "import sys; sys.exit(7)"}).exit_code, 7);
  EXPECT_EQ(user.yoke({"env", "run", "work", "--", "no-such-program"}).exit_code, 127);
  EXPECT_EQ(user.yoke({"env", "run", "work", "--", "sh", "-c", "echo $VIRTUAL_ENV"}).out,
            user.path("home/.local/share/yoke/env/work") + "\n");
  const auto again = user.yoke({"env", "create", "work"});
  EXPECT_EQ(again.exit_code, 69);
  EXPECT_THAT(again.err, HasSubstr("`yoke env remove` removes it"));
  EXPECT_EQ(user.yoke({"env", "remove", "work"}).exit_code, 0);
  EXPECT_FALSE(fs::exists(user.path("home/.local/share/yoke/env/work")));
  EXPECT_EQ(user.yoke({"env", "remove", "work"}).exit_code, 66);
}

TEST(Env, GoesOnAfterAFailure) {
  const Environments user;
  user.write("requirements.txt", "yoketest\n");
  const auto failed = user.yoke({"env", "create", "./venv", "-r", "requirements.txt"});
  EXPECT_EQ(failed.exit_code, 69);
  EXPECT_THAT(failed.err, AllOf(HasSubstr("No matching distribution found for yoketest"), HasSubstr("misspelt name")));
  user.make_wheel("yoketest");
  const auto second = user.yoke({"env", "create", "./venv", "-r", "requirements.txt"});
  EXPECT_EQ(second.exit_code, 0) << second.err;
  EXPECT_EQ(user.yoke({"env", "run", "./venv", "--", "python", "-c", "import yoketest"}).out, "this is yoketest\n");
  EXPECT_EQ(user.yoke({"env", "remove", "./venv"}).exit_code, 0);
  EXPECT_FALSE(fs::exists(user.path("venv")));
}

TEST(Env, IsNotReadyIfItsPythonIsSomethingElse) {
  const Environments user;
  const auto result = user.yoke({"env", "create", "work", "--python", "/bin/true"});
  EXPECT_EQ(result.exit_code, 69);
  EXPECT_THAT(result.err, HasSubstr("/bin/true ended without an error, and made no "));
  EXPECT_EQ(user.state_of_only(), "incomplete");
}

TEST(Env, IsIncompleteAfterAnInterruption) {
  const Environments user;
  user.write("slow", "#!/bin/sh\necho begun\nexec sleep 1000\n", true);
  Command command(user.options({"env", "create", "work", "--python", user.path("slow")}));
  ASSERT_TRUE(command.wait_until([&] { return command.err().find("begun") != std::string::npos; }));
  EXPECT_EQ(user.state_of_only(), "being made");
  EXPECT_EQ(user.yoke({"env", "remove", "work"}).exit_code, 75) << "another command works on it";
  command.signal(SIGKILL);
  command.wait();
  ASSERT_TRUE(wait_until([&] { return user.state_of_only() == "incomplete"; }));
  EXPECT_EQ(user.yoke({"env", "remove", "work"}).exit_code, 0);
}

TEST(Env, NamesThePackageThatDebianLacks) {
  const Environments user;
  user.write("python",
             "#!/bin/sh\necho 'The virtual environment was not created successfully because ensurepip is not'\n"
             "echo 'available.  On Debian/Ubuntu systems, you need to install the python3-venv'\nexit 1\n",
             true);
  const auto result = user.yoke({"env", "create", "work", "--python", user.path("python")});
  EXPECT_EQ(result.exit_code, 69);
  EXPECT_THAT(result.err, HasSubstr("sudo apt install python3-venv"));
}

TEST(Env, LeavesAloneWhatIsNotItsOwn) {
  const Environments user;
  user.write("mine/file", "x");
  EXPECT_EQ(user.yoke({"env", "create", "./mine"}).exit_code, 69);
  EXPECT_EQ(user.yoke({"env", "remove", "./mine"}).exit_code, 69);
  user.write("home/.local/share/yoke/env/foreign/file", "x");
  EXPECT_EQ(user.yoke({"env", "remove", "foreign"}).exit_code, 69);
  for (const char* name : {"..", ".", "../env", "-x", ".hidden", "a b"}) {
    EXPECT_NE(user.yoke({"env", "remove", "--", name}).exit_code, 0) << name;
  }
  EXPECT_EQ(slurp(user.path("mine/file")), "x");
  EXPECT_EQ(slurp(user.path("home/.local/share/yoke/env/foreign/file")), "x");
}

TEST(Env, PrintsTheCommandsForTheDriver) {
  const Environments user;
  const auto printed = [&](const char* cuda) {
    user.write("state.json", Json{{"devices", 1}, {"cuda_version", cuda}}.dump());
    auto options = user.options({"env", "create", "x", "--with", "torch", "--print", "--deadline", "60"});
    options.environment.insert(options.environment.end(),
                               {{"YOKE_FAKE_NVML", user.path("state.json")}, {"LD_LIBRARY_PATH", YOKE_FAKES_FOLDER}});
    return run(options).out;
  };
  EXPECT_THAT(printed("12.4"), AllOf(HasSubstr(" -m venv "), HasSubstr("--index-url https://download.pytorch.org/whl/"
                                                                       "cu126 torch\n")));
  EXPECT_THAT(printed("13.0"), HasSubstr("/cu130 torch\n"));
  EXPECT_THAT(printed("11.4"), HasSubstr("/cu118 'torch<2.8'\n"));
  const auto amd =
      user.yoke({"env", "create", "x", "--with", "torch", "--print", "--sysroot", YOKE_FAKE_SYSFS "/lumi-g"});
  EXPECT_THAT(amd.out, HasSubstr("/whl/rocm")) << amd.err;
  EXPECT_THAT(user.yoke({"env", "create", "x", "--with", "tensorflow", "--print", "--vendor", "cpu"}).out,
              HasSubstr(" tensorflow-cpu\n"));
  EXPECT_FALSE(fs::exists(user.path("home"))) << "--print makes nothing";
}

TEST(Env, AWorkingFolderThatWasRemovedIsNoInternalError) {
  const TemporaryFolder folder;
  const auto result =
      run({.argv = {"sh", "-c", R"(mkdir "$1/gone" && cd "$1/gone" && rmdir "$1/gone" && exec "$2" env create ./x)",
                    "sh", folder.path(), YOKE_COMMAND}});
  EXPECT_EQ(result.exit_code, 66) << result.err;
  EXPECT_EQ(result.err, "yoke env create: ./x: No such file or directory\n");
}

}  // namespace
}  // namespace yoke::test
