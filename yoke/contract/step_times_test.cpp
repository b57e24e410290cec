#include "yoke/contract/step_times.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/support/command.h"
#include "yoke/base/file.h"
#include "yoke/base/text.h"

namespace yoke {
namespace {

TEST(StepTimesFormat, IsReadAsItWasWritten) {
  const StepTimesRank rank{.rank = 1, .world_size = 4, .local_world_size = 2, .pid = 4121};
  EXPECT_EQ(std::get<StepTimesRank>(parse_step_times(to_line(rank))), rank);
  const StepTime time{.step = 7,
                      .time_ns = 81'250'000'001,
                      .memory = {.resident_peak_bytes = 1,
                                 .address_space_peak_bytes = 2,
                                 .address_space_limit_bytes = 3,
                                 .device_peak_bytes = 4,
                                 .device_limit_bytes = 5}};
  EXPECT_EQ(std::get<StepTime>(parse_step_times(to_line(time))), time);
  EXPECT_EQ(to_line(StepTime{.step = 9, .time_ns = 5'000'000'003}), "{\"step\":9,\"seconds\":5.000000003}\n");
}

TEST(StepTimesFormat, OtherLinesAreNotUnderstood) {
  for (const auto* line : {"", "nonsense", "[1]", "{\"step\":\"x\",\"seconds\":1}", "{\"step\":3}", "{\"rank\":{}}",
                           "{\"step\":3,\"seconds\":1e300}", "{\"step\":3,\"seconds\":-1}"}) {
    EXPECT_TRUE(std::holds_alternative<std::monostate>(parse_step_times(line))) << line;
  }
  EXPECT_EQ(std::get<StepTimesRank>(parse_step_times("{\"world_size\":-5,\"local_world_size\":9}")), StepTimesRank{});
}

TEST(StepTimesFormat, IsWhatPythonWrites) {
  const test::TemporaryFolder folder;
  folder.write("steps.py", R"(
import sys
sys.path.insert(0, sys.argv[1])
import yoke_step_times
times = yoke_step_times.StepTimes(sys.argv[2])
for step in range(30):
    times(step)
times.finish()
)");
  std::filesystem::create_directory(folder.path("times"));
  const auto result = test::run(
      {.argv = {"python3", "-B", folder.path("steps.py"), YOKE_REPOSITORY "/tools/python", folder.path("times")},
       .environment = {{"RANK", "1"}, {"WORLD_SIZE", "4"}, {"LOCAL_WORLD_SIZE", "2"}}});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  std::string text;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path("times"))) text += read_file(entry.path());
  const auto lines = lines_of(text);
  ASSERT_GE(lines.size(), 1 + 20 + 1U);
  const auto rank = std::get<StepTimesRank>(parse_step_times(lines[0]));
  EXPECT_EQ(to_line(rank), std::string(lines[0]) + "\n");
  EXPECT_EQ(rank.rank, 1);
  EXPECT_EQ(rank.world_size, 4);
  EXPECT_EQ(rank.local_world_size, 2);
  for (size_t i = 1; i < lines.size(); ++i) {
    const auto time = std::get<StepTime>(parse_step_times(lines[i]));
    if (i <= 20) {
      EXPECT_EQ(time.step, static_cast<int64_t>(i) - 1);
    }
    if (i + 1 == lines.size()) break;
    auto theirs = nlohmann::json::parse(lines[i]), ours = nlohmann::json::parse(to_line(time));
    theirs.erase("seconds"), ours.erase("seconds");  // a double may lack the last digits
    EXPECT_EQ(ours, theirs);
    EXPECT_GT(time.memory.resident_peak_bytes, 1 << 20) << lines[i];
  }
  EXPECT_EQ(std::get<StepTime>(parse_step_times(lines.back())).step, 29);
}

}  // namespace
}  // namespace yoke
