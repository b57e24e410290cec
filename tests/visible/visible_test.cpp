// Tests `yoke visible` on machines with the fake NVML and on recorded machines.
#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/support/command.h"
#include "tests/support/fake_machine.h"

namespace yoke::test {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;
using Json = nlohmann::json;
using Variables = std::vector<std::pair<std::string, std::string>>;

const std::vector<std::string> kDeviceVariables = {
    "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER",       "NVIDIA_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES",     "GPU_DEVICE_ORDINAL",
    "ZE_AFFINITY_MASK",     "CUDA_MPS_PIPE_DIRECTORY", "ZE_FLAT_DEVICE_HIERARCHY"};

constexpr auto* kFour = R"({"devices": [
  {"uuid": "GPU-aaaa0000-1111-2222-3333-444444444444"}, {"uuid": "GPU-aabb0000-1111-2222-3333-444444444444"},
  {"uuid": "GPU-cccc0000-1111-2222-3333-444444444444"}, {"uuid": "GPU-dddd0000-1111-2222-3333-444444444444"}]})";

constexpr auto* kAmdMachine =
    R"({"time_seconds": 0, "devices": [
  {"index": 0, "vendor": "amd", "vendor_index": 0, "state": "free", "name": "MI250X", "uuid": "GPU-00aa00000000000b"},
  {"index": 1, "vendor": "amd", "vendor_index": 1, "state": "free", "name": "MI250X", "uuid": "GPU-00ab00000000000c"},
  {"index": 2, "vendor": "cpu", "state": "free", "name": "EPYC"}]})";

/// A machine with fake NVIDIA GPUs, or a recorded machine.
class Machine {
 public:
  static Machine with_state(const std::string& state) {
    Machine machine;
    machine.folder_->write("state.json", state);
    machine.state_ = machine.folder_->path("state.json");
    return machine;
  }
  static Machine shipped(const std::string& name) {
    Machine machine;
    machine.state_ = std::string(YOKE_STATES_FOLDER) + "/" + name;
    return machine;
  }
  static Machine recorded(std::string line) {
    Machine machine;
    std::erase(line, '\n');
    machine.folder_->write("recording.jsonl", line + "\n");
    machine.replay_ = {"--replay", machine.folder_->path("recording.jsonl")};
    return machine;
  }

  Result visible(std::vector<std::string> words, Variables variables = {}) const {
    std::vector<std::string> argv = {YOKE_COMMAND, "visible"};
    argv.insert(argv.end(), replay_.begin(), replay_.end());
    argv.insert(argv.end(), words.begin(), words.end());
    if (!state_.empty()) {
      const auto driver = driver_with(state_);
      variables.insert(variables.end(), driver.begin(), driver.end());
    }
    return run({.argv = std::move(argv), .environment = std::move(variables), .without = kDeviceVariables});
  }

  Json explain(Variables variables = {}, std::vector<std::string> words = {}) const {
    words.emplace_back("--json");
    const auto result = visible(std::move(words), std::move(variables));
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return Json::parse(result.out, nullptr, false);
  }

 private:
  std::shared_ptr<TemporaryFolder> folder_ = std::make_shared<TemporaryFolder>();
  std::string state_;
  std::vector<std::string> replay_;
};

/// Returns the indices of the visible devices in order; a MIG instance is "1:0".
std::vector<std::string> seen(const Json& json) {
  std::vector<std::string> ids;
  int64_t ordinal = 0;
  for (const auto& device : json.at("devices")) {
    if (!device.at("visible").get<bool>()) continue;
    EXPECT_EQ(device.at("ordinal"), ordinal++);
    auto id = std::to_string(device.at("index").get<int>());
    if (!device.at("instance").is_null()) id += ":" + std::to_string(device.at("instance").get<int>());
    ids.push_back(id);
  }
  return ids;
}

std::string printed_variables(const Result& result) {
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return result.out;
}

const std::vector<std::string> kPrint = {"sh", "-c",
                                         "echo \"${CUDA_VISIBLE_DEVICES-unset} ${CUDA_DEVICE_ORDER-unset} "
                                         "${ROCR_VISIBLE_DEVICES-unset} ${HIP_VISIBLE_DEVICES-unset}\""};

std::vector<std::string> with_program(std::vector<std::string> words) {
  words.emplace_back("--");
  words.insert(words.end(), kPrint.begin(), kPrint.end());
  return words;
}

TEST(Visible, ListsDevicesInTheOrderOfPrograms) {
  const auto machine = Machine::with_state(kFour);
  EXPECT_THAT(seen(machine.explain()), ElementsAre("0", "1", "2", "3"));
  const auto json = machine.explain({{"CUDA_VISIBLE_DEVICES", "2,0,-1,1"}});
  EXPECT_THAT(seen(json), ElementsAre("2", "0"));
  ASSERT_EQ(json["devices"].size(), 4U);
  EXPECT_EQ(json["devices"][0]["uuid"], "GPU-cccc0000-1111-2222-3333-444444444444");
  EXPECT_EQ(json["devices"][0]["vendor"], "nvidia");
  EXPECT_EQ(json["devices"][0]["reason"], nullptr);
  EXPECT_EQ(json["devices"][2]["index"], 1);
  EXPECT_EQ(json["devices"][2]["visible"], false);
  EXPECT_EQ(json["devices"][2]["ordinal"], nullptr);
  EXPECT_THAT(json["devices"][2]["reason"].get<std::string>(),
              HasSubstr("entry 4 is not read, after the end of the list"));
  ASSERT_EQ(json["variables"].size(), 1U);
  const auto& entries = json["variables"][0]["entries"];
  ASSERT_EQ(entries.size(), 4U);
  EXPECT_EQ(entries[2]["text"], "-1");
  EXPECT_EQ(entries[2]["verdict"], "invalid");
  EXPECT_EQ(entries[3]["verdict"], "not read");
  EXPECT_EQ(json["warnings"].size(), 1U);
}

TEST(Visible, AgreesWithTheDevicesCommand) {
  const auto machine = Machine::with_state(kFour);
  const auto rows = machine.explain()["devices"];
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i]["index"], i);
    EXPECT_THAT(rows[i]["pci_bus_id"].get<std::string>(), testing::MatchesRegex("0000:[0-9a-f]{2}:00\\.0"));
  }
}

TEST(Visible, ExplainsInWords) {
  const auto machine = Machine::with_state(kFour);
  const auto result = machine.visible({}, {{"CUDA_VISIBLE_DEVICES", "GPU-aabb,9"}});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("CUDA programs see 1 of 4:"), HasSubstr("\"GPU-aabb\""), HasSubstr("by its UUID"),
                    HasSubstr("not a GPU- UUID"), HasSubstr("warning: CUDA_VISIBLE_DEVICES: entry 2")));
  EXPECT_THAT(machine.visible({}).out, StartsWith("No variable hides devices.\n\nCUDA programs see 4 of 4:"));
}

TEST(Visible, SaysWhichNumbersAreNotCertain) {
  const auto machine = Machine::shipped("workstation.json");  // an RTX 3060 before a faster RTX 4090
  EXPECT_THAT(seen(machine.explain()), ElementsAre("1", "0"));
  EXPECT_EQ(machine.explain()["devices"][0]["certain"], false);
  EXPECT_THAT(machine.visible({}).out, HasSubstr("0?"));
  const auto json = machine.explain({{"CUDA_VISIBLE_DEVICES", "0"}, {"CUDA_DEVICE_ORDER", "PCI_BUS_ID"}});
  EXPECT_THAT(seen(json), ElementsAre("0"));
  EXPECT_EQ(json["devices"][0]["certain"], true);
  const auto misspelt = machine.explain({{"CUDA_DEVICE_ORDER", "PCI_BUS_I"}});
  EXPECT_THAT(misspelt["warnings"][0].get<std::string>(), HasSubstr("write PCI_BUS_ID"));
}

TEST(Visible, MigInstances) {
  auto machine = Machine::shipped("mig.json");  // GPU 0 has three instances; GPU 1 has none; driver 580
  EXPECT_THAT(seen(machine.explain()), ElementsAre("0:0", "0:1", "0:2", "1"));
  const auto uuid = machine.explain()["devices"][1]["uuid"].get<std::string>();
  EXPECT_THAT(uuid, StartsWith("MIG-"));
  EXPECT_THAT(seen(machine.explain({{"CUDA_VISIBLE_DEVICES", uuid}})), ElementsAre("0:1"));
  EXPECT_THAT(printed_variables(machine.visible(with_program({"--set", "0:1"}))), StartsWith(uuid + " "));
  const auto whole = machine.visible(with_program({"--set", "0"}));
  EXPECT_EQ(whole.exit_code, 69);
  EXPECT_THAT(whole.err, HasSubstr("name one, as 0:0"));
}

TEST(Visible, StartsAProgramWithChosenDevices) {
  const auto machine = Machine::with_state(kFour);
  const std::string two = "GPU-cccc0000-1111-2222-3333-444444444444,GPU-aaaa0000-1111-2222-3333-444444444444";
  EXPECT_EQ(printed_variables(machine.visible(with_program({"--set", "2,0"}))), two + " unset unset unset\n");
  EXPECT_EQ(printed_variables(machine.visible(with_program({"--set=GPU-cc,0"}), {{"CUDA_VISIBLE_DEVICES", "3"}})),
            two + " unset unset unset\n");
  EXPECT_EQ(printed_variables(machine.visible(with_program({"--set", "2,0", "--format", "index"}))),
            "2,0 PCI_BUS_ID unset unset\n");
  EXPECT_EQ(printed_variables(machine.visible(with_program({"--set", "none"}))), " unset  unset\n");
  EXPECT_EQ(printed_variables(machine.visible(with_program({"--set", "all"}), {{"CUDA_VISIBLE_DEVICES", "3"}})),
            "unset PCI_BUS_ID unset unset\n");
  // The program is yoke itself, which prints the devices that it sees.
  const auto inner = machine.visible({"--set", "3,1", "--", YOKE_COMMAND, "visible", "--json"});
  EXPECT_THAT(seen(Json::parse(inner.out)), ElementsAre("3", "1"));
}

TEST(Visible, TheProgramKeepsItsWordsInputAndStatus) {
  const auto machine = Machine::with_state(kFour);
  const auto status = machine.visible({"--set", "0", "--", "sh", "-c", "exit 7"});
  EXPECT_EQ(status.exit_code, 7);
  const auto words = machine.visible({"--set", "0", "--", "echo", "--set", "1", "--json", "--"});
  EXPECT_EQ(words.out, "--set 1 --json --\n");
  EXPECT_EQ(machine.visible({"--set", "0", "echo", "--json"}).out, "--json\n");
  const auto missing = machine.visible({"--set", "0", "--", "./no-such-program"});
  EXPECT_EQ(missing.exit_code, 127);
  EXPECT_THAT(missing.err, HasSubstr("cannot start ./no-such-program"));
  EXPECT_EQ(machine.visible({"--set", "0", "--", "/"}).exit_code, 126);
  // `yoke visible` executes the program in its own process, so the program's parent is not yoke.
  const auto replaced = machine.visible({"--set", "0", "--", "sh", "-c", "cat /proc/$PPID/comm"});
  EXPECT_THAT(replaced.out, Not(HasSubstr("yoke\n")));
}

TEST(Visible, ExportsForAShell) {
  const auto machine = Machine::recorded(kAmdMachine);
  const Variables before = {{"HIP_VISIBLE_DEVICES", "0"}, {"CUDA_VISIBLE_DEVICES", "1"}};
  const auto result = machine.visible({"--set", "1", "--export"}, before);
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(
      result.out,
      "unset CUDA_VISIBLE_DEVICES\nexport ROCR_VISIBLE_DEVICES='GPU-00ab00000000000c'\nunset HIP_VISIBLE_DEVICES\n");
  const auto evaluated = run({.argv = {"sh", "-c", "eval \"$1\"; exec sh -c \"$2\"", "sh", result.out, kPrint[2]},
                              .environment = before,
                              .without = {"CUDA_DEVICE_ORDER", "ROCR_VISIBLE_DEVICES"}});
  EXPECT_EQ(evaluated.out, "unset unset GPU-00ab00000000000c unset\n");
}

TEST(Visible, HipCountsWhatRocrLeaves) {
  const auto machine = Machine::recorded(kAmdMachine);
  EXPECT_THAT(seen(machine.explain()), ElementsAre("0", "1"));
  const auto none = machine.explain({{"ROCR_VISIBLE_DEVICES", "1"}, {"HIP_VISIBLE_DEVICES", "1"}});
  EXPECT_THAT(seen(none), IsEmpty());
  EXPECT_THAT(none["warnings"], Contains(testing::ResultOf([](const Json& line) { return line.get<std::string>(); },
                                                           HasSubstr("set ROCR_VISIBLE_DEVICES alone"))));
  EXPECT_THAT(seen(machine.explain({{"ROCR_VISIBLE_DEVICES", "1"}, {"HIP_VISIBLE_DEVICES", "0"}})), ElementsAre("1"));
  EXPECT_THAT(seen(machine.explain({{"HIP_VISIBLE_DEVICES", "1"}}, {"--set", "0"})), ElementsAre("0"));
}

TEST(Visible, OnANodeWithMi250x) {
  const TemporaryFolder sysroot;
  ASSERT_EQ(run({.argv = {YOKE_MAKE_SYSROOT, "lumi-g", sysroot.path()}}).exit_code, 0);
  const auto yoke = [&](std::vector<std::string> words, const Variables& variables) {
    words.insert(words.begin(), {YOKE_COMMAND, "visible", "--sysroot", sysroot.path()});
    return run({.argv = words, .environment = variables, .without = kDeviceVariables});
  };
  const auto uuids = yoke({"--set", "2,0", "--", "printenv", "ROCR_VISIBLE_DEVICES"}, {});
  EXPECT_THAT(uuids.out, testing::MatchesRegex("GPU-[0-9a-f]{16},GPU-[0-9a-f]{16}\n"));
  for (const auto& value : {uuids.out.substr(0, uuids.out.size() - 1), std::string("2,0")}) {
    EXPECT_THAT(seen(Json::parse(yoke({"--json"}, {{"ROCR_VISIBLE_DEVICES", value}}).out)), ElementsAre("2", "0"));
  }
}

TEST(Visible, RefusesWhatIsNotThere) {
  const auto machine = Machine::with_state(kFour);
  const auto refused = [&](std::vector<std::string> words, int status, const std::string& reason) {
    const auto result = machine.visible(std::move(words));
    EXPECT_EQ(result.exit_code, status);
    EXPECT_THAT(result.err, HasSubstr(reason));
    EXPECT_THAT(result.out, IsEmpty());
  };
  refused(with_program({"--set", "0,7"}), 66, "`7`");
  refused(with_program({"--set", "GPU-aa"}), 64, "2 devices");
  refused(with_program({"--set", "0,0"}), 64, "named twice");
  refused(with_program({"--set", "cpu"}), 64, "cpu is not a GPU");
  refused(with_program({"--set", ""}), 64, "none");
  refused(with_program({"--set", "0", "--format", "name"}), 64, "--format");
  refused(with_program({}), 64, "which devices shall the program see?");
  refused({"--export"}, 64, "--set");
  refused(with_program({"--set", "0", "--export"}), 64, "--export");
  refused(with_program({"--set", "0", "--json"}), 64, "--json");
}

TEST(Visible, WithoutAGpu) {
  const auto machine =
      Machine::recorded(R"({"time_seconds": 0, "devices": [{"index": 0, "vendor": "cpu", "state": "free"}]})");
  const auto result = machine.visible({}, {{"CUDA_VISIBLE_DEVICES", "0"}});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, AllOf(HasSubstr("no effect: there is no NVIDIA GPU here"), HasSubstr("Programs see no GPU")));
  EXPECT_THAT(machine.explain()["devices"], IsEmpty());
  EXPECT_EQ(printed_variables(machine.visible(with_program({"--set", "none"}))), " unset  unset\n");
  EXPECT_EQ(machine.visible(with_program({"--set", "0"})).exit_code, 66);
}

TEST(Visible, OnThisMachineAsItIs) {
  const auto result = run({.argv = {YOKE_COMMAND, "visible", "--json"}, .without = kDeviceVariables});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_TRUE(Json::parse(result.out, nullptr, false).contains("devices")) << result.out;
}

TEST(Visible, ShowsHostileValuesHarmless) {
  const auto machine = Machine::with_state(kFour);
  const std::string value = "0,\x1b[31m\xff" + std::string(5000, 'x') + ",\xe2\x80\xae";
  const auto text = machine.visible({}, {{"CUDA_VISIBLE_DEVICES", value}});
  EXPECT_EQ(text.exit_code, 0);
  EXPECT_THAT(text.out, AllOf(Not(HasSubstr("\x1b")), Not(HasSubstr("\xff")), Not(HasSubstr(std::string(200, 'x')))));
  const auto json = machine.explain({{"CUDA_VISIBLE_DEVICES", value}});
  EXPECT_THAT(seen(json), ElementsAre("0"));
  EXPECT_THAT(json["variables"][0]["value"].get<std::string>(), HasSubstr("\x1b[31m\xef\xbf\xbd"));
}

TEST(Visible, AHungGpuDelaysNothingBeyondTheDeadline) {
  const auto machine = Machine::with_state(R"({"devices": 4, "overrides": {"2": {"hang_s": 1000}}})");
  const auto result = machine.visible({"--set", "1", "--deadline", kShortDeadline, "--", "true"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const auto silent = machine.visible({"--set", "2", "--deadline", kShortDeadline, "--", "true"});
  EXPECT_EQ(silent.exit_code, 69);
  EXPECT_THAT(silent.err, HasSubstr("use --format index"));
}

TEST(Visible, ADriverThatDoesNotWorkIsNotAMachineWithoutGpus) {
  const auto result = run({.argv = {YOKE_COMMAND, "visible"},
                           .environment = {{"LD_LIBRARY_PATH", YOKE_FAKES_FOLDER},
                                           {"YOKE_FAKE_NVML", YOKE_STATES_FOLDER "/version_mismatch.json"}},
                           .without = kDeviceVariables});
  EXPECT_EQ(result.exit_code, 75);
  EXPECT_THAT(result.out, HasSubstr("It is not known which GPUs there are: NVIDIA: driver and library have different"));
}

}  // namespace
}  // namespace yoke::test
