// Tests `yoke topo` and `yoke devices` on recorded and fake machines: fakes/sysfs, fakes/topologies, fakes/nvml.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "fakes/sysfs/fixture_tree.h"
#include "tests/support/command.h"
#include "yoke/base/file.h"

namespace yoke::test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::MatchesRegex;
using testing::Not;
using testing::Pair;
using Json = nlohmann::json;

const std::string kLumi = YOKE_FAKE_SYSFS "/lumi-g";
const std::string kDgx = YOKE_FAKE_SYSFS "/dgx-a100";
const std::string kWorkstation = YOKE_FAKE_SYSFS "/workstation";

Result yoke(std::vector<std::string> words, const std::string& columns = "200", bool with_nvml = false) {
  const auto has = [&](const char* word) { return std::find(words.begin(), words.end(), word) != words.end(); };
  if (has("--record") || (has("topo") && !has("--replay"))) {  // so that a busy machine does not count as a slow driver
    words.insert(words.end(), {"--deadline", "60"});
  }
  words.insert(words.begin(), YOKE_COMMAND);
  CommandOptions options{
      .argv = std::move(words), .environment = {{"COLUMNS", columns}}, .without = {"YOKE_FAKE_NVML"}};
  if (with_nvml) {
    options.environment.emplace_back("YOKE_FAKE_NVML", YOKE_DGX_STATE);
    options.environment.emplace_back("LD_LIBRARY_PATH", YOKE_FAKES_FOLDER);
  }
  return run(options);
}

// Source  for which GCD is near which NUMA node and network card: docs.lumi-supercomputer.eu, and the lstopo of an
// EX235a in LLNL's mpibind. Links: RCCL's model of this node. Their numbers: Pearson (arXiv 2302.14827).
TEST(Topo, LumiG) {
  const auto result = yoke({"topo", "--sysroot", kLumi});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.err, IsEmpty());
  EXPECT_THAT(result.out, HasSubstr(R"(
      GPU0   GPU1   GPU2   GPU3   GPU4   GPU5   GPU6   GPU7   NIC0  NIC1  NIC2  NIC3  NUMA  CPUs beside it
GPU0  X      XGMI4  XGMI1  HOP2   HOP2   HOP2   XGMI2  HOP2   NODE  SYS   SYS   SYS   3     48-55,112-119
GPU1  XGMI4  X      HOP2   XGMI1  HOP2   XGMI1  HOP2   HOP2   PHB   SYS   SYS   SYS   3     56-63,120-127
GPU2  XGMI1  HOP2   X      XGMI4  XGMI2  HOP2   HOP2   HOP2   SYS   NODE  SYS   SYS   1     16-23,80-87
GPU3  HOP2   XGMI1  XGMI4  X      HOP2   HOP2   HOP2   XGMI1  SYS   PHB   SYS   SYS   1     24-31,88-95
GPU4  HOP2   HOP2   XGMI2  HOP2   X      XGMI4  XGMI1  HOP2   SYS   SYS   NODE  SYS   0     0-7,64-71
GPU5  HOP2   XGMI1  HOP2   HOP2   XGMI4  X      HOP2   XGMI1  SYS   SYS   PHB   SYS   0     8-15,72-79
GPU6  XGMI2  HOP2   HOP2   HOP2   XGMI1  HOP2   X      XGMI4  SYS   SYS   SYS   NODE  2     32-39,96-103
GPU7  HOP2   HOP2   HOP2   XGMI1  HOP2   XGMI1  XGMI4  X      SYS   SYS   SYS   PHB   2     40-47,104-111
NIC0  NODE   PHB    SYS    SYS    SYS    SYS    SYS    SYS    X     SYS   SYS   SYS   3     56-63,120-127
)"));
  EXPECT_THAT(result.out, HasSubstr(R"(
0     128.0 GiB  0-15,64-79     GPU4 GPU5 NIC2
1     128.0 GiB  16-31,80-95    GPU2 GPU3 NIC1
2     128.0 GiB  32-47,96-111   GPU6 GPU7 NIC3
3     128.0 GiB  48-63,112-127  GPU0 GPU1 NIC0
)"));
}

// The matrix that `nvidia-smi topo -m` prints on a DGX A100, as published by owners.
TEST(Topo, DgxA100) {
  const auto result = yoke({"topo", "--sysroot", kDgx, "--vendor", "nvidia"}, "200", true);
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, HasSubstr(R"(
       GPU0  GPU1  GPU2  GPU3  GPU4  GPU5  GPU6  GPU7  NIC0  NIC1  NIC2  NIC3  NIC4  NIC5  NIC6  NIC7  NIC8  NIC9  NIC10  NIC11  NUMA  CPUs beside it
GPU0   X     NV12  NV12  NV12  NV12  NV12  NV12  NV12  PXB   PXB   SYS   SYS   SYS   SYS   SYS   SYS   SYS   SYS   SYS    SYS    3     48-63,176-191
GPU1   NV12  X     NV12  NV12  NV12  NV12  NV12  NV12  PXB   PXB   SYS   SYS   SYS   SYS   SYS   SYS   SYS   SYS   SYS    SYS    3     48-63,176-191
GPU2   NV12  NV12  X     NV12  NV12  NV12  NV12  NV12  SYS   SYS   PXB   PXB   SYS   SYS   SYS   SYS   SYS   SYS   SYS    SYS    1     16-31,144-159
GPU3   NV12  NV12  NV12  X     NV12  NV12  NV12  NV12  SYS   SYS   PXB   PXB   SYS   SYS   SYS   SYS   SYS   SYS   SYS    SYS    1     16-31,144-159
GPU4   NV12  NV12  NV12  NV12  X     NV12  NV12  NV12  SYS   SYS   SYS   SYS   SYS   SYS   PXB   PXB   SYS   SYS   SYS    SYS    7     112-127,240-255
GPU5   NV12  NV12  NV12  NV12  NV12  X     NV12  NV12  SYS   SYS   SYS   SYS   SYS   SYS   PXB   PXB   SYS   SYS   SYS    SYS    7     112-127,240-255
GPU6   NV12  NV12  NV12  NV12  NV12  NV12  X     NV12  SYS   SYS   SYS   SYS   SYS   SYS   SYS   SYS   PXB   PXB   SYS    SYS    5     80-95,208-223
GPU7   NV12  NV12  NV12  NV12  NV12  NV12  NV12  X     SYS   SYS   SYS   SYS   SYS   SYS   SYS   SYS   PXB   PXB   SYS    SYS    5     80-95,208-223
)"));
  EXPECT_THAT(result.out,
              HasSubstr("\nNIC4   SYS   SYS   SYS   SYS   SYS   SYS   SYS   SYS   SYS   SYS   SYS   SYS   X     PIX "));
}

// Without NVLinks, GPUs are connected by PCIe, and NVML reports their common ancestor.
TEST(Topo, AgreesWithNvmlAboutCommonAncestors) {
  const auto json = Json::parse(yoke({"topo", "--json", "--topology", YOKE_TOPOLOGIES "/dgx-a100.xml"}).out);
  const auto state = Json::parse(read_file(YOKE_DGX_STATE));
  size_t num_compared = 0;
  for (const auto& connection : json.at("connections")) {
    const auto from = connection.at("from").get<std::string>(), to = connection.at("to").get<std::string>();
    if (!from.starts_with("GPU") || !to.starts_with("GPU")) continue;
    EXPECT_EQ(connection.at("kind"), state.at("topology")[std::stoul(from.substr(3))][std::stoul(to.substr(3))]);
    ++num_compared;
  }
  EXPECT_EQ(num_compared, 28);
}

TEST(Topo, BlocksFitTheTerminal) {
  const auto result = yoke({"topo", "--sysroot", kDgx}, "80");
  std::istringstream lines(result.out);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("AMD EPYC")) continue;  // the line that describes the machine
    EXPECT_LE(line.size(), 80) << line;
  }
}

TEST(Topo, AGpuWithoutADriverIsShownAsSuch) {
  const auto result = yoke({"topo", "--sysroot", kWorkstation});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, HasSubstr("GPU0   0000:03:00.0  AMD Radeon RX 7900 XTX\n"));
  EXPECT_THAT(result.out, HasSubstr("PCI0   0000:0a:00.0  NVIDIA 0x2684, of which no driver told\n"));
  EXPECT_THAT(yoke({"topo", "--sysroot", kWorkstation, "--vendor", "amd"}).out, Not(HasSubstr("PCI0")));
}

TEST(Topo, AnotherMachinesFile) {
  const auto result = yoke({"topo", "--topology", YOKE_TOPOLOGIES "/workstation.xml"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.err, HasSubstr("--replay adds"));
  EXPECT_THAT(result.out, HasSubstr("AMD Ryzen 9 7950X 16-Core Processor: 1 package, 1 NUMA node, 16 cores, 32 CPUs"));
  EXPECT_THAT(result.out, HasSubstr("GPU1   0000:0a:00.0  NVIDIA 0x2684\n"));
}

TEST(Topo, ARecordingBringsTheLinksToAFile) {
  const TemporaryFolder folder;
  ASSERT_EQ(yoke({"devices", "--sysroot", kLumi, "--record", folder.path("lumi.jsonl")}).exit_code, 0);
  const std::string topology = YOKE_TOPOLOGIES "/lumi-g.xml";
  const auto both = yoke({"topo", "--replay", folder.path("lumi.jsonl"), "--topology", topology});
  EXPECT_EQ(both.out, yoke({"topo", "--sysroot", kLumi}).out);
  // Without the topology file, the recording still has the links and NUMA nodes of its devices.
  const auto alone = yoke({"topo", "--replay", folder.path("lumi.jsonl")}).out;
  EXPECT_THAT(alone, HasSubstr("GPU1  XGMI4  X      HOP2   XGMI1  HOP2   XGMI1  HOP2   HOP2   3     56-63,120-127\n"));
}

TEST(Topo, Json) {
  const auto json = Json::parse(yoke({"topo", "--sysroot", kLumi, "--json"}).out);
  std::map<std::string, int> nodes;
  for (const auto& endpoint : json.at("endpoints")) nodes[endpoint.at("label")] = endpoint.at("numa_node");
  EXPECT_THAT(nodes, ElementsAre(Pair("GPU0", 3), Pair("GPU1", 3), Pair("GPU2", 1), Pair("GPU3", 1), Pair("GPU4", 0),
                                 Pair("GPU5", 0), Pair("GPU6", 2), Pair("GPU7", 2), Pair("NIC0", 3), Pair("NIC1", 1),
                                 Pair("NIC2", 0), Pair("NIC3", 2)));
  EXPECT_EQ(json.at("connections").size(), 12 * 11 / 2);
  EXPECT_EQ(json.at("num_cores"), 64);
}

TEST(Topo, TheDrawingIsXml) {
  const TemporaryFolder folder;
  for (const auto& machine : {kLumi, kDgx, kWorkstation}) {
    const auto file = folder.path("machine.svg");
    const auto result = yoke({"topo", "--sysroot", machine, "--svg", file}, "200", machine == kDgx);
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_THAT(result.out, IsEmpty());
    const auto parsed = run({.argv = {"python3", "-c",
                                      "import sys, xml.dom.minidom as m; print(m.parse(sys.argv[1])."
                                      "documentElement.tagName)",
                                      file}});
    EXPECT_EQ(parsed.out, "svg\n") << parsed.err;
    EXPECT_THAT(read_file(file), HasSubstr(machine == kLumi ? ">XGMI4<" : machine == kDgx ? ">NVSwitch<" : ">enp8s0<"));
  }
  EXPECT_EQ(yoke({"topo", "--sysroot", kWorkstation, "--svg", "-"}, "200").out, read_file(folder.path("machine.svg")));
  EXPECT_EQ(yoke({"topo", "--sysroot", kLumi, "--svg", "-", "--json"}).exit_code, 64);
  const auto refused = yoke({"topo", "--sysroot", kLumi, "--svg", folder.path("missing/machine.svg")});
  EXPECT_THAT(refused.err, HasSubstr("missing/machine.svg"));
  EXPECT_NE(refused.exit_code, 0);
}

TEST(Topo, SaysWhatIsWrong) {
  EXPECT_EQ(yoke({"topo", "--topology", "/missing.xml"}).exit_code, 66);
  const TemporaryFolder folder;
  folder.write("other.xml", "<html/>");
  const auto result = yoke({"topo", "--topology", folder.path("other.xml")});
  EXPECT_EQ(result.exit_code, 65);
  EXPECT_THAT(result.err, AllOf(HasSubstr("other.xml"), HasSubstr("lstopo FILE.xml")));
}

TEST(Topo, ThisMachine) {
  const auto result = yoke({"topo"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, HasSubstr("NUMA"));
}

TEST(Devices, LumiG) {
  const auto result = yoke({"devices", "--sysroot", kLumi}, "80");
  EXPECT_EQ(result.exit_code, 0);
  std::istringstream stream(result.out);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  ASSERT_EQ(lines.size(), 10);
  EXPECT_THAT(lines[1], MatchesRegex("  0  AMD Instinct MI250X +busy +98 ?% +12.0 / 64.0 GiB +41 C +438 W.*"));
  // Power is not known, which must not be shown as 0 W.
  EXPECT_THAT(lines[2], MatchesRegex("  1  AMD Instinct MI250X +busy +41 ?% +40.0 / 64.0 GiB +42 C +-.*"));
  EXPECT_THAT(lines[9], HasSubstr("cpu  AMD EPYC 7A53"));
}

TEST(Devices, ProcessesAreDescribedFromTheSameTree) {
  const auto json = Json::parse(yoke({"devices", "--sysroot", kLumi, "--json"}).out);
  const auto& process = json.at("devices")[0].at("processes")[0];
  EXPECT_EQ(process.at("pid"), 71001);
  EXPECT_EQ(process.at("command"), "/usr/bin/python3 -u train.py --rank 0");
  EXPECT_EQ(json.at("devices")[1].at("power_mw"), nullptr);
  EXPECT_THAT(json.at("devices")[3].at("processes"), IsEmpty());
}

// A sensor of the first card never answers, because the card's firmware hangs.
TEST(Devices, AHungSensorDelaysNothingElse) {
  const fakes::FixtureTree tree(
      kWorkstation, {"proc", "sys/bus", "sys/class", "sys/devices/pci0000:00", "sys/devices/virtual", "dev"});
  const auto file = tree.path() / "sys/bus/pci/devices/0000:03:00.0/gpu_busy_percent";
  std::filesystem::remove(file);
  ASSERT_EQ(mkfifo(file.c_str(), 0600), 0);
  // The deadline is ten times what the other sensors need on a busy machine.
  const auto result = yoke({"devices", "--sysroot", tree.path(), "--deadline", "3", "--json"});
  ASSERT_EQ(result.exit_code, 0) << (result.timed_out ? "it waits for the sensor" : result.err);
  const auto devices = Json::parse(result.out).at("devices");
  ASSERT_EQ(devices.size(), 3);
  EXPECT_EQ(devices[0].at("state"), "busy");  // these values were read before the sensor hung
  EXPECT_EQ(devices[0].at("memory_used_bytes"), 1200 << 20);
  EXPECT_EQ(devices[0].at("temperature_celsius"), nullptr);
  EXPECT_EQ(devices[1].at("temperature_celsius"), 46);
  EXPECT_EQ(devices[2].at("vendor"), "cpu");
}

TEST(Devices, WithoutADriverThereIsTheCpu) {
  const TemporaryFolder folder;
  folder.write("proc/loadavg", "0.00 0.00 0.00 1/1 1\n");
  const auto result = yoke({"devices", "--sysroot", folder.path()});
  EXPECT_EQ(result.exit_code, 66);
  EXPECT_THAT(result.out, HasSubstr("cpu  CPU"));
  EXPECT_THAT(result.err, HasSubstr("no AMD GPU (the amdgpu driver is not loaded)"));
}

}  // namespace
}  // namespace yoke::test
