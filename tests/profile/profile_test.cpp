// Tests `yoke profile` on trainings with a planted bottleneck. For simulated trainings (simulation.h), the gain from
// removing it is known exactly. plant.py recorded the real trainings.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <span>

#include "tests/profile/simulation.h"
#include "tests/support/command.h"
#include "tests/support/message_of.h"
#include "yoke/base/error.h"
#include "yoke/profile/judge.h"
#include "yoke/profile/trace_reader.h"

namespace yoke::test {
namespace {

using profile::Cause;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using Json = nlohmann::json;

profile::Trace read(const std::string& text, const std::string& path = "trace.json", size_t piece = 4 << 20) {
  size_t at = 0;
  return profile::read_trace(
      [&](std::span<char> buffer) {
        const auto count = text.copy(buffer.data(), std::min(buffer.size(), piece), at);
        at += count;
        return count;
      },
      path);
}

profile::Report judge(const std::vector<std::string>& traces) {
  std::vector<profile::RankAccount> accounts;
  for (const auto& trace : traces) accounts.push_back(profile::account_for(read(trace)));
  return profile::judge(std::move(accounts));
}

std::string named(const profile::Report& report) {
  return report.bottleneck ? std::string(rule_of(report.bottleneck->cause).name) : "none";
}

std::string causes_of(const profile::Report& report) {
  std::string text;
  for (const auto& finding : report.findings) {
    text += fmt::format("{} {:.1f} %, ", rule_of(finding.cause).name, finding.ceiling_percent);
  }
  return text;
}

using Change = std::function<void(Training&)>;

struct Planted {
  std::string test;
  std::string bottleneck;
  Change plant;     ///< Adds the bottleneck to a healthy training.
  Change fix = {};  ///< The remedy, applied after `plant`. If it is empty, the healthy training is the remedied one.
};

void PrintTo(const Planted& planted, std::ostream* out) { *out << planted.test; }

class PlantedBottleneck : public testing::TestWithParam<Planted> {};

// Oracle: a simulation of the same training without the bottleneck.
TEST_P(PlantedBottleneck, IsNamedWithTheGainOfItsFix) {
  for (int64_t seed = 1; seed <= (kIsSanitized ? 1 : 3); ++seed) {
    Training ill{.seed = seed};
    GetParam().plant(ill);
    Training well =
        GetParam().fix ? ill : Training{.seed = seed, .num_ranks = ill.num_ranks, .has_device = ill.has_device};
    if (GetParam().fix) GetParam().fix(well);
    const auto planted = simulate(ill), fixed = simulate(well);
    const auto report = judge(planted.traces);
    const double gain = 100 * (1 - fixed.step_us / planted.step_us);
    EXPECT_EQ(named(report), GetParam().bottleneck) << causes_of(report);
    if (!report.bottleneck) continue;
    EXPECT_NEAR(report.bottleneck->ceiling_percent, gain, 10) << causes_of(report);
    EXPECT_GE(report.bottleneck->ceiling_percent, gain - 3) << "a ceiling below the gain";
    EXPECT_NE(report.confidence, profile::Confidence::kLow);
  }
}

const Planted kPlanted[] = {
    {"LoaderStarvesTheDevice", "data_loading", [](Training& t) { t.loader_us = 45'000; }},
    {"LoaderWithoutDevice", "data_loading",
     [](Training& t) {
       t.has_device = false;
       t.loader_us = 9'000;
     }},
    {"CollectivesOutlastBackward", "communication",
     [](Training& t) {
       t.num_ranks = 4;
       t.collective_us = 9'000;
     }},
    {"GlooOutlastsBackward", "communication",
     [](Training& t) {
       t.has_device = false;
       t.num_ranks = 2;
       t.collective_us = 9'000;
     }},
    {"SlowRankWithDevice", "skew",
     [](Training& t) {
       t.num_ranks = 2;
       t.late_us = 14'000;
     }},
    {"SlowRankOfEight", "skew",
     [](Training& t) {
       t.num_ranks = 8;
       t.late_us = 14'000;
     }},
    {"SlowRankWithoutDevice", "skew",
     [](Training& t) {
       t.has_device = false;
       t.num_ranks = 3;
       t.late_us = 14'000;
     }},
    {"LaunchBound", "small_operations",
     [](Training& t) {
       t.num_layers = 200;
       t.matmul_us = 3;
       t.elementwise_us = 3;
       t.optimizer_us = 100;
       t.launch_us = 15;
     },
     [](Training& t) { t.launch_us = 0.5; }},
    {"TinyOperationsWithoutDevice", "small_operations",
     [](Training& t) {
       t.has_device = false;
       t.num_layers = 300;
       t.matmul_us = 3;
       t.elementwise_us = 3;
       t.num_elementwise = 4;
     },
     [](Training& t) { t.num_layers = 1; }},
    {"ItemAfterEachLayer", "host_sync",
     [](Training& t) {
       t.num_syncs = 24;
       t.launch_us = 30;
       t.matmul_us = 60;
       t.num_elementwise = 2;
       t.optimizer_us = 200;
     },
     [](Training& t) { t.num_syncs = 0; }},
    {"CopiesFromPageableMemory", "device_copy",
     [](Training& t) {
       t.copy_us = 12'000;
       t.is_pinned = false;
     }},
    {"CopiesInTheWay", "device_copy", [](Training& t) { t.copy_us = 12'000; }},
    {"Float32WithoutTensorCores", "precision", [](Training& t) { t.uses_tensor_cores = false; },
     [](Training& t) { t.matmul_us /= 8; }},
    {"UnfusedElementwise", "memory_bandwidth",
     [](Training& t) {
       t.num_elementwise = 10;
       t.elementwise_us = 60;
     },
     [](Training& t) { t.num_elementwise = 1; }},
    {"HeavyOptimizer", "optimizer",
     [](Training& t) {
       t.optimizer_us = 30'000;
       t.num_optimizer_kernels = 200;
     }},
    {"HeavyOptimizerWithoutDevice", "optimizer",
     [](Training& t) {
       t.has_device = false;
       t.optimizer_us = 30'000;
       t.num_optimizer_kernels = 200;
     }},
};
INSTANTIATE_TEST_SUITE_P(All, PlantedBottleneck, testing::ValuesIn(kPlanted),
                         [](const auto& test) { return test.param.test; });

// 64 trainings must have no bottleneck: various networks, ranks and devices, with a loader, copies and collectives that
// do not delay the device.
TEST(HealthyTraining, HasNoBottleneck) {
  int64_t num_trainings = 0;
  const int64_t num_seeds = kIsSanitized ? 2 : 16;
  for (int64_t seed = 0; seed < num_seeds; ++seed) {
    for (const bool has_device : {true, false}) {
      for (const int64_t num_ranks : {int64_t{1}, 2 + seed % 3}) {
        Training training{.seed = seed, .num_ranks = num_ranks, .num_steps = 3 + seed % 5, .has_device = has_device};
        training.num_layers = 8 + 4 * (seed % 7);
        training.matmul_us = static_cast<double>(300 + 150 * (seed % 5));
        training.elementwise_us = static_cast<double>(8 + 6 * (seed % 4));
        training.num_elementwise = 1 + seed % 3;
        training.optimizer_us = static_cast<double>(300 + 100 * (seed % 6));
        training.num_syncs = has_device ? seed % 2 : 0;
        training.uses_tensor_cores = true;
        const double step_us = simulate(training).step_us;
        training.collective_us = step_us * 0.01;
        training.loader_us = has_device ? step_us * 0.3 : step_us * 0.01;
        training.copy_us = step_us * 0.02;
        training.marks_steps = seed % 4 != 3;
        const auto report = judge(simulate(training).traces);
        EXPECT_EQ(named(report), "none") << "seed " << seed << ", " << num_ranks << " ranks, device " << has_device
                                         << ": " << causes_of(report);
        ++num_trainings;
      }
    }
  }
  EXPECT_EQ(num_trainings, 4 * num_seeds);
}

std::string with_host(const std::string& trace, const std::string& host) {
  const auto at = trace.find("\"displayTimeUnit\"");
  return trace.substr(0, at) + "\"host\": " + host + ",\n" + trace.substr(at);
}

TEST(HostFacts, NameThreadsAndPaging) {
  const auto trace = simulate({.has_device = false}).traces[0];
  EXPECT_EQ(named(judge({with_host(trace, R"({"num_threads": 8, "num_cpus": 8})")})), "none");
  const auto threads = judge({with_host(trace, R"({"num_threads": 2, "num_cpus": 8})")});
  EXPECT_EQ(named(threads), "threads");
  EXPECT_NEAR(threads.bottleneck->ceiling_percent, 75, 5);  // nearly all of the step is in large operations
  const auto paging = judge({with_host(trace, R"({"memory_stall_us": 60000})")});  // the trace has 6 steps of 30 ms
  EXPECT_EQ(named(paging), "paging");
  EXPECT_NEAR(paging.bottleneck->ceiling_percent, 33, 3);
}

/// A trace whose events are written one by one.
class TraceText {
 public:
  void add(const std::string& category, const std::string& name, int track, int64_t start_us, int64_t length_us) {
    events_ += fmt::format(R"({}{{"ph": "X", "cat": "{}", "name": "{}", "pid": 1, "tid": {}, "ts": {}, "dur": {}}})",
                           events_.empty() ? "" : ",\n", category, name, track, start_us, length_us);
  }
  std::string text() const { return "{\"traceEvents\": [" + events_ + "]}"; }

 private:
  std::string events_;
};

// LBFGS calls a closure that computes the loss and its gradients. Lightning passes a closure to every optimizer.
TEST(Optimizer, IsNotChargedWithItsClosure) {
  const auto trace_with = [](const std::string& operation) {
    TraceText trace;
    for (int64_t step = 0; step < 6; ++step) {
      const int64_t begin = step * 100'000;
      trace.add("user_annotation", "ProfilerStep#" + std::to_string(step), 1, begin, 100'000);
      trace.add("user_annotation", "Optimizer.step#LBFGS.step", 1, begin + 5'000, 90'000);
      trace.add("cpu_op", operation, 1, begin + 50'000, 40'000);
    }
    return trace.text();
  };
  const auto without_closure = judge({trace_with("aten::addcdiv")});
  EXPECT_EQ(named(without_closure), "optimizer");
  EXPECT_NEAR(without_closure.bottleneck->ceiling_percent, 90, 1);
  const auto with_closure = judge({trace_with("autograd::engine::evaluate_function: AddmmBackward0")});
  EXPECT_EQ(named(with_closure), "none");
  EXPECT_NEAR(with_closure.ranks[0].unexplained_percent, 55, 1) << "45 ms of the closure and 10 ms outside";
  EXPECT_EQ(with_closure.confidence, yoke::profile::Confidence::kLow);
}

// A program on one device often still contains DistributedDataParallel, although it has no peer.
TEST(Ranks, OneAloneDoesNotCommunicate) {
  for (const bool has_device : {true, false}) {
    auto trace = simulate({.num_ranks = 2, .has_device = has_device, .collective_us = 9'000}).traces[0];
    ASSERT_EQ(named(judge({trace})), "communication");
    const std::string two = "\"world_size\": 2";
    trace.replace(trace.find(two), two.size(), "\"world_size\": 1");
    const auto report = judge({trace});
    EXPECT_THAT(causes_of(report), Not(HasSubstr("communication"))) << has_device;
    EXPECT_THAT(causes_of(report), Not(HasSubstr("skew"))) << has_device;
    EXPECT_EQ(report.ranks[0].communicating_percent, 0) << has_device;
  }
}

// The call of a collective is also an operation. A rank that is preempted in the call neither computes nor idles.
TEST(Ranks, TheCallOfACollectiveCountsOnce) {
  TraceText trace;
  for (int64_t step = 0; step < 4; ++step) {
    const int64_t begin = step * 100'000;
    trace.add("user_annotation", "ProfilerStep#" + std::to_string(step), 1, begin, 100'000);
    trace.add("cpu_op", "aten::addmm", 1, begin + 1'000, 30'000);
    trace.add("cpu_op", "c10d::allreduce_", 1, begin + 31'000, 60'000);
    trace.add("user_annotation", "gloo:all_reduce", 2, begin + 90'000, 30);
  }
  const auto report = judge({trace.text()});
  EXPECT_EQ(named(report), "communication");
  EXPECT_THAT(report.evidence, testing::Contains(HasSubstr("is c10d::allreduce_")));
  const auto& rank = report.ranks[0];
  EXPECT_NEAR(rank.computing_percent, 30, 1);
  EXPECT_NEAR(rank.communicating_percent, 60, 1.5);
  EXPECT_LE(rank.computing_percent + rank.communicating_percent + rank.unexplained_percent, 100.01);
}

std::string replaced(std::string text, std::initializer_list<std::pair<std::string, std::string>> words) {
  for (const auto& [from, to] : words) {
    for (auto at = text.find(from); at != text.npos; at = text.find(from, at + to.size())) {
      text.replace(at, from.size(), to);
    }
  }
  return text;
}

// Oracle: the same trace with the categories of today. torch 1.8 and 1.9 have the first ones, 1.10 and 1.11 the others.
TEST(OldTraces, GiveTheSameReport) {
  for (const bool has_device : {true, false}) {
    const auto today = simulate({.has_device = has_device, .loader_us = has_device ? 45'000. : 9'000.}).traces[0];
    const auto category = [](const std::string& name) { return "\"cat\": \"" + name + "\""; };
    const auto eldest = replaced(today, {{category("cpu_op"), category("Operator")},
                                         {category("user_annotation"), category("Operator")},
                                         {category("kernel"), category("Kernel")},
                                         {category("gpu_memcpy"), category("Memcpy")},
                                         {category("gpu_memset"), category("Memset")},
                                         {category("cuda_runtime"), category("Runtime")}});
    const auto younger = replaced(today, {{category("user_annotation"), category("cpu_op")},
                                          {category("kernel"), category("Kernel")},
                                          {category("cuda_runtime"), category("Runtime")}});
    const auto expected = judge({today});
    EXPECT_EQ(named(expected), "data_loading");
    for (const auto& old : {eldest, younger}) {
      const auto report = judge({old});
      EXPECT_EQ(causes_of(report), causes_of(expected));
      EXPECT_EQ(report.evidence, expected.evidence);
      EXPECT_EQ(report.ranks[0].num_steps, expected.ranks[0].num_steps);
    }
  }
}

// Oracle: the same training with marked steps.
TEST(TraceWithoutSteps, HasThoseOfItsOptimizer) {
  Training training{.num_steps = 8, .loader_us = 45'000};
  const auto marked = judge(simulate(training).traces);
  training.marks_steps = false;
  const auto report = judge(simulate(training).traces);
  EXPECT_EQ(named(report), "data_loading");
  EXPECT_NEAR(report.bottleneck->ceiling_percent, marked.bottleneck->ceiling_percent, 2);
  EXPECT_EQ(report.ranks[0].num_steps, marked.ranks[0].num_steps);
  EXPECT_EQ(report.confidence, profile::Confidence::kHigh);
  EXPECT_THAT(report.notes, testing::Contains(HasSubstr("each step of the optimizer ends one")));
}

// On a device, autograd runs the backward functions on a thread of its own, which may have the most operations.
TEST(TraceWithoutSteps, TheThreadOfAutogradIsNotTheTrainings) {
  TraceText trace;
  for (int64_t step = 0; step < 4; ++step) {
    const int64_t begin = step * 100'000;
    trace.add("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 1, begin, 60'000);
    trace.add("cpu_op", "aten::addmm", 1, begin + 60'000, 10'000);
    for (int64_t i = 0; i < 5; ++i) trace.add("cpu_op", "AddmmBackward0", 2, begin + 70'000 + 4'000 * i, 4'000);
    trace.add("user_annotation", "Optimizer.step#SGD.step", 1, begin + 90'000, 10'000);
  }
  const auto report = judge({trace.text()});
  EXPECT_EQ(named(report), "data_loading");
  EXPECT_NEAR(report.bottleneck->ceiling_percent, 60, 1);
  EXPECT_EQ(report.ranks[0].num_steps, 4);
}

TEST(Skew, NamesTheSlowRankAndWhatItDoes) {
  const auto report = judge(simulate({.num_ranks = 4, .has_device = false, .late_us = 20'000}).traces);
  ASSERT_TRUE(report.straggler);
  EXPECT_EQ(report.straggler->rank, 3);
  EXPECT_THAT(report.straggler->why, HasSubstr("computes"));
}

TEST(Ranks, OneOfSeveralIsNoCertainty) {
  const auto all = simulate({.num_ranks = 2, .collective_us = 9'000});
  const auto report = judge({all.traces[0]});
  EXPECT_EQ(named(report), "communication");
  EXPECT_EQ(report.confidence, profile::Confidence::kMedium);
  EXPECT_THAT(report.notes, testing::Contains(HasSubstr("1 of 2 ranks")));
}

// The result must not depend on the pieces in which the file is read, nor on how its bytes are spread. If a piece ends
// within an event, the reader parses the event again.
TEST(Reader, ReadsTheSameInPiecesOfAnySize) {
  const auto text = simulate({.num_steps = 1, .num_layers = 2}).traces[0];
  const auto whole = read(text);
  for (const size_t piece : {1, 7, 100, 4097}) {
    const auto trace = read(text, "trace.json", piece);
    ASSERT_EQ(trace.events.size(), whole.events.size());
    for (size_t i = 0; i < whole.events.size(); ++i) {
      EXPECT_EQ(trace.events[i].start_ns, whole.events[i].start_ns);
      EXPECT_EQ(trace.names[trace.events[i].name].text, whole.names[whole.events[i].name].text);
    }
  }
}

TEST(HostileTrace, IsReadAsFarAsItMakesSense) {
  // Fields are missing, are not numbers, are negative, or are too large.
  auto trace = read("[" + trace_event("") + R"(,{"ph":"X","cat":"cpu_op","name":"a","ts":1},{},3,"x",null,
      {"ph":"X","cat":"cpu_op","name":"b","ts":1e400,"dur":1},{"ph":"X","cat":"cpu_op","name":"c","ts":NaN,"dur":1},
      {"ph":"X","cat":"cpu_op","name":"d","ts":1,"dur":-1},{"ph":"X","cat":"cpu_op","name":"e","ts":1,"dur":1e300}])");
  EXPECT_EQ(trace.events.size(), 1);
  EXPECT_EQ(trace.num_without_duration, 8);
  EXPECT_FALSE(trace.is_truncated);

  // Commas have no events between them.
  trace = read("[," + trace_event("") + ",,\n, " + trace_event("") + ",]");
  EXPECT_EQ(trace.events.size(), 2);
  EXPECT_FALSE(trace.is_truncated);

  // Begin and end events: a pair, an end without a begin, a begin without an end.
  trace = read(R"([{"ph":"B","cat":"cpu_op","name":"a","pid":1,"tid":1,"ts":1},{"ph":"E","pid":1,"tid":1,"ts":4.5},
      {"ph":"E","pid":1,"tid":1,"ts":5},{"ph":"B","cat":"cpu_op","name":"b","pid":1,"tid":2,"ts":6}])");
  ASSERT_EQ(trace.events.size(), 1);
  EXPECT_EQ(trace.events[0].duration_ns, 3500);
  EXPECT_EQ(trace.num_without_duration, 2);

  // Kineto has written members without a value, and names with quotes and line feeds.
  trace = read(R"({"traceEvents":[{"name":"a\"\n\u001b[31m","cat":"cpu_op","args":{"Process Group": ,"x":[1,]},)"
               R"("ph":"X","ts":1,"dur":2,"pid":1,"tid":"t"}],"distributedInfo":{"rank": 3, "world_size": }})");
  ASSERT_EQ(trace.events.size(), 1);
  EXPECT_EQ(trace.names[0].text, "a\"\n\x1b[31m");
  EXPECT_EQ(trace.rank, 3);

  // The file ends early, because the run was killed while it wrote.
  const auto whole = simulate({.num_steps = 2, .num_layers = 2}).traces[0];
  trace = read(whole.substr(0, whole.size() / 2));
  EXPECT_TRUE(trace.is_truncated);
  EXPECT_GT(trace.events.size(), 10);
  (void)profile::judge({profile::account_for(trace)});

  // Deep nesting must not overflow the stack.
  trace = read("{\"x\":" + std::string(1'000'000, '[') + std::string(1'000'000, ']') + ",\"traceEvents\":[" +
               trace_event("") + "]}");
  EXPECT_EQ(trace.events.size(), 1);

  // 100,000 threads.
  std::string many = "[";
  for (int i = 0; i < 100'000; ++i) {
    many += fmt::format(R"({{"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":{},"ts":{},"dur":1}},)", i, i);
  }
  EXPECT_EQ(profile::account_for(read(many + "]")).steps.size(), 1);
}

TEST(HostileTrace, IsRefusedWhenItIsNone) {
  for (const auto* text : {"", "{}", "[]", "{\"traceEvents\":[]}",
                           "\x7f"
                           "ELF",
                           "null", "{\"traceEvents\":{}}", "[[[["}) {
    EXPECT_THAT(message_of([&] { read(text, "some.json"); }, ErrorCode::kDataLoss),
                AllOf(HasSubstr("some.json"), HasSubstr("found no events")));
  }
}

// The first string in a file of 100 GB never ends. The reader must neither read it all nor keep it in memory.
TEST(HostileTrace, AValueWithoutEndIsGivenUp) {
  size_t num_read = 0;
  const auto endless = [&](std::span<char> buffer) {
    std::fill(buffer.begin(), buffer.end(), 'a');
    if (num_read == 0) std::copy_n("{\"a\":\"", 6, buffer.begin());
    num_read += buffer.size();
    return buffer.size();
  };
  EXPECT_THAT(message_of([&] { profile::read_trace(endless, "some.json"); }, ErrorCode::kDataLoss),
              HasSubstr("some.json"));
  EXPECT_LT(num_read, size_t{200} << 20);
}

TEST(Ranks, TwoTracesOfOneRankAreRefusedUnlessTheyGoOn) {
  const auto text = simulate({.num_steps = 2, .num_layers = 2}).traces[0];
  EXPECT_THAT(message_of([&] { judge({text, text}); }), AllOf(HasSubstr("rank 0"), HasSubstr("step 5")));
  auto later = text;
  for (const auto* step : {"Step#5", "Step#6"})
    later.replace(later.find(step), 6, std::string("Step#") + (step[5] == '5' ? "7" : "8"));
  const auto report = judge({text, later});
  ASSERT_EQ(report.ranks.size(), 1);
  EXPECT_EQ(report.ranks[0].num_steps, 4);
}

}  // namespace
}  // namespace yoke::test
