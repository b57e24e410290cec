#include "yoke/view/devices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

namespace yoke::view {
namespace {

using device::Device;
using device::DeviceProcess;
using device::Snapshot;
using device::State;
using device::Vendor;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr int64_t kGib = int64_t{1} << 30;

DeviceProcess process(int64_t pid, const std::string& user, int64_t memory_bytes) {
  DeviceProcess result{.pid = pid, .type = "compute", .memory_bytes = memory_bytes};
  result.info.user = user;
  result.info.is_visible = !user.empty();
  return result;
}

Snapshot gpu_pair() {
  Snapshot snapshot;
  Device busy{.index = 0, .vendor = Vendor::kNvidia, .state = State::kBusy};
  busy.facts.name = "NVIDIA A100-SXM4-80GB";
  busy.readings = {.memory_total_bytes = 80 * kGib,
                   .memory_used_bytes = 71 * kGib + kGib / 5,
                   .utilization_percent = 97,
                   .temperature_celsius = 64,
                   .power_mw = 311'600};
  busy.processes = {process(1, "ada", kGib), process(2, "grace", 60 * kGib), process(3, "ada", kGib)};
  Device silent{.index = 1, .vendor = Vendor::kNvidia, .state = State::kNoAnswer, .reason = "no answer for 1 s"};
  snapshot.devices = {busy, silent};
  return snapshot;
}

TEST(Devices, TheTableFitsAndKeepsMemoryAndUsers) {
  const struct {
    int64_t width;
    const char* text;
  } kCases[] = {{83,
                 "#  device                 state      util           memory  temp  power  users\n"
                 "0  NVIDIA A100-SXM4-80GB  busy        97%  71.2 / 80.0 GiB  64 C  312 W  grace, ada\n"
                 "1  NVIDIA GPU             no answer     -                -     -      -  -\n"},
                {80,
                 "#  device              state      util           memory  temp  power  users\n"
                 "0  NVIDIA A100-SXM4-…  busy        97%  71.2 / 80.0 GiB  64 C  312 W  grace, ada\n"
                 "1  NVIDIA GPU          no answer     -                -     -      -  -\n"},
                {60,
                 "#  state      util           memory  users\n"
                 "0  busy        97%  71.2 / 80.0 GiB  grace, ada\n"
                 "1  no answer     -                -  -\n"},
                {40,
                 "#  state               memory  users\n"
                 "0  busy       71.2 / 80.0 GiB  grace, a…\n"
                 "1  no answer                -  -\n"}};
  for (const auto& [width, text] : kCases) EXPECT_EQ(to_text(device_table(gpu_pair()), width), text) << width;
}

TEST(Devices, NamesCannotObeyNorBreakTheTable) {
  auto snapshot = gpu_pair();
  snapshot.devices[0].facts.name = "\x1b[2Jevil\nname\xff";
  EXPECT_THAT(to_text(device_table(snapshot), 80), HasSubstr("?[2Jevil name?"));
  EXPECT_THAT(device_page(snapshot.devices[0], "0"), Not(HasSubstr("\x1b")));
  EXPECT_THAT(to_csv(device_csv(device::DeviceSelection().resolve(snapshot))), Not(HasSubstr("\x1b")));
}

TEST(Devices, AnInstanceThatWasChosenHasItsOwnClaims) {
  auto snapshot = gpu_pair();
  snapshot.devices[0].instances = {Device{.index = 1, .vendor = Vendor::kNvidia}};
  snapshot.devices[1].state = State::kFree;
  const std::vector<ClaimRow> rows = {{.id = "0:1", .user = "ada"}, {.id = "1", .user = "bob"}};
  const auto users = [&](const std::string& word) {
    auto json = nlohmann::ordered_json::parse(R"({"devices": [{"instances": [{}]}]})");
    add_claims(json, device::DeviceSelection::parse({word}).resolve(snapshot), &rows);
    std::string text;
    const auto& entry = json["devices"][0];
    for (const auto& claim : entry["claims"]) text += claim.at("user").get<std::string>() + " ";
    for (const auto& claim : entry["instances"][0].value("claims", nlohmann::ordered_json::array())) {
      text += "in it " + claim.at("user").get<std::string>();
    }
    return text;
  };
  EXPECT_EQ(users("0:1"), "ada ");
  EXPECT_EQ(users("0"), "in it ada");
  EXPECT_EQ(users("1"), "bob ");
}

TEST(Devices, PurposesOfSeveralClaimsCanBeToldApart) {
  const std::vector<ClaimRow> rows = {{.id = "0", .user = "ada", .purpose = "a, \"b\""},
                                      {.id = "0", .user = "bob", .purpose = "c"}};
  const auto table = device_csv(device::DeviceSelection().resolve(gpu_pair()), rows);
  EXPECT_EQ(table.columns.back().title, "claim_purposes");
  EXPECT_EQ(table.rows[0].back(), "\"a, \"\"b\"\"\", c");
}

TEST(Devices, NotesSayWhyThereIsNothing) {
  EXPECT_THAT(device_notes(gpu_pair()), ElementsAre("device 1: no answer for 1 s"));
  Snapshot none;
  none.backends = {{.backend = "nvml", .reason = "no NVIDIA driver"}, {.backend = "amdgpu", .reason = "no AMD driver"}};
  none.devices = {Device{.vendor = Vendor::kCpu}};
  EXPECT_THAT(device_notes(none), ElementsAre("no GPU: no NVIDIA driver; no AMD driver"));
  auto broken = gpu_pair();
  broken.devices.pop_back();
  broken.backends = {{.backend = "nvml", .is_available = true}, {.backend = "amdgpu", .reason = "no AMD driver"}};
  EXPECT_THAT(device_notes(broken), IsEmpty()) << "a machine with GPUs of one vendor need not hear of the other";
}

TEST(Devices, ThePageLeavesOutWhatIsNotKnown) {
  const auto page = device_page(gpu_pair().devices[0], "0");
  EXPECT_THAT(page, HasSubstr("Device 0: NVIDIA A100-SXM4-80GB\n"));
  EXPECT_THAT(page, HasSubstr("  memory used               71.2 GiB\n"));
  EXPECT_THAT(page, Not(HasSubstr("ECC")));
  EXPECT_THAT(page, HasSubstr("2 grace"));
}

}  // namespace
}  // namespace yoke::view
