#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "yoke/slurm/job/report.h"

namespace yoke::slurm {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr int64_t kGiB = int64_t{1} << 30;

/// A job of an hour that used all it had, of which a case changes some.
UseReport good_gpu_job() {
  UseReport report;
  report.job = {.id = "7", .number = 7, .state = "COMPLETED", .num_nodes = 1, .num_cpus = 16, .num_gpus = 4};
  report.job.elapsed = Seconds(3600);
  report.job.limit = Seconds(4000);
  report.gpu_percent = 90;
  report.num_seen_gpus = 4;
  report.gpu_memory_peak_bytes = 60 * kGiB;
  report.cpu_percent = 10;
  report.num_idle_nodes = 0;
  report.memory_peak_bytes = 90 * kGiB;
  report.memory_limit_bytes = 100 * kGiB;
  return report;
}

UseReport good_cpu_job() {
  auto report = good_gpu_job();
  report.job.num_gpus = report.num_seen_gpus = 0;
  report.gpu_percent.reset();
  report.cpu_percent = 95;
  return report;
}

struct AdviceCase {
  const char* what;
  UseReport report;
  std::function<void(UseReport&)> change;
  std::vector<std::string> kinds;  ///< "!" marks serious ones.
};

// The thresholds are jobstats'; its conditions are in config.py.
TEST(SlurmAdvice, IsThatOfJobstats) {
  const auto gpu = good_gpu_job(), cpu = good_cpu_job();
  const std::vector<AdviceCase> cases = {
      {"well used", gpu, [](auto&) {}, {}},
      {"well used, without GPUs", cpu, [](auto&) {}, {}},
      {"one of four GPUs unused",
       gpu,
       [](auto& r) {
         r.num_unused_gpus = 1;
         r.gpu_percent = 60;
       },
       {"!gpus-unused"}},
      {"unused GPUs hide what follows from them",
       gpu,
       [](auto& r) {
         r.num_unused_gpus = 4;
         r.gpu_percent = 0;
         r.job.limit = Seconds(100'000);
       },
       {"!gpus-unused"}},
      {"300 s are too short to tell",
       gpu,
       [](auto& r) {
         r.num_unused_gpus = 4;
         r.job.elapsed = Seconds(300);
       },
       {}},
      {"15 %", gpu, [](auto& r) { r.gpu_percent = 15; }, {"!gpu-low"}},
      {"24 %", gpu, [](auto& r) { r.gpu_percent = 24; }, {"gpu-low"}},
      {"25 %", gpu, [](auto& r) { r.gpu_percent = 25; }, {}},
      {"a slice would do",
       gpu,
       [](auto& r) {
         r.gpu_percent = 10;
         r.num_seen_gpus = r.job.num_gpus = r.job.num_cpus = 1;
         r.gpu_memory_peak_bytes = 9 * kGiB;
         r.memory_peak_bytes = 8 * kGiB;
         r.memory_limit_bytes = 10 * kGiB;
       },
       {"!mig"}},
      {"a slice would not do: memory",
       gpu,
       [](auto& r) {
         r.gpu_percent = 10;
         r.num_seen_gpus = r.job.num_gpus = r.job.num_cpus = 1;
         r.gpu_memory_peak_bytes = 11 * kGiB;
         r.memory_peak_bytes = 8 * kGiB;
         r.memory_limit_bytes = 10 * kGiB;
       },
       {"!gpu-low"}},
      {"64 % of the CPUs", cpu, [](auto& r) { r.cpu_percent = 64; }, {"!cpu-low"}},
      {"80 % of the CPUs", cpu, [](auto& r) { r.cpu_percent = 80; }, {"cpu-low"}},
      {"81 % of the CPUs", cpu, [](auto& r) { r.cpu_percent = 81; }, {}},
      {"few CPUs beside GPUs are usual", gpu, [](auto& r) { r.cpu_percent = 3; }, {}},
      {"one of 16 CPUs", cpu, [](auto& r) { r.cpu_percent = 6.2; }, {"!one-core"}},
      {"a node without use",
       cpu,
       [](auto& r) {
         r.job.num_nodes = 2;
         r.num_idle_nodes = 1;
         r.cpu_percent = 50;
       },
       {"!nodes-idle"}},
      {"out of memory",
       cpu,
       [](auto& r) {
         r.job.state = "OUT_OF_MEMORY";
         r.is_out_of_memory = true;
         r.job.elapsed = Seconds(10);
       },
       {"!memory-out"}},
      {"a step was out of memory, so that less memory is no advice",
       cpu,
       [](auto& r) {
         r.job.state = "FAILED";
         r.is_out_of_memory = true;
         r.memory_peak_bytes = kGiB;
       },
       {"!memory-out"}},
      {"a job that failed may have needed more memory than was seen",
       cpu,
       [](auto& r) {
         r.job.state = "FAILED";
         r.memory_peak_bytes = kGiB;
       },
       {}},
      {"one CPU cannot become fewer",
       cpu,
       [](auto& r) {
         r.job.num_cpus = 1;
         r.cpu_percent = 50;
       },
       {"!cpu-low"}},
      {"GPUs that Slurm does not account are GPUs",
       cpu,
       [](auto& r) {
         r.job.num_nodes = 2;
         r.num_seen_gpus = 8;
         r.cpu_percent = 5;
         r.nodes = {{.host = "a", .num_host_cpus = 32}, {.host = "b", .num_host_cpus = 32}};
       },
       {}},
      {"samples alone do not tell what the job has",
       cpu,
       [](auto& r) {
         r.is_known = false;
         r.job = {.id = "7", .number = 7};
         r.sampled_seconds = 1000;
         r.cpu_percent = 5;
         r.memory_peak_bytes = kGiB;
         r.nodes = {{.host = "a", .num_cpus = 1, .num_host_cpus = 32}, {.host = "b", .num_host_cpus = 32}};
       },
       {}},
      {"out of time", cpu, [](auto& r) { r.job.state = "TIMEOUT"; }, {"!time-out"}},
      {"10 % of the time", cpu, [](auto& r) { r.job.limit = Seconds(36'000); }, {"!time-low"}},
      {"59 % of the time", cpu, [](auto& r) { r.job.limit = Seconds(6100); }, {"time-low"}},
      {"short jobs may ask for more",
       cpu,
       [](auto& r) {
         r.job.elapsed = Seconds(900);
         r.job.limit = Seconds(36'000);
       },
       {}},
      {"failed jobs may have needed more",
       cpu,
       [](auto& r) {
         r.job.state = "FAILED";
         r.job.limit = Seconds(36'000);
       },
       {}},
      {"69 % of memory", cpu, [](auto& r) { r.memory_peak_bytes = 69 * kGiB; }, {"memory-low"}},
      {"70 % of memory", cpu, [](auto& r) { r.memory_peak_bytes = 70 * kGiB; }, {}},
      {"a part of a run may have used less than the rest",
       cpu,
       [](auto& r) {
         r.memory_peak_bytes = kGiB;
         r.is_memory_partial = true;
       },
       {}},
      {"25 GiB for a GPU are not many", gpu, [](auto& r) { r.memory_peak_bytes = 9 * kGiB; }, {}},
      {"100 GiB for a GPU are", gpu, [](auto& r) { r.memory_limit_bytes = 400 * kGiB; }, {"memory-low"}},
      {"one GPU on each of four nodes", gpu, [](auto& r) { r.job.num_nodes = 4; }, {"fewer-nodes"}},
      {"16 CPUs of two nodes with 32",
       cpu,
       [](auto& r) {
         r.job.num_nodes = 2;
         r.nodes = {{.host = "a", .num_host_cpus = 32}, {.host = "b", .num_host_cpus = 32}};
       },
       {"fewer-nodes"}},
      {"much time in earlier runs", gpu, [](auto& r) { r.earlier_runs = Seconds(1000); }, {"restarts"}},
      {"nothing is known",
       gpu,
       [](auto& r) {
         r.gpu_percent.reset();
         r.cpu_percent.reset();
         r.memory_peak_bytes.reset();
         r.memory_limit_bytes.reset();
         r.num_idle_nodes.reset();
         r.num_seen_gpus = 0;
         r.job.limit.reset();
       },
       {}},
  };
  for (const auto& one : cases) {
    auto report = one.report;
    one.change(report);
    std::vector<std::string> kinds;
    for (const auto& advice : advise(report)) kinds.push_back((advice.is_serious ? "!" : "") + advice.kind);
    EXPECT_EQ(kinds, one.kinds) << one.what;
  }
}

TEST(SlurmAdvice, SaysHowMuchMemoryWouldDo) {
  auto report = good_cpu_job();
  report.job.num_nodes = 2;
  report.memory_peak_bytes = 20 * kGiB;
  EXPECT_THAT(advise(report).at(0).text, HasSubstr("--mem=12G for each node leaves a fifth to spare"));
  report.memory_peak_bytes = kGiB / 100;
  EXPECT_THAT(advise(report).at(0).text, HasSubstr("--mem=1G for each node is far more than that"));
}

Evidence sampled_evidence() {
  Evidence evidence;
  evidence.job = Job{.id = "7",
                     .number = 7,
                     .name = "train",
                     .state = "RUNNING",
                     .node_list = "n[1-2]",
                     .num_nodes = 2,
                     .num_cpus = 8,
                     .num_gpus = 2};
  evidence.job->elapsed = Seconds(1000);
  for (const auto* host : {"n1", "n2"}) {
    NodeSample node{.job = 7, .host = host, .seconds = 1000, .num_samples = 100, .num_cpus = 4};
    const bool is_first = host == std::string("n1");
    node.cpu_seconds = is_first ? 2000 : 0.5;
    node.memory_peak_bytes = 3 * kGiB;
    node.devices = {{.id = "0", .known_seconds = 1000, .mean_percent = is_first ? 80 : 0}};
    node.devices[0].energy_mj = 1'800'000;
    evidence.samples.push_back(node);
  }
  return evidence;
}

TEST(SlurmReport, AddsUpTheNodes) {
  const auto report = make_report(sampled_evidence());
  EXPECT_TRUE(report.is_running);
  EXPECT_EQ(report.gpu_percent, 40);
  EXPECT_EQ(report.num_unused_gpus, 1);
  EXPECT_NEAR(report.cpu_percent.value_or(0), 25, 0.1);
  EXPECT_EQ(report.num_idle_nodes, 1);
  EXPECT_EQ(report.memory_peak_bytes, 6 * kGiB);
  EXPECT_EQ(report.energy_joules, 3600);
  const auto text = to_text(report, advise(report), 120);
  EXPECT_THAT(text, HasSubstr("GPUs      40 % busy"));
  EXPECT_THAT(text, HasSubstr("! the job did not use 1 of 2 GPUs"));
  EXPECT_THAT(text, HasSubstr("energy    1.0 Wh (yoke, GPUs alone)"));
  const auto json = to_json(report, advise(report));
  EXPECT_EQ(json.at("nodes").size(), 2U);
  EXPECT_EQ(json.at("queue_wait_seconds"), nullptr);
}

TEST(SlurmReport, TakesTheAccountsWhereThereAreNoSamples) {
  Evidence evidence;
  Account first, last;
  first.job = {.id = "9", .number = 9, .state = "NODE_FAIL", .num_nodes = 1, .num_cpus = 4, .num_gpus = 2};
  first.job.elapsed = Seconds(500);
  first.planned = Seconds(60);
  last = first;
  last.job.state = "COMPLETED";
  last.job.elapsed = Seconds(1000);
  last.planned = Seconds(30);
  last.job.submitted = Time(Seconds(5000));
  last.job.started = Time(Seconds(5030));
  last.cpu_seconds = 1000;
  last.peak_sum_bytes = kGiB;
  last.memory_bytes = 4 * kGiB;
  evidence.accounts = {first, last};
  const auto report = make_report(evidence);
  EXPECT_EQ(report.job.num_restarts, 1);
  EXPECT_EQ(report.queue_wait, Seconds(60));
  EXPECT_EQ(report.restart_wait, Seconds(30));
  EXPECT_EQ(report.earlier_runs, Seconds(500));
  EXPECT_EQ(report.cpu_percent, 25);
  EXPECT_EQ(report.cpu_source, "Slurm");
  EXPECT_EQ(report.gpu_percent, std::nullopt);
  first.job.state = "RESIZING";
  evidence.accounts = {first, last};
  EXPECT_EQ(make_report(evidence).earlier_runs, std::nullopt) << "the job went on with fewer nodes";
  EXPECT_EQ(make_report(evidence).job.num_restarts, 0);
  EXPECT_THAT(report.unknown,
              testing::Contains(HasSubstr("the use of the GPUs is not known: the job was not sampled")));
  EXPECT_THAT(report.unknown, testing::Contains(HasSubstr("energy is not known")));
}

// Advice that follows from the memory of a part of a run would kill the next one.
TEST(SlurmReport, KnowsWhetherTheMemoryIsThatOfTheWholeRun) {
  const auto report_of = [](const std::function<void(Evidence&)>& change) {
    auto evidence = sampled_evidence();
    evidence.job->state = "COMPLETED";
    Account account;
    account.job = *evidence.job;
    account.memory_bytes = 100 * kGiB;
    account.peak_sum_bytes = 20 * kGiB;
    evidence.accounts = {account};
    change(evidence);
    return make_report(evidence);
  };
  const auto whole = report_of([](auto&) {});
  EXPECT_EQ(whole.memory_peak_bytes, 6 * kGiB) << "the samples are of all nodes and of the whole run";
  EXPECT_FALSE(whole.is_memory_partial);
  const auto one_node = report_of([](auto& evidence) { evidence.samples.pop_back(); });
  EXPECT_EQ(one_node.memory_peak_bytes, 20 * kGiB);
  EXPECT_TRUE(one_node.is_memory_estimate);
  EXPECT_FALSE(one_node.is_memory_partial);
  const auto begin = report_of([](auto& evidence) {
    for (auto& node : evidence.samples) node.seconds = 100;
    evidence.accounts.clear();
  });
  EXPECT_TRUE(begin.is_memory_partial);
  EXPECT_TRUE(report_of([](auto& evidence) { evidence.job->state = "RUNNING"; }).is_memory_partial);
}

TEST(SlurmReport, TakesNoFiguresOfAnEarlierRun) {
  auto evidence = sampled_evidence();
  evidence.samples.clear();
  evidence.job->state = "COMPLETED";
  evidence.job->num_restarts = 1;
  evidence.job->submitted = Time(Seconds(5000));
  evidence.job->started = Time(Seconds(5060));
  Account first;
  first.job = *evidence.job;
  first.job.state = "REQUEUED";
  first.job.submitted = Time(Seconds(1000));
  first.job.elapsed = Seconds(500);
  first.planned = Seconds(30);
  first.cpu_seconds = 100;
  first.peak_sum_bytes = kGiB;
  evidence.accounts = {first};
  const auto report = make_report(evidence);
  EXPECT_EQ(report.cpu_percent, std::nullopt);
  EXPECT_EQ(report.memory_peak_bytes, std::nullopt);
  EXPECT_EQ(report.queue_wait, Seconds(30));
  EXPECT_EQ(report.earlier_runs, Seconds(500));
  EXPECT_EQ(report.restart_wait, Seconds(60));
  EXPECT_THAT(report.unknown, testing::Contains(HasSubstr("nothing about the present run yet")));
  evidence.accounts[0].job.submitted = evidence.job->submitted;
  EXPECT_EQ(make_report(evidence).memory_peak_bytes, kGiB);
}

TEST(SlurmReport, ShowsThatMoreCpusWereUsedThanTheJobHad) {
  auto evidence = sampled_evidence();
  for (auto& node : evidence.samples) node.cpu_seconds = 12'000;
  EXPECT_EQ(make_report(evidence).cpu_percent, 300);
  EXPECT_THAT(to_text(make_report(evidence), {}, 120), HasSubstr("300 % of 8 busy"));
}

TEST(SlurmReport, KnowsAStepThatWasOutOfMemory) {
  Evidence evidence;
  Account account;
  account.job = {.id = "16", .number = 16, .state = "FAILED", .num_nodes = 1, .num_cpus = 1};
  account.job.elapsed = Seconds(400);
  account.is_out_of_memory = true;
  account.peak_sum_bytes = 10 << 20;
  account.memory_bytes = 2 * kGiB;
  evidence.accounts = {account};
  auto report = make_report(evidence);
  auto advice = advise(report);
  ASSERT_FALSE(advice.empty());
  EXPECT_EQ(advice[0].kind, "memory-out");
  EXPECT_THAT(advice, Not(testing::Contains(testing::Field(&Advice::kind, "memory-low"))));
  EXPECT_THAT(to_text(report, advice, 120),
              HasSubstr("memory    did not suffice; the largest that was seen: 10.0 MiB"));
  EXPECT_EQ(to_json(report, advice).at("is_out_of_memory"), true);
  // Without accounts, the samples tell it.
  evidence = sampled_evidence();
  EXPECT_FALSE(make_report(evidence).is_out_of_memory);
  evidence.samples[1].num_oom_kills = 1;
  EXPECT_TRUE(make_report(evidence).is_out_of_memory);
}

TEST(SlurmReport, SaysThatSamplesMissPeaks) {
  auto evidence = sampled_evidence();
  EXPECT_THAT(make_report(evidence).unknown, testing::Contains(HasSubstr("peaks between samples were not seen")));
  for (auto& node : evidence.samples) node.memory_with_files_peak_bytes = 5 * kGiB;
  EXPECT_THAT(make_report(evidence).unknown, testing::Contains(HasSubstr("memory was never over 10.0 GiB")));
  Account account;
  account.job = *evidence.job;
  account.peak_task_bytes = 7 * kGiB;
  evidence.accounts = {account};
  EXPECT_EQ(make_report(evidence).memory_peak_bytes, 7 * kGiB) << "Slurm saw more";
}

TEST(SlurmReport, OfSamplesAloneKnowsTheSampledPartAlone) {
  auto evidence = sampled_evidence();
  evidence.job.reset();
  evidence.why_no_job = "munge does not run";
  const auto report = make_report(evidence);
  const auto advice = advise(report);
  const auto text = to_text(report, advice, 120);
  EXPECT_THAT(text,
              HasSubstr("job 7: state, nodes, CPUs and GPUs not known\n  time      not known; 16:40 were sampled"));
  EXPECT_THAT(report.unknown, testing::Contains(testing::AllOf(HasSubstr("GPUs of the job are not known"),
                                                               HasSubstr("munge does not run"))));
  const auto json = to_json(report, advice).at("job");
  for (const auto* key : {"state", "nodes", "num_nodes", "num_cpus", "num_gpus", "elapsed_seconds", "limit_seconds"}) {
    EXPECT_EQ(json.at(key), nullptr) << key;
  }
  EXPECT_THAT(text, HasSubstr("did not use 1 of 2 sampled GPUs"));
}

TEST(SlurmReport, CountsTheWaitOfAJobThatWasPutBack) {
  Evidence evidence;
  const auto at = [](int64_t second) { return Time(Seconds(second)); };
  Account first, again;
  first.job = {.id = "9", .number = 9, .state = "NODE_FAIL", .submitted = at(1000), .started = at(1010)};
  first.planned = Seconds(10);
  again.job = {.id = "9", .number = 9, .state = "PENDING", .submitted = at(2000), .eligible = at(2120)};
  again.job.started = at(2120);  // what Slurm expects
  again.planned = Seconds(0);
  evidence.accounts = {first, again};
  EXPECT_EQ(make_report(evidence).restart_wait, std::nullopt) << "not known, and not zero";
  evidence.now = at(2060);
  EXPECT_EQ(make_report(evidence).restart_wait, Seconds(60));
  evidence.accounts[1].job.state = "RUNNING";
  EXPECT_EQ(make_report(evidence).restart_wait, Seconds(120));
  evidence.accounts.clear();
  evidence.job = again.job;
  evidence.job->num_restarts = 1;
  EXPECT_EQ(make_report(evidence).restart_wait, Seconds(60));
}

TEST(SlurmReport, NamesTheUserWhoseSamplesWereNotRead) {
  Evidence evidence;
  evidence.job = Job{.id = "9", .number = 9, .user = "ada", .state = "COMPLETED"};
  evidence.reader = "root";
  EXPECT_THAT(make_report(evidence).unknown, testing::Contains(HasSubstr("in a folder of ada and were not read")));
  evidence.reader = "ada";
  EXPECT_THAT(make_report(evidence).unknown, Not(testing::Contains(HasSubstr("were not read"))));
}

TEST(SlurmReport, SaysThatAWaitingJobHasUsedNothing) {
  Evidence evidence;
  evidence.job = Job{.id = "9", .number = 9, .state = "PENDING", .num_gpus = 2};
  const auto report = make_report(evidence);
  EXPECT_THAT(report.unknown, ElementsAre("the job has not started, so it has used nothing"));
  EXPECT_THAT(advise(report), IsEmpty());
}

}  // namespace
}  // namespace yoke::slurm
