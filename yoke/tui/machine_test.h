// yoke/tui/machine_test.h -- sample machines for the tests of yoke/tui.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>

#include "yoke/tui/model.h"

namespace yoke::tui {

inline constexpr int64_t kGib = int64_t{1} << 30;
/// 2026-11-20 12:00:00 UTC
inline constexpr std::chrono::system_clock::time_point kNoon{std::chrono::seconds(1795176000)};

inline device::DeviceProcess make_process(int64_t pid, const std::string& user, const std::string& command) {
  device::DeviceProcess process{
      .pid = pid, .type = "compute", .memory_bytes = pid * kGib / 1000, .utilization_percent = pid % 100};
  process.info.is_visible = true;
  process.info.uid = 1000 + user.size();
  process.info.user = user;
  process.info.command = command;
  process.info.name = command.substr(0, command.find(' '));
  process.info.parent_pid = 1;
  process.info.start_ticks = pid * 7;
  process.info.started_at = kNoon - std::chrono::seconds(pid);
  return process;
}

inline device::Device make_gpu(int64_t index) {
  device::Device gpu{.index = index, .vendor = device::Vendor::kNvidia, .state = device::State::kFree};
  gpu.facts.name = "NVIDIA A100-SXM4-80GB";
  gpu.facts.temperature_slowdown_celsius = 92;
  gpu.has_process_list = true;
  auto& readings = gpu.readings;
  readings.memory_total_bytes = 80 * kGib;
  readings.memory_used_bytes = index * 5 * kGib;
  readings.utilization_percent = index * 10 % 101;
  readings.temperature_celsius = 40 + index;
  readings.power_mw = 60'000 + index * 20'000;
  readings.power_limit_mw = 400'000;
  readings.clock_sm_mhz = 1410;
  return gpu;
}

inline device::Device make_cpu(int64_t index) {
  device::Device cpu{.index = index, .vendor = device::Vendor::kCpu, .state = device::State::kBusy};
  cpu.facts.name = "AMD EPYC 7763 64-Core Processor";
  cpu.facts.num_cpus = 128;
  cpu.facts.num_allowed_cpus = 64;
  cpu.readings.memory_total_bytes = 512 * kGib;
  cpu.readings.memory_used_bytes = 128 * kGib;
  cpu.readings.utilization_percent = 25;
  return cpu;
}

/// Returns `num_gpus` GPUs and the CPU. Process i has PID 1000 + i and uses device i modulo num_gpus. If i is even, the
/// process belongs to ada, otherwise to grace.
inline Sample make_sample(int64_t num_gpus, int64_t num_processes = 0) {
  Sample sample;
  sample.snapshot.time = kNoon;
  sample.snapshot.host = "gpu01";
  sample.snapshot.backends = {{"nvml", true, true, "", "580.65.06", "13.0"},
                              {"amdgpu", false, true, "no AMD GPU", "", ""}};
  for (int64_t i = 0; i < num_gpus; ++i) sample.snapshot.devices.push_back(make_gpu(i));
  sample.snapshot.devices.push_back(make_cpu(num_gpus));
  for (int64_t i = 0; i < num_processes; ++i) {
    auto& device = sample.snapshot.devices[static_cast<size_t>(num_gpus > 0 ? i % num_gpus : 0)];
    device.processes.push_back(
        make_process(1000 + i, i % 2 == 0 ? "ada" : "grace", fmt::format("python train.py --run {}", i)));
    device.state = device::State::kBusy;
  }
  sample.host.load = {12.1, 11.84, 10.26};
  sample.host.swap_total_bytes = 8 * kGib;
  sample.host.swap_used_bytes = kGib / 2;
  return sample;
}

inline Model make_model(Size size, Sample sample) {
  Model model{.user = "ada", .size = size};
  return update(std::move(model), SampleEvent{std::move(sample)});
}

inline Model press(Model model, const std::string& characters) {
  for (const char c : characters) model = update(std::move(model), KeyEvent{Key::kCharacter, std::string(1, c)});
  return model;
}
inline Model press(Model model, Key key) { return update(std::move(model), KeyEvent{key, ""}); }

}  // namespace yoke::tui
