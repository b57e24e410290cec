// Tests `yoke env` with the real venv and pip, and with packages from a folder instead of a network.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>

#include "tests/support/fake_machine.h"
#include "yoke/base/text.h"

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
            .without = {"XDG_DATA_HOME", "VIRTUAL_ENV", "COLUMNS", "PYTHONPATH"},
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

/// A Python that makes an environment whose pip takes for ever.
constexpr const char* kSlowPython = R"sh(#!/bin/sh
while [ $# -gt 1 ]; do shift; done
mkdir -p "$1/bin"
cat > "$1/bin/python" << 'END'
#!/bin/sh
case $* in
  *' pip '*) echo begun >&2; exec sleep 1000 ;;
  *) echo '{"settings":{},"has_hashes":false,"versions":{},"unmet":[],"unread":"","torch_minors":null,"named":[]}' ;;
esac
END
chmod +x "$1/bin/python")sh";

TEST(Env, ASignalLeavesNothingOrSaysWhatIsLeft) {
  const Environments user;
  user.write("slow", "#!/bin/sh\necho begun\nexec sleep 1000\n", true);
  user.write("slow-pip", kSlowPython, true);
  user.write("requirements.txt", "yoketest\n");
  const auto interrupted = [&](const char* python, int signal) {
    Command command(user.options({"env", "create", "work", "--python", user.path(python), "-r", "requirements.txt"}));
    EXPECT_TRUE(command.wait_until([&] { return command.err().find("begun") != std::string::npos; })) << command.err();
    command.signal(signal);
    return command.wait();
  };
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    EXPECT_EQ(interrupted("slow", signal).exit_code, 128 + signal);
    EXPECT_FALSE(fs::exists(user.path("home/.local/share/yoke/env/work")));
  }
  const auto later = interrupted("slow-pip", SIGTERM);
  EXPECT_EQ(later.exit_code, 128 + SIGTERM);
  EXPECT_THAT(later.err,
              HasSubstr("interrupted; the same command goes on with what is in " +
                        user.path("home/.local/share/yoke/env/work") + ", and `yoke env remove work` removes it\n"));
  EXPECT_EQ(user.state_of_only(), "incomplete");
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

TEST(Env, AFolderThatIsNotUtf8IsListedAsJson) {
  const Environments user;
  user.write("home/.local/share/yoke/env/a\xff/yoke-environment.json",
             R"({"yoke_environment": 1, "stage": "ready", "created": 1, "packages": [], "index_url": ""})");
  const auto listed = user.yoke({"env", "list", "--json"});
  EXPECT_EQ(listed.exit_code, 0) << listed.err;
  EXPECT_EQ(Json::parse(listed.out).at("environments").at(0).at("name"), "a\xef\xbf\xbd");
}

TEST(Env, PrintsTheCommandsForTheDriver) {
  const Environments user;
  const auto print = [&](const Json& state, Words more) {
    user.write("state.json", state.dump());
    auto options = user.options({"env", "create", "x", "--print", "--deadline", "60"});
    options.argv.insert(options.argv.end(), more.begin(), more.end());
    options.environment.insert(options.environment.end(),
                               {{"YOKE_FAKE_NVML", user.path("state.json")}, {"LD_LIBRARY_PATH", YOKE_FAKES_FOLDER}});
    return run(options);
  };
  const auto printed = [&](const char* cuda) {
    return print({{"devices", 1}, {"cuda_version", cuda}}, {"--with", "torch"}).out;
  };
  EXPECT_THAT(printed("12.4"), AllOf(HasSubstr(" -m venv "), HasSubstr("--index-url https://download.pytorch.org/whl/"
                                                                       "cu126 'torch>=2.6,<2.15'\n")));
  EXPECT_THAT(printed("13.0"), HasSubstr("/cu130 'torch>=2.9'\n"));
  EXPECT_THAT(printed("11.4"), HasSubstr("/cu118 'torch>=2.0,<2.8'\n"));
  user.write("r.txt", "torch\n");
  EXPECT_THAT(print({{"devices", 1}, {"cuda_version", "11.0"}}, {"--with", "torch", "-r", "r.txt"}).out,
              AllOf(HasSubstr("/cu118 'torch>=2.0,<2.8'\n"), HasSubstr("-r " + user.path("r.txt") + " torch\n")))
      << "a plain torch in the file takes nothing away";
  const Json two = {{"devices", 2},
                    {"cuda_version", "12.8"},
                    {"overrides",
                     {{"0", {{"name", "RTX 4090"}, {"compute_capability", "8.9"}}},
                      {"1", {{"name", "RTX 5090"}, {"compute_capability", "12.0"}}}}}};
  const auto both = print(two, {"--with", "torch,torchvision"});
  EXPECT_THAT(both.out, HasSubstr("/cu128 'torch>=2.7,<2.12' torchvision\n"));
  EXPECT_THAT(both.err, HasSubstr("gpu 0 (RTX 4090) with 8.9, gpu 1 (RTX 5090) with 12.0"));
  // A driver that fails belongs to a machine with GPUs.
  for (const char* const failure : {"version_mismatch", "no_permission"}) {
    const auto result = print({{"devices", 1}, {"init", failure}}, {"--with", "torch"});
    EXPECT_EQ(result.exit_code, 75) << failure;
    EXPECT_EQ(result.out, "") << failure;
    EXPECT_THAT(result.err, AllOf(HasSubstr("NVIDIA: "), HasSubstr("--vendor cpu"))) << failure;
  }
  EXPECT_THAT(print({{"devices", 1}, {"init", "version_mismatch"}}, {"--with", "torch", "--vendor", "cpu"}).out,
              HasSubstr("/whl/cpu torch\n"));
  const auto amd =
      user.yoke({"env", "create", "x", "--with", "torch", "--print", "--sysroot", YOKE_FAKE_SYSFS "/lumi-g"});
  EXPECT_THAT(amd.out, HasSubstr("/whl/rocm")) << amd.err;
  EXPECT_THAT(user.yoke({"env", "create", "x", "--with", "tensorflow", "--print", "--vendor", "cpu"}).out,
              HasSubstr(" tensorflow-cpu\n"));
  EXPECT_EQ(user.yoke({"env", "create", "x", "--with", "jax", "--print"}).exit_code, 64);
  EXPECT_FALSE(fs::exists(user.path("home/.local"))) << "--print makes nothing";
}

/// Makes package indices as folders: "cu" as PyTorch's index for a driver, "pypi" with other builds, a site's "cpu",
/// and "cu128", whose content is not what its name says. Prints the hash of torch 2.3.1 in "pypi".
constexpr const char* kMakeIndices = R"(
import hashlib, os, sys, zipfile
hashes = {}
def wheel(index, name, version, *requires):
    folder = os.path.join(sys.argv[1], index, name)
    os.makedirs(folder, exist_ok=True)
    info = f"{name}-{version}.dist-info/"
    file = f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(folder, file), "w") as wheel:
        wheel.writestr(f"{name}/__init__.py", f"__version__ = '{version}'\n")
        needs = "".join(f"Requires-Dist: {one}\n" for one in requires)
        wheel.writestr(info + "METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}")
        wheel.writestr(info + "WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(info + "RECORD", "")
    hashes[index, name, version] = hashlib.sha256(open(os.path.join(folder, file), "rb").read()).hexdigest()
    with open(os.path.join(folder, "index.html"), "a") as page:
        print(f'<a href="{file.replace("+", "%2B")}">{file}</a>', file=page)
for version in "2.3.1", "2.7.1", "2.14.0": wheel("cu", "torch", version + "+cu126")
for version, torch in ("0.18.1", "2.3.1"), ("0.29.0", "2.14.0"): wheel("cu", "torchvision", version + "+cu126", "torch==" + torch)
for version in "2.3.1", "2.7.1", "2.14.0", "2.14.1": wheel("pypi", "torch", version)
for version, torch in ("0.18.1", "2.3.1"), ("0.29.1", "2.14.1"): wheel("pypi", "torchvision", version, "torch==" + torch)
wheel("pypi", "lightning", "2.5.0", "torch>=2.1")
wheel("pypi", "needsold", "1.0", "torch==2.3.1")
wheel("cpu", "torch", "2.14.1+cpu")
wheel("cu128", "torch", "2.11.0+cpu")
print(hashes["pypi", "torch", "2.3.1"])
)";

// Which torch an environment ends with, as its own Python says: for each form of requirements, and for the settings of
// pip that a site may have.
TEST(Env, EndsWithTheTorchThatWasChosen) {
  const Environments user;
  const auto hash = run({.argv = {"python3", "-c", kMakeIndices, user.path("index")}}).out;
  ASSERT_EQ(hash.size(), 65U);
  // venv takes seconds, so it works once; each environment is a copy of its work.
  ASSERT_EQ(run({.argv = {"python3", "-m", "venv", user.path("template")}}).exit_code, 0);
  user.write("python", "#!/bin/sh\nfor folder; do :; done\nexec cp -a " + user.path("template") + "/. \"$folder\"\n",
             true);
  const auto index = [&](const std::string& name) { return "file://" + user.path("index/" + name); };
  user.write("base.txt", "torch==2.3.1\n");
  user.write("site.conf", "[global]\nextra-index-url = " + index("cpu") + "\n");
  const std::string constraint = user.path("base.txt");
  const struct Row {
    const char* form;
    std::string text;
    std::pair<std::string, std::string> setting;
    std::string ends_with;  ///< torch and torchvision; or a part of the error.
    std::string with = "torch", index = "cu";
    bool is_long = false;  ///< Another spelling of what another row has. Each row takes 5 s, so these need YOKE_LONG.
  } rows[] = {
      {"a plain name", "torch\nlightning\n", {"PIP_EXTRA_INDEX_URL", index("cpu")}, "2.14.0+cu126 -"},
      {"capital letters",
       "Torch==2.3.1\nTorchVision==0.18.1\n",
       {"PIP_CONFIG_FILE", user.path("site.conf")},
       "2.3.1+cu126 0.18.1+cu126",
       "torch",
       "cu",
       true},
      {"a nested file",
       "-r base.txt\nlightning\n",
       {"PIP_TARGET", user.path("elsewhere")},
       "2.3.1+cu126 -",
       "torch",
       "cu",
       true},
      {"a constraint", "-c base.txt\nlightning\n", {"PIP_FIND_LINKS", user.path("index/cpu/torch")}, "2.3.1+cu126 -"},
      {"a constraint by variable",
       "lightning\n",
       {"PIP_CONSTRAINT", constraint},
       "2.3.1+cu126 0.18.1+cu126",
       "torch,torchvision",
       "cu",
       true},
      {"continued lines and markers",
       "torch==2.7.1 \\\n  ; python_version >= \"3.8\"\ntorch==2.3.1 ; python_version < \"3.8\"\n",
       {"PIP_PRE", "1"},
       "2.7.1+cu126 -",
       "torch",
       "cu",
       true},
      {"tabs, CRLF, a line twice",
       "torch==2.3.1\t# pinned\r\ntorch==2.3.1\r\n  torchvision\r\n",
       {"PIP_DRY_RUN", "1"},
       "2.3.1+cu126 0.18.1+cu126",
       "torch",
       "cu",
       true},
      {"a package that pins torch", "needsold\n", {}, "let your file name the version of torch"},
      {"hashes", "torch==2.3.1 \\\n    --hash=sha256:" + hash, {}, "2.3.1 -"},
      {"a build by name",
       "--extra-index-url " + index("cu") + "\ntorch==2.3.1+cu126\n",
       {},
       "2.3.1+cu126 -",
       "torch",
       "cu",
       true},
      {"another build in the index",
       "lightning\n",
       {},
       "has torch 2.11.0+cpu, and the build +cu128 was chosen",
       "torch",
       "cu128"},
  };
  // The files narrow the choice of the build: with this driver it would be cu130, which begins with 2.9.
  user.write("r.txt", "-c base.txt\nTorchVision\n");
  user.write("state.json", Json{{"devices", 1}, {"cuda_version", "13.0"}}.dump());
  auto print = user.options({"env", "create", "x", "--with", "torch", "-r", "r.txt", "--print", "--python",
                             user.path("template/bin/python"), "--deadline", "60"});
  print.environment.insert(print.environment.end(),
                           {{"YOKE_FAKE_NVML", user.path("state.json")}, {"LD_LIBRARY_PATH", YOKE_FAKES_FOLDER}});
  EXPECT_THAT(run(print).out, HasSubstr("/cu121 'torch>=2.1,<2.6,==2.3.1' torchvision\n"));

  int number = 0;
  for (const auto& row : rows) {
    if (row.is_long && std::getenv("YOKE_LONG") == nullptr) continue;
    const auto folder = "./env" + std::to_string(number++);
    user.write("r.txt", row.text);
    auto options = user.options({"env", "create", folder, "--with", row.with, "--index-url", index(row.index), "-r",
                                 "r.txt", "--python", user.path("python")});
    options.environment = {{"HOME", user.path("home")}, {"PIP_NO_CACHE_DIR", "1"}, {"PIP_INDEX_URL", index("pypi")}};
    options.without.insert(options.without.end(), {"PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL", "PIP_NO_INDEX"});
    if (row.setting.first != "PIP_CONFIG_FILE") options.environment.emplace_back("PIP_CONFIG_FILE", "/dev/null");
    if (!row.setting.first.empty()) options.environment.push_back(row.setting);
    const auto made = run(options);
    if (!is_digit(row.ends_with[0])) {
      EXPECT_EQ(made.exit_code, 69) << row.form;
      EXPECT_THAT(made.err, HasSubstr(row.ends_with)) << row.form;
      EXPECT_THAT(made.out, Not(HasSubstr("is ready"))) << row.form;
      continue;
    }
    EXPECT_EQ(made.exit_code, 0) << row.form << "\n" << made.err;
    constexpr const char* kAsk =
        "import torch\ntry:\n  import torchvision\n  print(torch.__version__, torchvision.__version__)\n"
        "except ImportError:\n  print(torch.__version__, '-')\n";
    EXPECT_EQ(run({.argv = {user.path(folder + "/bin/python"), "-c", kAsk}}).out, row.ends_with + "\n") << row.form;
    EXPECT_THAT(made.out, HasSubstr("is ready, with torch " + row.ends_with.substr(0, row.ends_with.find(' '))));
    if (row.form == std::string("hashes")) {
      EXPECT_THAT(made.err, HasSubstr("decides which torch is installed"));
    }
  }
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
