// Runs `yoke devices` on machines with a fake driver.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <regex>

#include "tests/support/fake_machine.h"
#include "tests/support/lines.h"

namespace yoke::test {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;
using testing::StartsWith;

/// Returns the width of a UTF-8 line in columns: the number of bytes that are not continuation bytes.
size_t width_of(const std::string& line) {
  return static_cast<size_t>(std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

/// Runs the command on a terminal that is wide enough for user names of any length.
Result wide_yoke_on(const std::string& state, std::vector<std::string> words) {
  auto options = on_machine(state, std::move(words));
  options.environment.emplace_back("COLUMNS", "120");
  return run(options);
}

/// A table with two blanks between its columns. How wide its first columns are depends on the name of this machine's
/// CPU.
std::string narrowed(const std::string& table) { return std::regex_replace(table, std::regex("   +"), "  "); }

TEST(Devices, TheTableShowsEightGpusAndTheCpu) {
  const auto result = wide_yoke_on("eight_a100", {"devices"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.err, "");
  const auto lines = lines_of(result.out);
  ASSERT_THAT(lines, SizeIs(10)) << result.out;
  EXPECT_EQ(narrowed(lines[0]), "  #  device  state  util  memory  temp  power  users");
  EXPECT_THAT(narrowed(lines[1]), StartsWith("  0  NVIDIA A100-SXM4-80GB  busy  98%  69.6 / 80.0 GiB  67 C  387 W  "));
  EXPECT_THAT(lines[4], HasSubstr("  ?")) << "a process of another PID namespace is somebody's";
  EXPECT_THAT(lines[5], HasSubstr("  free     0%   0.0 / 80.0 GiB  "));
  EXPECT_THAT(lines[9], StartsWith("cpu  "));
  EXPECT_EQ(wide_yoke_on("eight_a100", {"ls"}).out.substr(0, 80), result.out.substr(0, 80));
}

TEST(Devices, JsonHasTheContractsKeysAndNullForWhatIsNotKnown) {
  const auto gpus = gpus_of(yoke_on("eight_a100", {"devices", "--json"}));
  ASSERT_THAT(gpus, SizeIs(8));
  EXPECT_EQ(gpus[0].at("index"), 0);
  EXPECT_EQ(gpus[0].at("vendor"), "nvidia");
  EXPECT_EQ(gpus[0].at("state"), "busy");
  EXPECT_EQ(gpus[0].at("utilization_percent"), 98);
  EXPECT_EQ(gpus[0].at("power_mw"), 387412);
  EXPECT_EQ(gpus[0].at("throttle_reasons"), Json({"power cap"}));
  ASSERT_THAT(gpus[0].at("processes"), SizeIs(1));
  EXPECT_EQ(gpus[0].at("processes")[0].at("pid"), 1);
  EXPECT_EQ(gpus[0].at("processes")[0].at("user"), "root");
  EXPECT_EQ(gpus[0].at("links").size(), 12U);
  const auto& foreign = gpus[3].at("processes").at(0);
  EXPECT_EQ(foreign.at("pid"), 4194300);
  EXPECT_TRUE(foreign.at("user").is_null());

  const auto unknown = gpus_of(yoke_on("unsupported", {"devices", "--json"}));
  ASSERT_THAT(unknown, SizeIs(1));
  for (const char* key : {"memory_reserved_bytes", "power_limit_mw", "fan_percent"}) {
    EXPECT_TRUE(unknown[0].at(key).is_null()) << key;
  }
  EXPECT_EQ(unknown[0].at("unified_memory"), true);  // the GPU computes in the memory of the machine
  EXPECT_GT(unknown[0].at("memory_total_bytes"), unknown[0].at("memory_used_bytes"));
}

TEST(Devices, AGpuThatHangsIsOneRow) {
  auto result = yoke_on("hung", {"devices"});
  EXPECT_EQ(result.exit_code, 0) << "it does not wait for the GPU";
  EXPECT_THAT(narrowed(result.out), HasSubstr("\n  5  NVIDIA GPU  no answer  -"));
  EXPECT_THAT(narrowed(result.out), HasSubstr("\n  6  NVIDIA A100-SXM4-80GB  free "));
  EXPECT_THAT(result.err, HasSubstr("device 5: the driver has not answered for "));
  result = yoke_on("hung", {"devices", "--json"});
  EXPECT_EQ(gpus_of(result)[5].at("state"), "no answer");
  EXPECT_EQ(gpus_of(result)[7].at("state"), "free");
}

TEST(Devices, AListOfProcessesThatNobodyToldIsNull) {
  const auto gpus = gpus_of(yoke_on("hung", {"devices", "--json"}));
  EXPECT_TRUE(gpus[5].at("processes").is_null());
  EXPECT_EQ(gpus[6].at("processes"), Json::array());
  EXPECT_THAT(yoke_on("hung", {"devices", "-i", "5"}).out,
              HasSubstr("Processes\n  not known                 the driver has not answered"));
}

TEST(Devices, WhatWasNotAskedForIsNotWaitedFor) {
  // The deadline is longer than this test may run, so the test passes only if the command ends without the hanging GPU.
  const TemporaryFolder folder;
  folder.write("state.json", R"({"devices": 3, "overrides": {"1": {"hang_s": 1000}}})");
  for (const std::string word : {"cpu", "0", "2", "nvidia:2"}) {
    const auto result = yoke_on(folder.path("state.json"), {"devices", "-i", word, "--deadline", "1000"});
    EXPECT_FALSE(result.timed_out) << word;
    EXPECT_EQ(result.exit_code, 0) << word << result.err;
    EXPECT_THAT(result.out, StartsWith("Device " + word.substr(word.find(':') + 1) + ": "));
  }
  folder.write("start.json", R"({"devices": 2, "hang_s": {"nvmlInit_v2": 1000}})");
  const auto cpu = yoke_on(folder.path("start.json"), {"devices", "-i", "cpu", "--deadline", "1000"});
  EXPECT_EQ(cpu.exit_code, 0) << cpu.err;
  EXPECT_EQ(cpu.err, "");
  const auto unknown = yoke_on(folder.path("start.json"), {"devices", "-i", "0", "--deadline", "0.2"});
  EXPECT_EQ(unknown.exit_code, 75) << "it may be there";
  EXPECT_THAT(unknown.err, HasSubstr("NVIDIA's driver has not answered"));
}

TEST(Devices, NarrowTerminalsKeepMemoryAndUsers) {
  for (const auto* columns : {"40", "60"}) {
    auto options = on_machine("eight_a100", {"devices"});
    options.environment.emplace_back("COLUMNS", columns);
    const auto lines = lines_of(run(options).out);
    EXPECT_THAT(lines[1], AllOf(HasSubstr("69.6 / 80.0 GiB"), HasSubstr("root")));
    for (const auto& line : lines) EXPECT_LE(width_of(line), std::stoul(columns)) << line;
  }
}

TEST(Devices, CombinationsWithoutMeaningAreRefusedByName) {
  const struct {
    std::vector<std::string> words;
    const char* name;
  } kCases[] = {{{"devices", "--json", "--csv"}, "--csv"},
                {{"devices", "--list", "--json"}, "--list"},
                {{"devices", "--record", "/dev/null", "--replay", "x"}, "--record"},
                {{"devices", "--replay", "x", "--vendor", "amd"}, "--vendor"},
                {{"devices", "--replay", "x", "--deadline", "2"}, "--deadline"},
                {{"devices", "--replay", "x", "--sysroot", "/"}, "--sysroot"},
                {{"ps", "--json", "--csv"}, "--csv"},
                {{"top", "--json", "--interval", "2"}, "--interval"},
                {{"top", "--once", "--interval", "2"}, "--interval"},
                {{"metrics", "--max-age", "2"}, "--max-age"},
                {{"topo", "--topology", "x", "--sysroot", "/"}, "--sysroot"},
                {{"visible", "--format", "index"}, "--format"},
                {{"watch", "--replay", "x", "true"}, "--replay"}};
  for (const auto& [words, name] : kCases) {
    const auto result = yoke_on("eight_a100", words);
    EXPECT_EQ(result.exit_code, 64) << testing::PrintToString(words);
    EXPECT_THAT(result.err, HasSubstr(name)) << testing::PrintToString(words);
  }
}

TEST(Devices, ADriverThatHangsAtItsStartIsALine) {
  const TemporaryFolder folder;
  folder.write("state.json", R"({"devices": 2, "hang_s": {"nvmlInit_v2": 1000}})");
  const auto result = yoke_on(folder.path("state.json"), {"devices"});
  EXPECT_EQ(result.exit_code, 75) << "it is not known that there is none";
  EXPECT_THAT(result.out, HasSubstr("\ncpu  "));
  EXPECT_THAT(result.err, HasSubstr("no GPU is known: the driver has not answered for "));
}

TEST(Devices, ALostGpuIsOneRow) {
  const auto result = yoke_on("lost", {"devices"});
  EXPECT_THAT(narrowed(result.out), HasSubstr("\n  2  NVIDIA GPU  lost  -"));
  EXPECT_THAT(result.err, HasSubstr("device 2: the GPU is lost (fallen off the bus)"));
  EXPECT_THAT(gpus_of(yoke_on("lost", {"devices", "--json"})), SizeIs(8));
}

TEST(Devices, WithoutAGpuThereIsTheCpuAndTheReason) {
  const auto none = yoke_on("", {"devices"});
  EXPECT_EQ(none.exit_code, 66);
  EXPECT_THAT(lines_of(none.out), SizeIs(2));
  EXPECT_THAT(none.out, HasSubstr("\ncpu  "));
  EXPECT_THAT(none.err,
              AllOf(StartsWith("yoke devices: no GPU: no NVIDIA driver (libnvidia-ml.so.1 is not installed); no AMD"),
                    HasSubstr("\n")));
  EXPECT_THAT(lines_of(none.err), SizeIs(1));
  const auto mismatch = yoke_on("version_mismatch", {"devices"});
  EXPECT_EQ(mismatch.exit_code, 75);
  EXPECT_THAT(mismatch.err, HasSubstr("driver and library have different versions (reboot"));
  EXPECT_EQ(yoke_on("", {"devices", "--vendor", "cpu"}).exit_code, 0) << "found what was asked for";
}

TEST(Devices, MigInstancesStandUnderTheirParent) {
  const auto result = wide_yoke_on("mig", {"devices"});
  EXPECT_THAT(result.out, HasSubstr("\n  0  NVIDIA A100-SXM4-80GB "));
  EXPECT_THAT(result.out, HasSubstr("\n0:0  MIG 3g.40gb "));
  EXPECT_THAT(result.out, HasSubstr("\n  1  NVIDIA A100-SXM4-80GB "));
  const auto gpus = gpus_of(yoke_on("mig", {"devices", "--json"}));
  ASSERT_THAT(gpus, SizeIs(2));
  EXPECT_THAT(gpus[0].at("instances"), SizeIs(3));
  EXPECT_THAT(gpus[0].at("instances")[0].at("uuid"), StartsWith("MIG-"));
  EXPECT_THAT(gpus[0].at("processes"), IsEmpty()) << "they are listed with their instance";
  EXPECT_THAT(yoke_on("mig", {"devices", "-i", "0:1"}).out, HasSubstr("MIG GPU instance"));
  EXPECT_THAT(lines_of(yoke_on("mig", {"devices", "-i", "0:1", "--csv"}).out)[1], StartsWith("0:1,nvidia,"));
}

TEST(Devices, AMigInstanceHasItsIndexInTheDriver) {
  const Json instances = {nullptr, {{"profile", "2g.20gb"}, {"gpu_instance", 3}}, {{"profile", "1g.10gb"}}};
  const FakeMachine machine({{"devices", 2}, {"overrides", {{"0", {{"mig", {{"instances", instances}}}}}}}});
  const auto gpus = gpus_of(run(machine.yoke({"devices", "--json"})));
  EXPECT_EQ(gpus[0].at("instances")[0].at("index"), 1);
  EXPECT_EQ(gpus[0].at("instances")[1].at("index"), 2);
  EXPECT_EQ(run(machine.yoke({"devices", "-i", "0:0"})).exit_code, 66);
  const auto first = run(machine.yoke({"devices", "-i", "0:1", "--json"}));
  const auto set = run(machine.yoke({"visible", "--set", "0:1"}));
  EXPECT_THAT(set.out, HasSubstr(gpus_of(first)[0].at("uuid").get<std::string>())) << set.err;
}

TEST(Devices, AListThatFailsAndAModeWithoutProgramsAreNotFree) {
  const Json failing = {{"errors", {{"nvmlDeviceGetComputeRunningProcesses", "no_permission"}}}};
  const FakeMachine machine({{"devices", 4},
                             {"overrides",
                              {{"0", failing},
                               {"1", {{"compute_mode", 2}}},
                               {"2", {{"mig", {{"mode", 1}, {"pending", 1}, {"instances", Json::array()}}}}}}}});
  const auto result = run(machine.yoke({"devices", "--json"}));
  const auto gpus = gpus_of(result);
  EXPECT_EQ(gpus[0].at("state"), "unknown");
  EXPECT_THAT(gpus[0].at("reason"), HasSubstr("no permission"));
  EXPECT_TRUE(gpus[0].at("processes").is_null());
  EXPECT_EQ(gpus[1].at("state"), "unusable");
  EXPECT_EQ(gpus[2].at("state"), "unusable");
  EXPECT_EQ(gpus[3].at("state"), "free");
}

TEST(Devices, UnifiedMemoryIsThatOfTheMachine) {
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder.path("proc"));
  folder.write("proc/meminfo", "MemTotal:       125829120 kB\nMemFree: 1 kB\nMemAvailable:   104857600 kB\n");
  const auto gpus = gpus_of(yoke_on("unsupported", {"devices", "--json", "--sysroot", folder.path()}));
  EXPECT_EQ(gpus[0].at("unified_memory"), true);
  EXPECT_EQ(gpus[0].at("memory_total_bytes"), int64_t{120} << 30);
  EXPECT_EQ(gpus[0].at("memory_free_bytes"), int64_t{100} << 30);
}

TEST(Devices, AGpuThatDoesNotOpenHasItsBusId) {
  const TemporaryFolder folder;
  for (const char* id : {"0000:e1:00.0", "10000:c1:00.0"}) {
    std::filesystem::create_directories(folder.path("proc/driver/nvidia/gpus") + "/" + id);
  }
  const FakeMachine machine({{"devices", 2}, {"overrides", {{"1", {{"error", "unknown"}}}}}});
  const auto gpus = gpus_of(run(machine.yoke({"devices", "--json", "--sysroot", folder.path()})));
  EXPECT_EQ(gpus[1].at("state"), "error");
  EXPECT_EQ(gpus[1].at("pci_bus_id"), "10000:c1:00.0");
  EXPECT_THAT(gpus[1].at("reason"), AllOf(HasSubstr("NVML error 999"), HasSubstr("dmesg")));
}

TEST(Devices, OldDriversLackFunctionsNotDevices) {
  auto options = on_machine("old_driver", {"devices", "--json"}, YOKE_FAKES_FOLDER "/old");
  const auto gpus = gpus_of(run(options));
  ASSERT_THAT(gpus, Not(IsEmpty()));
  EXPECT_FALSE(gpus[0].at("memory_used_bytes").is_null());
  EXPECT_TRUE(gpus[0].at("memory_reserved_bytes").is_null()) << "version 1 does not tell it apart";
  EXPECT_FALSE(gpus[0].at("processes").empty());
}

TEST(Devices, AHundredProcessesFit80Columns) {
  const auto result = yoke_on("many_processes", {"devices"});
  const auto lines = lines_of(result.out);
  EXPECT_THAT(lines, SizeIs(18));
  for (const auto& line : lines) EXPECT_LE(width_of(line), 80U) << line;
}

TEST(Devices, NamesOfDevicesAreHarmless) {
  const TemporaryFolder folder;
  folder.write("state.json", "{\"devices\": 1, \"defaults\": {\"name\": \"GPU \\u001b[2J\\u001b]0;x\\u0007\\nZ\"}}");
  for (const std::vector<std::string>& words : {std::vector<std::string>{"devices"},
                                                {"devices", "-L"},
                                                {"devices", "-i", "0"},
                                                {"devices", "--csv"},
                                                {"devices", "--json"}}) {
    const auto result = yoke_on(folder.path("state.json"), words);
    EXPECT_THAT(result.out, AllOf(HasSubstr("GPU "), Not(HasSubstr("\x1b")), Not(HasSubstr("\x07"))));
  }
}

TEST(Devices, ListsChoosesAndExplains) {
  EXPECT_THAT(lines_of(yoke_on("eight_a100", {"devices", "-L"}).out)[1],
              AllOf(HasSubstr("GPU-"), HasSubstr("0000:"), HasSubstr("NVIDIA A100")));
  const auto csv = lines_of(yoke_on("eight_a100", {"devices", "--csv"}).out);
  EXPECT_THAT(csv[0], StartsWith("id,vendor,name,uuid,pci_bus_id,state,utilization_percent,memory_used_bytes,"));
  EXPECT_THAT(csv, SizeIs(10));
  const auto page = yoke_on("eight_a100", {"devices", "-i", "0", "2"});
  EXPECT_THAT(page.out,
              AllOf(HasSubstr("Device 0: NVIDIA"), HasSubstr("Device 2: NVIDIA"), Not(HasSubstr("Device 1"))));
  EXPECT_THAT(page.out,
              AllOf(HasSubstr("held back by              power cap"), HasSubstr("nvlink 11"), HasSubstr("ECC")));
  EXPECT_THAT(gpus_of(yoke_on("eight_a100", {"devices", "--json", "-i", "7"})), SizeIs(1));
  const auto absent = yoke_on("eight_a100", {"devices", "-i", "8"});
  EXPECT_EQ(absent.exit_code, 66);
  EXPECT_EQ(absent.err, "yoke devices: there is no device `8` here; there are: 0, 1, 2, 3, 4, 5, 6, 7, cpu\n");
  EXPECT_EQ(yoke_on("eight_a100", {"devices", "--csv", "--json"}).exit_code, 64);
  EXPECT_EQ(yoke_on("eight_a100", {"devices", "--deadline", "0"}).exit_code, 64);
  EXPECT_EQ(yoke_on("eight_a100", {"devices", "--vendor", "intel"}).exit_code, 64);
}

TEST(Devices, WhatIsNoRecordingIsSaidInOurWords) {
  const TemporaryFolder folder;
  folder.write("torn", "{\"devices\": [{\"id\"\n");
  folder.write("other", "{\"devices\": 7}\n");
  const auto replay = [&](const std::string& file) { return yoke_on("", {"devices", "--replay", folder.path(file)}); };
  EXPECT_THAT(replay("").err, HasSubstr(": it is a folder; give a file"));
  EXPECT_EQ(replay("").exit_code, 66);
  EXPECT_THAT(replay("torn").err,
              HasSubstr("torn, line 1: not a snapshot of devices: invalid JSON from character 19 on"));
  EXPECT_EQ(replay("torn").exit_code, 65);
  EXPECT_THAT(replay("other").err, AllOf(HasSubstr("not a snapshot of devices: "), Not(HasSubstr("json.exception"))));
}

TEST(Devices, ARecordingShowsTheSameMachine) {
  const TemporaryFolder folder;
  const auto file = folder.path("machine.jsonl");
  EXPECT_EQ(yoke_on("mig", {"devices", "--record", file}).exit_code, 0);
  const auto live = Json::parse(yoke_on("mig", {"devices", "--json", "--vendor", "nvidia"}).out);
  const auto again = yoke_on("", {"devices", "--json", "--replay", file});
  EXPECT_EQ(again.exit_code, 0);
  auto replayed = Json::parse(again.out);
  EXPECT_EQ(replayed.at("devices")[0].at("instances")[0].at("memory_used_bytes"),
            live.at("devices")[0].at("instances")[0].at("memory_used_bytes"));
  EXPECT_EQ(replayed.at("devices")[0].at("instances")[0].at("uuid"),
            live.at("devices")[0].at("instances")[0].at("uuid"));
  EXPECT_EQ(replayed.at("devices").size(), live.at("devices").size() + 1);

  folder.write("torn.jsonl", "{\"time_seconds\": 1, \"devi");
  const auto torn = yoke_on("", {"devices", "--replay", folder.path("torn.jsonl")});
  EXPECT_EQ(torn.exit_code, 65);
  EXPECT_THAT(torn.err, HasSubstr("torn.jsonl, line 1"));
  EXPECT_EQ(yoke_on("", {"devices", "--replay", folder.path("absent")}).exit_code, 66);
  EXPECT_THAT(yoke_on("", {"devices", "--record", "/no/such/folder/x"}).err, HasSubstr("/no/such/folder/x"));
}

TEST(Devices, WatchingRepaintsATerminalAndMarksWhatChanged) {
  const TemporaryFolder folder;
  const auto state = [&](int percent) {
    folder.write("next.json",
                 R"({"devices": 1, "defaults": {"utilization_percent": {"gpu": )" + std::to_string(percent) + "}}}");
    std::filesystem::rename(folder.path("next.json"), folder.path("state.json"));
  };
  state(11);
  auto options = on_machine(folder.path("state.json"), {"devices", "--watch", "0.05"});
  options.on_terminal = true;
  Command command(options);
  ASSERT_TRUE(command.wait_for_output(" 11%"));
  state(77);
  ASSERT_TRUE(command.wait_for_output("\x1b[7m77\x1b[27m%")) << command.out();
  command.signal(SIGINT);
  EXPECT_EQ(command.wait().exit_code, 128 + SIGINT);

  options.environment.emplace_back("TERM", "dumb");
  Command dumb(options);
  ASSERT_TRUE(dumb.wait_until([&] { return lines_of(dumb.out()).size() > 8; }));
  dumb.signal(SIGTERM);
  EXPECT_THAT(dumb.wait().out, Not(HasSubstr("\x1b")));

  Command plain(on_machine(folder.path("state.json"), {"devices", "--watch", "0.05"}));
  ASSERT_TRUE(plain.wait_until([&] { return lines_of(plain.out()).size() > 8; }));
  plain.signal(SIGTERM);
  const auto result = plain.wait();
  EXPECT_EQ(result.exit_code, 128 + SIGTERM);
  EXPECT_THAT(result.out, Not(HasSubstr("\x1b")));

  Command csv(on_machine(folder.path("state.json"), {"devices", "--watch", "0.05", "--csv"}));
  ASSERT_TRUE(csv.wait_until([&] { return lines_of(csv.out()).size() > 5; }));
  csv.signal(SIGTERM);
  const auto lines = lines_of(csv.wait().out);
  EXPECT_THAT(lines[0], StartsWith("time_seconds,id,"));
  EXPECT_THAT(std::vector<std::string>(lines.begin() + 1, lines.end()), Each(Not(StartsWith("time_seconds"))));
}

TEST(Devices, NothingIsLeftWhenItIsKilled) {
  auto options = on_machine("eight_a100", {"devices", "--watch", "0.05"});
  const auto tag = new_tag();
  options.environment.emplace_back("YOKE_TEST_TAG", tag);
  Command command(options);
  ASSERT_TRUE(command.wait_for_output("NVIDIA"));
  EXPECT_THAT(processes_with_tag(tag), SizeIs(2));
  command.signal(SIGKILL);
  command.wait();
  EXPECT_TRUE(wait_until([&] { return processes_with_tag(tag).empty(); }));
}

TEST(Devices, AFullDiskIsAnError) {
  auto options = on_machine("eight_a100", {"-c", "exec \"$0\" devices > /dev/full", YOKE_COMMAND});
  options.argv[0] = "/bin/sh";
  const auto result = run(options);
  EXPECT_EQ(result.exit_code, 75);
  EXPECT_THAT(result.err, HasSubstr("writing the output"));
}

TEST(Devices, PermissionIsARow) {
  const TemporaryFolder folder;
  folder.write("state.json", R"({"devices": 2, "overrides": {"1": {"error": "no_permission"}}})");
  const auto result = yoke_on(folder.path("state.json"), {"devices"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, HasSubstr("no permission"));
  EXPECT_THAT(result.err, HasSubstr("device 1: "));
}

}  // namespace
}  // namespace yoke::test
