// Tests `yoke profile --trace`: the recorded trainings, what it prints, and the files that it refuses.
#include "tests/support/command.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/profile/simulation.h"
#include "yoke/profile/trace_file.h"

namespace yoke::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using Json = nlohmann::json;

Result yoke(std::vector<std::string> words) {
  words.insert(words.begin(), {YOKE_COMMAND, "profile"});
  return run({.argv = std::move(words), .environment = {{"COLUMNS", "160"}}});
}

// plant.py recorded these traces on two processors (docs/profile.md has the figures). gain.json beside the traces says
// how much shorter the same steps are without the bottleneck.
struct Recorded {
  std::string folder, bottleneck;
};
void PrintTo(const Recorded& recorded, std::ostream* out) { *out << recorded.folder; }

class RecordedTraining : public testing::TestWithParam<Recorded> {};

TEST_P(RecordedTraining, IsNamedWithTheGainThatWasMeasured) {
  const auto folder = std::string(YOKE_RECORDED "/") + GetParam().folder;
  const auto traces = profile::find_traces(folder + "/traces");
  const auto result = yoke({"--trace", folder + "/traces", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto report = Json::parse(result.out);
  EXPECT_EQ(report["bottleneck"], GetParam().bottleneck) << result.out;
  ASSERT_EQ(report["ranks"].size(), traces.size());
  if (GetParam().bottleneck == "none") return;
  const auto gain = Json::parse(slurp(folder + "/gain.json"));
  EXPECT_NEAR(report["gain_ceiling_percent"].get<double>(), gain["gain_percent"].get<double>(), 10) << result.out;
  EXPECT_THAT(report["evidence"].size(), testing::Ge(2));
}

const Recorded kRecorded[] = {
    {"healthy_mlp", "none"},
    {"healthy_cnn", "none"},
    {"healthy_ddp", "none"},
    {"slow_dataset", "data_loading"},
    {"slow_worker", "data_loading"},
    {"slow_collate", "data_loading"},
    {"large_gradients", "communication"},
    {"synchronous_all_reduce", "communication"},
    {"slow_rank", "skew"},
    {"slow_loader_of_one_rank", "skew"},
    {"tiny_operations", "small_operations"},
    {"loop_optimizer", "optimizer"},
    {"one_thread", "threads"},
};
INSTANTIATE_TEST_SUITE_P(All, RecordedTraining, testing::ValuesIn(kRecorded),
                         [](const auto& test) { return test.param.folder; });

TEST(ProfileCommand, NamesWhatTakesTheTime) {
  const auto evidence = [](const std::string& folder) {
    return Json::parse(yoke({"--trace", std::string(YOKE_RECORDED "/") + folder, "--json"}).out)["evidence"].dump();
  };
  EXPECT_THAT(evidence("tiny_operations/traces"), HasSubstr("MulBackward0"));
  EXPECT_THAT(evidence("slow_worker/traces"), HasSubstr("_MultiProcessingDataLoaderIter"));
  EXPECT_THAT(evidence("slow_dataset/traces"), HasSubstr("_SingleProcessDataLoaderIter"));
  EXPECT_THAT(evidence("loop_optimizer/traces"), HasSubstr("Optimizer.step#Adam.step"));
}

TEST(ProfileCommand, PrintsTheAnswerFirst) {
  TemporaryFolder folder;
  const auto all = simulate({.num_ranks = 2, .late_us = 14'000});
  for (size_t rank = 0; rank < all.traces.size(); ++rank) folder.write(fmt::format("r{}.json", rank), all.traces[rank]);
  const auto result = yoke({"--trace", folder.path()});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.err, IsEmpty());
  EXPECT_THAT(result.out, testing::StartsWith("Waiting for a slow rank limits this training: a fix saves at most "));
  EXPECT_THAT(result.out, AllOf(HasSubstr("Rank 1 comes last"), HasSubstr("\nNext: ")));
  const auto one = yoke({"--trace", folder.path("r0.json"), folder.path("r1.json"), "--json"});
  EXPECT_EQ(Json::parse(one.out)["straggler"]["rank"], 1);
}

/// Writes the traces of a simulated training into a folder of its own.
std::string write_traces(const TemporaryFolder& folder, const std::string& name, const Training& training) {
  std::filesystem::create_directory(folder.path(name));
  const auto all = simulate(training);
  for (size_t rank = 0; rank < all.traces.size(); ++rank) {
    folder.write(fmt::format("{}/r{}.json", name, rank), all.traces[rank]);
  }
  return folder.path(name);
}

TEST(ProfileCommand, ComparesTwoTrainings) {
  TemporaryFolder folder;
  const auto a = write_traces(folder, "a", {.seed = 1, .num_ranks = 2});
  const auto b = write_traces(folder, "b", {.seed = 2, .num_ranks = 2, .loader_us = 60'000});
  const auto text = yoke({"--compare", a, b});
  ASSERT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out, testing::MatchesRegex("B's step takes [0-9.]+ ms longer than A's .*: [0-9.]+ ms in the data "
                                              "loader\\.\n\nphase +A ms(.|\n)*"));
  EXPECT_EQ(yoke({"--compare", b, a}).out.substr(0, 14), "B's step takes");
  const auto json = Json::parse(yoke({"--compare", a, b, "--json"}).out);
  EXPECT_EQ(json["cause"]["phase"], "data_loading");
  EXPECT_FALSE(json["step"]["is_noise"]);
  EXPECT_GT(json["step"]["difference_ms"], 5);

  const auto same = yoke({"--compare", a, write_traces(folder, "c", {.seed = 3, .num_ranks = 2})});
  EXPECT_THAT(same.out, testing::StartsWith("B's step takes as long as A's"));
}

TEST(ProfileCommand, FindsWhatWasPlantedInARecordedTraining) {
  const auto compare = [](const std::string& a, const std::string& b) {
    const auto folder = [](const std::string& name) { return std::string(YOKE_RECORDED "/") + name + "/traces"; };
    const auto result = yoke({"--compare", folder(a), folder(b), "--json"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    auto json = Json::parse(result.out);
    double a_ms = 0, b_ms = 0;  // phases are all of the step
    for (const auto& one : json["phases"]) {
      a_ms += one["a_ms"].get<double>();
      b_ms += one["b_ms"].get<double>();
    }
    EXPECT_NEAR(a_ms, json["step"]["a_ms"].get<double>(), 0.06) << result.out;
    EXPECT_NEAR(b_ms, json["step"]["b_ms"].get<double>(), 0.06) << result.out;
    return json;
  };
  EXPECT_EQ(compare("healthy_mlp", "slow_dataset")["cause"]["phase"], "data_loading");
  EXPECT_EQ(compare("slow_dataset", "healthy_mlp")["cause"]["phase"], "data_loading");
  EXPECT_EQ(compare("healthy_mlp", "loop_optimizer")["cause"]["phase"], "optimizer");
  for (const auto& phase : compare("healthy_ddp", "slow_loader_of_one_rank")["phases"]) {
    EXPECT_EQ(phase["rank"], phase["phase"] == "data_loading" ? Json(1) : Json()) << phase;
  }
}

TEST(ProfileCommand, ComparesReportsThatWereSavedAsJson) {
  TemporaryFolder folder;
  const auto a = write_traces(folder, "a", {.seed = 1, .num_ranks = 2});
  const auto b = write_traces(folder, "b", {.seed = 2, .num_ranks = 4, .num_steps = 9, .matmul_us = 600});
  folder.write("b.json", yoke({"--trace", b, "--json"}).out);
  const auto result = yoke({"--compare", a, folder.path("b.json")});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, yoke({"--compare", a, b}).out);
  EXPECT_THAT(result.out, AllOf(HasSubstr("A has 2 ranks and B 4"), HasSubstr("A has 5 steps and B 8")));
}

TEST(ProfileCommand, ComparesTwoThingsThatAreThere) {
  TemporaryFolder folder;
  folder.write("a.json", "[" + trace_event("") + "]");
  folder.write("old.json", R"({"bottleneck": "none", "ranks": []})");
  EXPECT_EQ(yoke({"--compare", folder.path("a.json")}).exit_code, 64);
  EXPECT_EQ(yoke({"--compare", folder.path("a.json"), folder.path("none.json")}).exit_code, 66);
  const auto old = yoke({"--compare", folder.path("a.json"), folder.path("old.json")});
  EXPECT_EQ(old.exit_code, 65);
  EXPECT_THAT(old.err, HasSubstr("old.json"));
  const auto both = yoke({"--compare", folder.path("a.json"), folder.path("a.json"), "--trace", folder.path("a.json")});
  EXPECT_EQ(both.exit_code, 64);
  EXPECT_THAT(both.err, HasSubstr("--compare"));
}

TEST(ProfileCommand, PrintsNothingThatATerminalObeys) {
  TemporaryFolder folder;
  folder.write("rank\x1b[31m\n0.json", "[" + trace_event("") + "]");
  const auto result = yoke({"--trace", folder.path()});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, Not(HasSubstr("\x1b")));
}

struct Refused {
  std::string test, text;
};
void PrintTo(const Refused& refused, std::ostream* out) { *out << refused.test; }

class RefusedFile : public testing::TestWithParam<Refused> {};

TEST_P(RefusedFile, IsNamed) {
  TemporaryFolder folder;
  folder.write("some.json", GetParam().text);
  for (const auto& path : {folder.path("some.json"), folder.path()}) {
    const auto result = yoke({"--trace", path});
    EXPECT_EQ(result.exit_code, 65);
    EXPECT_THAT(result.err, AllOf(testing::StartsWith("yoke profile: "), HasSubstr(folder.path("some.json"))));
    EXPECT_THAT(result.out, IsEmpty());
  }
}

const Refused kRefused[] = {
    {"Empty", ""},
    {"Text", "no trace"},
    {"NulBytes", std::string(1000, '\0')},
    {"Program", std::string("\x7f"
                            "ELF\2\1\1\0\0",
                            9)},
    {"NoMembers", "{}"},
    {"NoEvents", R"({"traceEvents": []})"},
    {"EventsOfOtherTypes", R"({"traceEvents": [1, "a", null, [[]], {"ph": 5, "cat": {}, "name": [], "ts": "x"}]})"},
    {"EventsAreText", R"({"traceEvents": "X", "distributedInfo": 7, "host": []})"},
    {"NumbersOutOfRange", R"([{"ph": "X", "cat": "cpu_op", "name": "a", "ts": 1e999, "dur": 99999999999999999999}])"},
    {"DeepNesting", std::string(1'000'000, '[')},
    {"DeepObjects",
     [] {
       std::string text;
       for (int i = 0; i < 100'000; ++i) text += R"({"a":)";
       return text;
     }()},
    {"DamagedArchive", std::string("\x1f\x8b\x08\0\0\0\0\0\0\3 damaged", 20)},
    {"EmptyArchive", std::string("\x1f\x8b\x08\0\0\0\0\0\0\3", 10)},
};
INSTANTIATE_TEST_SUITE_P(All, RefusedFile, testing::ValuesIn(kRefused),
                         [](const auto& test) { return test.param.test; });

TEST(ProfileCommand, SaysWhichFileIsMissing) {
  TemporaryFolder folder;
  const auto missing = yoke({"--trace", folder.path("missing.json")});
  EXPECT_EQ(missing.exit_code, 66);
  EXPECT_THAT(missing.err, HasSubstr(folder.path("missing.json")));
  folder.write("readme.txt", "not a trace");
  ASSERT_EQ(mkfifo(folder.path("waits.json").c_str(), 0600), 0);  // reading this pipe would block for ever
  std::filesystem::create_symlink("/no/such/trace.json", folder.path("vanished.json"));
  std::filesystem::create_directory(folder.path("folder.json"));
  const auto none = yoke({"--trace", folder.path()});
  EXPECT_EQ(none.exit_code, 66);
  EXPECT_THAT(none.err, AllOf(HasSubstr(folder.path()), HasSubstr("there is no trace in this folder")));
  const auto vanished = yoke({"--trace", folder.path("vanished.json")});
  EXPECT_EQ(vanished.exit_code, 66);
  EXPECT_THAT(vanished.err, HasSubstr("vanished.json"));
}

TEST(ProfileCommand, WithoutTracesSaysWhatToGive) {
  const auto result = yoke({});
  EXPECT_EQ(result.exit_code, 64);
  EXPECT_THAT(result.err, AllOf(testing::StartsWith("yoke profile: "), HasSubstr("--trace"), HasSubstr("--help")));
}

TEST(ProfileCommand, ReadsATruncatedArchiveAsFarAsItGoes) {
  TemporaryFolder folder;
  const auto whole = slurp(YOKE_RECORDED "/slow_dataset/traces/rank0.json.gz");
  folder.write("rank3.json.gz", whole.substr(0, whole.size() / 2));
  const auto result = yoke({"--trace", folder.path(), "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto report = Json::parse(result.out);
  EXPECT_EQ(report["ranks"][0]["rank"], 3);
  EXPECT_THAT(report["notes"].dump(), HasSubstr("rank3.json.gz ends in the middle"));
}

TEST(ProfileCommand, SaysWhichRankEachFileIs) {
  TemporaryFolder folder;
  folder.write("rank2.json", "[" + trace_event("") + "]");
  folder.write("host_4121.rank-7.pt.trace.json", "[" + trace_event("") + "]");
  const auto report = Json::parse(yoke({"--trace", folder.path(), "--json"}).out);
  ASSERT_EQ(report["ranks"].size(), 2);
  EXPECT_EQ(report["ranks"][0]["rank"], 2);
  EXPECT_EQ(report["ranks"][0]["trace"], folder.path("rank2.json"));
  EXPECT_EQ(report["ranks"][1]["rank"], 7);
  const auto narrow =
      run({.argv = {YOKE_COMMAND, "profile", "--trace", folder.path()}, .environment = {{"COLUMNS", "80"}}});
  EXPECT_THAT(narrow.out, AllOf(HasSubstr("\n   2  rank2.json "), HasSubstr("\n   7  host_4121")));
}

TEST(ProfileCommand, ShowsProgressOnATerminalOnly) {
  TemporaryFolder folder;
  const auto path = folder.path("slow.json");
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  for (const bool on_terminal : {true, false}) {
    Command command({.argv = {YOKE_COMMAND, "profile", "--trace", path}, .on_terminal = on_terminal});
    {
      const UniqueFd fd(open(path.c_str(), O_WRONLY | O_CLOEXEC));
      ASSERT_TRUE(fd);
      const std::string blanks(1 << 20, ' ');
      const auto has_shown = [&] { return command.out().find("slow.json: ") != std::string::npos; };
      const auto end = std::chrono::steady_clock::now() + (on_terminal ? milliseconds(20'000) : milliseconds(1'000));
      while (!has_shown() && std::chrono::steady_clock::now() < end) {
        write_all(fd.value(), std::as_bytes(std::span(blanks)), path);
        command.wait_until(has_shown, milliseconds(50));
      }
      const auto text = "[" + trace_event("") + "]";
      write_all(fd.value(), std::as_bytes(std::span(text)), path);
    }
    const auto result = command.wait();
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_EQ(result.out.find("slow.json: ") != std::string::npos, on_terminal);
    EXPECT_THAT(result.err, IsEmpty());
  }
}

}  // namespace
}  // namespace yoke::test
