#include "yoke/curve/recording.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "tests/support/command.h"
#include "tests/support/message_of.h"
#include "tests/support/paths.h"
#include "yoke/base/file.h"

namespace yoke::curve {
namespace {

namespace fs = std::filesystem;
using test::message_of;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<std::string> metrics_of(const Recording& recording) {
  std::vector<std::string> metrics;
  for (const auto& curve : recording.curves) metrics.push_back(curve.metric);
  return metrics;
}

TEST(ReadRun, TakesAMetricFromTheFinestFile) {
  const test::TemporaryFolder folder;
  folder.write("run/metrics.csv", "epoch,loss,accuracy\n1,0.5,0.25\n");
  EXPECT_THAT(metrics_of(read_run(folder.path("run"))), ElementsAre("loss", "accuracy"));
  folder.write("run/events/events.out.tfevents.1.host",
               read_file(test::reference("events/events.out.tfevents.pytorch")));
  EXPECT_THAT(metrics_of(read_run(folder.path("run"))),
              ElementsAre("loss", "läuft/acc", "new style", "double", "epoch/loss", "accuracy"));
  folder.write("run/steps.jsonl", "{\"step\": 7, \"loss\": 3}\n");
  const auto recording = read_run(folder.path("run"));
  EXPECT_THAT(metrics_of(recording), ElementsAre("loss", "läuft/acc", "new style", "double", "epoch/loss", "accuracy"));
  EXPECT_THAT(recording.curves[0].steps, ElementsAre(7));
  EXPECT_THAT(recording.curves[4].epochs, ElementsAre(1));
  EXPECT_THAT(recording.notes, IsEmpty());
}

TEST(ReadRun, TakesOneFileByItsContent) {
  const test::TemporaryFolder folder;
  folder.write("a", "{\"step\": 7, \"loss\": 3}\nx\n");
  folder.write("b", "step,loss\n7,3\n");
  folder.write("c", read_file(test::reference("events/events.out.tfevents.pytorch")));
  folder.write("d", std::string("\x7f"
                                "ELF\0\0",
                                6));
  folder.write("events.out.tfevents.new", "");
  EXPECT_THAT(metrics_of(read_run(folder.path("a"))), ElementsAre("loss"));
  EXPECT_THAT(read_run(folder.path("a")).notes,
              ElementsAre(folder.path("a") + ": 1 record could not be read: line 2 is not a JSON object"));
  EXPECT_THAT(metrics_of(read_run(folder.path("b"))), ElementsAre("loss"));
  EXPECT_EQ(metrics_of(read_run(folder.path("c"))).size(), 4u);
  EXPECT_THAT(message_of([&] { read_run(folder.path("d")); }, ErrorCode::kDataLoss), HasSubstr("holds none of what"));
  EXPECT_THAT(read_run(folder.path("events.out.tfevents.new")).curves, IsEmpty());
}

// SummaryWriter.add_scalars("läuft/acc", {"train": ...}) writes into such a folder beside the writer's own file.
TEST(ReadRun, TakesTheFoldersOfAddScalars) {
  const test::TemporaryFolder folder;
  const auto events = read_file(test::reference("events/events.out.tfevents.pytorch"));
  folder.write("run/events.out.tfevents.1.host", "");
  folder.write("run/läuft_acc_train/events.out.tfevents.2.host", events);
  folder.write("run/loss_val/events.out.tfevents.3.host", events);
  folder.write("run/other/events.out.tfevents.4.host", events);
  EXPECT_THAT(metrics_of(read_run(folder.path("run"))), testing::UnorderedElementsAre("läuft_acc_train", "loss_val"));
  const auto now = fs::file_time_type::clock::now();
  folder.write("later/metrics.csv", "");
  fs::last_write_time(folder.path("run/loss_val/events.out.tfevents.3.host"), now + std::chrono::hours(1));
  EXPECT_EQ(newest_run(folder.path()), folder.path("run"));
}

TEST(ReadRun, TakesTheStateOfATrainer) {
  const test::TemporaryFolder folder;
  const std::string state = "{\n  \"log_history\": [\n    {\"loss\": 1.5, \"step\": 10}\n  ]\n}\n";
  folder.write("out/checkpoint-10/trainer_state.json", state);
  EXPECT_THAT(metrics_of(read_run(folder.path("out/checkpoint-10"))), ElementsAre("loss"));
  EXPECT_THAT(message_of([&] { read_run(folder.path("out")); }, ErrorCode::kNotFound), HasSubstr("out/checkpoint-10"));
  folder.write("array.json", "[\n  {\"step\": 1, \"loss\": 2}]");
  EXPECT_THAT(read_run(folder.path("array.json")).curves.at(0).steps, ElementsAre(1));
}

TEST(ReadRun, SaysWhatIsDoubtful) {
  const test::TemporaryFolder folder;
  folder.write("cut.csv", "step,loss\n1,2\n2,3");
  EXPECT_THAT(
      read_run(folder.path("cut.csv")).notes,
      ElementsAre(folder.path("cut.csv") + ": the last line has no line feed, so its last number may be incomplete"));
  folder.write("utf16.csv", std::string("\xff\xfe"
                                        "e\0",
                                        4));
  EXPECT_THAT(message_of([&] { read_run(folder.path("utf16.csv")); }, ErrorCode::kDataLoss), HasSubstr("UTF-16"));
}

TEST(ReadRun, SaysWhatIsMissing) {
  const test::TemporaryFolder folder;
  folder.write("runs/a/metrics.csv", "epoch,loss\n");
  EXPECT_THAT(message_of([&] { read_run(folder.path("none")); }, ErrorCode::kNotFound), HasSubstr("no such file"));
  EXPECT_THAT(message_of([&] { read_run(folder.path("runs")); }, ErrorCode::kNotFound),
              HasSubstr("give the folders of runs in it, such as " + folder.path("runs/a")));
  EXPECT_THAT(message_of([&] { read_run(folder.path()); }, ErrorCode::kNotFound),
              HasSubstr("give the folder of a run"));
}

TEST(NewestRun, IsTheOneThatWasWrittenLast) {
  const test::TemporaryFolder folder;
  EXPECT_THAT(message_of([&] { newest_run(folder.path("runs")); }, ErrorCode::kNotFound), HasSubstr("no folder"));
  fs::create_directory(folder.path("runs"));
  EXPECT_THAT(message_of([&] { newest_run(folder.path("runs")); }, ErrorCode::kNotFound),
              HasSubstr("no run in the folder"));
  folder.write("runs/a/steps.jsonl", "");
  folder.write("runs/b/metrics.csv", "");
  folder.write("runs/c/other", "");
  const auto now = fs::file_time_type::clock::now();
  fs::last_write_time(folder.path("runs/b/metrics.csv"), now - std::chrono::hours(1));
  EXPECT_EQ(newest_run(folder.path("runs")), folder.path("runs/a"));
  fs::last_write_time(folder.path("runs/b/metrics.csv"), now + std::chrono::hours(1));
  EXPECT_EQ(newest_run(folder.path("runs")), folder.path("runs/b"));
}

}  // namespace
}  // namespace yoke::curve
