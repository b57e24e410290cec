#include "yoke/profile/account.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "yoke/profile/made_trace_test.h"

namespace yoke::profile {
namespace {

using testing::ElementsAre;
using testing::Pair;
constexpr uint32_t kHost = 1, kGloo = 2, kStream = 9, kOtherStream = 10;

/// The causes to which a step loses time, with that time in nanoseconds.
std::map<std::string, int64_t> lost(const Step& step) {
  std::map<std::string, int64_t> result;
  for (size_t i = 0; i < kNumCauses; ++i) {
    if (step.lost_ns[i] != 0) result.emplace(rule_of(static_cast<Cause>(i)).name, step.lost_ns[i]);
  }
  return result;
}

std::string part_of(const RankAccount& account, Cause cause) {
  return account.largest_part[static_cast<size_t>(cause)];
}

MadeTrace one_step(int64_t length_us = 1000) { return MadeTrace().add_step(0, 0, length_us); }

TEST(Account, TheHostsStepIsDividedByCause) {
  auto trace = one_step();
  trace.host = {.num_threads = 1, .num_cpus = 4};
  trace.add(Kind::kLoader, 0, 100, kHost, "short");
  trace.add(Kind::kOperation, 100, 200, kHost, "large");
  trace.add(Kind::kOperation, 310, 10, kHost, "tiny");   // then 10 us to the next operation
  trace.add(Kind::kOperation, 330, 10, kHost, "tiny");   // then 160 us, which launching does not take
  trace.add(Kind::kOperation, 500, 60, kHost, "outer");  // 20 us of its own, and 40 us of what it calls
  trace.add(Kind::kOperation, 510, 40, kHost, "inner");
  trace.add(Kind::kOptimizer, 700, 100, kHost, "Optimizer.step#SGD.step");
  trace.add(Kind::kOperation, 710, 40, kHost, "addcdiv");        // counts as the optimizer's
  trace.add(Kind::kLoader, 1000, 500, kHost, "after the step");  // longer than the other one
  const auto account = account_for(trace);
  ASSERT_EQ(account.steps.size(), 1u);
  const auto& step = account.steps[0];
  EXPECT_THAT(lost(step),
              ElementsAre(Pair("data_loading", 100'000), Pair("optimizer", 100'000),
                          Pair("small_operations", 10'000 + 10'000 + 10'000), Pair("threads", 200'000 * 3 / 4)));
  EXPECT_EQ(step.computing_ns, (200 + 10 + 10 + 60 + 40) * 1000);
  EXPECT_EQ(step.num_operations, 4);
  // 300 to 310, 340 to 500, 560 to 700 and 800 to 1000.
  EXPECT_EQ(step.unexplained_ns, (10 + 160 + 140 + 200) * 1000);
  EXPECT_EQ(part_of(account, Cause::kDataLoading), "short");
  EXPECT_EQ(part_of(account, Cause::kSmallOperations), "tiny");
  EXPECT_EQ(part_of(account, Cause::kHostSync), "");
}

/// The phases of a step, in microseconds.
std::map<std::string, int64_t> phases(const Step& step) {
  std::map<std::string, int64_t> result;
  for (size_t i = 0; i < kNumPhases; ++i) {
    if (step.phase_ns[i] != 0) result.emplace(kPhaseNames[i].name, step.phase_ns[i] / 1000);
  }
  return result;
}

TEST(Account, EachPieceOfTheHostsStepIsInOnePhase) {
  auto trace = one_step();
  trace.world_size = 2;
  trace.add(Kind::kLoader, 0, 100, kHost, "loader");
  trace.add(Kind::kOperation, 100, 200, kHost, "aten::linear");
  trace.add(Kind::kOperation, 110, 150, kHost, "aten::addmm");
  trace.add(Kind::kOperation, 300, 250, kHost, "autograd::engine::evaluate_function: AddmmBackward0");
  trace.add(Kind::kOperation, 310, 200, kHost, "aten::mm");
  trace.add(Kind::kHostCollective, 600, 150, kGloo, "gloo:all_reduce");
  trace.add(Kind::kOptimizer, 800, 120, kHost, "Optimizer.step#SGD.step");
  trace.add(Kind::kOperation, 810, 40, kHost, "aten::add_");
  trace.add(Kind::kOperation, 1100, 40, kHost, "after the step");
  const auto account = account_for(trace);
  // With the ways to and from it, 550 to 800, the collective is exposed.
  EXPECT_THAT(phases(account.steps[0]),
              ElementsAre(Pair("backward", 250), Pair("communication", 250), Pair("data_loading", 100),
                          Pair("forward", 200), Pair("optimizer", 120), Pair("rest", 80)));
  EXPECT_THAT(account.operation_ns,
              testing::UnorderedElementsAre(Pair("aten::linear", 50'000), Pair("aten::addmm", 150'000),
                                            Pair("autograd::engine::evaluate_function: AddmmBackward0", 50'000),
                                            Pair("aten::mm", 200'000), Pair("aten::add_", 40'000)));
}

TEST(Account, EachPieceOfTheDevicesStepIsInOnePhase) {
  auto trace = one_step();
  trace.world_size = 2;
  trace.add(Kind::kLoader, 0, 50, kHost, "loader");
  trace.add(Kind::kPageableCopy, 60, 40, kStream, "Memcpy HtoD (Pageable -> Device)");
  trace.add(Kind::kPlainMatmul, 100, 200, kStream, "sgemm");
  trace.add(Kind::kMemoryBound, 300, 100, kStream, "elementwise");
  trace.add(Kind::kKernel, 400, 100, kStream, "s16816gemm");
  trace.add(Kind::kDeviceCollective, 450, 150, kOtherStream, "ncclDevKernel_AllReduce");
  trace.add(Kind::kDeviceOptimizer, 600, 100, kStream, "Optimizer.step#SGD.step");
  trace.add(Kind::kMemoryBound, 610, 90, kStream, "multiply");
  const auto account = account_for(trace);
  EXPECT_THAT(phases(account.steps[0]),
              ElementsAre(Pair("communication", 100), Pair("data_loading", 50), Pair("device_copy", 40),
                          Pair("matmul_float32", 200), Pair("memory_bound", 100), Pair("optimizer", 100),
                          Pair("other_kernels", 100), Pair("rest", 310)));
  EXPECT_THAT(account.operation_ns, testing::Contains(Pair("sgemm", 200'000)));
}

TEST(Account, AHostsCollectiveIsExposedWhereTheTrainingThreadDoesNothingElse) {
  auto trace = one_step();
  trace.add(Kind::kOperation, 0, 200).add(Kind::kCollectiveCall, 200, 10);
  trace.add(Kind::kHostCollective, 210, 190, kGloo, "first").add(Kind::kOperation, 300, 50);
  // From 400 to 450 the thread is idle, shortly after the collective. From 700 on it is idle for too long.
  trace.add(Kind::kOperation, 450, 150).add(Kind::kHostCollective, 600, 100, kGloo, "second");
  const auto step = account_for(trace).steps[0];
  ASSERT_EQ(step.collectives.size(), 2u);
  EXPECT_EQ(step.collectives[0].duration_ns, 190'000);
  EXPECT_EQ(step.collectives[0].exposed_ns, (100 + 50 + 50) * 1000) << "200 to 300, 350 to 400, 400 to 450";
  EXPECT_EQ(step.collectives[1].exposed_ns, 100'000);
  EXPECT_NE(step.collectives[0].key, step.collectives[1].key);
  EXPECT_EQ(step.computing_ns, (200 + 50 + 150) * 1000);
  EXPECT_EQ(step.unexplained_ns, 300'000);
}

TEST(Account, WithAnnotationsAloneNothingElseIsSaid) {
  auto trace = one_step();
  trace.host.has_operations = 0;
  trace.add(Kind::kLoader, 0, 100).add(Kind::kOptimizer, 90, 110).add(Kind::kHostCollective, 300, 100, kGloo);
  const auto step = account_for(trace).steps[0];
  EXPECT_THAT(lost(step), ElementsAre(Pair("data_loading", 100'000), Pair("optimizer", 100'000)))
      << "the loader's part of the optimizer's step counts once";
  EXPECT_EQ(step.unexplained_ns, 0);
  EXPECT_TRUE(step.collectives.empty());
}

TEST(Account, TheDevicesStepIsDividedByCause) {
  auto trace = one_step();
  trace.add(Kind::kLoader, 0, 100).add(Kind::kPlainMatmul, 100, 100, kStream);  // then 20 us until the next launch
  trace.add(Kind::kMemoryBound, 220, 30, kStream).add(Kind::kMemoryBound, 250, 40, kStream);
  trace.add(Kind::kMemoryBound, 290, 10, kStream);  // one kernel of 40 us could do all three
  trace.add(Kind::kPageableCopy, 300, 50, kStream).add(Kind::kHostCopy, 320, 20, kOtherStream);
  trace.add(Kind::kSync, 330, 21);             // until the device is done; the next kernel begins at 450
  trace.add(Kind::kKernel, 450, 50, kStream);  // then nothing for 300 us, of which the host computes for 100
  trace.add(Kind::kOperation, 550, 100);
  trace.add(Kind::kDeviceOptimizer, 800, 100, kStream).add(Kind::kKernel, 800, 80, kStream);
  trace.add(Kind::kDeviceCollective, 900, 50, kOtherStream).add(Kind::kKernel, 940, 60, kStream);
  const auto account = account_for(trace);
  ASSERT_EQ(account.steps.size(), 1u);
  const auto& step = account.steps[0];
  EXPECT_THAT(lost(step), ElementsAre(Pair("data_loading", 100'000), Pair("device_copy", 50'000),
                                      Pair("host_sync", 21'000),  // not 100'000: the host waits only so long
                                      Pair("memory_bandwidth", 40'000), Pair("optimizer", 100'000),
                                      Pair("precision", 87'500),  // 8 times as fast
                                      Pair("small_operations", (20 + 100) * 1000)));
  EXPECT_EQ(step.computing_ns, (100 + 80 + 50 + 80 + 60) * 1000);
  EXPECT_EQ(step.unexplained_ns, 200'000);
  EXPECT_EQ(step.num_syncs, 1);
  EXPECT_EQ(step.num_operations, 10) << "7 kernels, 2 copies, 1 collective";
  ASSERT_EQ(step.collectives.size(), 1u);
  EXPECT_EQ(step.collectives[0].exposed_ns, 40'000);
  EXPECT_DOUBLE_EQ(account.pageable_share, 50.0 / 70);
}

TEST(Account, OnlyKernelsThatFollowEachOtherOnAStreamCouldBeOne) {
  const auto saved_ns = [](int64_t second_start_us, uint32_t second_track, bool has_other_between) {
    auto trace = one_step();
    trace.add(Kind::kMemoryBound, 0, 10, kStream).add(Kind::kMemoryBound, second_start_us, 30, second_track);
    if (has_other_between) trace.add(Kind::kKernel, 15, 5, kStream);
    return account_for(trace).steps[0].lost_ns[static_cast<size_t>(Cause::kMemoryBandwidth)];
  };
  EXPECT_EQ(saved_ns(20, kStream, false), 10'000) << "the longer one remains";
  EXPECT_EQ(saved_ns(110, kStream, false), 10'000) << "100 us later";
  EXPECT_EQ(saved_ns(111, kStream, false), 0);
  EXPECT_EQ(saved_ns(20, kOtherStream, false), 0);
  EXPECT_EQ(saved_ns(20, kStream, true), 0);
}

TEST(Account, WithAClosureTheOptimizersKernelsAreNotTold) {
  auto trace = one_step();
  trace.add(Kind::kOptimizer, 100, 800).add(Kind::kDeviceOptimizer, 100, 800, kStream);
  trace.add(Kind::kKernel, 100, 800, kStream);
  EXPECT_THAT(lost(account_for(trace).steps[0]), testing::Contains(Pair("optimizer", 800'000)));
  trace.add(Kind::kOperation, 200, 300, kGloo, "autograd::engine::evaluate_function: MulBackward0");
  EXPECT_THAT(lost(account_for(trace).steps[0]), testing::Not(testing::Contains(Pair("optimizer", testing::_))));
}

TEST(Account, WaitingForMemoryIsSpreadOverTheSteps) {
  auto trace = MadeTrace().add_step(0, 0, 400).add_step(1, 400, 600);
  const auto paging_ns = [&](int64_t stall_us) {
    trace.host.memory_stall_us = stall_us;
    std::vector<int64_t> result;
    for (const auto& step : account_for(trace).steps) {
      result.push_back(step.lost_ns[static_cast<size_t>(Cause::kPaging)]);
    }
    return result;
  };
  EXPECT_THAT(paging_ns(250), ElementsAre(100'000, 150'000)) << "a quarter of each";
  EXPECT_THAT(paging_ns(2500), ElementsAre(400'000, 600'000)) << "of all processes, and no more than all of it";
  EXPECT_THAT(paging_ns(-1), ElementsAre(0, 0));
}

TEST(Account, ATraceWithoutARankIsRank0) {
  auto trace = one_step();
  trace.num_without_duration = 3;
  trace.is_truncated = true;
  const auto account = account_for(trace);
  EXPECT_EQ(account.rank, 0);
  EXPECT_EQ(account.num_without_duration, 3);
  EXPECT_TRUE(account.is_truncated && account.has_steps && !account.has_device);
  trace.rank = 5;
  EXPECT_EQ(account_for(trace).rank, 5);
}

}  // namespace
}  // namespace yoke::profile
