#include "yoke/storage/survey.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "tests/support/command.h"

namespace yoke::storage {
namespace {

struct Disks {
  DiskKind kind;
  const char* device;
  double write, read;  ///< 0: not measured.
  bool is_fastest;
  RootCondition condition = RootCondition::kThere;
};

void expect_fastest(const std::vector<Disks>& disks) {
  std::vector<RootReport> reports;
  for (const auto& disk : disks) {
    RootReport report{.condition = disk.condition, .disk = {disk.kind, disk.device}};
    if (disk.write > 0) report.speed = Speed{disk.write, disk.read};
    reports.push_back(report);
  }
  mark_fastest(reports);
  for (size_t i = 0; i < disks.size(); ++i) EXPECT_EQ(reports[i].is_fastest, disks[i].is_fastest) << disks[i].device;
}

TEST(Survey, TheFastestDiskIsMarked) {
  using enum DiskKind;
  expect_fastest({{kMemory, "tmpfs", 0, 0, false}, {kNvme, "nvme0n1", 0, 0, true}, {kHardDisk, "sda", 0, 0, false}});
  expect_fastest({{kNvme, "nvme0n1", 0, 0, true}, {kNvme, "nvme1n1", 0, 0, true}, {kNetwork, "server:/", 0, 0, false}});
  expect_fastest({{kUnknown, "overlay", 0, 0, false}});
  expect_fastest({{kNetwork, "server:/", 0, 0, true}, {kNetwork, "gone:/", 0, 0, false, RootCondition::kNoAnswer}});
  expect_fastest({{kNvme, "nvme0n1", 0, 0, false, RootCondition::kAbsent}, {kHardDisk, "sda", 0, 0, true}});
  // What was measured counts more than the kind, and the slower of both speeds counts.
  expect_fastest(
      {{kNvme, "nvme0n1", 1e8, 9e9, false}, {kHardDisk, "sda", 2e8, 2e8, true}, {kHardDisk, "sda", 0, 0, true}});
  expect_fastest({{kMemory, "tmpfs", 9e9, 9e9, false}, {kSsd, "sda", 1e8, 1e8, true}});
}

TEST(Survey, AFolderThatAllMayWriteIsNotTheUsersIfItIsOfAnotherUser) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to make the folder of somebody else";
  const test::TemporaryFolder folder;
  std::filesystem::create_directory(folder.path("ada"));
  chmod(folder.path("ada").c_str(), 0777);
  ASSERT_EQ(chown(folder.path("ada").c_str(), 61'002, 61'002), 0);
  const auto condition_of = [&](const std::string& path) {
    return survey({{.name = "data", .path = path}}, "ada", Deadline(Seconds(60)))[0].condition;
  };
  EXPECT_EQ(condition_of(folder.path("{user}")), RootCondition::kForeign);
  EXPECT_EQ(condition_of(folder.path("ada")), RootCondition::kThere) << "a folder that users share";
}

TEST(Survey, EachRootHasItsConditionAndItsReason) {
  const test::TemporaryFolder folder;
  folder.write("there/.keep", "");
  folder.write("file", "");
  for (const auto& [link, target] : {std::pair{"link", "there"}, {"dangling", "nowhere"}, {"loop", "loop"}}) {
    std::filesystem::create_symlink(target, folder.path(link));
  }
  const struct {
    const char *name, *condition, *reason;
  } cases[] = {{"there", "there", ""},
               {"link", "there", ""},
               {"absent/{user}/data", "absent", ""},
               {"file", "no folder", ""},
               {"dangling", "failed", ": No such file or directory"},
               {"loop", "failed", ": Too many levels of symbolic links"},
               {"file/{user}", "failed", ": Not a directory"}};
  std::vector<Root> roots;
  for (const auto& one : cases) roots.push_back({.name = one.name, .path = folder.path(one.name)});
  auto reports = survey(roots, "ada", Deadline(Seconds(60)));
  ASSERT_EQ(reports.size(), std::size(cases));
  for (size_t i = 0; i < reports.size(); ++i) {
    const auto& report = reports[i];
    EXPECT_EQ(name(report.condition), cases[i].condition) << cases[i].name;
    const bool has_failed = report.condition == RootCondition::kFailed;
    EXPECT_EQ(report.reason, has_failed ? report.path + cases[i].reason : "") << cases[i].name;
    EXPECT_EQ(report.free_bytes.has_value(), !has_failed) << "an absent one would be on the disk of the folder above";
    EXPECT_EQ(report.path.find("{user}"), std::string::npos);
    EXPECT_TRUE(report.mount) << cases[i].name;
  }
  EXPECT_EQ(reports[2].total_bytes, reports[0].total_bytes);
  // What cannot be measured is not, and says why.
  reports[0].quotas.list = {{QuotaOf::kUser, 1001, {.used = 1, .hard = int64_t{4} << 30}}};
  reports.erase(reports.begin() + 1);
  measure(reports, Seconds(60), [](const RootReport& report) { ADD_FAILURE() << report.path; });
  EXPECT_EQ(reports[0].speed_reason, "less than 4 GiB are free for you");
  EXPECT_EQ(reports[1].speed_reason, "absent");
  EXPECT_EQ(reports.back().speed_reason, "failed");
}

TEST(Survey, AQuotaLimitsWhatIsFree) {
  RootReport report{.free_bytes = 900};
  EXPECT_EQ(report.usable_bytes(), 900);
  report.quotas.list = {{QuotaOf::kUser, 1001, {.used = 80, .hard = 100}}};
  EXPECT_EQ(report.usable_bytes(), 20);
  report.free_bytes = 5;
  EXPECT_EQ(report.usable_bytes(), 5);
}

}  // namespace
}  // namespace yoke::storage
