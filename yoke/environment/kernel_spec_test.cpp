#include "yoke/environment/kernel_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/command.h"
#include "yoke/base/error.h"

namespace yoke::environment {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;

KernelRequest request() {
  return {.name = "work",
          .python = "/data/env/bin/python",
          .environment = "/data/env",
          .yoke = "/opt/bin/yoke",
          .kernels_folder = "/opt/share/yoke/python/kernels"};
}

TEST(KernelSpec, StartsPythonInTheEnvironment) {
  const auto spec = json::parse(kernel_json(request()));
  EXPECT_THAT(spec["argv"], ElementsAre("/data/env/bin/python", "-m", "ipykernel_launcher", "-f", "{connection_file}"));
  EXPECT_EQ(spec["language"], "python");
  EXPECT_EQ(spec["display_name"], "work");
  EXPECT_EQ(spec["env"]["VIRTUAL_ENV"], "/data/env");
  EXPECT_EQ(spec["env"]["PATH"], "/data/env/bin:${PATH}") << "Jupyter replaces ${PATH}";
  EXPECT_FALSE(spec.contains("interrupt_mode"));
}

TEST(KernelSpec, HoldsAClaimWhileTheKernelLives) {
  auto wanted = request();
  wanted.devices = {.num_devices = 2, .length = "8h"};
  const auto spec = json::parse(kernel_json(wanted));
  EXPECT_THAT(spec["argv"],
              ElementsAre("/opt/bin/yoke", "jupyter", "start", "--name", "work", "--claim", "2", "--for", "8h", "--",
                          "/data/env/bin/python", "-m", "ipykernel_launcher", "-f", "{connection_file}"));
  EXPECT_EQ(spec["interrupt_mode"], "message");
  wanted.devices = {.chosen = "0,1"};
  EXPECT_THAT(json::parse(kernel_json(wanted))["argv"],
              ElementsAre("/opt/bin/yoke", "jupyter", "start", "--name", "work", "--devices", "0,1", "--",
                          "/data/env/bin/python", "-m", "ipykernel_launcher", "-f", "{connection_file}"));
}

TEST(KernelSpec, RunsInAContainer) {
  auto wanted = request();
  wanted.python = "python3";
  wanted.environment = "";
  wanted.container = {.image = "lab:1", .options = {"--engine", "docker", "-v", "/data:/data:ro"}};
  const auto text = kernel_json(wanted);
  const auto spec = json::parse(text);
  EXPECT_THAT(spec["argv"], ElementsAre("/opt/bin/yoke", "jupyter", "start", "--name", "work", "--image", "lab:1",
                                        "--engine", "docker", "-v", "/data:/data:ro", "--", "python3", "-m",
                                        "ipykernel_launcher", "-f", "{connection_file}"));
  EXPECT_EQ(spec["interrupt_mode"], "message") << "a signal would not reach the container's processes";
  EXPECT_FALSE(spec.contains("env"));
  EXPECT_EQ(parse_kernel(text)->image, "lab:1");
}

TEST(KernelSpec, KeepsValuesForItsUser) {
  const test::TemporaryFolder data;
  auto wanted = request();
  wanted.container = {.image = "lab:1", .options = {"-e", "HF_TOKEN"}, .variables = {{"HF_TOKEN", "s3cr$t"}}};
  const auto spec = json::parse(kernel_json(wanted));
  EXPECT_THAT(spec["argv"].dump(), Not(HasSubstr("s3cr"))) << "all users can read a command line";
  EXPECT_EQ(spec["env"]["HF_TOKEN"], "s3cr$$t") << "Jupyter replaces $t";
  const auto modes = [&] { return fs::status(install_kernel(wanted, data.path("kernels")) / "kernel.json"); };
  EXPECT_EQ(modes().permissions(), fs::perms::owner_read | fs::perms::owner_write);
  wanted.container->variables.clear();
  EXPECT_NE(modes().permissions() & fs::perms::group_read, fs::perms::none) << "the mode of new files is as before";
  EXPECT_TRUE(is_read_by_server("CUDA_VISIBLE_DEVICES"));
  EXPECT_FALSE(is_read_by_server("HF_TOKEN"));
}

TEST(KernelSpec, NamesThatJupyterWouldHideAreRefused) {
  const test::TemporaryFolder server;
  server.write("share/jupyter/kernels/ir/kernel.json", "{}");
  EXPECT_THROW(check_not_hidden("python3", {}), Error) << "it is Jupyter's own";
  EXPECT_NO_THROW(check_not_hidden("ir", {server.path()})) << "outside a virtual environment, the user's come first";
  server.write("pyvenv.cfg", "");
  EXPECT_THROW(check_not_hidden("ir", {server.path()}), Error);
  EXPECT_NO_THROW(check_not_hidden("work", {server.path()}));
}

TEST(KernelSpec, OfCppHasItsCompiledParts) {
  const test::TemporaryFolder data;
  const Environment environment = {{"JUPYTER_DATA_DIR", data.path()}, {"HOME", data.path("home")}};
  auto wanted = request();
  wanted.language = Language::kCpp;
  wanted.cpp_folder = cpp_folder("work", environment).string();
  EXPECT_EQ(wanted.cpp_folder, data.path("home/.local/share/yoke/cpp-kernel/work"));
  const auto spec = json::parse(kernel_json(wanted));
  EXPECT_THAT(spec["argv"], ElementsAre("/data/env/bin/python", "/opt/share/yoke/python/kernels/yoke_cpp_kernel.py",
                                        wanted.cpp_folder, "-f", "{connection_file}"));
  EXPECT_EQ(spec["language"], "c++");
  EXPECT_EQ(spec["interrupt_mode"], "message");
  data.write("home/.local/share/yoke/cpp-kernel/work/host", "");
  install_kernel(wanted, kernels_folder(environment));
  remove_kernel("work", environment);
  EXPECT_FALSE(fs::exists(wanted.cpp_folder));
}

TEST(KernelSpec, IsReadBack) {
  auto wanted = request();
  wanted.devices = {.num_devices = 2, .chosen = "0,1", .length = "8h"};
  wanted.display_name = "Work \"ä\"";
  const auto kernel = parse_kernel(kernel_json(wanted));
  ASSERT_TRUE(kernel);
  EXPECT_EQ(kernel->display_name, "Work \"ä\"");
  EXPECT_EQ(kernel->python, "/data/env/bin/python");
  EXPECT_EQ(kernel->environment, "/data/env");
  EXPECT_EQ(kernel->devices.num_devices, 2);
  EXPECT_EQ(kernel->devices.chosen, "0,1");
  EXPECT_EQ(kernel->devices.length, "8h");
  for (const char* text :
       {"", "[]", "{}", "{", R"({"metadata": []})", R"({"metadata": {"yoke": 1}})", R"({"metadata": {"yoke": {}}})",
        R"({"argv": ["python"], "metadata": {"debugger": true}})"}) {
    EXPECT_FALSE(parse_kernel(text)) << text;
  }
}

TEST(KernelSpec, FollowsTheRulesOfJupyter) {
  EXPECT_EQ(kernels_folder({{"HOME", "/home/ada"}}), "/home/ada/.local/share/jupyter/kernels");
  EXPECT_EQ(kernels_folder({{"HOME", "/home/ada"}, {"XDG_DATA_HOME", "/data"}}), "/data/jupyter/kernels");
  EXPECT_EQ(kernels_folder({{"HOME", "/home/ada"}, {"XDG_DATA_HOME", "/data"}, {"JUPYTER_DATA_DIR", "/j"}}),
            "/j/kernels");
  for (const char* name : {"work", "gpu-2.0_x", "3d"}) EXPECT_NO_THROW(check_kernel_name(name)) << name;
  for (const char* name : {"", "Work", "a b", "../x", ".x", "a/b", "ä"}) {
    EXPECT_THROW(check_kernel_name(name), Error) << name;
  }
}

TEST(KernelSpec, OfOthersAreLeftAlone) {
  const test::TemporaryFolder data;
  const fs::path folder = data.path("kernels");
  const Environment environment = {{"JUPYTER_DATA_DIR", data.path()}, {"HOME", data.path("home")}};
  const std::string foreign = R"({"argv": ["python3"], "display_name": "Python 3", "language": "python"})";
  data.write("kernels/python3/kernel.json", foreign);
  data.write("kernels/notes/readme.txt", "mine");
  install_kernel(request(), folder);
  auto again = request();
  again.display_name = "Again";
  install_kernel(again, folder);
  fs::create_directory_symlink(folder / "work", folder / "link");
  const auto listed = list_kernels(folder);
  ASSERT_THAT(listed, SizeIs(1));
  EXPECT_EQ(listed[0].name, "work");
  EXPECT_EQ(listed[0].display_name, "Again");
  for (const char* name : {"python3", "notes", "link"}) {
    auto other = request();
    other.name = name;
    if (std::string_view(name) != "link") {
      EXPECT_THROW(install_kernel(other, folder), Error) << name;
    }
    EXPECT_THROW(remove_kernel(name, environment), Error) << name;
  }
  EXPECT_EQ(test::slurp((folder / "python3/kernel.json").string()), foreign);
  EXPECT_EQ(test::slurp((folder / "notes/readme.txt").string()), "mine");
  remove_kernel("work", environment);
  EXPECT_FALSE(fs::exists(folder / "work"));
  EXPECT_THROW(remove_kernel("work", environment), Error);
}

}  // namespace
}  // namespace yoke::environment
