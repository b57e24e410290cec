// Tests `yoke plan` as a command: figures by hand, traces, and a program that it measures (fake_training.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/command.h"
#include "tests/support/fake_machine.h"
#include "tests/support/lines.h"

namespace yoke::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class PlanCommand : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directory(folder_.path("tmp")); }

  Result plan(std::vector<std::string> words) const {
    words.insert(words.begin(), {YOKE_COMMAND, "plan"});
    std::vector<std::pair<std::string, std::string>> environment = {
        {"COLUMNS", "160"}, {"TMPDIR", folder_.path("tmp")}, {"YOKE_TEST_TAG", tag_}};
    environment.insert(environment.end(), driver_.begin(), driver_.end());
    return run({.argv = std::move(words), .environment = std::move(environment), .without = {"CUDA_VISIBLE_DEVICES"}});
  }
  Json json(std::vector<std::string> words) const {
    words.insert(words.begin(), "--json");
    const auto result = plan(std::move(words));
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return Json::parse(result.out, nullptr, false);
  }
  void expect_nothing_left() const {
    EXPECT_TRUE(wait_until([&] { return processes_with_tag(tag_).empty(); })) << "processes are left";
    EXPECT_TRUE(std::filesystem::is_empty(folder_.path("tmp"))) << "files are left";
  }
  /// An all-reduce of two ranks that takes 1 ms for 4 MB, and 8 MB/ms beyond its latency of 0.5 ms.
  std::string link_file() const {
    const auto path = folder_.path("link.json");
    std::ofstream(path) << R"({"num_ranks": 2, "compute_delay_percent": 50, "results":
      [{"bytes": 4, "time_ms": 0.5}, {"bytes": 4000000, "time_ms": 1.0}]})";
    return path;
  }

  TemporaryFolder folder_;
  std::string tag_ = new_tag();
  std::vector<std::pair<std::string, std::string>> driver_;
};

TEST_F(PlanCommand, RefusesWhatCannotBeAndDividesABatchAmongItsSamplesAtMost) {
  const std::vector<std::string> words = {"--step", "0.1", "--parameters", "25M", "--gpus-per-node", "8"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), words.begin(), words.end());
    return more;
  };
  EXPECT_EQ(plan(with({"--intra", "0,100", "--slowdown", "0.5"})).exit_code, 64);
  EXPECT_EQ(plan(with({"--link", "/dev/zero"})).exit_code, 64);
  EXPECT_THAT(plan(with({"--intra", "0,100", "--neighbours", "2"})).err, HasSubstr("give one, as in"));
  EXPECT_EQ(plan({"--intra", "0,100", "--neighbours", "1", "--", "true"}).exit_code, 64);
  EXPECT_THAT(plan({"--intra", "0,100", "--neighbours", "2", "--slowdown", "1.1", "--", "true"}).err,
              HasSubstr("leave one of them out"));
  EXPECT_THAT(plan({"--intra", "0,100", "--backward-share", "0.5", "--", "true"}).err, HasSubstr("--optimizer-share"));
  const auto answer = json(with({"--intra", "0,100", "--global-batch", "--batch-size", "4"}));
  ASSERT_EQ(answer["predictions"].size(), 3U);
  EXPECT_EQ(answer["predictions"][2]["num_devices"], 4);
}

TEST_F(PlanCommand, PredictsFromFiguresByHand) {
  const auto svg = folder_.path("plan.svg");
  const auto answer = json({"--step", "100ms", "--parameters", "25M", "--intra", "0,100", "--inter", "0,10",
                            "--strategy", "all", "--steps", "36k", "--svg", svg});
  ASSERT_EQ(answer["predictions"].size(), 39U);
  const auto& one = answer["predictions"][0];
  EXPECT_EQ(one["num_devices"], 1);
  EXPECT_DOUBLE_EQ(one["step_seconds"].get<double>(), 0.1);
  EXPECT_DOUBLE_EQ(one["gpu_hours"].get<double>(), 1);
  EXPECT_EQ(one["memory_bytes"], 400'000'000);
  EXPECT_EQ(answer["predictions"][12]["num_devices"], 4096);
  EXPECT_LT(answer["predictions"][12]["efficiency"].get<double>(), 1);
  EXPECT_THAT(slurp(svg), HasSubstr("<svg"));

  const auto text = plan({"--step", "0.1", "--parameters", "25M", "--link", "5,100", "--max-devices", "16"});
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out, AllOf(HasSubstr("predicted"), HasSubstr("Assumptions:"), HasSubstr("--inter was not given"),
                              HasSubstr("DDP: 16 devices are predicted to reach")));
  EXPECT_THAT(text.out, testing::Not(HasSubstr("measured")));
  // The file of the link says how much an all-reduce delays computing, for a step by hand too.
  const auto delayed = json({"--step", "0.1", "--parameters", "25M", "--link", link_file(), "--max-devices", "2"});
  EXPECT_THAT(delayed["assumptions"].dump(),
              AllOf(HasSubstr("by 50 % of its own time"), HasSubstr("computes 50 % slower")));
}

// Oracle: two copies of a program on one device take 12 ms; the link and contention follow from the file.
TEST_F(PlanCommand, MeasuresAProgramAlone_WithNeighbours_AndRecordsIt) {
  const auto answer = json({"--link", link_file(), "--neighbours", "2", "--time", "1", "--max-devices", "2", "--bucket",
                            "1", "--", "python3", YOKE_PLAN_TRAINING, "runs=" + folder_.path("runs")});
  ASSERT_EQ(answer["predictions"].size(), 2U) << answer;
  const auto &one = answer["predictions"][0], &two = answer["predictions"][1];
  EXPECT_EQ(one["label"], "measured");
  EXPECT_NEAR(one["step_seconds"].get<double>(), 0.010, 1e-6);
  EXPECT_EQ(two["label"], "predicted");
  // 12 ms of computing. Two buckets of 4 MB, each 1 ms: the first one delays backward by half of that, the second one
  // is exposed.
  EXPECT_NEAR(two["step_seconds"].get<double>(), 0.012 + 0.0005 + 0.001, 1e-5) << answer.dump(1);
  EXPECT_NEAR(two["efficiency"].get<double>(), 0.010 / 0.0135, 1e-3);
  EXPECT_EQ(two["memory_bytes"], 2'000'000 * 12);
  EXPECT_THAT(answer["assumptions"].dump(), AllOf(HasSubstr("waited for each other after each step, took 12 ms"),
                                                  HasSubstr("by 50 % of its own time"), HasSubstr("1.2 times as long"),
                                                  HasSubstr("measured with 2 ranks")));
  expect_nothing_left();
}

// Oracle: steps of 10 and 30 ms in turn take 20 ms alone. A copy that does the same the other way round makes all of
// them take 30 ms, if the copies wait for each other. A busy machine makes them longer, never shorter.
TEST_F(PlanCommand, CopiesWaitForEachOtherAfterEachStep) {
  const auto answer =
      json({"--link", link_file(), "--neighbours", "2", "--time", "2", "--max-devices", "2", "--contention", "0",
            "--bucket", "100", "--", "python3", YOKE_PLAN_TRAINING, "uneven", "runs=" + folder_.path("runs")});
  ASSERT_EQ(answer["predictions"].size(), 2U) << answer;
  EXPECT_GE(answer["predictions"][0]["step_seconds"], 0.020);
  EXPECT_GE(answer["predictions"][1]["step_seconds"], 0.030) << "the prediction rests on the step of the copies";
  const auto assumptions = answer["assumptions"].dump();
  const std::string_view before = "waited for each other after each step, took ";
  const auto at = assumptions.find(before);
  ASSERT_NE(at, assumptions.npos) << assumptions;
  EXPECT_GE(std::stod(assumptions.substr(at + before.size())), 30) << assumptions;
  expect_nothing_left();
}

TEST_F(PlanCommand, GivesEachCopyAGpuOfItsOwn) {
  folder_.write("gpus.json", R"({"devices": [{"uuid": "GPU-aaaa0000-1111-2222-3333-444444444444"},
                                             {"uuid": "GPU-bbbb0000-1111-2222-3333-444444444444"}]})");
  driver_ = driver_with(folder_.path("gpus.json"));
  const auto devices = folder_.path("devices");
  const std::vector<std::string> program = {
      "--", "python3", YOKE_PLAN_TRAINING, "runs=" + folder_.path("runs"), "second_run=0.8", "devices=" + devices};
  const auto with = [&](const std::string& num_copies) {
    std::vector<std::string> words = {"--link",        "5,100", "--time",       "1",
                                      "--max-devices", "2",     "--neighbours", num_copies};
    words.insert(words.end(), program.begin(), program.end());
    return words;
  };
  const auto answer = json(with("2"));
  EXPECT_THAT(lines_of(slurp(devices)), testing::UnorderedElementsAre("all", HasSubstr("aaaa"), HasSubstr("bbbb")));
  EXPECT_THAT(answer["assumptions"].dump(), AllOf(HasSubstr("waited for each other after each step, took 8 ms"),
                                                  HasSubstr("take the same time for a step (measured)")));
  const auto refused = plan(with("3"));
  EXPECT_EQ(refused.exit_code, 69);
  EXPECT_THAT(refused.err,
              HasSubstr("--neighbours 3: each copy of python3 needs a GPU of its own, and programs see 2"));
}

TEST_F(PlanCommand, ReadsATraceThatExists) {
  const auto trace = folder_.path("trace.json");
  ASSERT_EQ(run({.argv = {"python3", YOKE_PLAN_TRAINING, "trace=" + trace}}).exit_code, 0);
  const std::vector<std::string> words = {"--profile", trace, "--link", link_file(), "--max-devices", "1"};
  const auto recorded = json(words);
  EXPECT_NEAR(recorded["predictions"][0]["step_seconds"].get<double>(), 0.020, 1e-6);
  EXPECT_EQ(recorded["predictions"][0]["label"], "measured");
  auto with_step = words;
  with_step.insert(with_step.end(), {"--step", "0.01"});
  const auto answer = json(with_step);
  EXPECT_NEAR(answer["predictions"][0]["step_seconds"].get<double>(), 0.010, 1e-6);
  EXPECT_EQ(answer["predictions"][0]["label"], "given");
  EXPECT_THAT(answer["assumptions"].dump(), HasSubstr("2 ms until backward begins, 7 ms of backward and 1 ms"));
  const auto nodes = json({"--profile", trace, "--gpus-per-node", "1", "--inter", link_file()});
  EXPECT_THAT(nodes["assumptions"].dump(), HasSubstr("by 50 % of its own time"));
}

TEST_F(PlanCommand, SaysWhyAProgramCannotBeMeasured) {
  const auto refused = [&](std::vector<std::string> words, int status, const char* why) {
    const auto result = plan(words);
    EXPECT_EQ(result.exit_code, status) << result.err;
    EXPECT_THAT(result.err, HasSubstr(why));
  };
  const std::vector<std::string> program = {"--link", "5,100", "--time", "1", "--", "python3", YOKE_PLAN_TRAINING};
  const auto with = [&](const char* word) {
    auto words = program;
    words.emplace_back(word);
    return words;
  };
  refused(with("fails"), 69, "the data set is not there");
  refused(with("never_steps"), 69, "too few to measure");
  refused(with("ranks=2"), 64, "yoke run -n 1");
  refused({"--link", "5,100", "--", "./no-such-training"}, 69, "./no-such-training: the program was not found");
  auto copies = with("copy=ends");
  copies.insert(copies.begin(), {"--neighbours", "2"});
  refused(copies, 69, "copy 2 of python3 ended after 0 steps");
  copies = with("copy=hangs");
  copies.insert(copies.begin(), {"--neighbours", "2", "--timeout", "10"});
  refused(copies, 69, "copy 2 of python3 made no step for 10 s");
  expect_nothing_left();
  refused({"--step", "0.1", "--parameters", "25M"}, 64, "yoke bench all-reduce");
  refused({"--link", "5,100"}, 64, "--profile FOLDER");
  refused({"--link", "5,100", "--step", "1", "--parameters", "many"}, 64, "--parameters many");
  refused({"--link", "no-such.json", "--step", "1", "--parameters", "1M"}, 66, "no-such.json");
  for (const auto* figures : {"5", "-4,230", ",230", "nan,230", "4,1e300"}) {
    refused({"--link", figures, "--step", "1", "--parameters", "1M"}, 64, "microseconds (0 to 1e9)");
  }
  folder_.write("half.json", R"({"num_ranks": 2, "results": [{"bytes": 4)");
  refused({"--link", folder_.path("half.json"), "--step", "1", "--parameters", "1M"}, 65, "not complete JSON");
  refused({"--link", "5,1", "--step", "120", "--parameters", "1M", "ms"}, 64, "as in 120ms");
  refused({"--link", "5,1", "--profile", "trace.json", "--parameters", "1M"}, 64, "leave --parameters out");
  refused({"--link", "5,1", "--step", "1", "--parameters", "1M", "--time", "3"}, 64, "for a program that is measured");
  refused({"--link", "5,1", "--step", "1", "--parameters", "1M", "--optimizer", "lion"}, 64, "adam, momentum or sgd");
  refused({"--link", "5,fast", "--step", "1", "--parameters", "1M"}, 64, "microseconds (0 to 1e9) and GB/s");
  refused({"--link", "5,1", "--step", "1", "--parameters", "1M", "--epochs", "3"}, 64, "--dataset-size");
  refused({"--link", "5,1", "--step", "1", "--parameters", "1M", "--strategy", "tp"}, 64, "fsdp");
  refused({"--link", "5,1", "--step", "1", "--parameters", "1M", "--dtype", "int8"}, 64, "mixed");
}

}  // namespace
}  // namespace yoke::test
