#include "yoke/device/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/message_of.h"
#include "yoke/base/error.h"

namespace yoke::device {
namespace {

Snapshot everything() {
  Snapshot snapshot{.time = std::chrono::system_clock::time_point(std::chrono::milliseconds(1'790'000'000'250))};
  snapshot.host = "n1";
  snapshot.backends = {{.backend = "nvml", .is_available = true, .driver_version = "580.65.06", .api_version = "13.0"},
                       {.backend = "amdgpu", .reason = "no AMD GPU"}};
  Device gpu{.index = 0, .vendor = Vendor::kNvidia, .state = State::kBusy};
  gpu.facts = {.name = "A", .uuid = "GPU-1", .pci_bus_id = "0000:01:00.0", .vendor_index = 0, .numa_node = 1};
  gpu.readings = {.memory_total_bytes = int64_t{80} << 30, .memory_used_bytes = 5, .utilization_percent = 0};
  gpu.readings.persistence_mode = false;
  gpu.readings.performance_state = "P0";
  gpu.readings.throttle_reasons = {"power cap"};
  gpu.links = {Link{.number = 3, .kind = "nvlink", .is_active = true, .remote_pci_bus_id = "0000:02:00.0"}};
  DeviceProcess process{.pid = 42, .type = "compute", .memory_bytes = 7};
  process.info.user = "ada";
  process.info.uid = 1000;
  process.info.command = "python train.py";
  process.info.is_visible = true;
  process.origin.slurm = SlurmJob{.job_id = 7, .step = "0"};
  gpu.processes = {process};
  gpu.has_process_list = true;
  gpu.readings.ecc_after_reset = gpu.readings.unified_memory = true;
  gpu.readings.mig_after_reset = gpu.readings.remapping_failed = false;
  Device instance{.index = 1, .vendor = Vendor::kNvidia, .state = State::kFree};
  instance.facts.uuid = "MIG-1";
  instance.facts.gpu_instance = 2;
  gpu.instances = {instance};
  snapshot.devices = {gpu, Device{.index = 1, .vendor = Vendor::kCpu, .state = State::kNoAnswer, .reason = "hangs"}};
  return snapshot;
}

TEST(Json, ARecordingsLineGivesTheSnapshotBack) {
  EXPECT_EQ(snapshot_from_json(to_json(everything()).dump()), everything());
}

TEST(Json, APartOfAListIsNoWholeList) {
  auto snapshot = everything();
  snapshot.backends[1].is_broken = true;
  snapshot.devices[0].has_process_list = false;
  snapshot.devices[0].process_list_error = "no permission";
  EXPECT_EQ(snapshot_from_json(to_json(snapshot).dump()), snapshot);
  snapshot.devices[0].state = State::kUnknown;
  snapshot.devices[0].processes.clear();
  EXPECT_EQ(snapshot_from_json(to_json(snapshot).dump()), snapshot);
  snapshot.devices[0].state = State::kUnusable;
  snapshot.devices[0].process_list_error.clear();
  snapshot.devices[0].has_process_list = true;
  EXPECT_EQ(snapshot_from_json(to_json(snapshot).dump()), snapshot);
}

TEST(Json, AListThatNobodyToldIsNullAndAnEmptyOneIsEmpty) {
  Snapshot snapshot = everything();
  snapshot.backends[0].has_answered = false;
  snapshot.devices[0].processes.clear();
  const auto json = to_json(snapshot);
  EXPECT_EQ(json.at("backends")[0].at("has_answered"), false);
  EXPECT_EQ(json.at("devices")[0].at("processes"), nlohmann::ordered_json::array());
  EXPECT_TRUE(json.at("devices")[1].at("processes").is_null());
  EXPECT_EQ(snapshot_from_json(json.dump()), snapshot);
  // Recordings of yoke 0.1 have an empty list in both cases.
  auto old = json;
  old["devices"][1]["processes"] = nlohmann::ordered_json::array();
  EXPECT_EQ(snapshot_from_json(old.dump()), snapshot);
}

TEST(Json, HasTheKeysOfTheContract) {
  const auto device = to_json(everything()).at("devices").at(0);
  for (const char* key :
       {"index", "uuid", "vendor", "name", "pci_bus_id", "state", "memory_total_bytes", "memory_used_bytes",
        "memory_reserved_bytes", "utilization_percent", "temperature_celsius", "power_mw", "processes"}) {
    EXPECT_TRUE(device.contains(key)) << key;
  }
  EXPECT_EQ(device.at("vendor"), "nvidia");
  EXPECT_EQ(device.at("state"), "busy");
  EXPECT_EQ(device.at("utilization_percent"), 0) << "nothing to do is not the same as not known";
  EXPECT_TRUE(device.at("temperature_celsius").is_null());
  const auto& process = device.at("processes").at(0);
  EXPECT_EQ(process.at("pid"), 42);
  EXPECT_EQ(process.at("user"), "ada");
  EXPECT_EQ(process.at("command"), "python train.py");
  EXPECT_EQ(process.at("memory_bytes"), 7);
  EXPECT_EQ(process.at("origin").at("slurm").at("job_id"), 7);
}

TEST(Json, BytesThatAreNotUtf8AreReplaced) {
  auto snapshot = everything();
  snapshot.devices[0].facts.name = "A\xff\x1b[2J";
  snapshot.devices[0].processes[0].info.command = "x\xc3";
  snapshot.devices[0].processes[0].info.user = "\xfe";
  snapshot.host = "\xff";
  const auto text = to_json(snapshot).dump();
  EXPECT_EQ(snapshot_from_json(text).devices[0].facts.name, "A\xef\xbf\xbd\x1b[2J");
  EXPECT_THAT(text, testing::Not(testing::HasSubstr("\x1b"))) << "escaped";
}

TEST(Json, WhatIsNoSnapshotIsRefused) {
  for (const char* line :
       {"", "{", "[]", "{}", "null", R"({"time_seconds": 1})", R"({"time_seconds": 1, "devices": 3})",
        R"({"time_seconds": 1, "devices": [{"index": 0}]})",
        R"({"time_seconds": 1, "devices": [{"index": 0, "vendor": "nokia", "state": "free"}]})",
        R"({"time_seconds": 1, "devices": [{"index": 0, "vendor": "nvidia", "state": "free", "power_mw": -5}]})",
        R"({"time_seconds": 1, "devices": [{"index": 0, "vendor": "nvidia", "state": "free", "power_mw": 1e308}]})",
        R"({"time_seconds": 1e300, "devices": []})", R"({"time_seconds": "x", "devices": []})"}) {
    EXPECT_EQ(test::error_of([&] { snapshot_from_json(line); }).code(), ErrorCode::kDataLoss) << line;
  }
}

}  // namespace
}  // namespace yoke::device
