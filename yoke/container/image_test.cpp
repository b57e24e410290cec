#include "yoke/container/image.h"

#include <gtest/gtest.h>

#include "yoke/base/error.h"

namespace yoke::container {
namespace {

using Words = std::vector<std::string>;

TEST(Image, ShortNamesOfVendors) {
  EXPECT_EQ(full_image_name("ngc/pytorch:25.05-py3"), "nvcr.io/nvidia/pytorch:25.05-py3");
  EXPECT_EQ(full_image_name("ngc/pytorch@sha256:12"), "nvcr.io/nvidia/pytorch@sha256:12");
  EXPECT_EQ(full_image_name("rocm/pytorch"), "docker.io/rocm/pytorch:latest");
  EXPECT_EQ(full_image_name("rocm/pytorch:rocm6.4"), "docker.io/rocm/pytorch:rocm6.4");
  for (const auto* name : {"debian:12", "ada/mine", "localhost:5000/ngc/pytorch", "/images/lab.sif", "rocm/other"}) {
    EXPECT_EQ(full_image_name(name), name);
  }
  EXPECT_THROW(full_image_name("ngc/pytorch"), Error) << "there is no tag latest";
  EXPECT_THROW(full_image_name("ngc/pytorhc:1"), Error);
}

TEST(Image, ApptainerGetsFilesAndRegistries) {
  EXPECT_EQ(image_for(EngineKind::kApptainer, "debian:12"), "docker://debian:12");
  EXPECT_EQ(image_for(EngineKind::kApptainer, "oras://a/b"), "oras://a/b");
  EXPECT_EQ(image_for(EngineKind::kApptainer, "/"), "/");
  EXPECT_THROW(image_for(EngineKind::kApptainer, "./no-such.sif"), Error);
  EXPECT_EQ(image_for(EngineKind::kPodman, "debian:12"), "debian:12");
}

TEST(Image, AFileIsNotLookedUpInRegistries) {
  for (const auto* name : {"lab.sif", "images/lab.img", "lab.simg", "lab.sqsh", "/lab", "./lab", "../no-such-lab"}) {
    EXPECT_TRUE(names_file(name)) << name;
    for (const auto engine : {EngineKind::kPodman, EngineKind::kDocker, EngineKind::kApptainer}) {
      EXPECT_THROW(image_for(engine, name), Error) << name;
    }
  }
  for (const auto* name : {"lab", "ada/lab:1", "localhost:5000/lab", "oras://ghcr.io/ada/lab.sif", "lab.sif:1", ""}) {
    EXPECT_FALSE(names_file(name)) << name;
  }
  EXPECT_THROW(image_for(EngineKind::kDocker, "/"), Error) << "a folder is for Apptainer";
}

TEST(Image, TheEntryPointComesBeforeTheCommand) {
  const auto facts = parse_image_facts(R"([{"Config": {"Entrypoint": ["/entry"], "Cmd": ["sh", "-l"]}}])");
  const Engine podman{.kind = EngineKind::kPodman};
  EXPECT_EQ(program_of(podman, facts, {}), (Words{"/entry", "sh", "-l"}));
  EXPECT_EQ(program_of(podman, facts, {"id"}), (Words{"/entry", "id"}));
  const auto bare = parse_image_facts(R"({"Config": {"Entrypoint": null}})");
  EXPECT_EQ(program_of(podman, bare, {"id"}), (Words{"id"}));
  EXPECT_THROW(program_of(podman, bare, {}), Error);
  EXPECT_THROW(parse_image_facts("[]"), Error);
  EXPECT_EQ(program_of({.kind = EngineKind::kApptainer}, {}, {}), (Words{"/.singularity.d/runscript"}));
}

TEST(Image, OnlyAMissingImageIsMissing) {
  const std::pair<const char*, bool> rows[] = {
      {"Error: No such image: toy:9\n", true},                        // docker 20.10
      {"Error response from daemon: No such image: toy:9", true},     // docker 27
      {"Error: toy:9: image not known\n", true},                      // podman 4.3
      {"Error: inspecting object: toy:9: image not known", true},     // podman 4.0
      {"Error: error inspecting object: no such image toy:9", true},  // podman 3
      {"Error: mkdir /nonexist: no such file or directory", false},
      {"Error: creating events dirs: mkdir /run/x: permission denied", false},
      {"Cannot connect to the Docker daemon at unix:///x. Is the docker daemon running?", false},
      {"Error: database is locked", false},
      {"", false}};
  for (const auto& [text, is_missing] : rows) EXPECT_EQ(says_no_image(text), is_missing) << text;
}

TEST(Image, TheReasonIsNotTheAdviceBelowIt) {
  const auto* const why = "docker: Error response from daemon: No such image: toy:9";
  EXPECT_EQ(reason_in(std::string("Unable to find it\n") + why + "\n\nRun 'docker run --help' for more information\n"),
            why)
      << "docker 28";
  EXPECT_EQ(reason_in(std::string(why) + ".\nSee 'docker run --help'.\n"), std::string(why) + ".") << "docker 20.10";
  EXPECT_EQ(reason_in("Error: toy:9: image not known\n"), "Error: toy:9: image not known");
  EXPECT_EQ(reason_in(""), "");
}

}  // namespace
}  // namespace yoke::container
