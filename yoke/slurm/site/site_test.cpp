#include "yoke/slurm/site/site.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "tests/support/command.h"
#include "tests/support/message_of.h"
#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/device/topology/locality.h"
#include "yoke/slurm/site/find.h"

namespace yoke::slurm {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

template <typename Body>
std::string message_of(const Body& body) {
  return test::error_of(body).what();
}

TEST(SlurmSite, IsReadAndWritten) {
  const auto site = parse_site(R"(
name = "x"
[detect]
clusters = ["x*"]
[slurm]
version = "23.11"
whole_node_partitions = ["big"]
options = ["--hint=nomultithread"]
[node]
gpus = 2
vendor = "amd"
cpus_per_gpu = 7
[[gpu]]
mask = "0xfe"
numa = 1
[[gpu]]
cpus = "9-15"
[network]
master_suffix = "i"
[environment]
B = "2"
A = "/scratch/$USER"
[cache]
folder = "/tmp"
variables = ["MIOPEN_USER_DB_PATH"]
[container]
command = ["singularity", "run"]
)",
                               "x.toml");
  EXPECT_EQ(site.gpus.at(0).cpus.to_list(), "1-7");
  EXPECT_EQ(site.version, (Version{23, 11, 0}));
  EXPECT_THAT(site.variables, ElementsAre(std::pair("A", "/scratch/$USER"), std::pair("B", "2")));
  EXPECT_EQ(parse_site(to_toml(site), "again"), site);
}

// Each row is a file with a mistake, and what the message must name.
TEST(SlurmSite, RefusesMistakes) {
  const std::map<std::string, std::string> rows = {
      {"", "name is missing"},
      {"name = \"x\"\nnmae = 1\n", "x.toml:2: a site's file has no key nmae"},
      {"name = \"x\"\n[node]\ngpu = 2\n", "x.toml:3: [node] has no key gpu"},
      {"name = \"x\"\n[node]\ngpus = \"2\"\n", "gpus takes a whole number"},
      {"name = \"x\"\n[node]\ngpus = -2\n", "gpus takes a whole number"},
      {"name = \"x\"\n[node]\nvendor = \"intel\"\n", "vendor is one of nvidia, amd"},
      {"name = \"x\"\n[node]\ngpus = 8\ncpus = 56\ncpus_per_gpu = 8\n", "such jobs never run"},
      {"name = \"x\"\n[node]\ngpus = 2\n[[gpu]]\ncpus = \"0-7\"\n", "there are 1 [[gpu]], but [node] gpus is 2"},
      {"name = \"x\"\n[node]\ngpus = 2\n[[gpu]]\ncpus = \"0-7\"\n[[gpu]]\ncpus = \"7-9\"\n", "belong to an earlier"},
      {"name = \"x\"\n[node]\ngpus = 1\n[[gpu]]\ncpus = \"a\"\n", "cpus takes a list"},
      {"name = \"x\"\n[environment]\nA = \"$(id)\"\n", "may not have quotes"},
      {"name = \"x\"\n[environment]\nA = \"`id`\"\n", "may not have quotes"},
      {"name = \"x\"\n[environment]\n\"A B\" = \"1\"\n", "is not the name of a variable"},
      {"name = \"x\"\nmodules = [\"load a\\nid\"]\n", "may not have quotes"},
      {"name = \"x\"\nmodules = [\"load a; id\"]\n", "modules takes words of the command module"},
      {"name = \"x\"\n[container]\nmodules = [\"load a & id\"]\n", "modules takes words of the command module"},
      {"name = \"x\"\n[cache]\nfolder = \"/tmp\"\nvariables = [\"HOME\"]\n", "variables takes names"},
      {"a" + std::string(300'000, '.') + "b = 1\n", "x.toml:1: the line is longer than 4096 bytes"},
      {"name = \"x\"\n[slurm]\noptions = [\"-c 4\"]\n", "options takes long options"},
      {"name = \"x\"\n[slurm]\nversion = \"new\"\n", "version takes a version of Slurm"},
      {"name = \"x\"\n[cache]\nfolder = \"/tmp\"\n", "[cache] takes both"},
      {"name = \n", "x.toml:1: "},
  };
  for (const auto& [text, expected] : rows) {
    EXPECT_THAT(message_of([&, &text = text] { parse_site(text, "x.toml"); }), HasSubstr(expected)) << text;
  }
}

TEST(SlurmSite, IsChosenByClusterBeforeHost) {
  EXPECT_TRUE(matches("uan0?", "uan01"));
  EXPECT_TRUE(matches("*-ln*.x", "daint-ln001.x"));
  EXPECT_FALSE(matches("uan0?", "uan001"));
  EXPECT_FALSE(matches("a", "ab"));
  std::vector<Site> sites(2);
  sites[0].hosts = {"login*"};
  sites[1].clusters = {"lumi"};
  EXPECT_EQ(choose_site(sites, "lumi", "login1"), &sites[1]);
  EXPECT_EQ(choose_site(sites, "other", "login1"), &sites[0]);
  EXPECT_EQ(choose_site(sites, "", ""), nullptr);
  sites[1].hosts = {"uan0?"};
  EXPECT_EQ(choose_site(sites, "", "uan01"), &sites[1]) << "Slurm does not answer";
  EXPECT_EQ(choose_site(sites, "setonix", "uan01"), nullptr) << "another Cray";
}

// What scontrol of Slurm 22.05 prints, shortened. LUMI's way to say it has types and sockets.
TEST(SlurmSite, IsDetectedFromWhatSlurmSays) {
  const auto config = parse_config(
      "Configuration data as of 2026-11-23T16:06:43\n"
      "ClusterName             = yoke\n"
      "SelectTypeParameters    = CR_CORE_MEMORY\n"
      "SLURM_VERSION           = 22.05.8\n");
  EXPECT_EQ(config.name, "yoke");
  EXPECT_EQ(config.version, (Version{22, 5, 8}));
  const auto nodes = parse_nodes(
      "NodeName=n1 Arch=x86_64 CPUAlloc=0 CPUEfctv=62 CPUTot=64 Gres=gpu:a100:4(S:0-1),gpu:t4:1,shard:8 "
      "RealMemory=512000 State=IDLE Partitions=gpu,all \n"
      "NodeName=n2 CPUEfctv=62 CPUTot=64 Gres=gpu:a100:5 RealMemory=512000 Partitions=gpu,all\n"
      "NodeName=c1 CPUTot=128 Gres=(null) RealMemory=256000 Partitions=cpu,all\n");
  ASSERT_EQ(nodes.size(), 3U);
  EXPECT_EQ(nodes[0], (NodeRecord{"n1", "a100", 5, 62, 512000, 0, 0, {"gpu", "all"}}));
  EXPECT_EQ(nodes[2].num_gpus, 0);
  EXPECT_EQ(nodes[2].num_cpus, 128);
  const auto partitions = parse_partitions(
      "PartitionName=cpu Default=YES OverSubscribe=NO\nPartitionName=gpu Default=NO OverSubscribe=EXCLUSIVE\n");
  std::vector<std::string> notes;
  const auto site = detect_site(config, nodes, partitions, "gpu", notes);
  EXPECT_EQ(site.num_gpus, 5);
  EXPECT_EQ(site.vendor, "nvidia");
  EXPECT_EQ(site.cpus_per_gpu, 12);
  EXPECT_EQ(site.memory_per_gpu, "95G");
  const auto small = parse_nodes("NodeName=w1 CPUTot=8 Gres=gpu:1 RealMemory=2000 Partitions=gpu\n");
  std::vector<std::string> of_small;
  EXPECT_EQ(detect_site(config, small, partitions, "gpu", of_small).memory_per_gpu, "1900M");
  EXPECT_THAT(site.whole_node_partitions, ElementsAre("gpu"));
  EXPECT_TRUE(notes.empty());
  EXPECT_EQ(to_toml(parse_site(to_toml(site), "again")), to_toml(site));
  EXPECT_EQ(detect_site(config, nodes, partitions, "", notes).num_gpus, 5);
  EXPECT_THAT(notes, ElementsAre(HasSubstr("1 nodes are different: 0 GPUs, 128 CPUs")));
  EXPECT_THAT(message_of([&] { detect_site(config, nodes, partitions, "nope", notes); }),
              HasSubstr("there is no partition nope here; there are: cpu, gpu"));
  // MIG beside whole GPUs: 28 sevenths in slices are four more GPUs of the eight in the node.
  const auto mixed = parse_nodes(
      "NodeName=nv2 CPUEfctv=192 CPUTot=224 Gres=gpu:nvidia_b200:4(S:0-1),gpu:nvidia_b200_2g.45gb:8(S:0-1),"
      "gpu:nvidia_b200_3g.90gb:4(S:0-1) RealMemory=2060000 Partitions=gpu\n");
  EXPECT_EQ(mixed[0].num_gpus, 4);
  EXPECT_EQ(mixed[0].num_slices, 12);
  notes.clear();
  const auto beside = detect_site(config, mixed, partitions, "gpu", notes);
  EXPECT_EQ(beside.num_gpus, 4);
  EXPECT_EQ(beside.gpu_type, "nvidia_b200");
  EXPECT_EQ(beside.cpus_per_gpu, 24);
  EXPECT_EQ(beside.memory_per_gpu, "238G");
  EXPECT_THAT(notes, ElementsAre(HasSubstr("12 slices of GPUs (MIG), which are not counted")));
  EXPECT_EQ(parse_site(to_toml(beside), "again").gpu_type, "nvidia_b200");
  const auto sliced =
      parse_nodes("NodeName=m1 CPUTot=64 Gres=gpu:1g.10gb:7,gpu:2g.20gb:2 RealMemory=1000 Partitions=gpu\n");
  EXPECT_EQ(sliced[0].num_gpus, 9);
  EXPECT_EQ(sliced[0].gpu_type, "1g.10gb");
  EXPECT_EQ(sliced[0].num_slices, 0);
  EXPECT_EQ(vendor_of("mi250"), "amd");
  EXPECT_EQ(vendor_of("mig-1g.10gb"), "");
  EXPECT_EQ(vendor_of("NVIDIA_H100"), "nvidia");
  EXPECT_EQ(vendor_of("gaudi2"), "");
}

/// The CPUs of GPU 0, 1, ... of an installed site.
std::vector<std::string> cpus_of(const std::string& name) {
  const auto site = find_site(std::string(YOKE_SITES) + "/" + name + ".toml", {}).site;
  std::vector<std::string> result;
  for (const auto& gpu : site.gpus) result.push_back(gpu.cpus.to_list());
  return result;
}

// The binding plans of the sites, as their sources publish them (the sources are in the files).
TEST(SlurmSite, HasThePublishedBindings) {
  EXPECT_THAT(cpus_of("lumi-g"), ElementsAre("49-55", "57-63", "17-23", "25-31", "1-7", "9-15", "33-39", "41-47"));
  EXPECT_THAT(cpus_of("frontier"), ElementsAre("49-55", "57-63", "17-23", "25-31", "1-7", "9-15", "33-39", "41-47"));
  EXPECT_THAT(cpus_of("juwels-booster"), ElementsAre("18-23,66-71", "6-11,54-59", "42-47,90-95", "30-35,78-83"));
  EXPECT_THAT(cpus_of("perlmutter"), ElementsAre("48-63,112-127", "32-47,96-111", "16-31,80-95", "0-15,64-79"));
  EXPECT_THAT(cpus_of("alps-gh200"), ElementsAre("0-71", "72-143", "144-215", "216-287"));
  EXPECT_THAT(cpus_of("dgx-a100"), ElementsAre("48-55,176-183", "56-63,184-191", "16-23,144-151", "24-31,152-159",
                                               "112-119,240-247", "120-127,248-255", "80-87,208-215", "88-95,216-223"));
  for (const auto* name : {"nvidia", "amd", "workstation"}) EXPECT_TRUE(cpus_of(name).empty()) << name;
}

// The masks that LUMI's own guides print, in their two forms (distribution-binding.md and the AI guide).
TEST(SlurmSite, OfLumiHasTheMasksOfItsGuides) {
  const auto site = find_site(std::string(YOKE_SITES) + "/lumi-g.toml", {}).site;
  const std::vector<std::string> guide = {"fe000000000000", "fe00000000000000", "fe0000",      "fe000000", "fe",
                                          "fe00",           "fe00000000",       "fe0000000000"};
  CpuSet all;
  for (size_t i = 0; i < guide.size(); ++i) {
    EXPECT_EQ(site.gpus.at(i).cpus, CpuSet::parse_mask(guide[i])) << i;
    all |= site.gpus[i].cpus;
  }
  EXPECT_EQ(all.size(), 56);
  for (const int64_t reserved : {0, 8, 16, 24, 32, 40, 48, 56}) EXPECT_FALSE(all.contains(reserved)) << reserved;
}

// hwloc's view of a LUMI-G node agrees with LUMI's table, except for the cores that LUMI reserves and the second
// hardware threads.
TEST(SlurmSite, IsDetectedFromATopology) {
  const auto topology = device::load_topology({.xml_file = std::string(YOKE_TOPOLOGIES) + "/lumi-g.xml"});
  Site site{.name = "lumi", .summary = "", .sources = {}, .checked = ""};
  add_topology(site, device::cpu_locality(topology), device::gpu_localities(topology));
  const auto published = find_site(std::string(YOKE_SITES) + "/lumi-g.toml", {}).site;
  ASSERT_EQ(site.gpus.size(), 8U);
  for (size_t i = 0; i < site.gpus.size(); ++i) {
    EXPECT_TRUE(published.gpus[i].cpus.is_subset_of(site.gpus[i].cpus)) << i;
    EXPECT_EQ(published.gpus[i].numa_node, site.gpus[i].numa_node) << i;
    EXPECT_EQ(published.gpus[i].pci, site.gpus[i].pci) << i;
  }
  site.num_gpus = 4;
  EXPECT_THAT(message_of([&] { add_topology(site, device::cpu_locality(topology), device::gpu_localities(topology)); }),
              HasSubstr("the topology has 8 GPUs, and Slurm's nodes have 4"));
}

TEST(SlurmSite, OfTheUserHidesTheInstalledOne) {
  test::TemporaryFolder home;
  home.write(".config/yoke/sites/mine.toml", "name = \"lumi-g\"\nsummary = \"mine\"\n");
  home.write(".config/yoke/sites/bad.toml", "name = 1\n");
  home.write("share/sites/lumi-g.toml", "name = \"lumi-g\"\nsummary = \"theirs\"\n");
  home.write("share/sites/other.toml", "name = \"other\"\n");
  const auto folders = site_folders({{"HOME", home.path()}}, home.path("share"));
  std::vector<std::string> problems;
  const auto sites = list_sites(folders, problems);
  ASSERT_EQ(sites.size(), 2U);
  EXPECT_EQ(sites[0].site.summary, "mine");
  EXPECT_THAT(problems, ElementsAre(HasSubstr("bad.toml:1: name takes a text")));
  EXPECT_THAT(message_of([&] { find_site("nope", folders); }), HasSubstr("there are: lumi-g, other"));
  std::filesystem::create_symlink(home.path("share/sites/other.toml"), home.path("link.toml"));
  EXPECT_EQ(find_site(home.path("link.toml"), {}).site.name, "other");
  EXPECT_EQ(site_folders({{"HOME", home.path()}, {"XDG_CONFIG_HOME", ""}}, home.path("share")), folders);
}

}  // namespace
}  // namespace yoke::slurm
