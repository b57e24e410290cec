// Loads the fake NVML with dlopen, as a monitor does, and checks that it follows nvml.h.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <thread>

#include "fakes/nvml/nvml_abi.h"

namespace yoke::fake_nvml {
namespace {

using Json = nlohmann::json;
using testing::ElementsAre;
using namespace std::chrono_literals;

/// One of the two builds of the fake. It is never closed, because monitors do not close a driver's library.
class Library {
 public:
  explicit Library(const char* file) : library_(dlopen(file, RTLD_NOW | RTLD_LOCAL)) {
    if (library_ == nullptr) throw std::runtime_error(dlerror());
  }

  bool has(const char* name) const { return dlsym(library_, name) != nullptr; }

  template <typename... Args>
  int call(const char* name, Args... args) const {
    const auto function = reinterpret_cast<int (*)(Args...)>(dlsym(library_, name));
    return function == nullptr ? int{kFunctionNotFound} : function(args...);
  }

 private:
  void* library_;
};

Json with_device(Json fields) { return {{"devices", Json::array({std::move(fields)})}}; }

Json sample_state(const std::string& name) {
  std::ifstream in(std::string(YOKE_FAKE_NVML_STATES) + "/" + name);
  return Json::parse(in);
}

class FakeNvml : public testing::Test {
 protected:
  FakeNvml() : path_(testing::TempDir() + "fake_nvml." + std::to_string(getpid()) + ".json") {
    setenv("YOKE_FAKE_NVML", path_.c_str(), 1);
  }

  ~FakeNvml() override {
    while (nvml_.call("nvmlShutdown") == kSuccess) continue;
    unlink(path_.c_str());
  }

  void write(const std::string& text) {
    std::ofstream(path_ + ".new") << text;
    std::filesystem::rename(path_ + ".new", path_);
    std::this_thread::sleep_for(2ms);  // clock: the library checks its state file at most once per millisecond
  }
  void use(const Json& state) { write(state.dump()); }

  void start(const Json& state) {
    use(state);
    ASSERT_EQ(nvml_.call("nvmlInit_v2"), kSuccess);
  }

  Handle handle(Size index) {
    Handle handle = nullptr;
    EXPECT_EQ(nvml_.call("nvmlDeviceGetHandleByIndex_v2", index, &handle), kSuccess) << "device " << index;
    return handle;
  }

  Handle instance(Size device, Size index) {
    Handle handle = nullptr;
    EXPECT_EQ(nvml_.call("nvmlDeviceGetMigDeviceHandleByIndex", this->handle(device), index, &handle), kSuccess);
    return handle;
  }

  /// Returns the number that a function writes, or the negated status if it fails.
  template <typename Number = Size, typename... Args>
  int64_t number(const char* name, Handle handle, Args... args) {
    Number value = 0;
    const int status = nvml_.call(name, handle, args..., &value);
    return status == kSuccess ? static_cast<int64_t>(value) : -status;
  }

  std::string text(const char* name, Handle handle) {
    std::array<char, 96> buffer{};
    EXPECT_EQ(nvml_.call(name, handle, buffer.data(), Size{96}), kSuccess) << name;
    return buffer.data();
  }

  Library nvml_{YOKE_FAKE_NVML_LIBRARY};
  std::string path_;
};

TEST_F(FakeNvml, AShortStateMakesWholeDevices) {
  start({{"devices", 8}});
  Size count = 0;
  EXPECT_EQ(nvml_.call("nvmlDeviceGetCount_v2", &count), kSuccess);
  EXPECT_EQ(count, 8U);
  std::set<std::string> uuids, bus_ids;
  for (Size i = 0; i < count; ++i) {
    uuids.insert(text("nvmlDeviceGetUUID", handle(i)));
    PciInfo pci{};
    EXPECT_EQ(nvml_.call("nvmlDeviceGetPciInfo_v3", handle(i), &pci), kSuccess);
    bus_ids.insert(pci.bus_id);
    EXPECT_EQ(number("nvmlDeviceGetIndex", handle(i)), i);
    EXPECT_EQ(number("nvmlDeviceGetMinorNumber", handle(i)), i);
    Handle same = nullptr;
    EXPECT_EQ(nvml_.call("nvmlDeviceGetHandleByPciBusId_v2", static_cast<const char*>(pci.bus_id), &same), kSuccess);
    EXPECT_EQ(same, handle(i));
  }
  EXPECT_EQ(uuids.size(), 8U);
  EXPECT_EQ(bus_ids.size(), 8U);
  EXPECT_EQ(text("nvmlDeviceGetName", handle(0)), "NVIDIA A100-SXM4-80GB");
  EXPECT_EQ(number("nvmlDeviceGetPowerUsage", handle(7)), 60000);
  Handle none = nullptr;
  EXPECT_EQ(nvml_.call("nvmlDeviceGetHandleByIndex_v2", Size{8}, &none), kInvalidArgument);
  EXPECT_EQ(number("nvmlDeviceGetPowerUsage", reinterpret_cast<Handle>(&none)), -kInvalidArgument);
}

TEST_F(FakeNvml, NothingAnswersBeforeInitAndAfterShutdown) {
  use({{"devices", 1}});
  Size count = 0;
  EXPECT_EQ(nvml_.call("nvmlDeviceGetCount_v2", &count), kUninitialized);
  EXPECT_EQ(nvml_.call("nvmlInitWithFlags", Size{0}), kSuccess);
  EXPECT_EQ(nvml_.call("nvmlInit_v2"), kSuccess);
  EXPECT_EQ(nvml_.call("nvmlShutdown"), kSuccess);
  EXPECT_EQ(nvml_.call("nvmlDeviceGetCount_v2", &count), kSuccess);  // one of two users remains
  EXPECT_EQ(nvml_.call("nvmlShutdown"), kSuccess);
  EXPECT_EQ(nvml_.call("nvmlDeviceGetCount_v2", &count), kUninitialized);
  EXPECT_EQ(nvml_.call("nvmlShutdown"), kUninitialized);
}

TEST_F(FakeNvml, InitFailsAsTold) {
  for (const auto& [name, status] :
       {std::pair{"version_mismatch", 18}, {"driver_not_loaded", 9}, {"no_permission", 4}}) {
    use({{"init", name}});
    EXPECT_EQ(nvml_.call("nvmlInit_v2"), status);
    EXPECT_EQ(nvml_.call("nvmlInitWithFlags", Size{0}), status);
  }
}

TEST_F(FakeNvml, VersionsOfDriverAndCuda) {
  start({{"driver_version", "535.54.03"}, {"cuda_version", "12.2"}});
  char version[80];
  int cuda = 0;
  EXPECT_EQ(nvml_.call("nvmlSystemGetDriverVersion", &version[0], Size{80}), kSuccess);
  EXPECT_STREQ(version, "535.54.03");
  EXPECT_EQ(nvml_.call("nvmlSystemGetDriverVersion", &version[0], Size{9}), kInsufficientSize);  // 10 with the NUL
  EXPECT_EQ(nvml_.call("nvmlSystemGetCudaDriverVersion_v2", &cuda), kSuccess);
  EXPECT_EQ(cuda, 12020);
}

TEST_F(FakeNvml, MemoryVersion1CountsWhatIsReservedAndVersion2DoesNot) {
  start(with_device({{"memory_mib", {{"total", 1000}, {"reserved", 100}, {"used", 0.5}}}}));
  constexpr Wide kMib = 1 << 20;
  Memory v1{};
  EXPECT_EQ(nvml_.call("nvmlDeviceGetMemoryInfo", handle(0), &v1), kSuccess);
  EXPECT_EQ(v1.used, 100 * kMib + kMib / 2);
  EXPECT_EQ(v1.free + v1.used, v1.total);
  MemoryV2 v2{versioned(sizeof(MemoryV2), 2), 0, 0, 0, 0};
  EXPECT_EQ(nvml_.call("nvmlDeviceGetMemoryInfo_v2", handle(0), &v2), kSuccess);
  EXPECT_EQ(v2.used, kMib / 2);
  EXPECT_EQ(v2.reserved, 100 * kMib);
  EXPECT_EQ(v2.free, v1.free);
  v2.version = 2;  // nvtop passes this wrong argument
  EXPECT_EQ(nvml_.call("nvmlDeviceGetMemoryInfo_v2", handle(0), &v2), kArgumentVersionMismatch);
}

TEST_F(FakeNvml, EveryValueMayBeAnErrorOrMissing) {
  start(with_device({{"fan_percent", nullptr},
                     {"power_mw", "unknown"},
                     {"memory_mib", "no_permission"},
                     {"serial", nullptr},
                     {"clocks_mhz", {{"video", nullptr}}}}));
  EXPECT_EQ(number("nvmlDeviceGetFanSpeed", handle(0)), -kNotSupported);
  EXPECT_EQ(number("nvmlDeviceGetPowerUsage", handle(0)), -kUnknown);
  Memory memory{};
  EXPECT_EQ(nvml_.call("nvmlDeviceGetMemoryInfo", handle(0), &memory), kNoPermission);
  char serial[30];
  EXPECT_EQ(nvml_.call("nvmlDeviceGetSerial", handle(0), &serial[0], Size{30}), kNotSupported);
  EXPECT_EQ(number("nvmlDeviceGetClockInfo", handle(0), Size{3}), -kNotSupported);
  EXPECT_EQ(number("nvmlDeviceGetClockInfo", handle(0), Size{1}), 210);
  EXPECT_EQ(number("nvmlDeviceGetClockInfo", handle(0), Size{4}), -kInvalidArgument);
}

TEST_F(FakeNvml, ErrorsOfADeviceAndOfOneFunction) {
  start({{"devices", 3},
         {"overrides",
          {{"0", {{"error", "lost"}}},
           {"1", {{"errors", {{"nvmlDeviceGetHandleByIndex", "no_permission"}}}}},
           {"2", {{"errors", {{"nvmlDeviceGetMemoryInfo_v2", 999}, {"nvmlDeviceGetUUID", "timeout"}}}}}}}});
  Handle device = nullptr;
  Size count = 0;
  EXPECT_EQ(nvml_.call("nvmlDeviceGetCount_v2", &count), kSuccess);
  EXPECT_EQ(count, 3U);
  EXPECT_EQ(nvml_.call("nvmlDeviceGetHandleByIndex_v2", Size{0}, &device), kGpuIsLost);
  EXPECT_EQ(nvml_.call("nvmlDeviceGetHandleByIndex_v2", Size{1}, &device), kNoPermission);
  MemoryV2 v2{versioned(sizeof(MemoryV2), 2), 0, 0, 0, 0};
  Memory v1{};
  EXPECT_EQ(nvml_.call("nvmlDeviceGetMemoryInfo_v2", handle(2), &v2), kUnknown);
  EXPECT_EQ(nvml_.call("nvmlDeviceGetMemoryInfo", handle(2), &v1), kSuccess);  // the error is only for version 2
}

TEST_F(FakeNvml, AHandleOutlivesAChangeOfTheState) {
  start({{"devices", 2}});
  const Handle second = handle(1);
  EXPECT_EQ(number("nvmlDeviceGetTemperature", second, 0), 30);
  use({{"devices", 2}, {"overrides", {{"1", {{"temperature_celsius", 77}}}}}});
  EXPECT_EQ(number("nvmlDeviceGetTemperature", second, 0), 77);
  use({{"devices", 2}, {"overrides", {{"1", {{"error", "lost"}}}}}});
  EXPECT_EQ(number("nvmlDeviceGetTemperature", second, 0), -kGpuIsLost);
  use({{"devices", 1}});
  EXPECT_EQ(number("nvmlDeviceGetTemperature", second, 0), -kInvalidArgument);
}

TEST_F(FakeNvml, AHalfWrittenOrWrongFileLeavesTheStateInForce) {
  start(with_device({{"temperature_celsius", 44}}));
  for (const char* text : {"", R"({"devices": [{"temperature_celsius": 50)", R"([1])",
                           R"({"devices": [{"temperature_celcius": 50}]})", R"({"devices": 1, "device": {}})",
                           R"({"devices": 1, "overrides": {"1": {}}})", R"({"devices": [{"processes": [{}]}]})"}) {
    write(text);
    EXPECT_EQ(number("nvmlDeviceGetTemperature", handle(0), 0), 44) << text;
  }
  unlink(path_.c_str());
  std::this_thread::sleep_for(2ms);  // clock: as in write()
  EXPECT_EQ(number("nvmlDeviceGetTemperature", handle(0), 0), 44);
}

TEST_F(FakeNvml, ValuesChangeOverTime) {
  const double now = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  Json state = with_device(
      {{"temperature_celsius", {50, 60, "lost", nullptr}}, {"energy_mj", {{"start", 1000}, {"per_second", 2}}}});
  state["step_s"] = 400;
  for (const auto& [age, expected] : {std::pair{0, 50}, {500, 60}, {1000, -kGpuIsLost}, {1400, -3}, {1700, 50}}) {
    state["since"] = now - age;
    use(state);
    if (age == 0) {
      ASSERT_EQ(nvml_.call("nvmlInit_v2"), kSuccess);
    }
    EXPECT_EQ(number("nvmlDeviceGetTemperature", handle(0), 0), expected) << age;
    EXPECT_NEAR(number<Wide>("nvmlDeviceGetTotalEnergyConsumption", handle(0)), 1000 + 2 * age, 100);
  }
}

TEST_F(FakeNvml, OneHungDeviceHoldsUpNoOther) {
  using Clock = std::chrono::steady_clock;
  start({{"devices", 2},
         {"overrides", {{"0", {{"hang_s", 3}}}, {"1", {{"hang_s", {{"nvmlDeviceGetPowerUsage", 0.2}}}}}}}});
  const auto begin = Clock::now();
  std::atomic<bool> is_over = false;
  std::thread stuck([&] {
    handle(0);
    is_over = true;
  });
  EXPECT_EQ(number("nvmlDeviceGetTemperature", handle(1), 0), 30);
  EXPECT_FALSE(is_over) << "it hangs for ten times what a call takes on a busy machine";
  stuck.join();
  EXPECT_GE(Clock::now() - begin, 3s);
  const auto again = Clock::now();
  EXPECT_EQ(number("nvmlDeviceGetPowerUsage", handle(1)), 60000);
  EXPECT_GE(Clock::now() - again, 200ms);
}

TEST_F(FakeNvml, ProcessesInTheThreeFormsOfTheEntry) {
  start(with_device({{"processes",
                      {{{"pid", 11}, {"memory_mib", 3}},
                       {{"pid", 12}, {"memory_mib", nullptr}, {"type", "C+G"}},
                       {{"pid", "self"}, {"memory_mib", 1}, {"type", "G"}},
                       {{"pid", "parent"}, {"type", "M+C"}}}}}));
  Size count = 0;
  EXPECT_EQ(nvml_.call("nvmlDeviceGetComputeRunningProcesses_v3", handle(0), &count, nullptr), kInsufficientSize);
  EXPECT_EQ(count, 3U);
  ProcessV1 v1[4];
  EXPECT_EQ(nvml_.call("nvmlDeviceGetComputeRunningProcesses", handle(0), &(count = 4), &v1[0]), kSuccess);
  EXPECT_EQ(count, 3U);
  EXPECT_EQ(v1[0].pid, 11U);
  EXPECT_EQ(v1[0].memory, Wide{3} << 20);
  EXPECT_EQ(v1[1].memory, kMemoryUnknown);
  EXPECT_EQ(v1[2].pid, static_cast<Size>(getppid()));
  ProcessV2 v2[4];
  for (const char* function :
       {"nvmlDeviceGetGraphicsRunningProcesses_v2", "nvmlDeviceGetGraphicsRunningProcesses_v3"}) {
    EXPECT_EQ(nvml_.call(function, handle(0), &(count = 4), &v2[0]), kSuccess);
    EXPECT_EQ(count, 2U);
    EXPECT_EQ(v2[0].pid, 12U);
    EXPECT_EQ(v2[1].pid, static_cast<Size>(getpid()));
    EXPECT_EQ(v2[1].gpu_instance, kNoInstance);
  }
  EXPECT_EQ(nvml_.call("nvmlDeviceGetMPSComputeRunningProcesses_v3", handle(0), &(count = 1), &v2[0]), kSuccess);
  EXPECT_EQ(count, 1U);
}

TEST_F(FakeNvml, EarlyR535DriversWroteLongerEntries) {
  Json state = with_device({{"processes", {{{"pid", 11}}, {{"pid", 12}}}}});
  state["process_entry_bytes"] = 32;
  start(state);
  alignas(8) std::array<char, 64> entries{};
  Size count = 2;
  EXPECT_EQ(nvml_.call("nvmlDeviceGetComputeRunningProcesses_v3", handle(0), &count, entries.data()), kSuccess);
  EXPECT_EQ(*reinterpret_cast<Size*>(entries.data()), 11U);
  EXPECT_EQ(*reinterpret_cast<Size*>(entries.data() + 32), 12U);
}

TEST_F(FakeNvml, ProcessUtilizationSinceTheLastSample) {
  start({{"devices",
          {{{"processes", {{{"pid", 11}, {"sm", 40}, {"memory", 7}}, {{"pid", 12}}}}},
           {{"processes", {{{"pid", 12}}}}}}}});
  Size count = 0;
  ProcessSample samples[100];
  const char* function = "nvmlDeviceGetProcessUtilization";
  EXPECT_EQ(nvml_.call(function, handle(0), static_cast<ProcessSample*>(nullptr), &count, Wide{0}), kInsufficientSize);
  ASSERT_LE(count, 100U);
  ASSERT_EQ(nvml_.call(function, handle(0), &samples[0], &count, Wide{0}), kSuccess);
  ASSERT_EQ(count, 1U);  // the idle process has no sample
  EXPECT_EQ(samples[0].pid, 11U);
  EXPECT_EQ(samples[0].sm, 40U);
  EXPECT_EQ(samples[0].memory, 7U);
  EXPECT_EQ(nvml_.call(function, handle(0), &samples[0], &(count = 100), samples[0].time_us + 10'000'000), kNotFound);
  EXPECT_EQ(nvml_.call(function, handle(1), &samples[0], &(count = 100), Wide{0}), kNotFound);
}

TEST_F(FakeNvml, MigInstancesAreDevices) {
  start(with_device({{"mig",
                      {{"instances",
                        {{{"profile", "3g.40gb"},
                          {"gpu_instance", 2},
                          {"memory_mib", {{"used", 1000}}},
                          {"processes", {{{"pid", 11}, {"memory_mib", 5}}}}},
                         nullptr,
                         {{"profile", "1g.10gb"}, {"uuid", "MIG-one"}}}}}},
                     {"processes", {{{"pid", 10}}}}}));
  EXPECT_EQ(number("nvmlDeviceGetMaxMigDeviceCount", handle(0)), 7);
  Size current = 0, pending = 0;
  EXPECT_EQ(nvml_.call("nvmlDeviceGetMigMode", handle(0), &current, &pending), kSuccess);
  EXPECT_EQ(current, 1U);
  const Handle first = instance(0, 0), third = instance(0, 2);
  Handle none = nullptr, found = nullptr;
  EXPECT_EQ(nvml_.call("nvmlDeviceGetMigDeviceHandleByIndex", handle(0), Size{1}, &none), kNotFound);
  EXPECT_EQ(nvml_.call("nvmlDeviceGetMigDeviceHandleByIndex", handle(0), Size{7}, &none), kInvalidArgument);
  EXPECT_EQ(nvml_.call("nvmlDeviceGetHandleByUUID", "MIG-one", &found), kSuccess);
  EXPECT_EQ(found, third);
  EXPECT_EQ(nvml_.call("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", third, &found), kSuccess);
  EXPECT_EQ(found, handle(0));

  EXPECT_EQ(text("nvmlDeviceGetName", first), "NVIDIA A100-SXM4-80GB MIG 3g.40gb");
  EXPECT_EQ(text("nvmlDeviceGetUUID", first).substr(0, 4), "MIG-");
  EXPECT_EQ(number("nvmlDeviceIsMigDeviceHandle", first), 1);
  EXPECT_EQ(number("nvmlDeviceGetGpuInstanceId", first), 2);
  EXPECT_EQ(number("nvmlDeviceGetComputeInstanceId", first), 0);
  EXPECT_EQ(number("nvmlDeviceGetGpuInstanceId", handle(0)), -kNotSupported);
  Attributes attributes{};
  EXPECT_EQ(nvml_.call("nvmlDeviceGetAttributes_v2", first, &attributes), kSuccess);
  EXPECT_EQ(attributes.gpu_slices, 3U);
  EXPECT_EQ(attributes.multiprocessors, 42U);

  Utilization utilization{};
  EXPECT_EQ(nvml_.call("nvmlDeviceGetUtilizationRates", handle(0), &utilization), kNotSupported);
  EXPECT_EQ(nvml_.call("nvmlDeviceGetUtilizationRates", first, &utilization), kNotSupported);
  ProcessV2 processes[4];
  Size count = 4;
  EXPECT_EQ(nvml_.call("nvmlDeviceGetComputeRunningProcesses_v3", first, &count, &processes[0]), kSuccess);
  EXPECT_EQ(count, 1U);
  EXPECT_EQ(processes[0].gpu_instance, 2U);
  EXPECT_EQ(nvml_.call("nvmlDeviceGetComputeRunningProcesses_v3", handle(0), &(count = 4), &processes[0]), kSuccess);
  ASSERT_EQ(count, 2U);
  EXPECT_EQ(processes[0].gpu_instance, kNoInstance);
  EXPECT_EQ(processes[1].pid, 11U);
}

TEST_F(FakeNvml, ADeviceWithoutMig) {
  start(with_device({{"mig", nullptr}}));
  Size current = 0, pending = 0;
  Handle none = nullptr;
  EXPECT_EQ(nvml_.call("nvmlDeviceGetMigMode", handle(0), &current, &pending), kNotSupported);
  EXPECT_EQ(number("nvmlDeviceGetMaxMigDeviceCount", handle(0)), 0);
  EXPECT_EQ(nvml_.call("nvmlDeviceGetMigDeviceHandleByIndex", handle(0), Size{0}, &none), kNotSupported);
}

TEST_F(FakeNvml, EccAndRowsAndPages) {
  start({{"devices",
          {{{"ecc", {{"volatile", {{"uncorrected", 2}}}, {"aggregate", {{"corrected", 9}}}}},
            {"remapped_rows", {{"uncorrected", 3}, {"pending", 1}}}},
           {{"ecc", {{"mode", 0}}}, {"remapped_rows", nullptr}, {"retired_pages", {{"double_bit", 2}}}}}}});
  const char* total = "nvmlDeviceGetTotalEccErrors";
  EXPECT_EQ(number<Wide>(total, handle(0), Size{1}, Size{0}), 2);
  EXPECT_EQ(number<Wide>(total, handle(0), Size{0}, Size{1}), 9);
  EXPECT_EQ(number<Wide>(total, handle(1), Size{0}, Size{0}), -kNotSupported);  // ECC is off
  Size rows[4] = {};
  EXPECT_EQ(nvml_.call("nvmlDeviceGetRemappedRows", handle(0), &rows[0], &rows[1], &rows[2], &rows[3]), kSuccess);
  EXPECT_THAT(rows, ElementsAre(0, 3, 1, 0));
  EXPECT_EQ(nvml_.call("nvmlDeviceGetRemappedRows", handle(1), &rows[0], &rows[1], &rows[2], &rows[3]), kNotSupported);
  Wide addresses[2] = {};
  Size count = 0;
  const char* pages = "nvmlDeviceGetRetiredPages";
  EXPECT_EQ(nvml_.call(pages, handle(1), Size{1}, &count, static_cast<Wide*>(nullptr)), kInsufficientSize);
  EXPECT_EQ(count, 2U);
  EXPECT_EQ(nvml_.call(pages, handle(1), Size{1}, &count, &addresses[0]), kSuccess);
  EXPECT_EQ(nvml_.call(pages, handle(1), Size{0}, &count, &addresses[0]), kNotSupported);
}

TEST_F(FakeNvml, LinksAndPlaces) {
  start({{"devices",
          {{{"nvlinks", {1, "0:c4:0", nullptr}}, {"cpu_affinity", "0-2,64"}},
           {{"nvlinks", {0}}},
           {{"nvlinks", {"0:c4:0"}}, {"numa_node", 1}},
           {{"nvlinks", Json::array()}}}},
         {"topology", Json::array({Json::array({"X", "PIX"})})}});
  const char* state = "nvmlDeviceGetNvLinkState";
  EXPECT_EQ(number(state, handle(0), Size{0}), 1);
  EXPECT_EQ(number(state, handle(0), Size{2}), 0);
  EXPECT_EQ(number(state, handle(0), Size{3}), -kInvalidArgument);
  EXPECT_EQ(number(state, handle(3), Size{0}), -kNotSupported);
  PciInfo remote{}, second{};
  EXPECT_EQ(nvml_.call("nvmlDeviceGetPciInfo_v3", handle(1), &second), kSuccess);
  EXPECT_EQ(nvml_.call("nvmlDeviceGetNvLinkRemotePciInfo_v2", handle(0), Size{0}, &remote), kSuccess);
  EXPECT_STREQ(remote.bus_id, second.bus_id);
  EXPECT_EQ(nvml_.call("nvmlDeviceGetNvLinkRemotePciInfo_v2", handle(0), Size{1}, &remote), kSuccess);
  EXPECT_STREQ(remote.bus_id, "00000000:C4:00.0");
  EXPECT_STREQ(remote.bus_id_legacy, "0000:C4:00.0");
  EXPECT_EQ(number("nvmlDeviceGetNvLinkRemoteDeviceType", handle(0), Size{0}), 0);  // a GPU
  EXPECT_EQ(number("nvmlDeviceGetNvLinkRemoteDeviceType", handle(0), Size{1}), 2);  // a switch

  const char* ancestor = "nvmlDeviceGetTopologyCommonAncestor";
  EXPECT_EQ(number<int>(ancestor, handle(0), handle(1)), 10);  // PIX, given by the matrix
  EXPECT_EQ(number<int>(ancestor, handle(1), handle(3)), 40);  // NODE, because of their common NUMA node
  EXPECT_EQ(number<int>(ancestor, handle(1), handle(2)), 50);  // SYS
  const char* p2p = "nvmlDeviceGetP2PStatus";
  EXPECT_EQ(number<int>(p2p, handle(0), handle(2), Size{2}), 0);  // both are linked to the same switch
  EXPECT_EQ(number<int>(p2p, handle(1), handle(2), Size{2}), 5);
  unsigned long words[2] = {};
  EXPECT_EQ(nvml_.call("nvmlDeviceGetCpuAffinity", handle(0), Size{2}, &words[0]), kSuccess);
  EXPECT_THAT(words, ElementsAre(7, 1));
}

TEST_F(FakeNvml, FieldValues) {
  start(with_device({{"memory_temperature_celsius", 81},
                     {"power_mw", 123},
                     {"nvlinks", {0, 0, nullptr}},
                     {"nvlink", {{"tx_kib", 10}}},
                     {"energy_mj", 5'000'000'000},
                     {"fields", {{"202", 77}}}}));
  FieldValue values[6] = {};
  const Size ids[] = {82, 186, 83, 138, 202, 9999};
  for (int i = 0; i < 6; ++i) values[i].id = ids[i];
  values[3].scope = ~0U;
  EXPECT_EQ(nvml_.call("nvmlDeviceGetFieldValues", handle(0), 6, &values[0]), kSuccess);
  EXPECT_EQ(values[0].value.ui, 81U);
  EXPECT_EQ(values[1].value.ui, 123U);
  EXPECT_EQ(values[2].type, kUnsignedLongLong);
  EXPECT_EQ(values[2].value.ull, 5'000'000'000U);
  EXPECT_EQ(values[3].value.ull, 20U);  // the sum over both active links
  EXPECT_EQ(values[4].value.ull, 77U);
  EXPECT_EQ(values[5].status, kNotSupported);
}

TEST_F(FakeNvml, XidErrorsArriveOnceAndNewOnesWhileWaiting) {
  start({{"devices", 2}, {"overrides", {{"1", {{"xids", {48}}}}}}});
  EventSet set = nullptr;
  ASSERT_EQ(nvml_.call("nvmlEventSetCreate", &set), kSuccess);
  for (const Size i : {0, 1}) EXPECT_EQ(nvml_.call("nvmlDeviceRegisterEvents", handle(i), kXidEvent, set), kSuccess);
  Event event{};
  EXPECT_EQ(nvml_.call("nvmlEventSetWait_v2", set, &event, Size{0}), kSuccess);
  EXPECT_EQ(event.device, handle(1));
  EXPECT_EQ(event.type, kXidEvent);
  EXPECT_EQ(event.data, 48U);
  EXPECT_EQ(nvml_.call("nvmlEventSetWait_v2", set, &event, Size{20}), kTimeout);
  std::thread later([&] {
    std::this_thread::sleep_for(30ms);  // clock: so that the call waits already; if it does not, the test finds less
    use({{"devices", 2}, {"overrides", {{"0", {{"xids", {79}}}}, {"1", {{"xids", {48}}}}}}});
  });
  EXPECT_EQ(nvml_.call("nvmlEventSetWait_v2", set, &event, Size{60'000}), kSuccess);
  later.join();
  EXPECT_EQ(event.data, 79U);
  EXPECT_EQ(nvml_.call("nvmlEventSetFree", set), kSuccess);
  EXPECT_EQ(nvml_.call("nvmlEventSetWait_v2", set, &event, Size{0}), kInvalidArgument);
}

TEST_F(FakeNvml, AnOldDriverLacksWhatCameLater) {
  const Library old(YOKE_FAKE_NVML_OLD_LIBRARY);
  for (const char* name :
       {"nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetTemperatureV",
        "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetMPSComputeRunningProcesses_v3"}) {
    EXPECT_TRUE(nvml_.has(name)) << name;
    EXPECT_FALSE(old.has(name)) << name;
  }
  use(sample_state("old_driver.json"));
  ASSERT_EQ(old.call("nvmlInit_v2"), kSuccess);
  Handle device = nullptr;
  Wide reasons = 1;
  ProcessV2 process{};
  Size count = 1;
  ASSERT_EQ(old.call("nvmlDeviceGetHandleByIndex_v2", Size{0}, &device), kSuccess);
  EXPECT_EQ(old.call("nvmlDeviceGetCurrentClocksThrottleReasons", device, &reasons), kSuccess);
  EXPECT_EQ(reasons, 0U);
  EXPECT_EQ(old.call("nvmlDeviceGetComputeRunningProcesses_v2", device, &count, &process), kSuccess);
  EXPECT_EQ(process.memory, Wide{9996} << 20);
}

TEST_F(FakeNvml, TheSampleStatesLoad) {
  size_t num_states = 0;
  for (const auto& entry : std::filesystem::directory_iterator(YOKE_FAKE_NVML_STATES)) {
    Json state = sample_state(entry.path().filename());
    if (state.contains("init")) {
      use(state);
      EXPECT_EQ(nvml_.call("nvmlInit_v2"), kVersionMismatch);
      state.erase("init");
    }
    state["driver_version"] =
        "marker." + std::to_string(++num_states);  // if a file is refused, the previous state stays
    start(state);
    std::array<char, 80> version{};
    EXPECT_EQ(nvml_.call("nvmlSystemGetDriverVersion", version.data(), Size{80}), kSuccess);
    EXPECT_EQ(version.data(), state["driver_version"]) << entry.path() << " was refused";
  }
  EXPECT_GE(num_states, 11U);
}

}  // namespace
}  // namespace yoke::fake_nvml
