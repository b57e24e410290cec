#include "yoke/device/selection.h"

#include <gmock/gmock.h>

#include "tests/support/message_of.h"
#include "yoke/base/error.h"

namespace yoke::device {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Words = std::vector<std::string>;

/// NVIDIA's 0 and 1 (with 1:0 and 1:1), AMD's 2 and 3, and the CPU.
Snapshot machine_to_choose_from() {
  Snapshot snapshot;
  snapshot.backends = {{.backend = "nvml", .is_available = true}, {.backend = "amdgpu", .is_available = true}};
  const auto add = [&](Vendor vendor, std::string uuid, std::string bus_id) {
    auto& device = snapshot.devices.emplace_back();
    device.index = static_cast<int64_t>(snapshot.devices.size()) - 1;
    device.vendor = vendor;
    device.facts.uuid = std::move(uuid);
    device.facts.pci_bus_id = std::move(bus_id);
  };
  add(Vendor::kNvidia, "GPU-aaaa-1", "0000:01:00.0");
  add(Vendor::kNvidia, "GPU-aaab-2", "0000:c1:00.0");
  add(Vendor::kAmd, "GPU-00aa", "0000:d1:00.0");
  add(Vendor::kAmd, "GPU-00ab", "0000:d1:00.0");
  add(Vendor::kCpu, "", "");
  snapshot.devices[1].instances = {Device{.index = 0}, Device{.index = 1}};
  snapshot.devices[1].instances[0].facts = {.uuid = "MIG-66", .pci_bus_id = "0000:c1:00.0"};
  snapshot.devices[1].instances[1].facts = {.uuid = "MIG-77", .pci_bus_id = "0000:c1:00.0"};
  return snapshot;
}

Words ids(const Words& words, const Snapshot& snapshot) {
  Words result;
  for (const auto& choice : DeviceSelection::parse(words).resolve(snapshot)) result.push_back(choice.id());
  return result;
}

std::pair<ErrorCode, std::string> refusal(const Words& words, const Snapshot& snapshot = machine_to_choose_from()) {
  const auto error = test::error_of([&] { DeviceSelection::parse(words).resolve(snapshot); });
  return {error.code(), error.what()};
}

TEST(DeviceSelection, NamesDevicesInTheOrderOfTheWords) {
  const struct {
    Words words, ids;
  } kChoices[] = {
      {{"0"}, {"0"}},
      {{"2,0"}, {"2", "0"}},
      {{"2", "0"}, {"2", "0"}},
      {{"1, 0"}, {"1", "0"}},
      {{"0-2"}, {"0", "1", "2"}},
      {{"3-3,1-2"}, {"3", "1", "2"}},
      {{"0,0"}, {"0", "0"}},
      {{"1:1"}, {"1:1"}},
      {{"mig"}, {"1:0", "1:1"}},
      {{"MIG-7"}, {"1:1"}},
      {{"GPU-aaab-2"}, {"1"}},
      {{"GPU-aaaa"}, {"0"}},
      {{"0000:c1:00.0"}, {"1"}},
      {{"00000000:C1:00.0"}, {"1"}},
      {{"c1:00.0"}, {"1"}},
      {{"amd:0"}, {"2"}},
      {{"amd:0-1"}, {"2", "3"}},
      {{"nvidia:1"}, {"1"}},
      {{"cpu"}, {"cpu"}},
      {{"all"}, {"0", "1", "2", "3", "cpu"}},
      {{}, {"0", "1", "2", "3", "cpu"}},
  };
  const auto snapshot = machine_to_choose_from();
  for (const auto& [words, expected] : kChoices) {
    EXPECT_EQ(ids(words, snapshot), expected) << testing::PrintToString(words);
  }
}

TEST(DeviceSelection, WordsThatCanNameNothingAreRefusedBeforeADriverIsAsked) {
  for (const auto* word : {"foo", "GPU-", "MIG-", "-1", "0-", "3-1", "0:", ":1", "0:1:2", "intel:0", "amd:", "amd:x",
                           "amd:1:0", "c1:00", "c1:00.", "zz:00.0", "0x1", "99999999999999999999", "1.5"}) {
    EXPECT_THAT(test::message_of([&] { DeviceSelection::parse({word}); }),
                testing::AllOf(HasSubstr(std::string("`") + word + "`"), HasSubstr("yoke devices -L")));
  }
  for (const auto* list : {"", "0,", ",0", "0,,1"}) {
    EXPECT_THAT(refusal({list}).second, HasSubstr("empty entry")) << list;
  }
}

TEST(DeviceSelection, WhatIsNotThereIsNotFoundAndNamesWhatIs) {
  EXPECT_EQ(refusal({"9"}),
            std::pair(ErrorCode::kNotFound,
                      std::string("there is no device `9` here; there are: 0, 1, 1:0, 1:1, 2, 3, cpu")));
  for (const auto* word : {"4", "0:0", "1:2", "GPU-ff", "MIG-5", "ff:00.0", "amd:2", "nvidia:2"}) {
    const auto [code, message] = refusal({word});
    EXPECT_EQ(code, ErrorCode::kNotFound) << message;
    EXPECT_THAT(message, HasSubstr(std::string("`") + word + "`"));
  }
  EXPECT_THAT(refusal({"2-5"}).second, HasSubstr("`4` (of `2-5`)"));
  auto without_mig = machine_to_choose_from();
  without_mig.devices[1].instances.clear();
  EXPECT_THAT(refusal({"mig"}, without_mig).second, HasSubstr("no MIG instance"));
}

TEST(DeviceSelection, WhatFitsSeveralIsRefused) {
  EXPECT_EQ(refusal({"GPU-aaa"}).first, ErrorCode::kInvalidArgument);
  EXPECT_THAT(refusal({"GPU-aaa"}).second, HasSubstr("2 devices have a UUID with this beginning (0, 1)"));
  EXPECT_THAT(refusal({"d1:00.0"}).second, HasSubstr("2 devices have a PCI bus id like this (2, 3)"));
  auto snapshot = machine_to_choose_from();
  snapshot.devices[0].facts.uuid = "GPU-aaab";  // both a complete UUID and a prefix of a different UUID
  EXPECT_THAT(ids({"GPU-aaab"}, snapshot), ElementsAre("0"));
}

TEST(DeviceSelection, AsksOnlyWhatMayBeMeant) {
  const struct {
    Words words;
    bool nvidia, amd, cpu;
  } kVendors[] = {
      {{}, true, true, true},          {{"all"}, true, true, true},          {{"cpu"}, false, false, true},
      {{"0"}, true, true, false},      {{"0:1"}, true, false, false},        {{"mig"}, true, false, false},
      {{"MIG-1"}, true, false, false}, {{"GPU-1"}, true, true, false},       {{"c1:00.0"}, true, true, false},
      {{"amd:0"}, false, true, false}, {{"nvidia:0,cpu"}, true, false, true}};
  for (const auto& [words, nvidia, amd, cpu] : kVendors) {
    const auto selection = DeviceSelection::parse(words);
    EXPECT_EQ(selection.may_name(Vendor::kNvidia), nvidia) << testing::PrintToString(words);
    EXPECT_EQ(selection.may_name(Vendor::kAmd), amd) << testing::PrintToString(words);
    EXPECT_EQ(selection.may_name(Vendor::kCpu), cpu) << testing::PrintToString(words);
  }
  const DevicePlace second_of_amd{.vendor = Vendor::kAmd, .index = 3, .number = 1};
  for (const auto* word : {"3", "0-9", "amd:1", "GPU-1", "c1:00.0", "all"}) {
    EXPECT_TRUE(DeviceSelection::parse({word}).may_name(second_of_amd)) << word;
  }
  for (const auto* word : {"1", "amd:3", "nvidia:1", "cpu", "3:0", "mig"}) {
    EXPECT_FALSE(DeviceSelection::parse({word}).may_name(second_of_amd)) << word;
  }
}

TEST(DeviceSelection, DevicesThatWereNotAskedCountAndAreNamed) {
  auto snapshot = machine_to_choose_from();
  snapshot.devices.erase(snapshot.devices.begin() + 1, snapshot.devices.begin() + 3);  // 1 and 2
  snapshot.unasked = {{Vendor::kNvidia, 1, 1}, {Vendor::kAmd, 2, 0}};
  EXPECT_THAT(ids({"amd:1"}, snapshot), ElementsAre("3"));
  EXPECT_THAT(refusal({"7"}, snapshot).second, HasSubstr("there are: 0, 1, 2, 3, cpu"));
}

TEST(DeviceSelection, SilenceIsNotAbsence) {
  auto snapshot = machine_to_choose_from();
  snapshot.devices[0].facts = {};
  snapshot.devices[0].state = State::kNoAnswer;
  EXPECT_THAT(ids({"0", "GPU-aaab"}, snapshot), ElementsAre("0", "1"));
  for (const auto* word : {"GPU-ff", "01:00.0", "0:1"}) {
    const auto [code, message] = refusal({word}, snapshot);
    EXPECT_EQ(code, ErrorCode::kUnavailable) << message;
    EXPECT_THAT(message, HasSubstr("device 0 did not answer"));
  }
  EXPECT_EQ(refusal({"9"}, snapshot).first, ErrorCode::kNotFound);

  auto without_driver = machine_to_choose_from();
  without_driver.devices.erase(without_driver.devices.begin(), without_driver.devices.begin() + 2);
  without_driver.backends[0] = {.backend = "nvml", .has_answered = false};
  for (size_t i = 0; i < without_driver.devices.size(); ++i) without_driver.devices[i].index = static_cast<int64_t>(i);
  EXPECT_EQ(refusal({"0"}, without_driver).first, ErrorCode::kUnavailable) << "AMD's first, or NVIDIA's?";
  EXPECT_THAT(ids({"amd:1", "GPU-00aa", "cpu"}, without_driver), ElementsAre("1", "0", "cpu"));
}

TEST(FindDevice, NamesOne) {
  const auto snapshot = machine_to_choose_from();
  EXPECT_EQ(&find_device(snapshot, "1"), &snapshot.devices[1]);
  EXPECT_EQ(&find_device(snapshot, "1:1"), &snapshot.devices[1].instances[1]);
  EXPECT_EQ(&find_device(snapshot, "cpu"), &snapshot.devices[4]);
  EXPECT_THROW(find_device(snapshot, "0-1"), Error);
}

}  // namespace
}  // namespace yoke::device
