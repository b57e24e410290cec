#include "yoke/tui/processes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "yoke/tui/machine_test.h"

namespace yoke::tui {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<int64_t> pids(const Model& model) {
  std::vector<int64_t> result;
  for (const auto& row : process_list(model).rows) result.push_back(row.key.pid);
  return result;
}

/// Processes 1000 to 1003. 1000 and 1002 belong to ada and use device 0, the others belong to grace and use device 1.
Model four_processes() { return make_model({80, 24}, make_sample(2, 4)); }

TEST(ProcessList, IsSortedByDeviceThenMemory) {
  EXPECT_THAT(pids(four_processes()), ElementsAre(1002, 1000, 1003, 1001));
}

TEST(ProcessList, SortsByWhatIsChosen) {
  auto model = four_processes();
  model.sort_by = SortBy::kPid;
  EXPECT_THAT(pids(model), ElementsAre(1000, 1001, 1002, 1003));
  model.sort_by = SortBy::kMemory;
  EXPECT_THAT(pids(model), ElementsAre(1003, 1002, 1001, 1000)) << "the largest first";
  model.is_reversed = true;
  EXPECT_THAT(pids(model), ElementsAre(1000, 1001, 1002, 1003));
  model.is_reversed = false;
  model.sort_by = SortBy::kUser;
  EXPECT_THAT(pids(model), ElementsAre(1002, 1000, 1003, 1001));
  model.sort_by = SortBy::kUtilization;
  EXPECT_THAT(pids(model), ElementsAre(1003, 1002, 1001, 1000));
  model.sort_by = SortBy::kAge;
  EXPECT_THAT(pids(model), ElementsAre(1003, 1002, 1001, 1000)) << "the oldest first";
}

TEST(ProcessList, WhatIsNotKnownComesLast) {
  auto model = four_processes();
  auto& process = model.sample->snapshot.devices[1].processes[1];  // 1003
  process.memory_bytes.reset();
  process.info.started_at.reset();
  process.info.user.clear();
  for (const auto by : {SortBy::kMemory, SortBy::kAge, SortBy::kUser}) {
    model.sort_by = by;
    EXPECT_EQ(pids(model).back(), 1003) << static_cast<int>(by);
  }
}

TEST(ProcessList, FiltersByTextAsItIsSeen) {
  auto model = four_processes();
  model.text_filter = "RUN 3";
  EXPECT_THAT(pids(model), ElementsAre(1003));
  const auto list = process_list(model);
  EXPECT_EQ(list.num_processes, 4);
  EXPECT_EQ(list.num_shown, 1);
  model.text_filter = "grace";
  EXPECT_THAT(pids(model), ElementsAre(1003, 1001));
  model.text_filter = "no such text";
  EXPECT_THAT(pids(model), ElementsAre());
}

TEST(ProcessList, FiltersByUser) {
  auto model = four_processes();
  model.user_filter = "gr";
  EXPECT_THAT(pids(model), ElementsAre(1003, 1001));
  model.sample->snapshot.devices[0].processes[0].info.user = "gr";  // 1000
  EXPECT_THAT(pids(model), ElementsAre(1000)) << "a whole name means that user alone";
}

TEST(ProcessList, InstancesAreDevices) {
  auto sample = make_sample(2);
  auto& instance = sample.snapshot.devices[1].instances.emplace_back(make_gpu(0));
  instance.processes.push_back(make_process(7, "ada", "a"));
  EXPECT_EQ(process_list(make_model({80, 24}, sample)).rows.at(0).device, "1:0");
}

TEST(ProcessList, AProcessOfAnotherNamespaceStaysWithItsReason) {
  auto sample = make_sample(1);
  device::DeviceProcess process{.pid = 4711, .type = "compute"};
  process.info.is_visible = false;
  process.info.reason = "not in this PID namespace";
  sample.snapshot.devices[0].processes.push_back(process);
  const auto rows = process_list(make_model({80, 24}, sample)).rows;
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].command, "(not in this PID namespace)");
  EXPECT_FALSE(rows[0].is_visible);
}

TEST(ProcessTree, JoinsTheDevicesOfAProcess) {
  auto sample = make_sample(8);
  for (const size_t i : {0, 1, 2, 4, 6, 7}) {
    sample.snapshot.devices[i].processes.push_back(make_process(1000, "ada", "python"));
  }
  auto model = make_model({80, 24}, sample);
  EXPECT_EQ(process_list(model).rows.size(), 6u);
  model.is_tree = true;
  const auto list = process_list(model);
  ASSERT_EQ(list.rows.size(), 1u);
  EXPECT_EQ(list.rows[0].device, "0-2,4,6,7");
  EXPECT_EQ(list.rows[0].memory_bytes, 6 * kGib);
}

/// torchrun (500, of ada) is the parent of 1000 and 1002. Its own parent is a service of root.
Model family() {
  auto sample = make_sample(2, 4);
  for (auto& process : sample.snapshot.devices[0].processes) process.info.parent_pid = 500;
  sample.ancestors[500] = make_process(500, "ada", "torchrun").info;
  sample.ancestors[500].parent_pid = 400;
  sample.ancestors[400] = make_process(400, "root", "sshd").info;
  auto model = make_model({80, 24}, sample);
  model.is_tree = true;
  return model;
}

TEST(ProcessTree, ShowsParentsOfTheSameUser) {
  const auto rows = process_list(family()).rows;
  ASSERT_EQ(rows.size(), 5u);
  EXPECT_EQ(rows[0].key.pid, 500);
  EXPECT_EQ(rows[0].device, "");
  EXPECT_EQ(rows[1].key.pid, 1002);
  EXPECT_EQ(rows[1].branch, "├─ ");
  EXPECT_EQ(rows[2].branch, "└─ ");
  EXPECT_EQ(rows[3].branch, "");
}

TEST(ProcessTree, BranchesStandWhereTheirFirstRowWould) {
  auto model = family();
  model.sort_by = SortBy::kMemory;
  EXPECT_THAT(pids(model), ElementsAre(1003, 500, 1002, 1000, 1001));
}

TEST(ProcessTree, FiltersKeepParents) {
  auto model = family();
  model.text_filter = "--run 2";
  EXPECT_THAT(pids(model), ElementsAre(500, 1002));
}

TEST(ProcessTree, ACircleOfParentsIsCut) {
  auto sample = make_sample(1, 3);
  auto& processes = sample.snapshot.devices[0].processes;
  processes[0].info.parent_pid = 1002;
  processes[1].info.parent_pid = 1000;
  processes[2].info.parent_pid = 1001;
  auto model = make_model({80, 24}, sample);
  model.is_tree = true;
  EXPECT_EQ(process_list(model).rows.size(), 3u);
  processes[0].info.parent_pid = 1000;
  model.sample = sample;
  EXPECT_EQ(process_list(model).rows.size(), 3u) << "its own parent";
}

TEST(ProcessTree, ADeepOneStaysReadable) {
  auto sample = make_sample(1, 500);
  auto& processes = sample.snapshot.devices[0].processes;
  for (size_t i = 1; i < processes.size(); ++i) processes[i].info.parent_pid = processes[i - 1].pid;
  auto model = make_model({80, 24}, sample);
  model.is_tree = true;
  const auto rows = process_list(model).rows;
  ASSERT_EQ(rows.size(), 500u);
  for (const auto& row : rows) EXPECT_LT(row.branch.size(), 200u);
}

TEST(ProcessList, DescriptionsAreHarmless) {
  auto sample = make_sample(1);
  sample.snapshot.devices[0].processes.push_back(
      make_process(5, "ada", "a\x1b]0;title\a" + std::string(500, 'x') + " argument"));
  const auto rows = process_list(make_model({80, 24}, sample)).rows;
  const auto text = describe(rows.at(0));
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_THAT(text, HasSubstr("5 a?]0;title?"));
  EXPECT_LT(text.size(), 80u);
}

}  // namespace
}  // namespace yoke::tui
