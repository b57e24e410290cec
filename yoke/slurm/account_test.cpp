#include "yoke/slurm/account.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
  EXPECT_EQ(account.requested_bytes, int64_t{16'000} << 20);
  EXPECT_NEAR(account.cpu_seconds.value_or(0), 1.638, 1e-9);
  EXPECT_EQ(account.peak_task_bytes, int64_t{62'352} << 10);
  EXPECT_EQ(account.peak_step_bytes, int64_t{186'748} << 10);
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
      "8_[1-3]|8|PENDING|0:0|1000|1000|Unknown|Unknown|0|10|3||3|24000M||00:00:00|||||||None "
      "assigned|main|ada|None|/w|w|\n");
  ASSERT_EQ(accounts.size(), 3U);
  EXPECT_EQ(accounts[0].job.state, "NODE_FAIL");
  EXPECT_EQ(accounts[0].job.num_gpus, 2);
  EXPECT_EQ(accounts[0].requested_bytes, std::nullopt);
  EXPECT_EQ(accounts[0].cpu_seconds, 7);
  EXPECT_EQ(accounts[1].job.state, "CANCELLED");
  EXPECT_EQ(accounts[1].job.signal, 15);
  EXPECT_EQ(accounts[1].planned, Seconds(10));
  EXPECT_EQ(accounts[1].peak_task_bytes, int64_t{2} << 20);
  EXPECT_EQ(accounts[1].requested_bytes, int64_t{4} << 30);
  EXPECT_EQ(accounts[2].job.array, 8);
  EXPECT_EQ(accounts[2].job.started, std::nullopt);
  EXPECT_EQ(accounts[2].job.node_list, "");
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
