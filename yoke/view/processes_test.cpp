#include "yoke/view/processes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

namespace yoke::view {
namespace {

using device::DeviceProcess;
using device::DeviceUse;
using testing::HasSubstr;
using testing::SizeIs;

const auto kNow = std::chrono::system_clock::time_point(std::chrono::hours(500'000));

DeviceProcess process(int64_t pid, std::optional<int64_t> memory_bytes, std::string name = "train.py",
                      std::string command = "/usr/bin/python3 -u /home/ada/train.py --lr 1") {
  DeviceProcess result{.pid = pid, .type = "compute", .memory_bytes = memory_bytes};
  result.info = {
      .is_visible = true, .uid = 1000, .user = "ada", .name = std::move(name), .command = std::move(command)};
  result.info.started_at = kNow - std::chrono::seconds(187);
  return result;
}

device::Snapshot machine() {
  device::Snapshot snapshot{.time = kNow};
  device::Device gpu{.index = 0, .vendor = device::Vendor::kNvidia};
  gpu.processes = {process(10, std::nullopt), process(11, 1 << 20), process(12, 5 << 20)};
  device::Device split{.index = 1, .vendor = device::Vendor::kNvidia};
  split.instances.push_back({.index = 0, .facts = {.uuid = "MIG-1"}});
  split.instances[0].processes = {process(13, 2 << 20)};
  snapshot.devices = {gpu, split};
  return snapshot;
}

std::vector<std::string> lines_in(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

TEST(Processes, TheTableIsAsShortAsItCan) {
  auto uses = device::uses_of(machine(), device::DeviceSelection::parse({"0"}));
  const auto lines = lines_in(to_text(process_table(uses, kNow, CommandText::kShort), 80));
  ASSERT_THAT(lines, SizeIs(4));
  EXPECT_EQ(lines[0], "#  user  pid  type   memory   age  command") << "nothing is known of utilisation and origins";
  EXPECT_EQ(lines[1], "0  ada    12  C     5.0 MiB  3:07  train.py --lr 1");
  EXPECT_EQ(lines[3], "0  ada    10  C           -  3:07  train.py --lr 1");

  uses[0].process.utilization_percent = 97;
  uses[1].process.origin.slurm = device::SlurmJob{.job_id = 4121, .step = "0"};
  uses[2].process.type = "compute+graphics";
  const auto more = lines_in(to_text(process_table(uses, kNow, CommandText::kWhole), 200));
  EXPECT_EQ(more[0], "#  user  pid  type   memory  util   age  origin        command");
  EXPECT_EQ(more[1],
            "0  ada    12  C     5.0 MiB   97%  3:07                /usr/bin/python3 -u /home/ada/train.py --lr 1");
  EXPECT_EQ(more[2],
            "0  ada    11  C     1.0 MiB     -  3:07  slurm 4121.0  /usr/bin/python3 -u /home/ada/train.py --lr 1");
  EXPECT_THAT(more[3], HasSubstr("C+G"));
}

TEST(Processes, FitsEightyColumnsWhateverThereIs) {
  std::vector<DeviceUse> uses;
  for (int i = 0; i < 100; ++i) {
    DeviceUse use{"127:6", "", process(4'194'304, int64_t{1023} << 30, "t", std::string(5000, 'x'))};
    use.process.info.user = i % 2 == 0 ? "a-user-whose-name-is-longer-than-most" : "\xe5\xbc\xa0\xe4\xbc\x9f";
    use.process.info.started_at = kNow - std::chrono::hours(24 * 1000 + 13);
    use.process.utilization_percent = 100;
    use.process.type = "compute+graphics";
    use.process.origin.slurm = device::SlurmJob{.job_id = 123'456'789, .step = "interactive"};
    uses.push_back(use);
  }
  const auto table = process_table(uses, kNow, CommandText::kShort);
  for (const auto& line : lines_in(to_text(table, 80))) EXPECT_LE(display_width(line), 80) << line;
  EXPECT_THAT(to_text(table, 80), HasSubstr("xxx")) << "some of the command is left";
}

TEST(Processes, HostileTextIsHarmless) {
  auto use = DeviceUse{"0", "GPU-\x1b[1m", process(10, 1, "\x1b]0;x\x07", "\x1b]0;x\x07 \xff\xfe\nroot  1  C")};
  use.process.info.user = "\x1b[2J";
  use.process.info.reason = "a\nb";
  use.process.origin.jupyter = device::Jupyter{.notebook = "/x/\x1b[31m.ipynb"};
  use.process.type = "\x1b+\x1b";
  for (const auto& text :
       {to_text(process_table({use}, kNow, CommandText::kShort), 80),
        to_text(process_table({use}, kNow, CommandText::kWhole), kUnlimitedWidth), to_csv(process_csv({use}, kNow))}) {
    EXPECT_THAT(lines_in(text), SizeIs(2));
    for (const char c : {'\x1b', '\x07', '\xff', '\xfe'}) EXPECT_EQ(text.find(c), std::string::npos);
  }
}

TEST(Processes, WhatIsNotVisibleSaysWhy) {
  DeviceUse use{.device_id = "0", .process = {.pid = 4000}};
  use.process.info = {.is_visible = false, .reason = "not in this PID namespace"};
  EXPECT_THAT(to_text(process_table({use}, kNow, CommandText::kShort), 80),
              HasSubstr("0  ?     4000  -          -    -  (not in this PID namespace)"));
  EXPECT_EQ(command_text({}, CommandText::kShort), "(not known)");
}

TEST(Processes, NarrowTerminalsKeepUsersAndMemory) {
  DeviceUse use{.device_id = "0", .process = process(4121, int64_t{12} << 30)};
  use.process.utilization_percent = 97;
  use.process.origin.slurm = device::SlurmJob{.job_id = 4121};
  const auto titles = [&](int64_t width) {
    const auto lines = lines_in(to_text(process_table({use}, kNow, CommandText::kShort), width));
    EXPECT_THAT(lines[1], testing::AllOf(HasSubstr("ada"), HasSubstr("12.0 GiB"), HasSubstr("4121"))) << width;
    return lines[0];
  };
  EXPECT_EQ(titles(80), "#  user   pid  type    memory  util   age  origin      command");
  EXPECT_EQ(titles(60), "#  user   pid  type    memory  util   age  command");
  EXPECT_EQ(titles(50), "#  user   pid    memory  util   age  command");
  EXPECT_EQ(titles(40), "#  user   pid    memory  command");
}

TEST(Processes, TheCommandBeginsWhereItGetsInteresting) {
  const auto text = [](const std::string& name, const std::string& command) {
    return command_text({.name = name, .command = command}, CommandText::kShort);
  };
  EXPECT_EQ(text("train", "/a/train --x"), "train --x");
  EXPECT_EQ(text("train.py", "python train.py"), "train.py");
  EXPECT_EQ(text("a", "/data/a b"), "a b") << "the name, not the letter before";
  EXPECT_EQ(text("torch.distributed.run", "python -m torch.distributed.run x.py"), "torch.distributed.run x.py");
  EXPECT_EQ(text("python", "[python]"), "[python]");
  EXPECT_EQ(text("missing", "/bin/other"), "/bin/other");
}

TEST(Processes, CsvHasPlainNumbers) {
  const auto text = to_csv(process_csv(device::uses_of(machine(), device::DeviceSelection::parse({"1"})), kNow));
  EXPECT_EQ(text,
            "device,device_uuid,user,pid,type,memory_bytes,utilization_percent,age_seconds,origin,name,command,reason\n"
            "1:0,MIG-1,ada,13,compute,2097152,,187,,train.py,/usr/bin/python3 -u /home/ada/train.py --lr 1,\n");
}

}  // namespace
}  // namespace yoke::view
