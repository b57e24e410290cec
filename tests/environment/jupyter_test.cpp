// Tests `yoke jupyter` with real kernels, which jupyter_client starts as Jupyter does (drive_kernel.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "tests/claim/machine.h"

namespace yoke::test {
namespace {

using testing::HasSubstr;
using Words = std::vector<std::string>;

/// The Python with jupyter_client and ipykernel: see scripts/test. Empty: there is none.
std::string jupyter_python() {
  const char* const python = std::getenv("YOKE_JUPYTER_PYTHON");
  return python == nullptr ? "" : python;
}

struct Notebooks : ClaimMachine {
  CommandOptions in_tree(Words words) const {
    auto options = yoke(std::move(words));
    options.argv[0] = YOKE_COMMAND;  // the copy of the command lacks what is in share
    options.environment.emplace_back("JUPYTER_DATA_DIR", path("jupyter"));
    options.environment.emplace_back("JUPYTER_RUNTIME_DIR", path("runtime"));
    options.environment.emplace_back("IPYTHONDIR", path("ipython"));
    return options;
  }
  Result command(Words words) const { return run(in_tree(std::move(words))); }
  /// Installs the kernel "work" for the Python with ipykernel.
  void install(Words options) const {
    const auto folder = std::filesystem::path(jupyter_python()).parent_path().parent_path().string();
    options.insert(options.begin(), {"jupyter", "install", "--name", "work", "--env", folder});
    const auto result = command(std::move(options));
    ASSERT_EQ(result.exit_code, 0) << result.err;
  }
  void drive(const std::string& scenario) const {
    auto options = in_tree({"x"});
    options.argv = {jupyter_python(), YOKE_DRIVE_KERNEL, scenario, YOKE_COMMAND, "work"};
    const auto result = run(options);
    EXPECT_EQ(result.out, "passed\n") << result.err;
  }
};

struct Kernels : testing::Test {
  void SetUp() override {
    if (jupyter_python().empty()) GTEST_SKIP() << "YOKE_JUPYTER_PYTHON is not set";
  }
  Notebooks machine;
};

TEST(KernelSpecs, AreRefusedForMoreDevicesThanThereAre) {
  const Notebooks machine;
  const auto result = machine.command({"jupyter", "install", "--name", "work", "--claim", "9"});
  EXPECT_EQ(result.exit_code, 69);
  EXPECT_THAT(result.err, HasSubstr("--claim 9: this machine has 8 devices, so the kernel could never start"));
}

TEST_F(Kernels, HoldAClaimUntilTheyCrash) {
  machine.install({"--claim", "2"});
  machine.drive("claim");
}

TEST_F(Kernels, EndWithTheProcessThatKeepsTheirClaim) {
  machine.install({"--claim", "1"});
  machine.drive("keeper");
}

TEST_F(Kernels, EndWithTheServer) {
  machine.install({"--claim", "1"});
  machine.drive("server");
}

TEST_F(Kernels, AreInterruptedRestartedAndEnded) {
  machine.install({"--claim", "2"});
  machine.drive("restart");
}

TEST_F(Kernels, SayWhyTheyHaveNoDevices) {
  machine.install({"--claim", "2"});
  Command other(machine.yoke(ClaimMachine::claim_and_wait({"-n", "7"})));
  ASSERT_TRUE(other.wait_for_output("started"));
  machine.drive("refused");
}

TEST_F(Kernels, HaveTheDevicesThatWereChosen) {
  machine.install({"--devices", "3"});
  machine.drive("chosen");
}

TEST_F(Kernels, WithoutDevicesClaimNone) {
  machine.install({});
  machine.drive("unclaimed");
}

TEST_F(Kernels, ShowTheStatusOfAJobAsLines) {
  machine.install({});
  machine.drive("status_line");
}

TEST_F(Kernels, AreListedAndRemoved) {
  machine.write("jupyter/kernels/python3/kernel.json", R"({"argv": ["python3"], "language": "python"})");
  machine.install({"--claim", "2", "--display-name", "Two GPUs"});
  const auto kernels = Json::parse(machine.command({"jupyter", "list", "--json"}).out).at("kernels");
  ASSERT_EQ(kernels.size(), 1);
  EXPECT_EQ(kernels[0].at("name"), "work");
  EXPECT_EQ(kernels[0].at("display_name"), "Two GPUs");
  EXPECT_EQ(kernels[0].at("num_devices"), 2);
  EXPECT_EQ(kernels[0].at("state"), "ready");
  EXPECT_THAT(machine.command({"jupyter", "list"}).out, HasSubstr("2 claimed"));
  EXPECT_EQ(machine.command({"jupyter", "remove", "python3"}).exit_code, 69);
  EXPECT_EQ(machine.command({"jupyter", "remove", "work"}).exit_code, 0);
  EXPECT_EQ(machine.command({"jupyter", "remove", "work"}).exit_code, 66);
  EXPECT_TRUE(std::filesystem::exists(machine.path("jupyter/kernels/python3/kernel.json")));
}

TEST(Jupyter, RefusesWhatCannotWork) {
  const Notebooks machine;
  const auto install_in = [&](const char* variable) {
    machine.write("bare/bin/python", std::string("#!/bin/sh\n") + variable + " exec python3 -S \"$@\"\n");
    std::filesystem::permissions(machine.path("bare/bin/python"), std::filesystem::perms::all);
    return machine.command({"jupyter", "install", "--name", "x", "--env", machine.path("bare")});
  };
  const auto bare = install_in("PYTHONPATH=");
  EXPECT_EQ(bare.exit_code, 69);
  EXPECT_THAT(bare.err, HasSubstr("lacks the package ipykernel"));
  EXPECT_THAT(bare.err, HasSubstr("--install-ipykernel"));
  machine.write("broken/ipykernel/__init__.py", "raise ImportError('libzmq.so.5: no such file')\n");
  const auto broken = install_in(("PYTHONPATH=" + machine.path("broken")).c_str());
  EXPECT_EQ(broken.exit_code, 69);
  EXPECT_THAT(broken.err, HasSubstr("cannot import ipykernel, which runs its cells (ImportError: libzmq.so.5"));
  machine.write("old/ipykernel/__init__.py", "version_info = (5, 5)\n__version__ = '5.5'\n");
  machine.write("old/ipykernel/kernelapp.py", "");
  EXPECT_THAT(install_in(("PYTHONPATH=" + machine.path("old")).c_str()).err, HasSubstr("5.5 is older than 6"));
  const auto hidden = machine.command({"jupyter", "install", "--name", "python3", "--env", machine.path("bare")});
  EXPECT_EQ(hidden.exit_code, 64);
  EXPECT_THAT(hidden.err, HasSubstr("its Jupyter prefers; give another name"));
  EXPECT_EQ(machine.command({"jupyter", "install", "--name", "../x"}).exit_code, 64);
  EXPECT_EQ(machine.command({"jupyter", "install", "--name", "x", "--env", "none-such"}).exit_code, 66);
  EXPECT_EQ(machine.command({"jupyter", "install", "--name", "x", "--for", "8h"}).exit_code, 64);
  EXPECT_EQ(machine.command({"jupyter"}).exit_code, 64);
  EXPECT_THAT(machine.command({"jupyter", "instal"}).err, HasSubstr("did you mean `install`?"));
  EXPECT_FALSE(std::filesystem::exists(machine.path("jupyter/kernels")));
}

}  // namespace
}  // namespace yoke::test
