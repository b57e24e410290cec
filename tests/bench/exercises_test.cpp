// Tests `yoke bench`: a short run of every exercise, the documented JSON, options, errors and signals.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/command.h"
#include "tests/support/lines.h"
#include "yoke/base/file.h"
#include "yoke/base/png.h"
#include "yoke/bench/report.h"

namespace yoke::test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::AnyOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;
using Json = nlohmann::ordered_json;

CommandOptions bench_options(std::vector<std::string> words) {
  words.insert(words.begin(), {YOKE_COMMAND, "bench"});
  // Runs on the CPU even if this machine has a GPU, because the expected figures are for the CPU.
  return {.argv = std::move(words),
          .environment = {{"YOKE_DEVICE", "cpu"}, {"OMP_NUM_THREADS", "1"}, {"COLUMNS", "80"}, {"LC_ALL", "C.UTF-8"}},
          .without = {"NO_COLOR"}};
}

Result bench(std::vector<std::string> words) { return run(bench_options(std::move(words))); }

Json figures_of(std::vector<std::string> words) {
  words.insert(words.end(), {"--quick", "--json"});
  const auto result = bench(words);
  EXPECT_EQ(result.exit_code, 0) << words[0] << ": " << result.err;
  EXPECT_THAT(result.err, IsEmpty()) << words[0];
  auto figures = Json::parse(result.out, nullptr, false);
  EXPECT_TRUE(figures.is_object()) << result.out;
  return figures;
}

/// Checks every exercise's contract: the members in docs/bench.md, units in names, and spreads around medians.
void expect_contract(const Json& figures, const std::string& name) {
  EXPECT_EQ(figures["name"], name);
  for (const auto* member : {"device", "processor", "torch", "sentence"}) {
    EXPECT_TRUE(figures[member].is_string() && !figures[member].get<std::string>().empty()) << name << ": " << member;
  }
  EXPECT_GE(figures["num_threads"], 1) << name;
  ASSERT_TRUE(figures["results"].is_array() && !figures["results"].empty()) << name;
  for (const auto& row : figures["results"]) {
    for (const auto& [member, value] : row.items()) {
      if (!value.is_number()) continue;
      EXPECT_TRUE(std::isfinite(value.get<double>())) << name << ": " << member;
      EXPECT_THAT(member, AnyOf(StartsWith("num_"), EndsWith("_ms"), EndsWith("_percent"), HasSubstr("_per_second"),
                                EndsWith("gflops"), EndsWith("bytes"), EndsWith("size"), StartsWith("speedup")))
          << name;
      if (!member.ends_with("_p10_ms")) continue;
      const auto begin = member.substr(0, member.size() - 7);
      EXPECT_GT(value, 0) << name;
      EXPECT_LE(value, row[begin + "_ms"]) << name;
      EXPECT_LE(row[begin + "_ms"], row[begin + "_p90_ms"]) << name;
    }
  }
  EXPECT_EQ(bench::report(figures).sentence, figures["sentence"]) << name << ": the sentence follows from the figures";
}

TEST(Bench, MatmulCountsOperations) {
  const auto figures = figures_of({"matmul", "--dtype", "float32,float64"});
  expect_contract(figures, "matmul");
  ASSERT_EQ(figures["results"].size(), 4U);
  for (const auto& row : figures["results"]) {
    const auto n = row["size"].get<double>();
    EXPECT_NEAR(row["gflops"].get<double>(), 2 * n * n * n / row["time_ms"].get<double>() / 1e6, 1e-6);
  }
  // Of the shortest times, which other programs lengthen least.
  EXPECT_LT(figures["results"][0]["time_p10_ms"], figures["results"][1]["time_p10_ms"]) << "32 against 256";
}

TEST(Bench, SyncHasThreeLogs) {
  const auto figures = figures_of({"sync"});
  expect_contract(figures, "sync");
  ASSERT_EQ(figures["results"].size(), 6U);
  const auto& at_200 = figures["results"][0];
  const auto& at_1000 = figures["results"][3];
  EXPECT_EQ(at_200["log"], "none");
  EXPECT_EQ(at_1000["log"], "none");
  EXPECT_GT(at_1000["time_p10_ms"], 1.5 * at_200["time_p10_ms"].get<double>()) << "five times the products";
}

TEST(Bench, TwoDevicesSaysWhatStandsInForThem) {
  const auto figures = figures_of({"two-devices"});
  expect_contract(figures, "two-devices");
  EXPECT_THAT(figures["notes"][0].get<std::string>(), HasSubstr("no GPU"));
  for (const auto& row : figures["results"]) EXPECT_LT(row["speedup"], 6) << "two devices are not faster than that";
}

TEST(Bench, CopiesCountBytes) {
  const auto figures = figures_of({"copies"});
  expect_contract(figures, "copies");
  for (const auto& row : figures["results"]) {
    EXPECT_NEAR(row["gb_per_second"].get<double>(), row["bytes"].get<double>() / row["time_ms"].get<double>() / 1e6,
                1e-6);
  }
  EXPECT_THAT(figures["notes"][0].get<std::string>(), HasSubstr("were not measured"));
}

TEST(Bench, AllReduceHasTheBandwidthsOfNcclTests) {
  const auto figures = figures_of({"all-reduce", "-n", "3", "--sizes", "4K,64K"});
  expect_contract(figures, "all-reduce");
  EXPECT_EQ(figures["num_ranks"], 3);
  EXPECT_EQ(figures["backend"], "gloo");
  ASSERT_EQ(figures["results"].size(), 2U);
  EXPECT_EQ(figures["results"][1]["bytes"], 65536);
  for (const auto& row : figures["results"]) {
    const auto rate = row["algorithm_gb_per_second"].get<double>();
    EXPECT_NEAR(rate, row["bytes"].get<double>() / row["time_ms"].get<double>() / 1e6, 1e-9);
    EXPECT_NEAR(row["bus_gb_per_second"].get<double>(), rate * 2 * 2 / 3, 1e-9);
  }
}

TEST(Bench, BatchCountsSamples) {
  const auto figures = figures_of({"batch", "--batch-size", "4,512", "--model", "small"});
  expect_contract(figures, "batch");
  ASSERT_EQ(figures["results"].size(), 2U);
  for (const auto& row : figures["results"]) {
    EXPECT_NEAR(row["samples_per_second"].get<double>(),
                row["batch_size"].get<double>() / row["step_ms"].get<double>() * 1e3, 1e-3);
  }
  EXPECT_GT(figures["results"][1]["samples_per_second"], figures["results"][0]["samples_per_second"])
      << "a step of 4 samples costs more for each sample than one of 512";
}

TEST(Bench, PrecisionHasAllNetworks) {
  const auto figures = figures_of({"precision", "--batch-size", "16"});
  expect_contract(figures, "precision");
  ASSERT_EQ(figures["results"].size(), 3U);
  for (const auto& row : figures["results"]) EXPECT_GT(row["speedup"], 0);
}

TEST(Bench, LoaderComparesWithCachedBatches) {
  const auto figures = figures_of({"loader", "--workers", "1,0,1", "--batch-size", "128", "--model", "small"});
  expect_contract(figures, "loader");
  ASSERT_EQ(figures["results"].size(), 2U) << "in order, and each once";
  EXPECT_EQ(figures["results"][0]["num_workers"], 0);
  EXPECT_EQ(figures["results"][0]["ready_percent"], 0) << "without a worker no batch is ready";
  EXPECT_GT(figures["cached_step_ms"], 0);
  for (const auto& row : figures["results"]) {
    EXPECT_LT(row["loader_cost_percent"], 100);
    EXPECT_GT(row["samples_per_second"], 0);
    EXPECT_LT(row["memory_bytes"], 64 << 20);
  }
}

TEST(Bench, NamesOfDamagedFilesAreShownHarmless) {
  const TemporaryFolder folder;
  folder.write("data/cat/a\nyoke bench: forged\x1b[31m.jpg", "this is no image");
  const auto result = bench({"loader", "--data", folder.path("data"), "--workers", "0", "--quick"});
  EXPECT_EQ(result.exit_code, 65) << result.err;
  EXPECT_THAT(result.err, AllOf(HasSubstr("forged"), Not(HasSubstr("\x1b")), Not(HasSubstr("\nyoke bench: forged"))));
}

TEST(Bench, LoaderReadsTarShards) {
  const TemporaryFolder folder;
  const auto data = folder.path("data");
  fs::create_directories(data);
  const fs::path images(YOKE_REFERENCE_IMAGES);
  for (int shard = 0; shard < 2; ++shard) {
    std::vector<std::string> words = {"tar", "-cf", fmt::format("{}/{:03}.tar", data, shard), "-C", data};
    for (int sample = 0; sample < 4; ++sample) {
      const auto name = fmt::format("{}{}", shard, sample);
      fs::copy_file(images / "422.jpg", data + "/" + name + ".jpg");
      std::ofstream(data + "/" + name + ".cls") << sample % 2 << '\n';
      words.insert(words.end(), {name + ".jpg", name + ".cls"});
    }
    ASSERT_EQ(run({.argv = words}).exit_code, 0);
    for (size_t i = 5; i < words.size(); ++i) fs::remove(data + "/" + words[i]);
  }
  const auto figures = figures_of({"loader", "--data", data, "--workers", "0", "--batch-size", "4", "--model", "mlp"});
  expect_contract(figures, "loader");
  EXPECT_EQ(figures["num_samples"], 8);
}

TEST(Bench, ListsItsExercises) {
  const auto list = bench({"--list"});
  EXPECT_EQ(list.exit_code, 0);
  EXPECT_EQ(bench({}).out, list.out);
  const auto lines = lines_of(list.out);
  ASSERT_EQ(lines.size(), bench::exercises().size());
  for (size_t i = 0; i < lines.size(); ++i) EXPECT_THAT(lines[i], StartsWith(bench::exercises()[i].name));
  const auto json = Json::parse(bench({"--list", "--json"}).out);
  EXPECT_EQ(json[0]["name"], "matmul");
}

TEST(Bench, ShowsTableSentenceAndPlot) {
  const TemporaryFolder folder;
  const auto svg = folder.path("plot.svg"), png = folder.path("plot.png");
  auto options =
      bench_options({"batch", "--quick", "--batch-size", "1,8", "--model", "small", "--svg", svg, "--png", png});
  options.environment.push_back({"COLUMNS", "40"});
  const auto shown = run(options);
  EXPECT_EQ(shown.exit_code, 0) << shown.err;
  EXPECT_THAT(shown.out,
              AllOf(HasSubstr("batch size"), HasSubstr("small trains the most"), HasSubstr("samples/s by batch")));
  EXPECT_THAT(shown.out, Not(HasSubstr("\x1b")));
  for (const auto& line : lines_of(shown.out)) EXPECT_LE(display_width(line), 40) << line;
  EXPECT_THAT(read_file(svg), AllOf(StartsWith("<svg"), HasSubstr("samples/s")));
  EXPECT_THAT(read_file(png), StartsWith("\x89PNG"));
}

TEST(Bench, ShowsItsProgressOnTerminalsThatMoveTheCursor) {
  for (const bool is_dumb : {false, true}) {
    auto options = bench_options({"batch", "--quick", "--batch-size", "4", "--model", "small"});
    options.on_terminal = true;
    if (is_dumb) options.environment.push_back({"TERM", "dumb"});
    const auto result = run(options);
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_EQ(result.out.find("batch: small with batches of 4") == result.out.npos, is_dumb) << result.out;
    EXPECT_EQ(result.out.find('\x1b') == result.out.npos, is_dumb);
  }
}

TEST(Bench, RefusesBeforeItMeasures) {
  const TemporaryFolder folder;
  folder.write("notes.txt", "not a drawing\n");
  folder.write("empty/.keep", "");
  fs::remove(folder.path("empty/.keep"));
  folder.write("broken/cat/a.jpg", "this is no image");
  folder.write("text/readme.md", "nothing\n");
  folder.write("one.bin", std::string(1024, 'a'));
  const struct {
    std::vector<std::string> words;
    int exit_code;
    const char* message;
  } cases[] = {
      {{"matmull"}, 64, "NAME matmull: give matmul, sync, "},
      {{"mat-mul"}, 64, "(did you mean `matmul`?)"},
      {{"sync", "--workers", "2"}, 64, "--workers is for loader, and sync has no such option"},
      {{"sync", "-n", "2"}, 64, "-n is for all-reduce"},
      {{"all-reduce", "-n", "1"}, 64, "an all-reduce needs two ranks"},
      {{"matmul", "--sizes", "64,big"}, 64, "--sizes big: give numbers from 1 to 64G"},
      {{"matmul", "--sizes", "64G"}, 64, "GiB are free; give smaller --sizes"},
      {{"copies", "--sizes", "64G,64G"}, 64, "GiB are free; give smaller --sizes"},
      {{"matmul", "--dtype", "float23"}, 64, "--dtype float23: give one or more of float32,"},
      {{"matmul", "--svg", "/no/such/folder/a.svg"}, 66, "writing /no/such/folder/a.svg"},
      {{"matmul", "--svg", folder.path("notes.txt")}, 69, "exists and is not an SVG file"},
      {{"matmul", "--svg", folder.path("empty")}, 64, "is a folder; name a file in it"},
      {{"matmul", "--quick", "--time", "5"}, 64, "--quick"},
      {{"matmul", "--svg", "a", "--png", "a"}, 64, "--svg and --png name one file"},
      {{"loader", "--workers", "x"}, 64, "--workers x: give 0 to 1024"},
      {{"loader", "--model", "mlp,cnn", "--quick"}, 64, "one network"},
      {{"loader", "--data", folder.path("nowhere"), "--quick"}, 66, "nowhere: No such file or directory"},
      {{"loader", "--data", folder.path("empty"), "--quick"}, 64, "is empty; --data takes a folder"},
      {{"loader", "--data", folder.path("text"), "--quick"}, 64, "holds nothing that yoke reads"},
      {{"loader", "--data", folder.path("notes.txt"), "--quick"}, 64, "is a file; --data takes"},
      {{"loader", "--data", folder.path("broken"), "--quick"}, 65, "broken/cat/a.jpg"},
      {{"loader", "--data", folder.path("one.bin"), "--model", "cnn", "--quick"}, 64, "these data are tokens"},
      {{"loader", "--data", folder.path("one.bin"), "--batch-size", "64", "--quick"},
       64,
       "give a smaller --batch-size"},
  };
  for (const auto& one : cases) {
    const auto result = bench(one.words);
    EXPECT_EQ(result.exit_code, one.exit_code) << testing::PrintToString(one.words) << result.err;
    EXPECT_THAT(result.err, AllOf(StartsWith("yoke bench: "), HasSubstr(one.message)))
        << testing::PrintToString(one.words);
    EXPECT_EQ(lines_of(result.err).size(), 1U) << result.err;
    EXPECT_THAT(result.out, IsEmpty());
  }
}

TEST(Bench, LoaderReadsFoldersOfImagesAndTokens) {
  const TemporaryFolder folder;
  for (int i = 0; i < 8; ++i) {
    const std::vector<uint8_t> pixels(40 * 50 * 3, static_cast<uint8_t>(20 * i));
    folder.write(std::string("images/") + (i % 2 == 0 ? "cat/" : "dog/") + std::to_string(i) + ".png",
                 encode_png(pixels, 40, 50, 3));
  }
  folder.write("tokens/train.bin", std::string(2 * 256 * 40, '\x01'));
  const auto images = figures_of(
      {"loader", "--data", folder.path("images"), "--batch-size", "2", "--workers", "1", "--model", "small"});
  expect_contract(images, "loader");
  EXPECT_THAT(images["data"].get<std::string>(), StartsWith("8 images in 2 classes of "));
  const auto tokens = figures_of(
      {"loader", "--data", folder.path("tokens"), "--batch-size", "4", "--workers", "1", "--model", "small"});
  EXPECT_THAT(tokens["data"].get<std::string>(), StartsWith("39 sequences of 256 tokens of "));
}

TEST(Bench, NeedsTheProgramThatLibtorchIsIn) {
  const TemporaryFolder folder;
  fs::create_directory(folder.path("bin"));
  fs::copy_file(YOKE_COMMAND, folder.path("bin/yoke"));
  const auto result = run({.argv = {folder.path("bin/yoke"), "bench", "matmul"}});
  EXPECT_EQ(result.exit_code, 66);
  EXPECT_THAT(result.err, HasSubstr("built without libtorch"));
}

/// Waits until the terminal shows that rounds are being measured, and then signals the command, but not its children.
void expect_ending(std::vector<std::string> words, int signal) {
  auto options = bench_options(std::move(words));
  options.on_terminal = true;
  const auto tag = new_tag();
  options.environment.push_back({"YOKE_TEST_TAG", tag});
  Command command(options);
  ASSERT_TRUE(command.wait_for_output("round 2"));
  EXPECT_GE(processes_with_tag(tag).size(), 2U);
  command.signal(signal);
  EXPECT_EQ(command.wait().exit_code, 128 + signal);
  EXPECT_TRUE(wait_until([&] { return processes_with_tag(tag).empty(); })) << "a process is left";
}

TEST(Bench, EndsWithAllItsProcesses) {
  for (const int signal : {SIGINT, SIGTERM, SIGKILL}) {
    expect_ending({"batch", "--model", "small", "--time", "60"}, signal);
    expect_ending({"all-reduce", "-n", "2", "--time", "60"}, signal);
  }
}

}  // namespace
}  // namespace yoke::test
