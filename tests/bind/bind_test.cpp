// Tests `yoke bind` on recorded machines, from fakes/topologies and fakes/sysfs.
#include "yoke/launch/plan/bind.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <nlohmann/json.hpp>

#include "tests/support/command.h"
#include "yoke/base/cpu_set.h"
#include "yoke/base/environment.h"
#include "yoke/device/cpu/locality.h"
#include "yoke/device/topology/locality.h"
#include "yoke/device/visible_gpus.h"

namespace yoke::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;
using Json = nlohmann::json;

const std::string kLumiCores = "1-7,9-15,17-23,25-31,33-39,41-47,49-55,57-63";

std::string topology(const std::string& name) { return YOKE_TOPOLOGIES "/" + name + ".xml"; }
std::string sysroot(const std::string& name) { return YOKE_FAKE_SYSFS "/" + name; }

Result bind(std::vector<std::string> words, std::vector<std::pair<std::string, std::string>> environment = {}) {
  words.insert(words.begin(), {YOKE_COMMAND, "bind"});
  return run({.argv = std::move(words),
              .environment = std::move(environment),
              .without = {"CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"}});
}

TEST(Bind, TableOfLumi) {
  const auto result = bind({"--topology", topology("lumi-g"), "-n", "8", "--cpus", kLumiCores});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.out, R"(RANK  DEVICE        NODE  CPUS   MASK                THREADS
   0  0000:c1:00.0  3     49-55  0xfe000000000000          7
   1  0000:c6:00.0  3     57-63  0xfe00000000000000        7
   2  0000:c9:00.0  1     17-23  0xfe0000                  7
   3  0000:ce:00.0  1     25-31  0xfe000000                7
   4  0000:d1:00.0  0     1-7    0xfe                      7
   5  0000:d6:00.0  0     9-15   0xfe00                    7
   6  0000:d9:00.0  2     33-39  0xfe00000000              7
   7  0000:de:00.0  2     41-47  0xfe0000000000            7
)");
  EXPECT_EQ(result.err, "yoke bind: bound: each rank to the CPUs nearest to its device\n");
}

// Source  docs.lumi-supercomputer.eu, "Distribution and binding options", has these masks.
TEST(Bind, MasksForSlurm) {
  const auto result = bind({"--topology", topology("lumi-g"), "--cpus", kLumiCores, "--format", "mask"});
  EXPECT_EQ(result.out,
            "--cpu-bind=mask_cpu:0xfe000000000000,0xfe00000000000000,0xfe0000,0xfe000000,0xfe,0xfe00,0xfe00000000,"
            "0xfe0000000000\n");
  // `yoke bind` accepts the masks that it printed as the value of --bind.
  const auto masks = result.out.substr(result.out.find(':') + 1);
  const auto again = bind({"--topology", topology("lumi-g"), "--cpus", kLumiCores, "--format", "mask", "--bind",
                           "mask:" + masks.substr(0, masks.size() - 1)});
  EXPECT_EQ(again.out, result.out);
}

/// The plan is a pure function of machine and devices, so most modes and numbers of ranks are tested without starting
/// the command. For each machine, the command runs once with each option.
TEST(Bind, AMachinesFilesAndItsTopologySayTheSame) {
  for (const std::string name : {"lumi-g", "sierra", "power8", "quartz", "corona", "mi300a", "xeon-snc4",
                                 "epyc-workstation", "desktop", "gb200", "vm"}) {
    const auto recorded = device::load_topology({.xml_file = topology(name)});
    const auto cpus_of_file = device::cpu_locality(recorded), cpus_of_tree = device::read_cpu_locality(sysroot(name));
    const auto gpus_of_file = device::gpu_localities(recorded), gpus_of_tree = device::visible_gpus({}, sysroot(name));
    EXPECT_EQ(gpus_of_file, gpus_of_tree) << name;
    for (const auto* mode : {"auto", "node", "socket", "cache", "none"}) {
      for (const size_t num_ranks : {1, 3, 8, 100}) {
        const auto plan = [&](const device::CpuLocality& cpus, const std::vector<device::DeviceLocality>& gpus) {
          std::vector<std::optional<device::DeviceLocality>> devices(num_ranks);
          for (size_t rank = 0; rank < num_ranks && !gpus.empty(); ++rank) devices[rank] = gpus[rank % gpus.size()];
          return launch::plan_binding(launch::parse_bind_mode(mode), cpus, devices);
        };
        const auto of_file = plan(cpus_of_file, gpus_of_file), of_tree = plan(cpus_of_tree, gpus_of_tree);
        EXPECT_EQ(of_file.ranks, of_tree.ranks) << name << " " << mode << " " << num_ranks;
        EXPECT_EQ(of_file.is_bound, of_tree.is_bound);
        EXPECT_EQ(of_file.reason, of_tree.reason);
        EXPECT_EQ(of_file.warnings, of_tree.warnings);
      }
    }
    const auto of_file = bind({"--topology", topology(name), "-n", "8"});
    const auto of_tree = bind({"--sysroot", sysroot(name), "-n", "8"});
    EXPECT_EQ(of_file.out, of_tree.out) << name;
    EXPECT_EQ(of_file.err, of_tree.err);
    EXPECT_EQ(of_tree.exit_code, 0);
  }
}

TEST(Bind, SaysWhatIsDivided) {
  const auto reason = [](const char* machine, const char* cpus) {
    return bind({"--topology", topology(machine), "--cpus", cpus, "-n", "4", "--bind", "cache", "--devices", "none"})
        .err;
  };
  EXPECT_EQ(
      reason("corona", "0-95"),
      "yoke bind: bound: 96 CPUs in 8 NUMA nodes and 16 shared last-level caches are divided between the ranks\n");
  EXPECT_EQ(reason("power8", "0-159"), "yoke bind: bound: 160 CPUs in 2 NUMA nodes are divided between the ranks\n")
      << "each cache is one core's";
}

TEST(Bind, Json) {
  const auto json = Json::parse(bind({"--topology", topology("sierra"), "--json"}).out);
  EXPECT_EQ(json.at("is_bound"), true);
  EXPECT_EQ(json.at("allowed_cpus"), "8-87,96-175");
  ASSERT_EQ(json.at("ranks").size(), 4);
  EXPECT_EQ(json.at("ranks")[2], Json::parse(R"({"rank": 2, "device": "0035:03:00.0", "numa_nodes": "8",
      "cpus": "96-135", "mask": "0xffffffffff000000000000000000000000", "memory_nodes": "8", "num_threads": 10})"));
  const auto flat = Json::parse(bind({"--topology", topology("vm"), "-n", "2", "--devices", "none", "--json"}).out);
  EXPECT_EQ(flat.at("is_bound"), false);
  EXPECT_EQ(flat.at("ranks")[1].at("memory_nodes"), nullptr);
  EXPECT_EQ(flat.at("ranks")[1].at("device"), nullptr);
  EXPECT_EQ(flat.at("ranks")[1].at("num_threads"), 4);
}

TEST(Bind, ChosenDevices) {
  const auto cpus_of = [](const std::string& devices, const std::string& machine) {
    const auto result = bind({"--topology", topology(machine), "-n", "2", "--devices", devices, "--json"});
    const auto ranks = Json::parse(result.out).at("ranks");
    std::string text;
    for (const auto& rank : ranks) text += rank.at("cpus").get<std::string>() + ' ';
    return text;
  };
  EXPECT_EQ(cpus_of("3,0", "corona"), "42-47,90-95 6-11,54-59 ");
  EXPECT_EQ(cpus_of("73:00.0,0000:13:00.0", "corona"), "42-47,90-95 6-11,54-59 ");
  EXPECT_EQ(cpus_of("3", "corona"), "42-44,90-92 45-47,93-95 ");
  EXPECT_EQ(cpus_of("none", "corona"), "0-23,48-71 24-47,72-95 ");
  // The PCI bus shows the GPUs, but no driver is loaded.
  const auto dgx = bind({"--sysroot", sysroot("dgx-a100"), "-n", "1", "--devices", "BD:00.0"});
  EXPECT_THAT(dgx.out, HasSubstr("0000:bd:00.0  5     80-95,208-223"));
}

// `yoke bind` respects the affinity mask of its process, and the variables that choose GPUs.
TEST(Bind, ThisMachine) {
  const auto all = Json::parse(bind({"-n", "1", "--json"}).out);
  cpu_set_t mask;
  ASSERT_EQ(sched_getaffinity(0, sizeof mask, &mask), 0);
  EXPECT_EQ(CpuSet::parse_list(all.at("allowed_cpus").get<std::string>())->size(), CPU_COUNT(&mask));
  const auto one = CpuSet::parse_list(all.at("allowed_cpus").get<std::string>())->first().value();
  const auto result = run({.argv = {"taskset", "-c", std::to_string(one), YOKE_COMMAND, "bind", "-n", "2", "--json"}});
  const auto json = Json::parse(result.out);
  EXPECT_EQ(json.at("allowed_cpus"), std::to_string(one));
  EXPECT_EQ(json.at("is_bound"), false);
  EXPECT_EQ(json.at("ranks")[1].at("num_threads"), 1);
}

TEST(Bind, WarningsAreOnStandardError) {
  const auto result = bind({"--topology", topology("quartz"), "-n", "50", "--bind", "node"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.err, HasSubstr("yoke bind: warning: 50 ranks share 36 CPUs"));
  EXPECT_THAT(result.out, Not(HasSubstr("warning")));
}

TEST(Bind, SaysWhatIsWrong) {
  const std::string lumi = topology("lumi-g");
  const auto refused = [](const std::vector<std::string>& words, int exit_code, const std::string& says) {
    const auto result = bind(words);
    EXPECT_EQ(result.exit_code, exit_code) << says;
    EXPECT_THAT(result.err, AllOf(StartsWith("yoke bind: "), HasSubstr(says)));
    EXPECT_THAT(result.out, IsEmpty());
  };
  refused({"--bind", "numa"}, 64, "--bind numa: give auto, none, node, socket, cache");
  refused({"--bind", "mask:0xfe,zz"}, 64, "\"zz\" is not a mask");
  refused({"--topology", lumi, "-n", "2", "--bind", "mask:0xfe"}, 64, "1 masks for 2 ranks");
  refused({"--topology", lumi, "--cpus", "1-"}, 64, "--cpus 1-: give a list");
  refused({"--topology", lumi, "--cpus", "500"}, 64, "none of the CPUs 500 may be used");
  refused({"--topology", lumi, "--devices", "8"}, 66, "there is no GPU 8; there are 0 to 7: 0000:c1:00.0, ");
  refused({"--topology", topology("quartz"), "--devices", "0"}, 66, "no GPU is known here");
  refused({"--sysroot", sysroot("vm"), "--devices", "../../../proc"}, 66, "there is no GPU ../../../proc");
  refused({"--topology", lumi, "-n", "0"}, 64, "at least one rank");
  refused({"--topology", topology("quartz"), "-n", "gpu"}, 69, "no GPU");
  refused({"--topology", "/missing.xml"}, 66, "/missing.xml");
  refused({"--sysroot", "/missing"}, 66, "/missing");
  refused({"--topology", lumi, "--sysroot", "/"}, 64, "two machines");
  refused({"--format", "xml"}, 64, "--format xml: give table or mask");
}

TEST(Bind, Help) {
  const auto result = bind({"--help"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, AllOf(HasSubstr("--bind"), HasSubstr("yoke bind --topology lumi.xml -n 8")));
}

}  // namespace
}  // namespace yoke::test
