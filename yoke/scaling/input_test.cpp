#include "yoke/scaling/input.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>

#include "yoke/base/error.h"
#include "yoke/profile/trace_reader.h"

namespace yoke::scaling {
namespace {

profile::Trace read_text(const std::string& text) {
  size_t at = 0;
  const auto read = [&](std::span<char> buffer) {
    const auto count = std::min(buffer.size(), text.size() - at);
    std::memcpy(buffer.data(), text.data() + at, count);
    at += count;
    return count;
  };
  return profile::read_trace(read, "rank0.json");
}

std::string event(const std::string& category, const std::string& name, double begin_us, double us,
                  const std::string& args = "{}") {
  return fmt::format(R"({{"ph":"X","cat":"{}","name":"{}","pid":1,"tid":1,"ts":{:.3f},"dur":{:.3f},"args":{}}},)",
                     category, name, begin_us, us, args);
}

/// Three steps of 100 ms: 5 loading, forward until 30, backward until 90 with gradients at 50 and 90, 10 optimizer.
/// The second step is disturbed.
std::string steps_text(const std::string& more = "", bool has_shapes = true) {
  std::string text = R"({"traceEvents": [)";
  double start = 1e6;
  for (int step = 0; step < 3; ++step) {
    const double ms = step == 1 ? 3000 : 1000;
    text += event("user_annotation", fmt::format("ProfilerStep#{}", step), start, 100 * ms);
    text += event("user_annotation", "data_loading", start, 5 * ms);
    text += event("cpu_op", "aten::addmm", start + 5 * ms, 20 * ms);
    text += event("cpu_op", "autograd::engine::evaluate_function: AddmmBackward0", start + 30 * ms, 15 * ms);
    const auto shapes = [&](const char* dims, const char* type) {
      return has_shapes ? fmt::format(R"({{"Input Dims": [{}], "Input type": ["{}"]}})", dims, type)
                        : std::string("{}");
    };
    text += event("cpu_op", "torch::autograd::AccumulateGrad", start + 49 * ms, 1 * ms, shapes("[10]", "float"));
    text += event("cpu_op", "torch::autograd::AccumulateGrad", start + 88 * ms, 2 * ms,
                  shapes("[64, 10]", "c10::BFloat16"));
    text += event("user_annotation", "Optimizer.step#AdamW.step", start + 90 * ms, 10 * ms);
    start += 100 * ms + 1;
  }
  text.pop_back();
  return text + "]" + more + "}";
}

TEST(ScalingInput, FindsThePartsOfAStep) {
  const auto profiled = workload_of(read_text(steps_text()), std::nullopt);
  EXPECT_EQ(profiled.num_steps, 3);
  EXPECT_EQ(profiled.num_parameters, 650);
  EXPECT_FALSE(profiled.has_device);
  EXPECT_EQ(profiled.optimizer, Optimizer::kAdam);
  EXPECT_EQ(profiled.precision, Precision::kMixed) << "most gradients have 16 bits";
  const auto& work = profiled.workload;
  EXPECT_NEAR(work.step_seconds(), 0.1, 1e-9);
  EXPECT_NEAR(work.forward_seconds, 0.03, 1e-9);
  EXPECT_NEAR(work.backward_seconds, 0.06, 1e-9);
  EXPECT_NEAR(work.optimizer_seconds, 0.01, 1e-9);
  ASSERT_EQ(work.gradients.size(), 2U);
  EXPECT_EQ(work.gradients[0].bytes, 40);
  EXPECT_NEAR(work.gradients[0].ready_seconds, 0.02, 1e-9);
  EXPECT_EQ(work.gradients[1].bytes, 1280) << "two bytes for each number";
  EXPECT_NEAR(work.gradients[1].ready_seconds, 0.06, 1e-9);
}

TEST(ScalingInput, ScalesAllPartsToTheStepWithoutRecording) {
  const auto work = workload_of(read_text(steps_text()), 0.08).workload;
  EXPECT_NEAR(work.step_seconds(), 0.08, 1e-9);
  EXPECT_NEAR(work.forward_seconds, 0.024, 1e-9);
  EXPECT_NEAR(work.gradients[0].ready_seconds, 0.016, 1e-9);
}

/// Four steps of a GPU, 100 ms each, of which the optimizer takes 10. The host launches forward in 5 ms, backward in 8
/// (gradients at 4 and 8) and the optimizer in 3. Then it waits, or goes on with the next step.
std::string steps_of_gpu(bool host_waits) {
  std::string text = R"({"traceEvents": [)";
  for (int step = 0; step < 4; ++step) {
    const double device = 1e6 + 1e5 * step, host = host_waits ? device : 1e6 + 16e3 * step;
    text += event("user_annotation", fmt::format("ProfilerStep#{}", step), host, host_waits ? 1e5 : 16e3);
    text += event("cpu_op", "autograd::engine::evaluate_function: AddmmBackward0", host + 5e3, 3e3);
    for (const int end_ms : {9, 13}) {
      text += event("cpu_op", "torch::autograd::AccumulateGrad", host + 1e3 * end_ms - 100, 100,
                    R"({"Input Dims": [[10]], "Input type": ["float"]})");
    }
    text += event("user_annotation", "Optimizer.step#AdamW.step", host + 13e3, 3e3);
    text += event("kernel", "gemm", device, 1e5);
    text += event("gpu_user_annotation", "Optimizer.step#AdamW.step", device + 9e4, 1e4);
  }
  text.pop_back();
  return text + "]}";
}

TEST(ScalingInput, DoesNotTakeTheTimesOfLaunchesForThoseOfADevice) {
  for (const bool host_waits : {true, false}) {
    const auto profiled = workload_of(read_text(steps_of_gpu(host_waits)), std::nullopt);
    EXPECT_TRUE(profiled.has_device);
    const auto& work = profiled.workload;
    EXPECT_NEAR(work.backward_seconds, 2.0 / 3 * (work.step_seconds() - work.optimizer_seconds), 1e-9);
    EXPECT_NEAR(work.optimizer_seconds, 0.01, 1e-9);
    if (host_waits) {  // otherwise the recording begins with work of a step that is not in it
      EXPECT_NEAR(work.step_seconds(), 0.1, 1e-9);
      EXPECT_NEAR(work.backward_seconds, 0.06, 1e-9);
    }
    ASSERT_EQ(work.gradients.size(), 2U);
    EXPECT_NEAR(work.gradients[0].ready_seconds, work.backward_seconds / 2, 1e-9);
    EXPECT_NEAR(work.gradients[1].ready_seconds, work.backward_seconds, 1e-9);
  }
}

TEST(ScalingInput, ScalesGradientsIfStepsHaveDifferentNumbersOfThem) {
  std::string text = R"({"traceEvents": [)";
  for (int step = 0; step < 2; ++step) {
    const double start = 1e6 + 1e5 * step;
    text += event("user_annotation", fmt::format("ProfilerStep#{}", step), start, 1e5);
    for (int i = 0; i < 1 + 2 * step; ++i) {
      text += event("cpu_op", "torch::autograd::AccumulateGrad", start + 2e4 * (i + 1), 1e4,
                    R"({"Input Dims": [[10]], "Input type": ["float"]})");
    }
  }
  text.pop_back();
  const auto work = workload_of(read_text(text + "]}"), 0.05).workload;
  ASSERT_EQ(work.gradients.size(), 3U);
  EXPECT_NEAR(work.gradients[0].ready_seconds, 0.005, 1e-9);
}

TEST(ScalingInput, RefusesTracesThatDoNotSayEnough) {
  const auto refusal = [](const std::string& text) {
    try {
      workload_of(read_text(text), std::nullopt);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_NE(refusal(steps_text("", false)).find("--shapes"), std::string::npos);
  EXPECT_NE(refusal(steps_text(R"(,"distributedInfo":{"rank":0,"world_size":2})")).find("several ranks"),
            std::string::npos);
  EXPECT_EQ(refusal(steps_text(R"(,"distributedInfo":{"rank":0,"world_size":1})")), "");
  const auto text = steps_text();
  for (const auto length : {text.size() - 1, text.size() / 2}) {
    EXPECT_NE(refusal(text.substr(0, length)).find("the file ends before its JSON does"), std::string::npos);
  }
}

TEST(ScalingInput, DividesGivenFigures) {
  PlanOptions options;
  const auto work =
      input_of({.step_seconds = 0.2, .num_parameters = 25'000'001, .backward_share = 0.5, .optimizer_share = 0.1},
               options)
          .workload;
  EXPECT_NEAR(work.step_seconds(), 0.2, 1e-12);
  EXPECT_NEAR(work.optimizer_seconds, 0.02, 1e-12);
  EXPECT_NEAR(work.backward_seconds, 0.09, 1e-12);
  EXPECT_EQ(work.gradient_bytes(), 100'000'004);
  EXPECT_TRUE(work.is_even);
  EXPECT_NEAR(work.gradients.back().ready_seconds, 0.09, 1e-12);
  EXPECT_EQ(options.memory.num_parameters, 25'000'001);
  input_of({.step_seconds = 1, .num_parameters = 1, .precision = Precision::kMixed, .other_bytes = 7}, options);
  EXPECT_EQ(options.memory.precision, Precision::kMixed);
  EXPECT_EQ(options.memory.other_bytes, 7);
}

TEST(ScalingInput, WhatTheUserSaysComesBeforeWhatWasMeasured) {
  const auto cpu = read_text(steps_text()), gpu = read_text(steps_of_gpu(true));
  struct Row {
    const char* what;
    GivenTraining given;
    const profile::Trace& trace;
    std::optional<double> delay;
    double contention;
    Precision precision;
    Optimizer optimizer;
    bool is_step_measured;
  };
  for (const auto& row : std::initializer_list<Row>{
           {"processors", {}, cpu, {}, 1, Precision::kMixed, Optimizer::kAdam, true},
           {"a GPU", {}, gpu, {}, 0, Precision::kFloat32, Optimizer::kAdam, true},
           {"a measured link", {}, cpu, 0.25, 0.25, Precision::kMixed, Optimizer::kAdam, true},
           {"the user",
            {.step_seconds = 0.05,
            .contention = 0.5,
            .precision = Precision::kFloat32,
            .optimizer = Optimizer::kMomentum},
            cpu,
            0.25,
            0.5,
            Precision::kFloat32,
            Optimizer::kMomentum,
            false},
       }) {
    SCOPED_TRACE(row.what);
    PlanOptions options;
    options.topology.inter.compute_delay = row.delay;
    const auto input = input_of(row.given, row.trace, options);
    EXPECT_EQ(options.model.contention, row.contention);
    EXPECT_EQ(options.model.neighbour_slowdown, 1);
    EXPECT_EQ(options.memory.precision, row.precision);
    EXPECT_EQ(options.memory.optimizer, row.optimizer);
    EXPECT_EQ(input.origin.is_step_measured, row.is_step_measured);
    EXPECT_EQ(input.origin.sentences.size(), row.delay && !row.given.contention ? 2U : 1U);
  }
}

TEST(ScalingInput, AMeasurementHasTheRestOfTheMemoryAndTheNeighbours) {
  const MeasuredTraining measured{.step_seconds = 0.08,
                                  .neighbour_step_seconds = 0.1,
                                  .device_peak_bytes = 1 << 20,
                                  .trace = read_text(steps_text())};
  PlanOptions options;
  auto input = input_of({.loader_seconds = 0.01, .num_neighbours = 2}, measured, options);
  EXPECT_NEAR(input.workload.step_seconds(), 0.08, 1e-9);
  EXPECT_EQ(input.workload.loader_seconds, 0.01);
  EXPECT_NEAR(options.model.neighbour_slowdown, 1.25, 1e-9);
  EXPECT_TRUE(input.origin.is_step_measured && input.origin.is_slowdown_measured && options.is_memory_measured);
  EXPECT_EQ(memory_of(Strategy::kDdp, 1, options.memory).total(), 1 << 20);
  EXPECT_EQ(input.origin.sentences.size(), 3U);

  options = {};
  input = input_of({.slowdown = 3, .num_neighbours = 2, .other_bytes = 5}, measured, options);
  EXPECT_EQ(options.model.neighbour_slowdown, 3);
  EXPECT_EQ(options.memory.other_bytes, 5);
  EXPECT_FALSE(input.origin.is_slowdown_measured || options.is_memory_measured);
}

}  // namespace
}  // namespace yoke::scaling
