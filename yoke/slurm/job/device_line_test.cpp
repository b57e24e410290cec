#include <gtest/gtest.h>

#include "yoke/base/text.h"
#include "yoke/slurm/job/job_top.h"

namespace yoke::slurm {
namespace {

TEST(SlurmDeviceLines, ArePutTogetherThoughNodesSpeakAtOnce) {
  const std::vector<DeviceRow> one = {{.id = "0", .name = "A100 \t x", .state = "busy", .utilization_percent = 87},
                                      {.id = "1", .state = "free", .memory_used_bytes = 5, .num_processes = 2}};
  const std::string a = to_lines("n1", one), b = to_lines("n2", {});
  const auto of_a = lines_of(a), of_b = lines_of(b);
  ASSERT_EQ(of_a.size(), 3U);
  DeviceLines lines;
  EXPECT_FALSE(lines.take(of_a[0]));
  EXPECT_FALSE(lines.take("srun: something else"));
  const auto empty = lines.take(of_b[0]);
  ASSERT_TRUE(empty);
  EXPECT_EQ(empty->node, "n2");
  EXPECT_FALSE(lines.take(of_a[1]));
  const auto sample = lines.take(of_a[2]);
  ASSERT_TRUE(sample);
  EXPECT_EQ(sample->node, "n1");
  ASSERT_EQ(sample->rows.size(), 2U);
  EXPECT_EQ(sample->rows[0].utilization_percent, 87);
  EXPECT_EQ(sample->rows[0].memory_used_bytes, std::nullopt);
  EXPECT_EQ(sample->rows[1], one[1]);
}

TEST(SlurmDeviceLine, SaysWhoseGpusAreShown) {
  const std::vector<DeviceRow> rows = {{.id = "0"}, {.id = "0:1"}, {.id = "1"}, {.id = "cpu"}};
  EXPECT_EQ(num_gpus(rows), 2);
  EXPECT_EQ(whose_gpus(2, 2), "");
  EXPECT_EQ(whose_gpus(0, 0), "");
  EXPECT_EQ(whose_gpus(2, 8),
            "The job has 2 GPUs; the 8 shown are all that its nodes let it open, and the others may belong to other "
            "jobs.");
  EXPECT_EQ(whose_gpus(0, 8),
            "Slurm knows no GPU of this job; the 8 shown are all that its nodes let it open, and they may belong to "
            "other jobs.");
}

}  // namespace
}  // namespace yoke::slurm
