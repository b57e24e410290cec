#include "yoke/container/cdi.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/support/command.h"
#include "yoke/base/error.h"

namespace yoke::container {
namespace {

TEST(Cdi, ReadsWhatToolsWrite) {
  const std::vector<CdiDevice> expected = {{"nvidia.com/gpu", "0", {"/dev/nvidia0", "/dev/dri/card1"}},
                                           {"nvidia.com/gpu", "all", {"/dev/nvidia0"}}};
  // The layout of nvidia-ctk.
  EXPECT_EQ(parse_cdi("---\n"
                      "cdiVersion: 0.5.0\n"
                      "containerEdits:\n"
                      "  deviceNodes:\n"
                      "  - path: /dev/nvidiactl\n"
                      "  hooks:\n"
                      "  - args:\n"
                      "    - nvidia-cdi-hook\n"
                      "    - create-symlinks\n"
                      "    - --link\n"
                      "    - ../libcuda.so.1::/usr/lib/libcuda.so # a comment\n"
                      "    hookName: createContainer\n"
                      "    path: /usr/bin/nvidia-cdi-hook\n"
                      "  mounts:\n"
                      "  - containerPath: /usr/bin/nvidia-smi\n"
                      "    options:\n"
                      "    - ro\n"
                      "devices:\n"
                      "- containerEdits:\n"
                      "    deviceNodes:\n"
                      "    - path: /dev/nvidia0\n"
                      "    - hostPath: /dev/dri/card1\n"
                      "      path: /dev/dri/card1\n"
                      "  name: \"0\"\n"
                      "- containerEdits:\n"
                      "    deviceNodes:\n"
                      "    - path: /dev/nvidia0\n"
                      "  name: all\n"
                      "kind: nvidia.com/gpu\n",
                      "f"),
            expected);
  // Items that are indented, and on lines of their own.
  EXPECT_EQ(parse_cdi("kind: 'nvidia.com/gpu'\n"
                      "devices:\n"
                      "  -\n"
                      "    name: '0'\n"
                      "    containerEdits:\n"
                      "      deviceNodes:\n"
                      "        - path: /dev/nvidia0\n"
                      "        - path: /dev/dri/card1\n"
                      "  - name: all\n"
                      "    annotations: {}\n"
                      "    containerEdits:\n"
                      "      mounts:\n"
                      "        - containerPath: /dev/nvidia0\n",
                      "f"),
            expected);
  // The layout of amd-ctk is JSON.
  const auto amd = parse_cdi(R"({"cdiVersion": "0.6.0", "kind": "amd.com/gpu", "devices": [
      {"name": "0", "containerEdits": {"deviceNodes": [{"path": "/dev/kfd"}, {"path": "/dev/dri/renderD128"}]}}]})",
                             "f");
  EXPECT_EQ(amd, (std::vector<CdiDevice>{{"amd.com/gpu", "0", {"/dev/kfd", "/dev/dri/renderD128"}}}));
}

TEST(Cdi, ReadsAllFormsOfYaml) {
  const std::vector<CdiDevice> expected = {{"a/b", "0", {"/dev/nvidia0"}}};
  EXPECT_EQ(
      parse_cdi("kind: &x a/b\ndevices: [{name: 0, containerEdits: {deviceNodes: [{path: \"\\x2fdev/nvidia0\"}]}}]\n",
                "f"),
      expected);
  // Each level has two aliases of the one below, so the whole text would be too large.
  std::string text = "a0: &a0 [x, x]\n";
  for (int i = 1; i < 30; ++i) text += fmt::format("a{0}: &a{0} [*a{1}, *a{1}]\n", i, i - 1);
  EXPECT_THROW(parse_cdi(text, "f"), Error);
}

TEST(Cdi, RefusesWhatItDoesNotUnderstand) {
  for (const auto* text : {"devices:\n- name: 0\n", "kind: a/b\ndevices:\n- path: x\n", "kind a/b\n",
                           "{\"kind\": ", "kind: a/b\ndevices: [{name: 0}\n", "devices: &x [*x]\n", "[1]: a\n",
                           "kind: a/b\n  more: x\n", "kind: \"a/b\ndevices:\n- name: x\n"}) {
    EXPECT_THROW(parse_cdi(text, "f"), Error) << text;
  }
  EXPECT_TRUE(parse_cdi("", "f").empty());
  EXPECT_TRUE(read_cdi({"/no/such/folder"}).devices.empty());
}

TEST(Cdi, SaysWhatIsLeftOutAndWhy) {
  const test::TemporaryFolder folder;
  const auto write = [&](const char* file, const char* name, const char* node) {
    folder.write(file,
                 fmt::format("kind: nvidia.com/gpu\ndevices: [{{name: '{}', containerEdits: {{deviceNodes: [{{path: "
                             "{}}}]}}}}]\n",
                             name, node));
  };
  write("etc/a.yaml", "0", "/dev/nvidia0");
  write("etc/b.yaml", "0", "/dev/nvidia0");
  write("etc/c.yaml", "1", "/dev/nvidia7");
  write("run/d.yaml", "1", "/dev/nvidia1");
  folder.write("run/e.yaml", "kind: [\n");
  std::filesystem::create_directories(folder.path("run/f.yaml"));
  const auto registry = read_cdi({folder.path("etc"), folder.path("run")});
  EXPECT_EQ(registry.devices, (std::vector<CdiDevice>{{"nvidia.com/gpu", "1", {"/dev/nvidia1"}}}))
      << "a later folder has priority";
  ASSERT_EQ(registry.problems.size(), 3U);
  EXPECT_EQ(registry.problems[0],
            fmt::format("nvidia.com/gpu=0 is in {} and {}, so engines give it to nobody; remove one of them",
                        folder.path("etc/a.yaml"), folder.path("etc/b.yaml")));
  EXPECT_TRUE(registry.problems[1].starts_with(folder.path("run/e.yaml") + " is no CDI specification: "));
  EXPECT_NE(registry.problems[2].find(folder.path("run/f.yaml")), std::string::npos) << registry.problems[2];
}

TEST(Cdi, NodesOfGpus) {
  for (const auto* path : {"/dev/nvidia0", "/dev/nvidia15", "/dev/dri/renderD128"}) EXPECT_TRUE(is_gpu_node(path));
  for (const auto* path : {"/dev/nvidiactl", "/dev/nvidia", "/dev/nvidia-uvm", "/dev/nvidia0x", "/dev/dri/card0", ""}) {
    EXPECT_FALSE(is_gpu_node(path)) << path;
  }
}

}  // namespace
}  // namespace yoke::container
