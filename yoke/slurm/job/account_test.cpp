#include "yoke/slurm/job/account.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace yoke::slurm {
namespace {

// What sacct 22.05.8 printed, with other names, times and amounts where a comment says so.
TEST(SlurmAccount, HasTheUseOfItsSteps) {
  const auto accounts = parse_sacct(
      "1|1|COMPLETED|0:0|1000|1000|1060|1063|3|5|2||4|16000M||00:01.648|0||||billing=4,cpu=4,gres/gpu=4,node=2|gres/"
      "gpu=4|n[1-2]|main|root|None|/tmp/w|a b|c=d|sbatch -N2 --job-name=a b|c=d -n 4 --wrap x|y\n"
      "1.batch|1.batch|COMPLETED|0:0|1060|1060|1060|1063|3||1|1|1||10816K|00:00.034|900|cpu=00:00:00,mem=10816K||cpu="
      "00:"
      "00:00,mem=10816K|cpu=3,gres/gpu=2,mem=0,node=1||n1|||||batch|\n"
      "1.extern|1.extern|COMPLETED|0:0|1060|1060|1060|1063|3||1|1|1||99999K|00:09.000|0|mem=99999K||||||||||extern|\n"
      "1.0|1.0|COMPLETED|0:0|1060|1060|1060|1063|3||2|4|4||62352K|00:01.604|700|cpu=00:00:00,energy=0,mem=186748K|gres/"
      "gpuutil=37|gres/gpumem=8G|cpu=4,gres/gpu=4,mem=0,node=2||n[1-2]|||||python3|srun -n4 python3\n");
  ASSERT_EQ(accounts.size(), 1U);
  const auto& account = accounts[0];
  EXPECT_EQ(account.job.name, "a b|c=d");
  EXPECT_EQ(account.submit_line, "sbatch -N2 --job-name=a b|c=d -n 4 --wrap x|y");
  EXPECT_EQ(account.job.num_gpus, 4);
  EXPECT_EQ(account.job.limit, Seconds(300));
  EXPECT_EQ(account.planned, Seconds(60));
  EXPECT_EQ(account.memory_bytes, int64_t{16'000} << 20);
  EXPECT_NEAR(account.cpu_seconds.value_or(0), 1.638, 1e-9);
  EXPECT_EQ(account.peak_task_bytes, int64_t{62'352} << 10);
  EXPECT_EQ(account.peak_sum_bytes, int64_t{197'564} << 10) << "of the batch script and the step beside it";
  EXPECT_EQ(account.num_tasks, 4);
  EXPECT_EQ(account.energy_joules, 900);
  EXPECT_EQ(account.gpu_percent, 37);
  EXPECT_EQ(account.gpu_peak_bytes, int64_t{8} << 30);
}

// With --duplicates, each run of a job that was put back has rows of its own.
TEST(SlurmAccount, HasEachRun) {
  const auto accounts = parse_sacct(
      "7|7|NODE_FAIL|0:0|1000|1000|1010|1110|100|5|1||1|0||00:00:00||||||gres/gpu:a100=2|n2|main|ada|None|/w|t|sbatch "
      "t\n"
      "7.batch|7.batch|CANCELLED|0:0|1010|1010|1010|1110|100||1|1|1||1024K|00:07.000|0|||||||||||batch|\n"
      "7|7|CANCELLED by 7001|0:15|1110|1230|1240|1250|10|Partition_Limit|1||1|4Gn||00:00:00||||||||main|ada|None|/w|t|"
      "sbatch t\n"
      "7.batch|7.batch|CANCELLED|0:15|1240|1240|1240|1250|10||1|1|1||2048K|00:01.000|0|||||||||||batch|\n"
      "8_[1-3]|8|PENDING|0:0|1500|1500|Unknown|Unknown|0|10|3||3|24000M||00:00:00|||||||None "
      "assigned|main|ada|None|/w|w|\n");
  ASSERT_EQ(accounts.size(), 3U);
  EXPECT_EQ(accounts[0].job.state, "NODE_FAIL");
  EXPECT_EQ(accounts[0].job.num_gpus, 2);
  EXPECT_EQ(accounts[0].memory_bytes, std::nullopt);
  EXPECT_EQ(accounts[0].cpu_seconds, 7);
  EXPECT_EQ(accounts[1].job.state, "CANCELLED");
  EXPECT_EQ(accounts[1].job.signal, 15);
  EXPECT_EQ(accounts[1].planned, Seconds(10));
  EXPECT_EQ(accounts[1].peak_task_bytes, int64_t{2} << 20);
  EXPECT_EQ(accounts[1].memory_bytes, int64_t{4} << 30);
  EXPECT_EQ(accounts[2].job.array, 8);
  EXPECT_EQ(accounts[2].job.started, std::nullopt);
  EXPECT_EQ(accounts[2].job.node_list, "");
}

// It ended after 2 s, and `yoke slurm resume` put it back after 200 s.
TEST(SlurmAccount, EndsWithItsStepsAlthoughItWasPutBackLater) {
  const auto accounts = parse_sacct(
      "7|7|REQUEUED|0:0|1000|1000|1010|1210|200|5|1||1|0||00:00:00|||||||n2|main|ada|None|/w|t|sbatch t\n"
      "7.batch|7.batch|FAILED|1:0|1010|1010|1010|1012|2||1|1|1||1024K|00:01.000|0|||||||||||batch|\n"
      "7.extern|7.extern|COMPLETED|0:0|1010|1010|1010|1210|200||1|1|1||0|00:00.000|0|||||||||||extern|\n");
  ASSERT_EQ(accounts.size(), 1U);
  EXPECT_EQ(accounts[0].job.elapsed, Seconds(2));
  EXPECT_EQ(accounts[0].job.ended, Time(Seconds(1012)));
}

// The job is FAILED, and a step of it says why.
TEST(SlurmAccount, KnowsAStepThatWasOutOfMemory) {
  const std::string job =
      "16|16|FAILED|1:0|1000|1000|1010|1320|310|10|1||1|2000M||00:00:01|||||||n1|main|ada|None|/w|w|sbatch w\n";
  const auto step = [](const char* state) {
    return std::string("16.0|16.0|") + state +
           "|0:125|1010|1010|1010|1320|310||1|1|1||10960K|00:00:01||||||||||||python3|\n";
  };
  EXPECT_FALSE(parse_sacct(job + step("FAILED")).at(0).is_out_of_memory);
  EXPECT_TRUE(parse_sacct(job + step("OUT_OF_MEMORY")).at(0).is_out_of_memory);
}

/// A row of a job of an hour; `more` replaces cells.
std::string job_row(std::map<size_t, std::string> more) {
  std::vector<std::string> cells = {"7", "7", "COMPLETED", "0:0",   "1000", "1000",     "1010", "4610", "3600",    "60",
                                    "1", "",  "4",         "2000M", "",     "00:00:00", "0",    "",     "",        "",
                                    "",  "",  "n1",        "main",  "ada",  "None",     "/w",   "w",    "sbatch w"};
  for (const auto& [place, text] : more) cells.at(place) = text;
  return fmt::format("{}\n", fmt::join(cells, "|"));
}
std::string step_row(const std::string& id, const std::string& begin, const std::string& end, int64_t mib) {
  return job_row({{0, id},
                  {1, id},
                  {4, begin},
                  {5, begin},
                  {6, begin},
                  {7, end},
                  {11, "1"},
                  {14, fmt::format("{}K", mib << 10)},
                  {17, fmt::format("cpu=00:00:01,mem={}K", mib << 10)}});
}

// Three steps of 500 MiB at once need 1500 MiB, and one after the other 500.
TEST(SlurmAccount, AddsUpTheMemoryOfStepsThatRanAtOnce) {
  const auto peak = [](const std::string& steps) {
    return parse_sacct(job_row({}) + steps).at(0).peak_sum_bytes.value_or(-1) >> 20;
  };
  const auto batch = step_row("7.batch", "1010", "4610", 8);
  EXPECT_EQ(peak(batch + step_row("7.0", "1011", "4600", 500) + step_row("7.1", "1011", "4601", 500) +
                 step_row("7.2", "1012", "4602", 500)),
            1508);
  EXPECT_EQ(peak(batch + step_row("7.0", "1011", "2000", 500) + step_row("7.1", "2000", "3000", 500)), 508);
  EXPECT_EQ(peak(step_row("7.0", "1011", "1011", 500) + step_row("7.1", "1011", "1011", 400)), 500);
  EXPECT_EQ(peak(batch + step_row("7.0", "1011", "Unknown", 500)), 508);
  EXPECT_EQ(peak(""), -1);
}

// --exclusive gives more than was asked for.
TEST(SlurmAccount, HasTheMemoryThatItWasGiven) {
  EXPECT_EQ(parse_sacct(job_row({{13, "100M"}, {20, "billing=8,cpu=8,mem=800M,node=1"}})).at(0).memory_bytes,
            int64_t{800} << 20);
  EXPECT_EQ(parse_sacct(job_row({{13, "0"}, {20, "cpu=8,mem=0,node=1"}})).at(0).memory_bytes, std::nullopt);
}

TEST(SlurmAccount, OfATaskBehindTheLimitOfItsArrayCountsTheWait) {
  const std::map<size_t, std::string> late = {{4, "1000"}, {5, "1600"}, {6, "1600"}};
  auto task = late;
  task[0] = "7_3";
  EXPECT_EQ(parse_sacct(job_row(task)).at(0).planned, Seconds(600));
  EXPECT_EQ(parse_sacct(job_row(late)).at(0).planned, Seconds(0)) << "--begin";
}

TEST(SlurmAccount, MayHaveLineEndsInNames) {
  const auto accounts = parse_sacct(job_row({{27, "two\nlines"}, {28, "sbatch -J two\nlines j.sh"}}) +
                                    step_row("7.batch", "1010", "4610", 8) + job_row({{0, "8"}, {1, "8"}}));
  ASSERT_EQ(accounts.size(), 2U);
  EXPECT_EQ(accounts[0].job.name, "two\nlines");
  EXPECT_EQ(accounts[0].submit_line, "sbatch -J two\nlines j.sh");
  EXPECT_EQ(accounts[0].peak_sum_bytes, 8 << 20);
}

TEST(SlurmAccount, OfAnotherJobWithThisNumberIsToldApart) {
  const auto apart = [](const std::vector<std::map<size_t, std::string>>& rows, std::optional<Job> known = {}) {
    std::string text;
    for (const auto& row : rows) text += job_row(row);
    const auto accounts = known ? tell_jobs_apart(parse_sacct(text), *known) : tell_jobs_apart(parse_sacct(text));
    std::string result;
    for (const auto& one : accounts.runs)
      result += fmt::format("{} ", one.job.submitted->time_since_epoch() / Seconds(1));
    result += "|";
    for (const auto& one : accounts.others)
      result += fmt::format(" {}", one.job.submitted->time_since_epoch() / Seconds(1));
    return result;
  };
  using Row = std::map<size_t, std::string>;
  const Row first = {{4, "1000"}}, second = {{4, "5000"}}, third = {{4, "9000"}};
  const auto with = [](Row row, size_t place, const std::string& text) {
    row[place] = text;
    return row;
  };
  EXPECT_EQ(apart({first}), "1000 |");
  EXPECT_EQ(apart({first, second}), "5000 | 1000") << "a job that has ended is not put back";
  for (const auto* state : {"REQUEUED", "NODE_FAIL", "PREEMPTED"}) {
    EXPECT_EQ(apart({with(first, 2, state), second}), "1000 5000 |") << state;
    EXPECT_EQ(apart({with(with(first, 2, state), 28, "sbatch other"), second}), "5000 | 1000") << state;
    EXPECT_EQ(apart({with(with(first, 2, state), 24, "bob"), second}), "5000 | 1000") << state;
  }
  EXPECT_EQ(apart({first, with(second, 2, "REQUEUED"), third}), "5000 9000 | 1000");
  EXPECT_EQ(apart({with(with(first, 6, "Unknown"), 2, "CANCELLED by 7001"), second}), "5000 | 1000")
      << "it has never started";
  // Tasks of an older array that the newer one lacks.
  const Row old_task = {{0, "7_1"}, {4, "1000"}, {28, "sbatch -a 0-9 w"}}, task = {{0, "7_0"}, {4, "5000"}};
  EXPECT_EQ(apart({old_task, task}), "5000 | 1000");
  // slurmctld knows the newest run before the accounts do.
  const Job known{.number = 7, .user = "ada", .submitted = Time(Seconds(9000))};
  auto again = known;
  again.num_restarts = 1;
  EXPECT_EQ(apart({first, second}, known), "| 1000 5000");
  EXPECT_EQ(apart({first, with(second, 2, "REQUEUED")}, again), "5000 | 1000");
  EXPECT_EQ(apart({with(first, 2, "NODE_FAIL"), third}, known), "9000 | 1000") << "it was never put back";
}

TEST(SlurmAccount, MayLackATime) {
  const auto accounts = parse_sacct(
      "8|8|COMPLETED|0:0|1000|Unknown|1010|1020|10|10|1||1|1G||00:00:00|||||||n1|main|ada|None|/w|w|sbatch w\n"
      "9|9|COMPLETED|0:0|Unknown|1005|1010|1020|10|10|1||1|1G||00:00:00|||||||n1|main|ada|None|/w|w|sbatch w\n");
  ASSERT_EQ(accounts.size(), 2U);
  EXPECT_EQ(accounts[0].planned, Seconds(10));
  EXPECT_EQ(accounts[1].planned, Seconds(5));
}

TEST(SlurmAccount, HasItsOutputInTheLineOfSubmission) {
  EXPECT_EQ(output_option("sbatch -N2 -o /o/%j.out --wrap x", 'o'), "/o/%j.out");
  EXPECT_EQ(output_option("sbatch -N 2 --output=a.out job.sh -o no", 'o'), "a.out");
  EXPECT_EQ(output_option("sbatch -ob.out -e c.err job.sh", 'e'), "c.err");
  EXPECT_EQ(output_option("sbatch -N 2 job.sh -o no", 'o'), "");
  EXPECT_EQ(output_option("sbatch --parsable job.sh", 'o'), "");
  EXPECT_EQ(output_option("sbatch --outp a.out --requeue -o b.out job.sh", 'o'), "b.out");
  EXPECT_EQ(output_option("", 'o'), "");
}

// sacct of 22.05 after `scancel 7_[3-5]` of an array 0-5 whose tasks 0 and 1 have run.
TEST(SlurmAccount, OfAnArrayKeepsTasksThatWereCancelledInTheQueue) {
  const Job recorded{.id = "7_[2-5%1]", .number = 7, .array = 7, .array_task = "2-5%1", .state = "PENDING"};
  const Job waiting{.id = "7_[2%1]", .number = 7, .array = 7, .array_task = "2%1", .state = "PENDING"};
  const Job ran{.id = "7_1", .number = 9, .array = 7, .array_task = "1", .state = "RUNNING"};
  const auto cancelled = cancelled_tasks(recorded, {waiting, ran});
  ASSERT_TRUE(cancelled);
  EXPECT_EQ(cancelled->id, "7_[3-5]");
  EXPECT_EQ(cancelled->array_task, "3-5");
  EXPECT_EQ(cancelled->state, "CANCELLED");
  EXPECT_EQ(cancelled_tasks(recorded, {recorded, ran}), std::nullopt);
  EXPECT_EQ(cancelled_tasks(ran, {ran}), std::nullopt);
  EXPECT_EQ(cancelled_tasks({.number = 3}, {}), std::nullopt) << "it is no array";
}

TEST(SlurmAccount, HasMemoryInUnits) {
  EXPECT_EQ(parse_memory("10816K"), int64_t{10'816} << 10);
  EXPECT_EQ(parse_memory("1.5G"), int64_t{3} << 29);
  EXPECT_EQ(parse_memory("2Gc", 2, 8), int64_t{16} << 30);
  EXPECT_EQ(parse_memory("2Gn", 2, 8), int64_t{4} << 30);
  EXPECT_EQ(parse_memory("1024"), 1024);
  for (const auto* text : {"", "n", "x", "-5K", "1e30G"}) EXPECT_EQ(parse_memory(text), std::nullopt) << text;
}

}  // namespace
}  // namespace yoke::slurm
