// Runs `yoke doctor` on machines with known faults.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/fake_machine.h"

namespace yoke::test {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

/// Returns each finding as text, such as "fail ecc 2".
std::vector<std::string> found(const Result& result) {
  std::vector<std::string> lines;
  const auto json = Json::parse(result.out);
  for (const auto& finding : json.at("findings")) {
    auto line = finding.at("status").get<std::string>() + " " + finding.at("id").get<std::string>();
    for (const auto& device : finding.at("devices")) line += " " + device.get<std::string>();
    lines.push_back(line);
  }
  return lines;
}

TEST(Doctor, FindsWhatIsWrongWithEachGpu) {
  const auto result = yoke_on("throttled", {"doctor", "--json"});
  EXPECT_EQ(result.exit_code, 1);
  const auto lines = found(result);
  for (const auto* line : {"ok nvidia-driver", "warn clocks 0", "warn clocks 1", "warn power-limit 1", "fail ecc 2",
                           "warn retired-memory 2", "warn pcie 2", "warn persistence-mode 3", "warn memory-held 3"}) {
    EXPECT_THAT(lines, Contains(line));
  }
}

TEST(Doctor, EachFindingIsALine) {
  const auto result = yoke_on("lost", {"doctor"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.out, HasSubstr("\nfail  state"));
  EXPECT_THAT(result.out, HasSubstr("device 2: lost: "));
  EXPECT_THAT(result.out, HasSubstr(" -- see `dmesg`"));
  EXPECT_THAT(result.out, Not(HasSubstr("\x1b"))) << "no colours without a terminal";
  EXPECT_THAT(result.err, IsEmpty());
}

TEST(Doctor, ColoursOnATerminalUnlessTheyAreNotWanted) {
  auto options = on_machine("lost", {"doctor"});
  options.on_terminal = true;
  EXPECT_THAT(run(options).out, HasSubstr("\x1b[31mfail\x1b[0m"));
  options.environment.emplace_back("NO_COLOR", "1");
  EXPECT_THAT(run(options).out, Not(HasSubstr("\x1b")));
  options.environment.back() = {"TERM", "dumb"};
  EXPECT_THAT(run(options).out, Not(HasSubstr("\x1b")));
  options.argv.insert(options.argv.end(), {"--color", "always"});
  EXPECT_THAT(run(options).out, HasSubstr("\x1b[31mfail\x1b[0m"));
  options.on_terminal = false;
  EXPECT_THAT(run(options).out, HasSubstr("\x1b[31mfail\x1b[0m"));
}

TEST(Doctor, ColoursAreOfThreeKinds) {
  const auto result = yoke_on("lost", {"doctor", "--color", "red"});
  EXPECT_EQ(result.exit_code, 64);
  EXPECT_THAT(result.err, HasSubstr("--color red: give auto, always or never"));
}

TEST(Doctor, CudaIsAskedInAProcessOfItsOwn) {
  // YOKE_FAKES_FOLDER has two fake libraries: NVML shows eight GPUs, and CUDA shows as many as YOKE_FAKE_GPUS says.
  auto options = on_machine("eight_a100", {"doctor", "--json"});
  options.environment.emplace_back("YOKE_FAKE_GPUS", "8");
  const auto lines = found(run(options));
  EXPECT_THAT(lines, Contains("ok runtime"));
  EXPECT_THAT(found(yoke_on("eight_a100", {"doctor", "--json"})), Contains("fail runtime"));
}

TEST(Doctor, AHungDriverIsAFindingAndNotAHungDoctor) {
  const auto result = yoke_on("hung", {"doctor", "--json"});
  EXPECT_EQ(result.exit_code, 1) << (result.timed_out ? "it waits for the driver" : result.err);
  EXPECT_THAT(found(result), Contains("fail state 5"));
}

TEST(Doctor, AMachineWithoutGpusIsInOrder) {
  const auto result = yoke_on("", {"doctor", "--json"});
  const auto lines = found(result);
  EXPECT_THAT(lines, Contains("ok gpus"));
  for (const auto& line : lines) EXPECT_THAT(line, Not(HasSubstr("nvidia"))) << "what is not here is not spoken of";
}

TEST(Doctor, ReadsAnotherMachinesFiles) {
  const TemporaryFolder folder;
  const std::string pci = "sys/bus/pci/devices/0000:01:00.0/";
  folder.write(pci + "vendor", "0x10de\n");
  folder.write(pci + "class", "0x030200\n");
  folder.write("sys/module/nvidia/version", "580.65.06\n");
  folder.write("usr/lib64/libcuda.so.575.51.03", "");
  std::filesystem::create_symlink("libcuda.so.575.51.03", folder.path("usr/lib64/libcuda.so.1"));
  folder.write("proc/uptime", "7200.00 1.0\n");
  folder.write("dev/kmsg",
               "4,1,3600000000,-;NVRM: Xid (PCI:0000:01:00): 79, pid=7, name=\x1b[31m, GPU has fallen off the bus.\n");
  const auto json = yoke_on("eight_a100", {"doctor", "--json", "--sysroot", folder.path()});
  const auto lines = found(json);
  EXPECT_THAT(lines, Contains("fail driver-versions"));
  EXPECT_THAT(lines, Contains("fail kernel-log 0"));
  const auto text = yoke_on("eight_a100", {"doctor", "--sysroot", folder.path()}).out;
  EXPECT_THAT(text, HasSubstr("Xid 79 (the GPU has fallen off the bus), 1:00:00 ago"));
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
}

TEST(Doctor, OfARecordingItKnowsTheDevicesAlone) {
  const TemporaryFolder folder;
  ASSERT_EQ(yoke_on("throttled", {"devices", "-i", "2", "--record", folder.path("a.jsonl")}).exit_code, 0);
  const auto result = yoke_on("", {"doctor", "--json", "--replay", folder.path("a.jsonl")});
  EXPECT_EQ(result.exit_code, 1);
  const auto lines = found(result);
  EXPECT_THAT(lines, Contains("fail ecc 2"));
  EXPECT_THAT(lines, Not(Contains(HasSubstr("torch"))));
}

}  // namespace
}  // namespace yoke::test
