#include "yoke/train/run/detail/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/command.h"
#include "tests/support/message_of.h"
#include "yoke/base/file.h"

namespace yoke::train {
namespace {

using test::message_of;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class ReportTest : public testing::Test {
 protected:
  std::string file() const { return read_file(folder_.path("metrics.csv")); }
  EpochTable report(int64_t num_kept = 0) {
    return {folder_.path(), num_kept, [this](const std::string& text) { warnings_.push_back(text); }};
  }
  static EpochRow row(int64_t number, std::vector<std::pair<std::string, double>> figures) {
    return {
        .number = number, .figures = std::move(figures), .samples_per_second = 100, .time = std::chrono::seconds(2)};
  }

  const test::TemporaryFolder folder_;
  std::vector<std::string> warnings_;
};

TEST_F(ReportTest, AFigureKeepsItsColumnInEachEpoch) {
  auto written = report();
  testing::internal::CaptureStdout();
  written.add(row(1, {{"loss", 0.5}, {"learning_rate", 3e-5}}));
  written.add(row(2, {{"loss", 0.25}}));
  written.add(row(3, {{"accuracy", 0.75}, {"loss", 0.125}}));
  const auto table = testing::internal::GetCapturedStdout();
  EXPECT_EQ(file(),
            "epoch,loss,learning_rate,accuracy,samples_per_second,seconds\n"
            "1,0.5,3e-05,,100,2.000\n"
            "2,0.25,,,100,2.000\n"
            "3,0.125,,0.75,100,2.000\n");
  EXPECT_EQ(table,
            "epoch       loss  learning rate  samples/s    time\n"
            "    1     0.5000          3e-05        100   2.0 s\n"
            "    2     0.2500              -        100   2.0 s\n"
            "epoch       loss  learning rate   accuracy  samples/s    time\n"
            "    3     0.1250              -     0.7500        100   2.0 s\n");
}

TEST_F(ReportTest, AResumedRunKeepsItsRowsAndAddsColumns) {
  folder_.write("metrics.csv",
                "epoch,loss,accuracy,samples_per_second,seconds\r\n"
                "1,0.500000,0.25,90,3.000\r\n"
                "2,0.400000,,90,3.000\r\n"
                "3,0.300000,0.5,90,3.000\r\n");
  report(2).add(row(3, {{"accuracy", 0.625}, {"f1", 0.5}}));
  EXPECT_EQ(file(),
            "epoch,loss,accuracy,f1,samples_per_second,seconds\n"
            "1,0.500000,0.25,,90,3.000\n"
            "2,0.400000,,,90,3.000\n"
            "3,,0.625,0.5,100,2.000\n");
  EXPECT_THAT(warnings_, IsEmpty());
}

// Older versions wrote rows without the cells of figures that an epoch did not have.
TEST_F(ReportTest, FiguresOfUnknownColumnsAreLeftOutAndKept) {
  const std::string old =
      "epoch,loss,accuracy,samples_per_second,seconds\n"
      "1,0.5,0.25,90,3.000\n"
      "2,0.4,90,3.000\n"
      "3,0.3,0.5,0.1,90,3.000\n";
  folder_.write("metrics.csv", old);
  report(3).add(row(4, {{"loss", 0.2}}));
  EXPECT_EQ(file(),
            "epoch,loss,accuracy,samples_per_second,seconds\n"
            "1,0.5,0.25,90,3.000\n"
            "2,,,90,3.000\n"
            "3,,,90,3.000\n"
            "4,0.2,,100,2.000\n");
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("2 rows have not as many cells as the header")));
  EXPECT_EQ(read_file(folder_.path("metrics.csv.old")), old);
}

TEST_F(ReportTest, AnotherProgramsFileIsRefused) {
  for (const auto* text : {"\n", "step,loss\n1,2\n", "loss,epoch,samples_per_second,seconds\n", "epoch,seconds\n"}) {
    folder_.write("metrics.csv", text);
    EXPECT_THAT(message_of([&] { report(1); }, ErrorCode::kFailedPrecondition), HasSubstr("move it away")) << text;
  }
}

}  // namespace
}  // namespace yoke::train
