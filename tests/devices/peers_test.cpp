// Compares fields of `yoke devices` with gpustat and nvitop on one fake driver. record-monitors recorded their values
// in tests/reference/monitors. If YOKE_PEER_MONITORS=/path/of/python is set, this test runs the two programs instead.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cctype>
#include <cstdlib>
#include <fstream>
#include <map>

#include "tests/support/fake_machine.h"

namespace yoke::test {
namespace {

/// One field: yoke's value, and the other program's value in the same unit.
struct Pair {
  std::string name;
  Json ours, theirs;
};

/// Rounds down as gpustat does, to whole watts or MiB.
Json whole(const Json& value, int64_t unit) { return value.is_number() ? Json(value.get<int64_t>() / unit) : value; }

std::string lower(std::string text) {
  for (auto& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

/// Whether two values are equal, where null equals "N/A" and the case of text is ignored.
bool is_equal(const Json& ours, const Json& theirs) {
  if (ours.is_null() || theirs.is_null()) return ours.is_null() && theirs.is_null();
  if (ours.is_string() && theirs.is_string()) return lower(ours) == lower(theirs);
  return ours == theirs;
}

Json onoff(const Json& value) { return value.is_null() ? value : Json(value.get<bool>() ? "enabled" : "disabled"); }
Json text_of(const Json& value, const std::map<std::string, std::string>& names) {
  if (!value.is_string()) return value;
  const auto found = names.find(lower(value));
  return found == names.end() ? value : Json(found->second);
}

std::vector<Pair> against_gpustat(const Json& ours, const Json& theirs) {
  std::vector<Pair> pairs = {
      {"index", ours["index"], theirs["index"]},
      {"uuid", ours["uuid"], theirs["uuid"]},
      {"name", ours["name"], theirs["name"]},
      {"temperature", ours["temperature_celsius"], theirs["temperature.gpu"]},
      {"fan", ours["fan_percent"], theirs["fan.speed"]},
      {"utilization", ours["utilization_percent"], theirs["utilization.gpu"]},
      {"encoder", ours["encoder_utilization_percent"], theirs["utilization.enc"]},
      {"decoder", ours["decoder_utilization_percent"], theirs["utilization.dec"]},
      {"power W", whole(ours["power_mw"], 1000), theirs["power.draw"]},
      {"power limit W", whole(ours["power_limit_mw"], 1000), theirs["enforced.power.limit"]},
  };
  for (const auto& [name, key] :
       {std::pair{"memory_used_bytes", "memory.used"}, {"memory_total_bytes", "memory.total"}}) {
    if (ours["unified_memory"] == true) continue;  // gpustat does not show the machine's memory
    pairs.push_back({key, whole(ours[name], 1 << 20), theirs[key]});
  }
  return pairs;
}

std::vector<Pair> against_nvitop(const Json& ours, const Json& theirs) {
  const auto known = [](const Json& value) { return value.is_object() ? Json(nullptr) : value; };  // {"error": ...}
  std::vector<Pair> pairs = {
      {"uuid", ours["uuid"], known(theirs["uuid"])},
      {"name", ours["name"], known(theirs["name"])},
      {"memory_total", ours["memory_total_bytes"], known(theirs["memory_total"])},
      {"memory_used", ours["memory_used_bytes"], known(theirs["memory_used"])},
      {"memory_free", ours["memory_free_bytes"], known(theirs["memory_free"])},
      {"gpu_utilization", ours["utilization_percent"], known(theirs["gpu_utilization"])},
      {"memory_utilization", ours["memory_utilization_percent"], known(theirs["memory_utilization"])},
      {"encoder", ours["encoder_utilization_percent"], known(theirs["encoder_utilization"])},
      {"decoder", ours["decoder_utilization_percent"], known(theirs["decoder_utilization"])},
      {"temperature", ours["temperature_celsius"], known(theirs["temperature"])},
      {"fan", ours["fan_percent"], known(theirs["fan_speed"])},
      {"power", ours["power_mw"], known(theirs["power_usage"])},
      {"power limit", ours["power_limit_mw"], known(theirs["power_limit"])},
      {"performance state", ours["performance_state"], known(theirs["performance_state"])},
      {"persistence", onoff(ours["persistence_mode"]), known(theirs["persistence_mode"])},
      {"display", onoff(ours["display_active"]), known(theirs["display_active"])},
      {"mig", onoff(ours["mig_enabled"]), known(theirs["mig_mode"])},
      {"compute mode",
       text_of(ours["compute_mode"],
               {{"exclusive_process", "exclusive process"}, {"exclusive_thread", "exclusive thread"}}),
       known(theirs["compute_mode"])},
      {"uncorrected ECC", ours["ecc_uncorrected_volatile"], known(theirs["total_volatile_uncorrected_ecc_errors"])},
      {"SM clock", ours["clock_sm_mhz"], known(theirs["sm_clock"])},
      {"memory clock", ours["clock_memory_mhz"], known(theirs["memory_clock"])},
      {"max SM clock", ours["clock_sm_max_mhz"], known(theirs["max_sm_clock"])},
      {"compute capability", ours["compute_capability"], known(theirs["compute_capability"])},
  };
  // If GPU and CPU share their memory, both show the machine's, which is another one in the recording.
  if (ours["unified_memory"] == true) {
    std::erase_if(
        pairs, [](const Pair& pair) { return pair.name.starts_with("memory_") && pair.name != "memory_utilization"; });
  }
  if (theirs["bus_id"].is_string()) {  // such as "00000000:C1:00.0"
    pairs.push_back({"bus id", ours["pci_bus_id"], theirs["bus_id"].get<std::string>().substr(4)});
  }
  return pairs;
}

/// Maps each PID to its device memory in units of 2^`shift` bytes.
std::map<int64_t, Json> memory_by_pid(const Json& processes, const char* key, int shift) {
  std::map<int64_t, Json> result;
  for (const auto& process : processes) {
    const auto& value = process[key];
    result[process["pid"].get<int64_t>()] = value.is_null() ? value : Json(value.get<int64_t>() >> shift);
  }
  return result;
}

class Peers : public testing::TestWithParam<const char*> {
 protected:
  static Json theirs() {
    if (const char* python = std::getenv("YOKE_PEER_MONITORS")) {
      auto options = on_machine(GetParam(), {});
      options.argv = {python, YOKE_RECORD_MONITORS};
      return Json::parse(run(options).out);
    }
    std::ifstream file(std::string(YOKE_REFERENCE_FOLDER) + "/" + GetParam() + ".json");
    return Json::parse(file);
  }
};

TEST_P(Peers, ShowTheSameNumbers) {
  const auto ours = gpus_of(yoke_on(GetParam(), {"devices", "--json"}));
  const auto peers = theirs();
  int num_compared = 0;
  const auto compare = [&](const std::string& peer, const Json& gpu, const std::vector<Pair>& pairs) {
    for (const auto& pair : pairs) {
      EXPECT_TRUE(is_equal(pair.ours, pair.theirs)) << GetParam() << ", device " << gpu["index"] << ", " << pair.name
                                                    << ": ours " << pair.ours << ", " << peer << "'s " << pair.theirs;
      ++num_compared;
    }
  };
  // If gpustat fails because of a lost GPU, it prints no values, and the recording contains its error instead.
  if (peers["gpustat"].contains("gpus")) {
    const auto& gpus = peers["gpustat"]["gpus"];
    ASSERT_EQ(gpus.size(), ours.size());
    for (size_t i = 0; i < ours.size(); ++i) {
      if (ours[i]["state"] == "lost") continue;  // gpustat shows the name of a lost GPU in brackets
      compare("gpustat", ours[i], against_gpustat(ours[i], gpus[i]));
      // gpustat leaves out processes that are not in /proc, and it does not show MIG instances.
      if (!ours[i]["instances"].empty()) continue;
      const auto all = memory_by_pid(ours[i]["processes"], "memory_bytes", 20);
      for (const auto& [pid, memory] : memory_by_pid(gpus[i]["processes"], "gpu_memory_usage", 0)) {
        if (pid != 1) continue;  // only process 1 exists in every run; others end or differ
        ASSERT_TRUE(all.contains(pid)) << pid;
        EXPECT_EQ(all.at(pid), memory) << pid;
        ++num_compared;
      }
    }
  }
  if (peers["nvitop"].contains("gpus")) {
    const auto& gpus = peers["nvitop"]["gpus"];
    ASSERT_EQ(gpus.size(), ours.size());
    for (size_t i = 0; i < ours.size(); ++i) {
      if (ours[i]["state"] == "lost") continue;
      compare("nvitop", ours[i], against_nvitop(ours[i], gpus[i]));
      if (gpus[i]["mig_devices"].is_array()) {
        ASSERT_EQ(gpus[i]["mig_devices"].size(), ours[i]["instances"].size());
        for (size_t k = 0; k < ours[i]["instances"].size(); ++k) {
          const auto& instance = ours[i]["instances"][k];
          const auto& peer = gpus[i]["mig_devices"][k];
          compare("nvitop", instance,
                  {{"MIG uuid", instance["uuid"], peer["uuid"]},
                   {"MIG memory used", instance["memory_used_bytes"], peer["memory_used"]},
                   {"MIG memory total", instance["memory_total_bytes"], peer["memory_total"]}});
        }
      }
    }
  }
  RecordProperty("compared", num_compared);
  EXPECT_GT(num_compared, 20);
}

INSTANTIATE_TEST_SUITE_P(States, Peers,
                         testing::Values("eight_a100", "mig", "many_processes", "throttled", "unsupported",
                                         "workstation", "lost"),
                         [](const auto& state) { return std::string(state.param); });

}  // namespace
}  // namespace yoke::test
