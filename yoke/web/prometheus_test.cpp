#include "yoke/web/prometheus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <vector>

#include "tests/support/lines.h"
#include "yoke/base/json.h"

namespace yoke::web {
namespace {

using device::Device;
using device::DeviceProcess;
using device::Snapshot;
using device::State;
using device::Vendor;
using test::lines_of;
using testing::HasSubstr;
using testing::Not;

Device gpu(int64_t index) {
  Device device{.index = index, .vendor = Vendor::kNvidia, .state = State::kBusy};
  device.facts.name = "NVIDIA A100-SXM4-80GB";
  device.facts.uuid = "GPU-" + std::to_string(index);
  device.facts.pci_bus_id = "0000:c1:00.0";
  return device;
}

/// Returns a device with every value that a backend can read, and two processes.
Device talkative_gpu(int64_t index) {
  auto device = gpu(index);
  auto& r = device.readings;
  r.memory_total_bytes = 85'899'345'920;
  r.memory_used_bytes = 1'073'741'824;
  r.memory_free_bytes = 84'000'000'000;
  r.memory_reserved_bytes = 600'000'000;
  r.utilization_percent = 97;
  r.memory_utilization_percent = r.encoder_utilization_percent = r.decoder_utilization_percent = r.fan_percent = 30;
  r.temperature_celsius = r.memory_temperature_celsius = 61;
  r.power_mw = 300'123;
  r.power_limit_mw = 400'000;
  r.energy_mj = 9'007'199'254'740'993;
  r.clock_sm_mhz = r.clock_memory_mhz = r.clock_graphics_mhz = r.clock_video_mhz = 1410;
  r.pcie_generation = 4;
  r.pcie_width = 16;
  r.pcie_replays = r.retired_pages = r.remapped_rows = 0;
  r.ecc_corrected_volatile = r.ecc_uncorrected_volatile = r.ecc_corrected_aggregate = r.ecc_uncorrected_aggregate = 1;
  r.persistence_mode = r.ecc_enabled = r.display_active = r.retirement_pending = true;
  r.mig_enabled = false;
  r.throttle_reasons = {"power cap", "idle", "power cap"};
  device.facts.clock_sm_max_mhz = device.facts.clock_memory_max_mhz = 1410;
  device.facts.pcie_generation_max = 4;
  device.facts.pcie_width_max = 16;
  for (const int64_t pid : {4121, 77}) {
    DeviceProcess process{.pid = pid, .type = "compute", .memory_bytes = 1'000'000, .utilization_percent = 40};
    process.info.user = "ada";
    process.info.name = "train.py";
    process.info.command = "python train.py --password secret";
    process.info.started_at = std::chrono::system_clock::time_point(std::chrono::seconds(1'700'000'000));
    device.processes.push_back(process);
  }
  return device;
}

Json full_claims() {
  const Json claim = {{"device_uuid", "GPU-0"},
                      {"device", "0"},
                      {"user", "ada"},
                      {"pid", 4121},
                      {"since", 1795420800},
                      {"until", 1795435200},
                      {"purpose", "train \"x\" \x1b[31m"},
                      {"idle_seconds", 2400},
                      {"remark", nullptr},
                      {"shared_bytes", 8589934592}};
  const Json foreign = {{"device_uuid", "GPU-9"}, {"device", nullptr},       {"user", nullptr},
                        {"pid", nullptr},         {"since", nullptr},        {"until", nullptr},
                        {"purpose", ""},          {"idle_seconds", nullptr}, {"remark", "locked, but not by yoke"}};
  return {{"claims", {claim, foreign, foreign}},
          {"queue", {{{"num_devices", 8}, {"since", 1795421500}}, {{"num_devices", 3}, {"since", 1795421000}}}}};
}

Snapshot full_snapshot() {
  Snapshot snapshot;
  snapshot.backends = {{.backend = "nvml", .is_available = true, .driver_version = "580.65.06", .api_version = "13.0"},
                       {.backend = "amdgpu", .reason = "no AMD GPU"}};
  for (int64_t i = 0; i < 8; ++i) snapshot.devices.push_back(talkative_gpu(i));
  auto instance = talkative_gpu(0);
  instance.facts.uuid = "MIG-0";
  snapshot.devices[3].instances = {instance};
  snapshot.devices[4].processes.push_back(snapshot.devices[4].processes[0]);  // one process is listed twice
  snapshot.devices.push_back({.index = 8, .vendor = Vendor::kCpu});
  return snapshot;
}

TEST(Prometheus, WritesNumbersInBaseUnits) {
  const Snapshot snapshot{.devices = {talkative_gpu(2)}};
  const auto text = to_prometheus(snapshot);
  const std::string device = "{device=\"2\",uuid=\"GPU-2\"";
  const auto process = [&](const char* pid) {
    return device + ",pid=\"" + pid + "\",user=\"ada\",command=\"train.py\"} ";
  };
  for (const auto& line : {
           "yoke_device_info" + device +
               ",vendor=\"nvidia\",name=\"NVIDIA A100-SXM4-80GB\",pci_bus_id=\"0000:c1:00.0\"} 1",
           "yoke_device_up" + device + "} 1",
           "yoke_device_state" + device + ",state=\"busy\"} 1",
           "yoke_device_state" + device + ",state=\"lost\"} 0",
           std::string("# TYPE yoke_device_memory_total_bytes gauge"),
           "yoke_device_memory_total_bytes" + device + "} 85899345920",
           "yoke_device_utilization_ratio" + device + "} 0.97",
           "yoke_device_power_watts" + device + "} 300.123",
           std::string("# TYPE yoke_device_energy_joules_total counter"),
           "yoke_device_clock_hertz" + device + ",clock=\"sm\"} 1410000000",
           "yoke_device_mig_enabled" + device + "} 0",
           "yoke_device_throttled" + device + "} 1",
           "yoke_device_throttle_reason" + device + ",reason=\"power cap\"} 1",
           "yoke_device_processes" + device + "} 2",
           "yoke_device_process_memory_bytes" + process("4121") + "1000000",
           "yoke_device_process_start_time_seconds" + process("77") + "1700000000",
       }) {
    EXPECT_THAT(lines_of(text), testing::Contains(line));
  }
  EXPECT_THAT(text, Not(HasSubstr("secret"))) << "arguments are nobody else's business";
}

TEST(Prometheus, WhatIsNotKnownIsAbsent) {
  auto lost = gpu(0);
  lost.state = State::kLost;
  const auto text = to_prometheus({.devices = {lost}});
  EXPECT_THAT(text, HasSubstr("yoke_device_up{device=\"0\",uuid=\"GPU-0\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("state=\"lost\"} 1\n"));
  for (const auto& line : lines_of(text)) {
    EXPECT_TRUE(line.find("yoke_device_info") != line.npos || line.find("yoke_device_up") != line.npos ||
                line.find("yoke_device_state") != line.npos)
        << line;
  }
  EXPECT_EQ(to_prometheus({}), "");
}

TEST(Prometheus, ClaimsAndTheQueue) {
  const auto text = to_prometheus({}, full_claims());
  const std::string labels = R"({uuid="GPU-0",device="0",user="ada",pid="4121")";
  for (const auto& line : {
           "yoke_claim_info" + labels + R"(,purpose="train \"x\" ?[31m"} 1)",
           "yoke_claim_start_time_seconds" + labels + "} 1795420800",
           "yoke_claim_end_time_seconds" + labels + "} 1795435200",
           "yoke_claim_idle_seconds" + labels + "} 2400",
           std::string(R"(yoke_claim_info{uuid="GPU-9",remark="locked, but not by yoke"} 1)"),
           std::string("yoke_claim_queue_requests 2"),
           std::string("yoke_claim_queue_devices 11"),
           std::string("yoke_claim_queue_oldest_start_time_seconds 1795421000"),
       }) {
    EXPECT_THAT(lines_of(text), testing::Contains(line));
  }
  const auto nobody = to_prometheus({}, Json{{"claims", Json::array()}, {"queue", Json::array()}});
  EXPECT_THAT(nobody, HasSubstr("yoke_claim_queue_requests 0\n"));
  EXPECT_THAT(nobody, Not(HasSubstr("yoke_claim_info")));
}

TEST(Prometheus, JobAndContainerAreLabels) {
  auto device = gpu(0);
  DeviceProcess process{.pid = 5, .memory_bytes = 1};
  process.origin.slurm = device::SlurmJob{.job_id = 4100};
  process.origin.container = device::Container{.runtime = "docker", .id = "3f2a91c04b7e0123456789"};
  device.processes = {process};
  EXPECT_THAT(to_prometheus({.devices = {device}}),
              HasSubstr("pid=\"5\",slurm_job=\"4100\",container=\"3f2a91c04b7e\"} 1\n"));
}

// Prometheus refuses the whole scrape because of one duplicate, which promtool does not detect.
TEST(Prometheus, NoSampleComesTwiceAndNamesStayTogether) {
  std::set<std::string> samples, types, closed;
  std::string current;
  for (const auto& line : lines_of(to_prometheus(full_snapshot(), full_claims()))) {
    if (line.starts_with("# TYPE ")) {
      EXPECT_TRUE(types.insert(line.substr(7, line.find(' ', 7) - 7)).second) << line;
    }
    if (line.starts_with("#")) continue;
    EXPECT_TRUE(samples.insert(line.substr(0, line.rfind(' '))).second) << line;
    const auto name = line.substr(0, line.find_first_of("{ "));
    EXPECT_TRUE(types.contains(name)) << line;
    if (name != current) {
      EXPECT_TRUE(closed.insert(name).second) << name << " comes in two places";
    }
    current = name;
  }
  EXPECT_GT(samples.size(), 300U);
}

TEST(Prometheus, NamesFollowTheConventions) {
  std::map<std::string, std::string> types;
  for (const auto& line : lines_of(to_prometheus(full_snapshot(), full_claims()))) {
    std::istringstream words(line);
    std::string hash, kind, name, type;
    words >> hash >> kind >> name >> type;
    if (hash == "#" && kind == "TYPE") types[name] = type;
  }
  EXPECT_GT(types.size(), 40U);
  for (const auto& [name, type] : types) {
    EXPECT_TRUE(name.starts_with("yoke_")) << name;
    EXPECT_EQ(name.ends_with("_total"), type == "counter") << name;
    for (const auto* unit : {"percent", "_mw", "_mhz", "_mj", "milli", "kilo", "mega"}) {
      EXPECT_EQ(name.find(unit), name.npos) << name << " is not in a base unit";
    }
  }
}

TEST(Prometheus, EveryNameIsInTheDocumentation) {
  std::ifstream file(YOKE_DOCS "/metrics.md");
  const std::string page((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  for (const auto& line : lines_of(to_prometheus(full_snapshot(), full_claims()))) {
    if (!line.starts_with("# TYPE ")) continue;
    const auto name = line.substr(7, line.find(' ', 7) - 7);
    EXPECT_THAT(page, HasSubstr("`" + name + "`"));
  }
}

TEST(Prometheus, HostileTextStaysInItsLabel) {
  EXPECT_EQ(label_value("a\"b\\c\nd", 100), "a\\\"b\\\\c d");
  EXPECT_EQ(label_value("\x1b[31m\xff", 100), "?[31m?");
  EXPECT_EQ(label_value(std::string(1000, 'x'), 64).size(), 64U);
  EXPECT_EQ(label_value("ééé", 5), "éé") << "cut between characters";
  EXPECT_EQ(label_value(std::string(100, '"'), 3), "\\\"\\\"\\\"") << "cut before escaping";

  auto device = gpu(0);
  DeviceProcess process{.pid = 5, .memory_bytes = 1};
  process.info.name = "\"} 1\nyoke_device_up{device=\"9\"} 1\n";
  device.processes = {process};
  EXPECT_THAT(to_prometheus({.devices = {device}}), Not(HasSubstr("\nyoke_device_up{device=\"9\"")));
}

TEST(Prometheus, PromtoolFindsNothing) {
  if (std::system("command -v promtool >/dev/null 2>&1") != 0) GTEST_SKIP() << "no promtool";
  const auto file = testing::TempDir() + "yoke-metrics-" + std::to_string(getpid());
  std::ofstream(file) << to_prometheus(full_snapshot(), full_claims());
  EXPECT_EQ(std::system(("promtool check metrics <" + file).c_str()), 0);
  std::remove(file.c_str());
}

}  // namespace
}  // namespace yoke::web
