// Tests that the sentences of `yoke bench` follow from the figures. Each table has figures and the expected sentence.
#include "yoke/bench/report.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "yoke/base/error.h"
#include "yoke/base/json.h"

namespace yoke::bench {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

void add_spread(Json& row, const std::string& name, double ms) {
  row[name + "_ms"] = ms;
  row[name + "_p10_ms"] = 0.9 * ms;
  row[name + "_p90_ms"] = 1.2 * ms;
}

std::string sentence_of(const Json& measured) { return report(measured).sentence; }

Json product(const char* device, const char* dtype, int64_t size, double gflops) {
  Json row{{"device", device}, {"dtype", dtype}, {"size", size}, {"gflops", gflops}};
  const auto n = static_cast<double>(size);
  add_spread(row, "time", 2 * n * n * n / gflops / 1e6);
  return row;
}

TEST(BenchReport, MatmulNamesTheFastestSizeAndComparesDevices) {
  const auto of = [](const std::vector<Json>& results) {
    return sentence_of({{"name", "matmul"}, {"results", results}});
  };
  const std::vector<Json> cpu = {product("cpu", "float32", 64, 10), product("cpu", "float32", 512, 95),
                                 product("cpu", "float32", 2048, 100)};
  EXPECT_EQ(
      of(cpu),
      "On the CPU in float32, products of 2048x2048 matrices are the fastest, at 100 GFLOP/s, and from 512x512 on they "
      "reach at least 90 % of that. Those of 64x64 reach only 10.0 %.");
  EXPECT_EQ(of({product("cpu", "float32", 64, 10)}),
            "On the CPU in float32, a product of 64x64 matrices reaches 10.0 GFLOP/s.");
  auto with_gpu = cpu;
  for (const auto& [size, gflops] : std::vector<std::pair<int64_t, double>>{{64, 1}, {512, 950}, {2048, 5000}}) {
    with_gpu.push_back(product("cuda:0", "float32", size, gflops));
  }
  EXPECT_THAT(of(with_gpu),
              HasSubstr(" At 2048x2048, cuda:0 in float32 is 50.0 times as fast as the CPU in float32; up to "
                        "64x64 it is not."));
  auto with_slow = cpu;
  for (const auto size : {64, 512, 2048}) with_slow.push_back(product("cpu", "bfloat16", size, 5));
  EXPECT_THAT(of(with_slow),
              HasSubstr(" At 2048x2048, the CPU in bfloat16 is slower than the CPU in float32 and takes 20.0 "
                        "times as long."));
  EXPECT_THAT(of({product("cpu", "float32", 64, 10), product("cuda:0", "float32", 64, 10.2)}),
              HasSubstr("At 64x64, cuda:0 in float32 is as fast as"));
}

std::vector<Json> logs(double none, double end, double each) {
  std::vector<Json> results;
  for (const auto& [name, ms] :
       std::vector<std::pair<const char*, double>>{{"none", none}, {"end", end}, {"each", each}}) {
    Json row{{"log", name}, {"num_products", 1000}};
    add_spread(row, "time", ms);
    results.push_back(row);
  }
  return results;
}

TEST(BenchReport, SyncSaysWhichLogIsFaster) {
  const auto of = [](const char* device, const std::vector<Json>& results) {
    return sentence_of({{"name", "sync"}, {"device", device}, {"results", results}});
  };
  EXPECT_EQ(
      of("cuda:0", logs(10, 20, 60)),
      "Reading the norm after each product takes 3.00 times as long as a log that stays on the device until the end "
      "(1000 products of 100x100: 60.0 ms against 20.0 ms, and 10.0 ms without a log): each reading waits until the "
      "device has nothing left to do.");
  EXPECT_THAT(of("cpu", logs(10, 20, 20.5)), AllOf(HasSubstr("costs as much as"), HasSubstr("no reading has to wait")));
  EXPECT_THAT(of("cpu", logs(10, 30, 20)),
              HasSubstr("A log that is read at the end takes 1.50 times as long as reading"));
  EXPECT_THAT(of("cpu", logs(10, 20, 22)), HasSubstr("their times spread more than they differ"));
  EXPECT_THAT(of("cpu", logs(10, 20, 60)), AllOf(HasSubstr("takes 3.00 times"), Not(HasSubstr("each reading waits"))));
  EXPECT_THROW(of("cpu", {logs(1, 2, 3)[0]}), Error);
}

Json pair_of(int64_t size, double speedup) {
  Json row{{"size", size}, {"speedup", speedup}, {"speedup_p10", 0.95 * speedup}, {"speedup_p90", 1.05 * speedup}};
  add_spread(row, "in_sequence", 10);
  add_spread(row, "at_once", 10 / speedup);
  return row;
}

TEST(BenchReport, TwoDevicesSaysFromWhichSizeOnItPays) {
  const auto of = [](const std::vector<Json>& results) {
    return sentence_of(
        {{"name", "two-devices"}, {"devices", {{"first", "cuda:0"}, {"second", "cuda:1"}}}, {"results", results}});
  };
  EXPECT_EQ(of({pair_of(64, 0.7), pair_of(128, 1.2), pair_of(1024, 1.9)}),
            "Two products of 1024x1024 matrices, on cuda:0 and cuda:1, are 1.90 times as fast at once as one after the "
            "other; "
            "2 would be the most on equal devices. Up to 64x64, starting both costs as much as it gains.");
  EXPECT_THAT(of({pair_of(64, 1.5), pair_of(128, 1.9)}), Not(HasSubstr("Up to")));
  EXPECT_THAT(of({pair_of(64, 1.5), pair_of(128, 1.0)}),
              HasSubstr("gain nothing: at once they are 1.00 times as fast"));
  auto scattered = pair_of(64, 1.9);
  scattered["speedup_p10"] = 0.8;
  EXPECT_THAT(of({scattered}), AllOf(HasSubstr("do not gain in all rounds: at once they are 1.90 times as fast"),
                                     HasSubstr("The rounds disagree (from 0.80")));
  EXPECT_THAT(of({pair_of(64, 0.5)}), HasSubstr("hinder each other: at once they are 0.500 times as fast"));
}

Json copied(const char* from, const char* to, const char* memory, int64_t bytes, double rate) {
  Json row{{"from", from}, {"to", to}, {"memory", memory}, {"bytes", bytes}, {"gb_per_second", rate}};
  add_spread(row, "time", static_cast<double>(bytes) / rate / 1e6);
  return row;
}

TEST(BenchReport, CopiesNamesRatesAndWhatPinningGains) {
  const auto of = [](const std::vector<Json>& results) {
    return sentence_of({{"name", "copies"}, {"results", results}});
  };
  EXPECT_EQ(of({copied("memory", "memory", "pageable", 4096, 1), copied("memory", "memory", "pageable", 1 << 20, 20),
                copied("memory", "memory", "pageable", 1 << 26, 8)}),
            "Copies from memory to memory (pageable memory) reach 20.0 GB/s at 1.0 MiB, 8.00 at 64.0 MiB and 1.00 at "
            "4.0 KiB, "
            "which takes 4.10 us.");
  EXPECT_THAT(
      of({copied("host", "cuda:0", "pinned", 1 << 26, 25), copied("host", "cuda:0", "pageable", 1 << 26, 10)}),
      HasSubstr(
          " From host to cuda:0, 64.0 MiB of pinned memory are copied 2.50 times as fast as of pageable memory."));
  EXPECT_THAT(of({copied("host", "cuda:0", "pinned", 1 << 26, 10), copied("host", "cuda:0", "pageable", 1 << 26, 10)}),
              HasSubstr("are copied as fast as of pageable memory."));
  EXPECT_THAT(of({copied("host", "cuda:0", "pinned", 1 << 26, 5), copied("cuda:0", "host", "pageable", 1 << 26, 10)}),
              Not(HasSubstr("of pinned memory")))
      << "they are two routes";
}

Json reduced(int64_t bytes, double ms) {
  const double rate = static_cast<double>(bytes) / ms / 1e6;
  Json row{{"bytes", bytes}, {"algorithm_gb_per_second", rate}, {"bus_gb_per_second", rate}};
  add_spread(row, "time", ms);
  return row;
}

TEST(BenchReport, AllReduceSaysWhereLatencyDecides) {
  const auto of = [](const std::vector<Json>& results) {
    return sentence_of({{"name", "all-reduce"}, {"num_ranks", 2}, {"results", results}});
  };
  EXPECT_EQ(of({reduced(1 << 10, 0.2), reduced(1 << 16, 0.3), reduced(1 << 20, 1), reduced(1 << 24, 10)}),
            "2 ranks reach a bus bandwidth of 1.68 GB/s at 16.0 MiB; 1.0 KiB take 200 us. Up to 64.0 KiB the time is "
            "less than "
            "twice that, so latency decides; fewer and larger all-reduces are faster.");
  EXPECT_THAT(of({reduced(1 << 10, 0.2), reduced(1 << 16, 0.3)}),
              HasSubstr("Even 64.0 KiB take less than twice as long"));
  EXPECT_THAT(of({reduced(1 << 20, 1), reduced(1 << 24, 10)}), Not(HasSubstr("latency")));
}

Json step_of(int64_t batch, double ms) {
  Json row{{"model", "mlp"}, {"batch_size", batch}, {"samples_per_second", static_cast<double>(batch) / ms * 1e3}};
  add_spread(row, "step", ms);
  return row;
}

TEST(BenchReport, BatchSaysFromWhichSizeOnMoreSamplesGainLittle) {
  const auto of = [](const std::vector<Json>& results) {
    return sentence_of({{"name", "batch"}, {"results", results}});
  };
  EXPECT_EQ(of({step_of(1, 1), step_of(64, 2), step_of(256, 7.5), step_of(1024, 28)}),
            "mlp trains the most samples per second, 36.6 k, with batches of 1024, and from 256 on at least 90 % of "
            "that. A step "
            "takes 1.00 ms with 1 and 28.0 ms with 1024: 1024 times the samples in 28.0 times the time.");
  EXPECT_EQ(of({step_of(64, 2)}), "mlp trains the most samples per second, 32.0 k, with batches of 64.");
}

Json precision(const char* model, int64_t batch, double speedup, double spread = 0.05) {
  Json row{{"model", model},
           {"batch_size", batch},
           {"speedup", speedup},
           {"speedup_p10", speedup - spread},
           {"speedup_p90", speedup + spread}};
  add_spread(row, "float32_step", 10);
  add_spread(row, "mixed_step", 10 / speedup);
  return row;
}

TEST(BenchReport, PrecisionNamesTheCasesInWhichItLoses) {
  const auto of = [](const std::vector<Json>& results) {
    return sentence_of({{"name", "precision"}, {"results", results}});
  };
  EXPECT_EQ(of({precision("mlp", 8, 0.8), precision("mlp", 64, 1.5), precision("mlp", 512, 2.5),
                precision("small", 8, 0.5), precision("small", 64, 1.0)}),
            "Mixed precision is faster for mlp at batch sizes 64, 512 (up to 2.50 times as fast); it loses for mlp at "
            "batch size "
            "8 (up to 1.25 times as long), and for small at batch size 8 (up to 2.00 times as long); it makes no "
            "difference for "
            "small at batch size 64.");
  EXPECT_EQ(of({precision("cnn", 8, 2)}),
            "Mixed precision is faster for cnn at batch size 8 (up to 2.00 times as fast), and loses nowhere.");
  EXPECT_EQ(of({precision("cnn", 8, 0.5)}),
            "Mixed precision is faster nowhere; it loses for cnn at batch size 8 (up to 2.00 times as long).");
  EXPECT_EQ(
      of({precision("cnn", 8, 1.5, 0.6), precision("cnn", 16, 0.7, 0.4)}),
      "Mixed precision is faster nowhere, and loses nowhere; it makes no difference for cnn at batch sizes 8, 16.")
      << "the rounds do not agree";
}

Json fed(int64_t workers, double rate, double cost, double spread = 2) {
  Json row{{"num_workers", workers},      {"samples_per_second", rate}, {"loader_cost_percent", cost},
           {"ready_percent", 100 - cost}, {"cpu_load_percent", 50},     {"memory_bytes", 3 << 20}};
  row["loader_cost_p10_percent"] = cost - spread;
  row["loader_cost_p90_percent"] = cost + spread;
  add_spread(row, "step", 10 / (1 - cost / 100));
  return row;
}

TEST(BenchReport, TheLoadersVerdictFollowsFromItsCost) {
  const auto of = [](const std::vector<Json>& results) {
    Json measured{{"name", "loader"}, {"batch_size", 10}, {"cached_cpu_load_percent", 40}, {"results", results}};
    add_spread(measured, "cached_step", 10);  // 1,000 samples/s
    return sentence_of(measured);
  };
  EXPECT_EQ(of({fed(0, 5000, 1.2)}), "The loader keeps up: with no worker it costs 1.2 % of a step.");
  EXPECT_THAT(of({fed(1, 5000, -0.7)}), HasSubstr("with 1 worker it costs 0.0 % of a step."));
  EXPECT_EQ(of({fed(0, 900, 52), fed(1, 900, 12), fed(2, 1800, 0.5), fed(4, 1900, 0.4)}),
            "With 1 worker the loader costs 12 % of a step; 2 workers hide it (0.5 %). Alone, the loader gives 1.80 k "
            "samples/s with 2 workers, and at most 1.90 k with more workers.");
  EXPECT_THAT(of({fed(0, 900, 1), fed(1, 800, 1)}),
              HasSubstr("Alone, the loader gives 900 samples/s with no worker, and more workers gain nothing."));
  EXPECT_THAT(
      of({fed(0, 300, 77), fed(1, 300, 70), fed(2, 600, 40)}),
      AllOf(
          HasSubstr("The loader holds the training back: with 2 workers it costs 40 % of a step, and with no worker 77 "
                    "%."),
          HasSubstr("It gives 600 samples/s, and the steps could take 1.00 k.")));
  EXPECT_THAT(of({fed(1, 1500, 30)}),
              AllOf(HasSubstr("so the two compete for processors and memory"), Not(HasSubstr("disagree"))));
  EXPECT_THAT(of({fed(0, 1500, 40)}), HasSubstr("it costs 40 % of a step. Without a worker, a step waits"));
  EXPECT_THAT(of({fed(0, 1500, 30), fed(1, 1500, 40)}), HasSubstr("Workers cost as much as they hide"));
  EXPECT_THAT(of({fed(1, 1500, 30, 15)}), HasSubstr("The rounds disagree (with 1 worker from 15 to 45 %)"));
  EXPECT_EQ(of({fed(1, 1500, 30, 35)}).substr(0, 90),
            "No verdict: the rounds disagree (with 1 worker, the loader costs from -5 to 65 % of a step");
}

TEST(BenchReport, TheLoadersKneeIsMarked) {
  Json measured{{"name", "loader"},
                {"batch_size", 10},
                {"cached_cpu_load_percent", 40},
                {"results", {fed(0, 500, 50), fed(1, 950, 5), fed(2, 1000, 5)}}};
  add_spread(measured, "cached_step", 10);
  const auto shown = report(measured);
  ASSERT_EQ(shown.table.rows.size(), 4U);
  EXPECT_EQ(shown.table.rows[0][2], "");
  EXPECT_EQ(shown.table.rows[1][2], "knee");
  EXPECT_EQ(shown.table.rows[2][2], "");
  EXPECT_EQ(shown.table.rows[2].back(), "3.0 MiB");
  EXPECT_THAT(shown.chart.panels[0].title, HasSubstr("knee at 1"));
}

TEST(BenchReport, RefusesOtherObjects) {
  for (const auto* text : {R"({})", R"({"name": "matmul"})", R"({"name": "matmul", "results": []})",
                           R"({"name": "matmul", "results": [{"device": "cpu"}]})",
                           R"({"name": "nothing", "results": [1]})", R"({"name": 3, "results": [1]})"}) {
    EXPECT_THROW(report(Json::parse(text)), Error) << text;
  }
}

TEST(BenchReport, EveryExerciseHasOne) {
  for (const auto& exercise : exercises()) {
    try {
      report({{"name", exercise.name}, {"results", {Json::object()}}});
      FAIL() << exercise.name;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), Not(HasSubstr("there is no exercise"))) << exercise.name;
    }
  }
}

}  // namespace
}  // namespace yoke::bench
