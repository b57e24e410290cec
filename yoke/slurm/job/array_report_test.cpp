#include "yoke/slurm/job/array_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace yoke::slurm {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::Pair;

TaskReport array_task(const std::string& index, const std::string& state, int64_t seconds) {
  TaskReport task;
  task.report.job = {.id = "12_" + index,
                     .number = 20,
                     .array = 12,
                     .array_task = index,
                     .name = "sweep",
                     .user = "ada",
                     .partition = "main",
                     .state = state};
  task.report.job.elapsed = Seconds(seconds);
  task.report.job.limit = Seconds(600);
  if (seconds > 0) task.report.job.node_list = "n1";
  return task;
}

std::vector<TaskReport> tasks_of_array() {
  std::vector<TaskReport> tasks;
  for (int64_t i = 0; i < 10; ++i) {
    tasks.push_back(array_task(std::to_string(i), i == 4 || i == 7 ? "OUT_OF_MEMORY" : "COMPLETED", (i + 1) * 10));
    tasks.back().report.memory_peak_bytes = (i + 1) << 20;
    tasks.back().report.memory_limit_bytes = i < 5 ? 100 << 20 : 200 << 20;
    tasks.back().report.is_out_of_memory = i == 4 || i == 7;
    if (i == 4 || i == 7) tasks.back().advice = {{true, "memory-out", "more than " + std::to_string(i)}};
  }
  tasks[3].report.cpu_percent = 50;
  tasks.push_back(array_task("10-99%4", "PENDING", 0));
  tasks.push_back(array_task("100", "RUNNING", 500));
  tasks.back().report.memory_peak_bytes = int64_t{1} << 40;
  return tasks;
}

TEST(SlurmArrayReport, HasStatesAndTheSpreadOfWhatTasksUsed) {
  const auto report = make_array_report(tasks_of_array());
  EXPECT_EQ(report.num_tasks, 101);
  ASSERT_EQ(report.states.size(), 4U);
  EXPECT_EQ(report.states[0].first, "PENDING");
  EXPECT_EQ(report.states[0].second.size(), 90U);
  EXPECT_THAT(report.states[1], Pair("COMPLETED", ElementsAre(0, 1, 2, 3, 5, 6, 8, 9)));
  EXPECT_THAT(report.states[2], Pair("OUT_OF_MEMORY", ElementsAre(4, 7)));
  // 10, 20, ... 100 s: by the nearest rank, half have at most 50 s, and nine tenths at most 90 s.
  EXPECT_EQ(
      report.seconds,
      (Spread{.num_tasks = 10, .least = 10, .median = 50, .most = 100, .ninety = 90, .most_task = 9, .limit = 600}));
  EXPECT_EQ(report.memory_bytes->most, 10 << 20) << "a task that runs is not counted";
  EXPECT_EQ(report.memory_bytes->limit, 200 << 20);
  EXPECT_EQ(report.memory_bytes->num_tasks, 8U) << "of those that were out of memory, the peaks say nothing";
  EXPECT_THAT(report.out_of_memory, ElementsAre(4, 7));
  EXPECT_EQ(report.cpu_percent->num_tasks, 1U) << "the others are not known";
  EXPECT_EQ(report.cpu_percent->least, report.cpu_percent->most);
  EXPECT_EQ(report.gpu_percent, std::nullopt);
  ASSERT_EQ(report.advice.size(), 1U);
  EXPECT_EQ(report.advice[0].first.text, "more than 4");
  EXPECT_THAT(report.advice[0].tasks, ElementsAre(4, 7));
}

TEST(SlurmArrayReport, IsShownAsTablesAndAsJson) {
  const auto report = make_array_report(tasks_of_array());
  const auto text = to_text(report, 100);
  EXPECT_THAT(text, HasSubstr("array 12 (sweep) of ada: 101 tasks, partition main\n"));
  EXPECT_THAT(text, AllOf(HasSubstr("PENDING           90  10-99\n"), HasSubstr("0-3,5,6,8,9\n")));
  EXPECT_THAT(text, HasSubstr("  ! tasks 4,7: more than 4\n"));
  EXPECT_THAT(text, Not(HasSubstr("GPUs")));
  const auto json = to_json(report);
  EXPECT_EQ(json.at("states").at("OUT_OF_MEMORY"), nlohmann::ordered_json({4, 7}));
  EXPECT_EQ(json.at("elapsed_seconds").at("ninety"), 90);
  EXPECT_TRUE(json.at("gpu_percent").is_null());
  EXPECT_EQ(json.at("out_of_memory"), nlohmann::ordered_json({4, 7}));
  EXPECT_THAT(text, HasSubstr("\ntasks 4,7: the memory did not suffice"));
  EXPECT_THAT(text, Not(HasSubstr("over"))) << "the task with the most was not ended";
  auto ended = tasks_of_array();
  ended[9].report.job.state = "TIMEOUT";
  const auto more = to_text(make_array_report(ended), 100);
  EXPECT_THAT(more, AllOf(HasSubstr("over 1:40"), HasSubstr("\ntask 9: the time limit ended")));
  // A narrow terminal keeps the most, its limit and its task.
  const auto narrow = to_text(make_array_report(ended), 60);
  EXPECT_THAT(narrow, AllOf(HasSubstr("over 1:40"), HasSubstr("most"), HasSubstr("  task\n")));
  std::vector<TaskReport> many;
  for (int64_t i = 0; i < 100; ++i) many.push_back(array_task(std::to_string(2 * i), "COMPLETED", 1));
  EXPECT_THAT(to_text(make_array_report(many), 100), HasSubstr("0,2,4,6,8,10,12,14,16,18,20,22,24,26,28,...\n"));
}

}  // namespace
}  // namespace yoke::slurm
