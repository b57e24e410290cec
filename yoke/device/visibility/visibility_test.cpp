#include "yoke/device/visibility/visibility.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>

#include <algorithm>

#include "yoke/device/visibility/detail/rules.h"

namespace yoke::device {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// ---- machines -------------------------------------------------------------------------------------------------------

Device gpu(Vendor vendor, std::string name, std::string uuid, std::string capability = "") {
  Device device;
  device.vendor = vendor;
  device.facts.name = std::move(name);
  device.facts.uuid = std::move(uuid);
  device.facts.compute_capability = std::move(capability);
  return device;
}

Device nvidia(std::string uuid) { return gpu(Vendor::kNvidia, "NVIDIA A100", std::move(uuid), "8.0"); }
Device amd(std::string uuid) { return gpu(Vendor::kAmd, "AMD Instinct MI250X", std::move(uuid)); }

Device mig(std::string uuid, int64_t gpu_instance, int64_t compute_instance) {
  auto instance = nvidia(std::move(uuid));
  instance.facts.gpu_instance = gpu_instance;
  instance.facts.compute_instance = compute_instance;
  return instance;
}

Snapshot machine(std::vector<Device> gpus, const std::string& driver = "") {
  Snapshot snapshot;
  snapshot.backends.push_back({"nvml", true, true, "", driver, ""});
  snapshot.devices = std::move(gpus);
  snapshot.devices.emplace_back();  // the CPU
  for (size_t i = 0; i < snapshot.devices.size(); ++i) {
    auto& device = snapshot.devices[i];
    device.index = static_cast<int64_t>(i);
    device.facts.vendor_index = static_cast<int64_t>(i);
    device.facts.pci_bus_id = fmt::format("0000:{:02x}:00.0", 16 * i + 1);
    for (size_t j = 0; j < device.instances.size(); ++j) device.instances[j].index = static_cast<int64_t>(j);
  }
  return snapshot;
}

std::vector<Device> with_mig() {
  std::vector<Device> gpus = {nvidia("GPU-a0"), nvidia("GPU-b1"), nvidia("GPU-c2"), nvidia("GPU-d3")};
  gpus[1].readings.mig_enabled = true;
  gpus[1].instances = {mig("MIG-10aa", 7, 0), mig("MIG-11bb", 8, 0), mig("MIG-11cc", 8, 1)};
  gpus[2].readings.mig_enabled = true;  // in MIG mode, but without an instance
  gpus[3].readings.mig_enabled = true;
  gpus[3].instances = {mig("MIG-30dd", 1, 0)};
  return gpus;
}

const Snapshot& machine_named(const std::string& name) {
  static const std::map<std::string, Snapshot> machines = {
      {"none", machine({})},
      {"one", machine({nvidia("GPU-8932f937")})},
      {"four", machine({nvidia("GPU-8932f937-d72c"), nvidia("GPU-89aa0000-0001"), nvidia("GPU-1c20e77d-1c1a"),
                        nvidia("GPU-e429a63e-c61c")})},
      {"models", machine({gpu(Vendor::kNvidia, "GeForce GTX 1050", "GPU-slow", "6.1"),
                          gpu(Vendor::kNvidia, "NVIDIA A100", "GPU-middle", "8.0"),
                          gpu(Vendor::kNvidia, "NVIDIA H100", "GPU-fast", "9.0")})},
      {"mig", machine(with_mig(), "535.183.01")},
      {"mig570", machine(with_mig(), "570.133.20")},
      {"mig?", machine(with_mig())},
      {"amd",
       machine({amd("GPU-00aa00000000000b"), amd("GPU-00ab00000000000c"), amd("GPU-fe0000000000000d"), amd("")})},
      {"both", machine({nvidia("GPU-n0"), nvidia("GPU-n1"), amd("GPU-1111111111111111"), amd("GPU-2222222222222222")})},
  };
  return machines.at(name);
}

// ---- the table ------------------------------------------------------------------------------------------------------

struct Row {
  std::string machine;
  std::string variables;  ///< "NAME=value; NAME=value"
  std::string devices;    ///< The devices that programs enumerate, in order, each as Device::index or "INDEX:INSTANCE".
  std::string verdicts;   ///< One letter for each entry of the first variable (see letter()); "-" if not compared.
};

char letter(Verdict verdict) {
  switch (verdict) {
    case Verdict::kVisible: return 'v';
    case Verdict::kDuplicate: return 'd';
    case Verdict::kInvalid: return 'i';
    case Verdict::kOutOfRange: return 'o';
    case Verdict::kAmbiguous: return 'a';
    case Verdict::kUnusable: return 'u';
    case Verdict::kIgnored: return 'g';
    case Verdict::kCancelled: return 'c';
    case Verdict::kNotRead: return 'n';
    case Verdict::kUnknown: return '?';
  }
  return ' ';
}

std::string letters(const std::vector<Entry>& entries) {
  std::string result;
  for (const auto& entry : entries) result += letter(entry.verdict);
  return result;
}

Environment environment_of(const std::string& variables, std::string* first = nullptr) {
  Environment environment;
  for (size_t begin = 0; begin < variables.size();) {
    const auto end = std::min(variables.find("; ", begin), variables.size());
    const auto variable = variables.substr(begin, end - begin);
    const auto name = variable.substr(0, variable.find('='));
    if (first != nullptr && begin == 0) *first = name;
    environment.set(name, variable.substr(name.size() + 1));
    begin = end + 2;
  }
  return environment;
}

std::string shown(const Visibility& visibility) {
  std::vector<std::string> ids;
  for (const auto& device : visibility.devices) {
    if (!device.ordinal) continue;
    ids.push_back(device.instance ? fmt::format("{}:{}", device.index, *device.instance)
                                  : fmt::format("{}", device.index));
  }
  return fmt::format("{}", fmt::join(ids, " "));
}

const std::vector<Row>& rows() {
  static const std::vector<Row> all = {
      // CUDA: all, none, and lists of numbers.
      {"four", "", "0 1 2 3", ""},
      {"four", "CUDA_VISIBLE_DEVICES=", "", ""},
      {"four", "CUDA_VISIBLE_DEVICES=-1", "", "i"},
      {"four", "CUDA_VISIBLE_DEVICES=2,1", "2 1", "vv"},
      {"four", "CUDA_VISIBLE_DEVICES=0,2,-1,1", "0 2", "vvin"},
      {"four", "CUDA_VISIBLE_DEVICES=0, 1, 2, -1, 3", "0 1 2", "vvvin"},
      {"four", "CUDA_VISIBLE_DEVICES=0, 1, 2, 1", "", "cccd"},
      {"four", "CUDA_VISIBLE_DEVICES=0,0", "", "cd"},
      {"four", "CUDA_VISIBLE_DEVICES=0,-1,0", "0", "vin"},
      {"four", "CUDA_VISIBLE_DEVICES=1gpu2,2ampere", "1 2", "vv"},
      {"four", "CUDA_VISIBLE_DEVICES=2, +3, -0, 1", "2 3 0 1", "vvvv"},
      {"four", "CUDA_VISIBLE_DEVICES=one,two,3", "", "inn"},
      {"four", "CUDA_VISIBLE_DEVICES=3,2,two,0", "3 2", "vvin"},
      {"four", "CUDA_VISIBLE_DEVICES=4", "", "o"},
      {"four", "CUDA_VISIBLE_DEVICES=1,4,2", "1", "von"},
      {"four", "CUDA_VISIBLE_DEVICES=99999999999999999999,0", "", "on"},
      {"four", "CUDA_VISIBLE_DEVICES=-99999999999999999999,0", "", "in"},
      {"four", "CUDA_VISIBLE_DEVICES=0,", "0", "vi"},
      {"four", "CUDA_VISIBLE_DEVICES=,0", "", "in"},
      {"four", "CUDA_VISIBLE_DEVICES=0,,1", "0", "vin"},
      {"four", "CUDA_VISIBLE_DEVICES= ", "", "i"},
      {"four", "CUDA_VISIBLE_DEVICES=+", "", "i"},
      {"four", "CUDA_VISIBLE_DEVICES=NoDevFiles", "", "i"},
      {"four", "CUDA_VISIBLE_DEVICES=none", "", "i"},
      {"four", "CUDA_VISIBLE_DEVICES=all", "", "i"},
      {"four", "CUDA_VISIBLE_DEVICES=0;1", "0", "v"},
      {"four", "CUDA_VISIBLE_DEVICES=0 1", "0", "v"},
      {"four", "CUDA_VISIBLE_DEVICES=2\t,\n3", "2 3", "vv"},
      // CUDA: UUIDs.
      {"four", "CUDA_VISIBLE_DEVICES=GPU-8932f937-d72c", "0", "v"},
      {"four", "CUDA_VISIBLE_DEVICES=GPU-8932", "0", "v"},
      {"four", "CUDA_VISIBLE_DEVICES=GPU-e,GPU-1", "3 2", "vv"},
      {"four", "CUDA_VISIBLE_DEVICES=GPU-89", "", "a"},
      {"four", "CUDA_VISIBLE_DEVICES=GPU-e4,GPU-89,GPU-1c", "3", "van"},
      {"four", "CUDA_VISIBLE_DEVICES=GPU-e4,GPU-e429", "", "cd"},
      {"four", "CUDA_VISIBLE_DEVICES=GPU-ffff,GPU-e4", "", "on"},
      {"four", "CUDA_VISIBLE_DEVICES=GPU-8932, 2", "0", "vi"},
      {"four", "CUDA_VISIBLE_DEVICES=2,GPU-8932", "2", "vi"},
      {"four", "CUDA_VISIBLE_DEVICES=GPU-8932, GPU-1c", "0", "vi"},
      {"four", "CUDA_VISIBLE_DEVICES= GPU-8932", "", "i"},
      {"four", "CUDA_VISIBLE_DEVICES=gpu-8932", "", "i"},
      {"four", "CUDA_VISIBLE_DEVICES=GPU-8932f937-d72c-more", "", "o"},
      {"four", "CUDA_VISIBLE_DEVICES=GPU-", "", "a"},
      {"one", "CUDA_VISIBLE_DEVICES=GPU-", "0", "v"},
      {"four", "CUDA_VISIBLE_DEVICES=8932f937", "", "o"},
      {"none", "CUDA_VISIBLE_DEVICES=0", "", ""},
      // CUDA: the order of the devices to which numbers refer.
      {"models", "CUDA_DEVICE_ORDER=PCI_BUS_ID", "0 1 2", ""},
      {"models", "CUDA_VISIBLE_DEVICES=0; CUDA_DEVICE_ORDER=PCI_BUS_ID", "0", "v"},
      {"models", "CUDA_VISIBLE_DEVICES=0", "2", "v"},
      {"models", "", "2 1 0", ""},
      {"models", "CUDA_VISIBLE_DEVICES=2; CUDA_DEVICE_ORDER=PCI_BUS_I", "0", "v"},
      {"models", "CUDA_VISIBLE_DEVICES=1,0; CUDA_DEVICE_ORDER=FASTEST_FIRST", "1 2", "vv"},
      {"models", "CUDA_VISIBLE_DEVICES=GPU-slow,GPU-fast", "0 2", "vv"},
      // MIG before driver 570: a program sees one MIG device and nothing else.
      {"mig", "", "1:0", ""},
      {"mig?", "", "1:0", ""},
      {"mig", "CUDA_VISIBLE_DEVICES=0", "0", "v"},
      {"mig", "CUDA_VISIBLE_DEVICES=0,1", "1:0", "gv"},
      {"mig", "CUDA_VISIBLE_DEVICES=1,3", "1:0", "vg"},
      {"mig", "CUDA_VISIBLE_DEVICES=2", "", "u"},
      {"mig", "CUDA_VISIBLE_DEVICES=2,0", "0", "uv"},
      {"mig", "CUDA_VISIBLE_DEVICES=GPU-b1", "1:0", "v"},
      {"mig", "CUDA_VISIBLE_DEVICES=MIG-11bb", "1:1", "v"},
      {"mig", "CUDA_VISIBLE_DEVICES=MIG-11bb,MIG-10aa", "1:1", "vg"},
      {"mig", "CUDA_VISIBLE_DEVICES=MIG-11", "", "a"},
      {"mig", "CUDA_VISIBLE_DEVICES=MIG-3", "3:0", "v"},
      {"mig", "CUDA_VISIBLE_DEVICES=MIG-9", "", "o"},
      {"mig", "CUDA_VISIBLE_DEVICES=MIG-10aa,MIG-10aa", "", "cd"},
      {"mig", "CUDA_VISIBLE_DEVICES=MIG-10aa,0", "1:0", "vi"},
      {"mig", "CUDA_VISIBLE_DEVICES=MIG-GPU-b1/8/1", "1:2", "v"},
      {"mig", "CUDA_VISIBLE_DEVICES=MIG-GPU-b/7/0", "1:0", "v"},
      {"mig", "CUDA_VISIBLE_DEVICES=MIG-GPU-b1/9/0", "", "o"},
      {"mig", "CUDA_VISIBLE_DEVICES=MIG-GPU-b1/7", "", "i"},
      {"mig", "CUDA_VISIBLE_DEVICES=MIG-GPU-b1/x/0", "", "i"},
      {"mig", "CUDA_VISIBLE_DEVICES=MIG-GPU-z/7/0", "", "o"},
      // MIG from driver 570 on: a program sees one compute instance of each GPU instance, and whole GPUs.
      {"mig570", "", "0 1:0 1:1 3:0", ""},
      {"mig570", "CUDA_VISIBLE_DEVICES=MIG-11bb,MIG-10aa", "1:1 1:0", "vv"},
      {"mig570", "CUDA_VISIBLE_DEVICES=MIG-11bb,MIG-11cc", "1:1", "vg"},
      {"mig570", "CUDA_VISIBLE_DEVICES=1,0", "1:0 1:1 0", "vv"},
      {"mig570", "CUDA_VISIBLE_DEVICES=2,3", "3:0", "uv"},
      // ROCr.
      {"amd", "", "0 1 2 3", ""},
      {"amd", "ROCR_VISIBLE_DEVICES=", "", ""},
      {"amd", "ROCR_VISIBLE_DEVICES=2,0", "2 0", "vv"},
      {"amd", "ROCR_VISIBLE_DEVICES= 1 , 2 ", "1 2", "vv"},
      {"amd", "ROCR_VISIBLE_DEVICES=0x1,+2", "1 2", "vv"},
      {"amd", "ROCR_VISIBLE_DEVICES=010", "", "o"},
      {"amd", "ROCR_VISIBLE_DEVICES=02", "2", "v"},
      {"amd", "ROCR_VISIBLE_DEVICES=08,1", "", "in"},
      {"amd", "ROCR_VISIBLE_DEVICES=1gpu,2", "", "in"},
      {"amd", "ROCR_VISIBLE_DEVICES=0,-1,2", "0", "vin"},
      {"amd", "ROCR_VISIBLE_DEVICES=0,4,2", "0", "von"},
      {"amd", "ROCR_VISIBLE_DEVICES=0,1,0,2", "0 1", "vvdn"},
      {"amd", "ROCR_VISIBLE_DEVICES=3,2,1,0,7", "3 2 1 0", "vvvvn"},
      {"amd", "ROCR_VISIBLE_DEVICES=4294967296", "0", "v"},
      {"amd", "ROCR_VISIBLE_DEVICES=99999999999999999999", "", "i"},
      {"amd", "ROCR_VISIBLE_DEVICES=0,,1", "", "cin"},
      {"amd", "ROCR_VISIBLE_DEVICES=,", "", "i"},
      {"amd", "ROCR_VISIBLE_DEVICES= ", "", "i"},
      {"amd", "ROCR_VISIBLE_DEVICES=0,", "0", "v"},
      {"amd", "ROCR_VISIBLE_DEVICES=GPU-00aa00000000000b", "0", "v"},
      {"amd", "ROCR_VISIBLE_DEVICES=gpu-FE", "2", "v"},
      {"amd", "ROCR_VISIBLE_DEVICES=GPU-0", "", "a"},
      {"amd", "ROCR_VISIBLE_DEVICES=1,GPU-00a,2", "1", "van"},
      {"amd", "ROCR_VISIBLE_DEVICES=GPU-", "", "i"},
      {"amd", "ROCR_VISIBLE_DEVICES=GPU-00aa00000000000b0", "", "i"},
      {"amd", "ROCR_VISIBLE_DEVICES=GPU-fe,2", "2", "vd"},
      {"amd", "ROCR_VISIBLE_DEVICES=GPU-XX", "", "o"},
      {"both", "ROCR_VISIBLE_DEVICES=1", "0 1 3", "v"},
      {"none", "ROCR_VISIBLE_DEVICES=0", "", ""},
      // HIP.
      {"amd", "HIP_VISIBLE_DEVICES=", "0 1 2 3", ""},
      {"amd", "HIP_VISIBLE_DEVICES=2,0", "2 0", "vv"},
      {"amd", "HIP_VISIBLE_DEVICES=-1", "", "i"},
      {"amd", "HIP_VISIBLE_DEVICES=0, 1", "0", "vi"},
      {"amd", "HIP_VISIBLE_DEVICES=01", "", "i"},
      {"amd", "HIP_VISIBLE_DEVICES=+1", "", "i"},
      {"amd", "HIP_VISIBLE_DEVICES=-0", "", "i"},
      {"amd", "HIP_VISIBLE_DEVICES=1x", "", "i"},
      {"amd", "HIP_VISIBLE_DEVICES=0x1", "", "i"},
      {"amd", "HIP_VISIBLE_DEVICES=1,1,2", "1 2", "vdv"},
      {"amd", "HIP_VISIBLE_DEVICES=1,9,2", "1", "von"},
      {"amd", "HIP_VISIBLE_DEVICES=0,", "0", "v"},
      {"amd", "HIP_VISIBLE_DEVICES=,0", "", "in"},
      {"amd", "HIP_VISIBLE_DEVICES=GPU-fe", "2", "v"},
      {"amd", "HIP_VISIBLE_DEVICES=GPU-FE", "", "o"},
      {"amd", "HIP_VISIBLE_DEVICES=GPU-00a", "0", "v"},
      {"amd", "HIP_VISIBLE_DEVICES=GPU-XX", "3", "v"},
      {"amd", "HIP_VISIBLE_DEVICES=fe0000000000000d", "", "i"},
      {"amd", "HIP_VISIBLE_DEVICES=GPU-", "0", "v"},
      {"amd", "CUDA_VISIBLE_DEVICES=3,1", "3 1", "vv"},
      {"amd", "CUDA_VISIBLE_DEVICES=", "0 1 2 3", ""},
      {"amd", "CUDA_VISIBLE_DEVICES=0; HIP_VISIBLE_DEVICES=", "0", "v"},
      {"amd", "HIP_VISIBLE_DEVICES=2; CUDA_VISIBLE_DEVICES=0", "2", "v"},
      {"amd", "GPU_DEVICE_ORDINAL=1", "0 1 2 3", ""},
      // HIP after ROCr.
      {"amd", "HIP_VISIBLE_DEVICES=1; ROCR_VISIBLE_DEVICES=1", "", "o"},
      {"amd", "HIP_VISIBLE_DEVICES=0; ROCR_VISIBLE_DEVICES=1", "1", "v"},
      {"amd", "HIP_VISIBLE_DEVICES=1,0; ROCR_VISIBLE_DEVICES=3,2,1", "2 3", "vv"},
      {"amd", "HIP_VISIBLE_DEVICES=GPU-fe; ROCR_VISIBLE_DEVICES=1,2", "2", "v"},
      {"amd", "HIP_VISIBLE_DEVICES=0; ROCR_VISIBLE_DEVICES=", "", "o"},
      {"amd", "CUDA_VISIBLE_DEVICES=1; ROCR_VISIBLE_DEVICES=1", "", "o"},
      // Both vendors.
      {"both", "", "0 1 2 3", ""},
      {"both", "CUDA_VISIBLE_DEVICES=1", "1 3", "v"},
      {"both", "CUDA_VISIBLE_DEVICES=1; HIP_VISIBLE_DEVICES=0", "1 2", "v"},
      {"both", "CUDA_VISIBLE_DEVICES=", "2 3", ""},
      {"both", "CUDA_VISIBLE_DEVICES=GPU-n1", "1", "v"},
      // Variables for other programs change nothing.
      {"four", "NVIDIA_VISIBLE_DEVICES=2", "0 1 2 3", "v"},
      {"four", "NVIDIA_VISIBLE_DEVICES=none; CUDA_VISIBLE_DEVICES=3", "3", ""},
      {"four", "HIP_VISIBLE_DEVICES=0", "0 1 2 3", ""},
      {"four", "ZE_AFFINITY_MASK=0,x", "0 1 2 3", "?i"},
  };
  return all;
}

TEST(Visibility, FollowsTheRulesOfEachVendor) {
  ASSERT_GE(rows().size(), 80U);
  for (const auto& row : rows()) {
    SCOPED_TRACE(fmt::format("{}: {}", row.machine, row.variables));
    std::string first;
    const auto environment = environment_of(row.variables, &first);
    const auto result = visibility(environment, machine_named(row.machine));
    EXPECT_EQ(shown(result), row.devices);
    if (first.empty()) continue;
    const auto variable = std::find_if(result.variables.begin(), result.variables.end(),
                                       [&](const Variable& other) { return other.name == first; });
    ASSERT_NE(variable, result.variables.end());
    EXPECT_EQ(letters(variable->entries), row.verdicts);
    EXPECT_FALSE(variable->effect.empty());
    for (const auto& entry : variable->entries) EXPECT_FALSE(entry.why.empty()) << entry.text;
  }
}

TEST(Visibility, NumbersEachVendorsDevicesFromZeroAndTellsWhyTheOthersAreHidden) {
  for (const auto& row : rows()) {
    SCOPED_TRACE(fmt::format("{}: {}", row.machine, row.variables));
    const auto result = visibility(environment_of(row.variables), machine_named(row.machine));
    std::map<Vendor, int64_t> next;
    bool hidden = false;
    for (const auto& device : result.devices) {
      if (device.ordinal) {
        EXPECT_FALSE(hidden) << "a visible device after a hidden one";
        EXPECT_EQ(*device.ordinal, next[device.vendor]++);
      }
      hidden = !device.ordinal;
      EXPECT_EQ(hidden, !device.reason.empty()) << device.index;
    }
  }
}

// ---- containers and Intel -------------------------------------------------------------------------------------------

std::string to_text(const std::vector<Unit>& units) {
  std::vector<std::string> ids;
  ids.reserve(units.size());
  for (const auto& unit : units) {
    ids.push_back(unit.instance ? fmt::format("{}:{}", unit.device, *unit.instance) : fmt::format("{}", unit.device));
  }
  return fmt::format("{}", fmt::join(ids, " "));
}

struct ContainerRow {
  std::string machine, text, devices, verdicts;
};

TEST(Visibility, ContainersGetWhatTheToolkitWouldGive) {
  const std::vector<ContainerRow> table = {
      {"four", "all", "0 1 2 3", "v"},
      {"four", "ALL", "0 1 2 3", "v"},
      {"four", "none", "", ""},
      {"four", "void", "", ""},
      {"four", "", "", ""},
      {"four", "2,0", "0 2", "vv"},
      {"four", "2,,0,", "0 2", "vv"},
      {"four", "2,2", "2", "vd"},
      {"four", "GPU-8932F937-D72C", "0", "v"},
      {"four", "GPU-8932", "", "o"},
      {"four", "0,9", "", "co"},
      {"four", "0,none", "", "co"},
      {"four", "0000:21:00.0", "2", "v"},
      {"four", "00000000:31:00.0", "3", "v"},
      {"four", "1,all", "0 1 2 3", "vv"},
      {"four", "all,9", "0 1 2 3", "vn"},
      {"four", "-1", "", "o"},
      {"mig", "all", "0 1:0 1:1 1:2 3:0", "v"},
      {"mig", "1:1,0", "0 1:1", "vv"},
      {"mig", "1", "", "u"},
      {"mig", "MIG-30DD", "3:0", "v"},
      {"mig", "1:7", "", "o"},
  };
  for (const auto& row : table) {
    SCOPED_TRACE(fmt::format("{}: {}", row.machine, row.text));
    Gpus gpus;
    for (const auto& device : machine_named(row.machine).devices) {
      if (device.vendor == Vendor::kNvidia) gpus.push_back(&device);
    }
    const auto selection = select_for_container(row.text, gpus);
    EXPECT_EQ(to_text(selection.units), row.devices);
    EXPECT_EQ(letters(selection.entries), row.verdicts);
  }
}

struct MaskRow {
  std::vector<int64_t> tiles;
  std::string hierarchy, text, devices, verdicts;
};

TEST(Visibility, LevelZeroMasks) {
  const std::vector<int64_t> two_cards = {4, 4};  // the specification's example machine
  const std::vector<MaskRow> table = {
      {two_cards, "COMPOSITE", "0, 1", "0 1", "vv"},
      {two_cards, "COMPOSITE", "0", "0", "v"},
      {two_cards, "COMPOSITE", "1", "1", "v"},
      {two_cards, "COMPOSITE", "0.0", "0:0", "v"},
      {two_cards, "COMPOSITE", "1.1, 1.2", "1:1 1:2", "vv"},
      {two_cards, "COMPOSITE", "0.2, 1.3, 1.0, 0.3", "0:2 0:3 1:0 1:3", "vvvv"},
      {two_cards, "COMPOSITE", "0.0,0.1,0.2,0.3", "0", "vvvv"},
      {two_cards, "COMPOSITE", "0,0.1", "0", "vv"},
      {two_cards, "COMPOSITE", "2,1", "1", "ov"},
      {two_cards, "COMPOSITE", "1.4", "", "o"},
      {two_cards, "COMPOSITE", "1,1", "1", "vd"},
      {two_cards, "COMPOSITE", "0.1.2", "", "i"},
      {two_cards, "COMPOSITE", "", "0 1", ""},
      {two_cards, "FLAT", "0, 1, 2, 3, 4, 5, 6, 7", "0:0 0:1 0:2 0:3 1:0 1:1 1:2 1:3", "vvvvvvvv"},
      {two_cards, "FLAT", "0", "0:0", "v"},
      {two_cards, "FLAT", "5,1", "0:1 1:1", "vv"},
      {two_cards, "FLAT", "0.1,4", "1:0", "gv"},
      {two_cards, "FLAT", "8", "", "o"},
      {two_cards, "COMBINED", "7", "1:3", "v"},
      {two_cards, "FLAT", "", "0:0 0:1 0:2 0:3 1:0 1:1 1:2 1:3", ""},
      {{1, 1}, "FLAT", "1", "1", "v"},
      {{1, 1}, "FLAT", "one,0x1", "1", "iv"},
      {{}, "FLAT", "0,1.0,-1", "", "?gi"},
  };
  for (const auto& row : table) {
    SCOPED_TRACE(fmt::format("{} {}", row.hierarchy, row.text));
    const auto selection = select_level_zero(row.text, row.tiles, row.hierarchy);
    EXPECT_EQ(to_text(selection.units), row.devices);
    EXPECT_EQ(letters(selection.entries), row.verdicts);
  }
}

// ---- certainty ------------------------------------------------------------------------------------------------------

TEST(Visibility, IsCertainOfNumbersOnlyWhereTheOrderIsKnown) {
  const auto is_certain = [](const std::string& name, const std::string& variables) {
    const auto result = visibility(environment_of(variables), machine_named(name));
    return result.devices.at(0).is_certain;
  };
  EXPECT_TRUE(is_certain("four", "CUDA_VISIBLE_DEVICES=1"));
  EXPECT_FALSE(is_certain("four", "CUDA_VISIBLE_DEVICES=01"));
  EXPECT_FALSE(is_certain("models", ""));
  EXPECT_FALSE(is_certain("models", "CUDA_VISIBLE_DEVICES=1"));
  EXPECT_FALSE(is_certain("models", "CUDA_VISIBLE_DEVICES=1; CUDA_DEVICE_ORDER=pci_bus_id"));
  EXPECT_TRUE(is_certain("models", "CUDA_VISIBLE_DEVICES=1; CUDA_DEVICE_ORDER=PCI_BUS_ID"));
  EXPECT_TRUE(is_certain("models", "CUDA_VISIBLE_DEVICES=GPU-slow"));
}

TEST(Visibility, ExplainsWhatIsHidden) {
  const auto reason = [](const std::string& name, const std::string& variables) {
    return visibility(environment_of(variables), machine_named(name)).devices.back().reason;
  };
  EXPECT_EQ(reason("four", "CUDA_VISIBLE_DEVICES="), "CUDA_VISIBLE_DEVICES is empty");
  EXPECT_EQ(reason("four", "CUDA_VISIBLE_DEVICES=0"), "CUDA_VISIBLE_DEVICES does not name it");
  EXPECT_EQ(reason("four", "CUDA_VISIBLE_DEVICES=0,-1,3"),
            "CUDA_VISIBLE_DEVICES: entry 3 is not read, after the end of the list");
  EXPECT_EQ(reason("four", "CUDA_VISIBLE_DEVICES=3,3"),
            "CUDA_VISIBLE_DEVICES: entry 1 is cancelled, entry 2 hides every device");
  EXPECT_EQ(reason("mig", ""), "CUDA programs see other MIG instances, and not this one beside them");
  EXPECT_EQ(reason("amd", "ROCR_VISIBLE_DEVICES=0; HIP_VISIBLE_DEVICES=0"), "ROCR_VISIBLE_DEVICES does not name it");
  auto display_only = machine_named("amd");
  display_only.devices[1].facts.vendor_index.reset();
  const auto renumbered = visibility(environment_of("ROCR_VISIBLE_DEVICES=1"), display_only);
  EXPECT_EQ(shown(renumbered), "2");
  EXPECT_EQ(renumbered.devices.back().reason, "KFD does not list it, so programs cannot compute on it");
  EXPECT_EQ(reason("amd", "ROCR_VISIBLE_DEVICES=1,3; CUDA_VISIBLE_DEVICES=0"), "CUDA_VISIBLE_DEVICES does not name it");
}

// ---- contradictions -------------------------------------------------------------------------------------------------

std::vector<std::string> warnings_of(const std::string& name, const std::string& variables) {
  return contradictions(environment_of(variables), machine_named(name));
}

TEST(Visibility, WarnsOfContradictions) {
  EXPECT_THAT(warnings_of("four", "CUDA_DEVICE_ORDER=PCI_BUS_I"), ElementsAre(HasSubstr("\"PCI_BUS_I\" is neither")));
  EXPECT_THAT(warnings_of("models", "CUDA_VISIBLE_DEVICES=0"), ElementsAre(HasSubstr("CUDA_DEVICE_ORDER=PCI_BUS_ID")));
  EXPECT_THAT(
      warnings_of("four", "CUDA_VISIBLE_DEVICES=0,9,1,2"),
      ElementsAre("CUDA_VISIBLE_DEVICES: entry 2 (\"9\") is out of range: GPUs are counted from 0 to 3; this ends "
                  "the list, and 2 more are not read"));
  EXPECT_THAT(warnings_of("four", "CUDA_VISIBLE_DEVICES=1,1"),
              ElementsAre(HasSubstr("a duplicate hides every device")));
  EXPECT_THAT(warnings_of("mig", "CUDA_VISIBLE_DEVICES=MIG-10,MIG-30"), ElementsAre(HasSubstr("before driver 570")));
  EXPECT_THAT(warnings_of("four", "CUDA_VISIBLE_DEVICES=0; CUDA_MPS_PIPE_DIRECTORY=/tmp/mps"),
              ElementsAre(HasSubstr("name them by UUID")));
  EXPECT_THAT(warnings_of("four", "NVIDIA_VISIBLE_DEVICES=none; CUDA_VISIBLE_DEVICES=0"),
              ElementsAre(HasSubstr("gives containers no GPU")));
  EXPECT_THAT(warnings_of("four", "NVIDIA_VISIBLE_DEVICES=1; CUDA_VISIBLE_DEVICES=0"),
              ElementsAre(HasSubstr("does not give containers device 0")));
  EXPECT_THAT(warnings_of("amd", "ROCR_VISIBLE_DEVICES=1; HIP_VISIBLE_DEVICES=1"),
              ElementsAre(HasSubstr("ROCr shows are counted from 0 to 0"), HasSubstr("programs see 0 of 4")));
  EXPECT_THAT(warnings_of("amd", "ROCR_VISIBLE_DEVICES=1; CUDA_VISIBLE_DEVICES=0"),
              ElementsAre(HasSubstr("programs see 1 of 4")));
  EXPECT_THAT(warnings_of("amd", "ROCR_VISIBLE_DEVICES=1; HIP_VISIBLE_DEVICES=0,0"),
              ElementsAre(HasSubstr("both hide AMD GPUs"), HasSubstr("PyTorch refuses")));
  EXPECT_THAT(warnings_of("amd", "HIP_VISIBLE_DEVICES=1; CUDA_VISIBLE_DEVICES=0"), ElementsAre(HasSubstr("differ")));
  EXPECT_THAT(warnings_of("both", "CUDA_VISIBLE_DEVICES=1"), ElementsAre(HasSubstr("hides AMD GPUs too")));
  EXPECT_THAT(warnings_of("amd", "HIP_VISIBLE_DEVICES="), ElementsAre(HasSubstr("hides no AMD GPU")));
  EXPECT_THAT(warnings_of("amd", "CUDA_VISIBLE_DEVICES="), ElementsAre(HasSubstr("hides no AMD GPU")));
  EXPECT_THAT(warnings_of("amd", "GPU_DEVICE_ORDINAL=0"), ElementsAre(HasSubstr("OpenCL")));
  EXPECT_THAT(warnings_of("none", "ZE_FLAT_DEVICE_HIERARCHY=flat"), ElementsAre(HasSubstr("has no effect")));
  EXPECT_THAT(warnings_of("none", "ZE_AFFINITY_MASK=0.1"), ElementsAre(HasSubstr("COMPOSITE")));
  EXPECT_THAT(warnings_of("four", "CUDA_VISIBLE_DEVICES=\x1b[31m"), ElementsAre(testing::Not(HasSubstr("\x1b"))));
}

TEST(Visibility, IsSilentAboutWhatIsUsual) {
  for (const auto* variables :
       {"", "CUDA_VISIBLE_DEVICES=", "CUDA_VISIBLE_DEVICES=-1", "CUDA_VISIBLE_DEVICES=NoDevFiles",
        "CUDA_VISIBLE_DEVICES=0,1", "CUDA_VISIBLE_DEVICES=GPU-8932", "CUDA_DEVICE_ORDER=PCI_BUS_ID",
        "NVIDIA_VISIBLE_DEVICES=all; CUDA_VISIBLE_DEVICES=0", "NVIDIA_VISIBLE_DEVICES=GPU-of-the-host",
        "NVIDIA_VISIBLE_DEVICES=7; CUDA_VISIBLE_DEVICES=0", "ZE_AFFINITY_MASK=0,1"}) {
    EXPECT_THAT(warnings_of("four", variables), IsEmpty()) << variables;
  }
  for (const auto* variables : {"", "ROCR_VISIBLE_DEVICES=", "ROCR_VISIBLE_DEVICES=0", "HIP_VISIBLE_DEVICES=1",
                                "HIP_VISIBLE_DEVICES=-1", "HIP_VISIBLE_DEVICES=1; CUDA_VISIBLE_DEVICES=1"}) {
    EXPECT_THAT(warnings_of("amd", variables), IsEmpty()) << variables;
  }
}

}  // namespace
}  // namespace yoke::device
