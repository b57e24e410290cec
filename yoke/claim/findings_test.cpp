#include "yoke/claim/findings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace yoke::claim {
namespace {

using device::Finding;
using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr Time kTimeOfFindings{std::chrono::seconds(1'795'000'000)};

device::Snapshot snapshot_of(int64_t num_gpus) {
  device::Snapshot snapshot;
  for (int64_t i = 0; i < num_gpus; ++i) {
    device::Device gpu{.index = i, .vendor = device::Vendor::kNvidia, .state = device::State::kFree};
    gpu.facts.uuid = "GPU-" + std::to_string(i);
    gpu.has_process_list = true;
    snapshot.devices.push_back(gpu);
  }
  return snapshot;
}

/// "claim-idle 0: ..."
std::vector<std::string> lines_of(const std::vector<Finding>& findings) {
  std::vector<std::string> lines;
  for (const auto& finding : findings) {
    lines.push_back(std::string(name(finding.status)) + " " + finding.id + " " +
                    (finding.devices.empty() ? "" : finding.devices[0]) + ": " + finding.found);
  }
  return lines;
}

TEST(ClaimFindings, AMachineOfOnePersonHasNone) {
  auto snapshot = snapshot_of(1);
  snapshot.devices[0].processes.push_back({.pid = 7, .type = "compute"});
  EXPECT_THAT(claim_findings({.folder = "/tmp"}, snapshot, kTimeOfFindings), IsEmpty());
}

TEST(ClaimFindings, MistakesOfTheInstallationFail) {
  EXPECT_THAT(
      lines_of(claim_findings({.config_problem = "config.toml:3: no key", .is_prepared = true}, {}, kTimeOfFindings)),
      ElementsAre("fail claim-config : config.toml:3: no key"));
  EXPECT_THAT(lines_of(claim_findings({.folder_problem = "mode 0755", .is_prepared = true}, {}, kTimeOfFindings)),
              ElementsAre("fail claim-folder : mode 0755"));
}

TEST(ClaimFindings, EachDeviceThatIsNotClaimedAsItShouldBe) {
  auto snapshot = snapshot_of(6);
  snapshot.devices[3].processes.push_back({.pid = 7, .type = "compute"});
  snapshot.devices[4].processes.push_back({.pid = 8, .type = "compute"});
  ClaimState state{.folder = "/run/yoke", .is_prepared = true};
  const Note idle{
      .keys = {"GPU-0"},
      .since = kTimeOfFindings - std::chrono::hours(3),
      .activity = Activity{.looked_at = kTimeOfFindings, .used_at = {kTimeOfFindings - std::chrono::hours(2)}}};
  const Note used{.keys = {"GPU-1", "GPU-4"},
                  .since = kTimeOfFindings - std::chrono::hours(3),
                  .activity = Activity{.looked_at = kTimeOfFindings, .used_at = {kTimeOfFindings, kTimeOfFindings}}};
  state.survey.notes = {{.name = "a", .uid = 61'001, .note = idle, .pid = 41},
                        {.name = "b", .uid = 61'002, .note = used, .pid = 42}};
  state.survey.holdings = {{.key = "GPU-0", .uid = 61'001, .pid = 41, .note = 0},
                           {.key = "GPU-1", .is_locked = false, .uid = 61'002, .pid = 42, .note = 1},
                           {.key = "GPU-2", .uid = 61'003, .pid = 43},
                           {.key = "GPU-4", .uid = 61'002, .pid = 42, .note = 1},
                           {.key = "GPU-gone"}};
  EXPECT_THAT(
      lines_of(claim_findings(state, snapshot, kTimeOfFindings)),
      ElementsAre("ok claim-folder : devices are claimed in /run/yoke",
                  "warn claim-idle 0: claimed by uid 61001 (pid 41), and not used for 2 h",
                  "warn claim-locks 1: the lock file of the claim of uid 61002 (pid 42) was replaced",
                  "warn claim-locks 2: locked by uid 61003 (pid 43), but not by yoke",
                  "warn claim-locks : GPU-gone locked by somebody who cannot be seen from here, but not by yoke",
                  "warn claim-missing 3: in use without a claim by process 7, which cannot be seen from here"));
  snapshot.devices[1].processes = {{.pid = 9, .type = "compute", .info = {.uid = 61'003, .user = "bob"}},
                                   {.pid = 10, .type = "compute", .info = {.uid = 61'002, .user = "ada"}},
                                   {.pid = 11, .type = "graphics", .info = {.uid = 61'003, .user = "bob"}},
                                   {.pid = 12, .type = "compute", .info = {.uid = 0, .user = "root"}}};
  EXPECT_THAT(lines_of(claim_findings(state, snapshot, kTimeOfFindings)),
              Contains("warn claim-foreign-use 1: claimed by uid 61002 (pid 42), and used by bob (pid 9)").Times(1));
  snapshot.devices[1].processes.clear();
  state.idle.warn = std::chrono::hours(5);
  EXPECT_THAT(lines_of(claim_findings(state, snapshot, kTimeOfFindings)),
              testing::Not(testing::Contains(HasSubstr("claim-idle"))));
}

}  // namespace
}  // namespace yoke::claim
