#include "yoke/slurm/job/samples.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "yoke/base/format.h"
#include "yoke/base/json.h"
#include "yoke/base/text.h"

namespace yoke::slurm {
namespace {

constexpr const char* kSampleFormat = "yoke slurm sample 1";

/// Reads values of the right type alone. A file may be of another release, or damaged.
class SampleReader {
 public:
  explicit SampleReader(const Json& json) : json_(json) {}

  std::string text(const char* key) const { return text_member(json_, key).substr(0, 256); }
  std::optional<double> number(const char* key) const {
    const auto found = json_.find(key);
    if (found == json_.end() || !found->is_number()) return std::nullopt;
    const auto value = found->get<double>();
    return std::isfinite(value) && value >= 0 && value < 9e18 ? std::optional(value) : std::nullopt;
  }
  std::optional<int64_t> whole(const char* key) const {
    const auto value = number(key);
    return value ? std::optional(static_cast<int64_t>(*value)) : std::nullopt;
  }
  bool flag(const char* key) const {
    const auto found = json_.find(key);
    return found != json_.end() && found->is_boolean() && found->get<bool>();
  }

 private:
  const Json& json_;
};

/// The mean of two values, weighted by the time for which each holds.
template <typename T>
void blend(std::optional<T>& value, double seconds, const std::optional<T>& other, double other_seconds) {
  if (!other) return;
  if (!value || seconds + other_seconds <= 0) {
    value = other;
    return;
  }
  value = static_cast<T>((static_cast<double>(*value) * seconds + static_cast<double>(*other) * other_seconds) /
                         (seconds + other_seconds));
}

template <typename T>
void add_or_raise(std::optional<T>& value, const std::optional<T>& other, bool adds) {
  if (adds && value && other) {
    *value += *other;
  } else {
    value = std::max(value, other);
  }
}

void merge_device(NodeSample& node, const DeviceSample& device, bool adds) {
  const auto found = std::ranges::find_if(node.devices, [&](const auto& one) {
    return device.uuid.empty() ? one.id == device.id : one.uuid == device.uuid;
  });
  if (found == node.devices.end()) {
    node.devices.push_back(device);
    return;
  }
  blend(found->mean_percent, found->known_seconds, device.mean_percent, device.known_seconds);
  blend(found->mean_power_mw, found->known_seconds, device.mean_power_mw, device.known_seconds);
  found->known_seconds =
      adds ? found->known_seconds + device.known_seconds : std::max(found->known_seconds, device.known_seconds);
  found->memory_peak_bytes = std::max(found->memory_peak_bytes, device.memory_peak_bytes);
  found->memory_total_bytes = std::max(found->memory_total_bytes, device.memory_total_bytes);
  add_or_raise(found->energy_mj, device.energy_mj, adds);
}

}  // namespace

Json to_json(const NodeSample& sample) {
  Json json = {{"format", kSampleFormat},
               {"cluster", sample.cluster},
               {"job", sample.job},
               {"step", sample.step},
               {"restart", sample.restart},
               {"host", sample.host},
               {"begin_seconds", sample.begin},
               {"seconds", sample.seconds},
               {"num_samples", sample.num_samples},
               {"is_finished", sample.is_finished},
               {"num_cpus", sample.num_cpus},
               {"num_host_cpus", sample.num_host_cpus},
               {"cpu_seconds", or_null(sample.cpu_seconds)},
               {"memory_peak_bytes", or_null(sample.memory_peak_bytes)},
               {"memory_limit_bytes", or_null(sample.memory_limit_bytes)},
               {"memory_with_files_peak_bytes", or_null(sample.memory_with_files_peak_bytes)},
               {"num_oom_kills", or_null(sample.num_oom_kills)},
               {"source", sample.source},
               {"devices", Json::array()}};
  for (const auto& device : sample.devices) {
    json["devices"].push_back({{"id", device.id},
                               {"uuid", device.uuid},
                               {"name", device.name},
                               {"known_seconds", device.known_seconds},
                               {"mean_utilization_percent", or_null(device.mean_percent)},
                               {"memory_peak_bytes", or_null(device.memory_peak_bytes)},
                               {"memory_total_bytes", or_null(device.memory_total_bytes)},
                               {"mean_power_mw", or_null(device.mean_power_mw)},
                               {"energy_mj", or_null(device.energy_mj)}});
  }
  return json;
}

std::optional<NodeSample> parse_sample(std::string_view text) {
  const auto json = Json::parse(text, nullptr, false);
  if (!json.is_object()) return std::nullopt;
  const SampleReader reader(json);
  if (reader.text("format") != kSampleFormat) return std::nullopt;
  NodeSample sample{.cluster = reader.text("cluster"),
                    .job = reader.whole("job").value_or(0),
                    .step = reader.text("step"),
                    .host = reader.text("host")};
  sample.restart = reader.whole("restart").value_or(0);
  sample.begin = reader.number("begin_seconds").value_or(0);
  sample.seconds = reader.number("seconds").value_or(0);
  sample.num_samples = reader.whole("num_samples").value_or(0);
  sample.is_finished = reader.flag("is_finished");
  sample.num_cpus = reader.whole("num_cpus").value_or(0);
  sample.num_host_cpus = reader.whole("num_host_cpus").value_or(0);
  sample.cpu_seconds = reader.number("cpu_seconds");
  sample.memory_peak_bytes = reader.whole("memory_peak_bytes");
  sample.memory_limit_bytes = reader.whole("memory_limit_bytes");
  sample.memory_with_files_peak_bytes = reader.whole("memory_with_files_peak_bytes");
  sample.num_oom_kills = reader.whole("num_oom_kills");
  sample.source = reader.text("source");
  const auto devices = json.find("devices");
  if (devices == json.end() || !devices->is_array()) return sample;
  for (const auto& one : *devices) {
    if (!one.is_object() || sample.devices.size() >= 1024) continue;
    const SampleReader device(one);
    sample.devices.push_back({.id = device.text("id"),
                              .uuid = device.text("uuid"),
                              .name = device.text("name"),
                              .known_seconds = device.number("known_seconds").value_or(0),
                              .mean_percent = device.number("mean_utilization_percent"),
                              .memory_peak_bytes = device.whole("memory_peak_bytes"),
                              .memory_total_bytes = device.whole("memory_total_bytes"),
                              .mean_power_mw = device.whole("mean_power_mw"),
                              .energy_mj = device.whole("energy_mj")});
  }
  return sample;
}

std::vector<DeviceSample> device_samples(const device::UsageReport& report) {
  std::vector<DeviceSample> samples;
  for (const auto& usage : report.devices) {
    samples.push_back({.id = usage.id,
                       .uuid = usage.uuid,
                       .name = usage.name,
                       .known_seconds = std::max(0.0, (report.duration - usage.unknown).count()),
                       .mean_percent = usage.mean_percent,
                       .memory_peak_bytes = usage.memory_peak_bytes,
                       .memory_total_bytes = usage.memory_total_bytes,
                       .mean_power_mw = usage.mean_power_mw,
                       .energy_mj = usage.energy_mj});
  }
  return samples;
}

std::vector<std::string> keep_samples_of(const SampledRun& run, std::vector<NodeSample>& samples) {
  constexpr Seconds kClocks{300};      // munge refuses credentials that are older or newer
  constexpr Seconds kUsualClocks{60};  // a difference of which nothing is said
  const auto number = [](Time time) { return std::chrono::duration<double>(time.time_since_epoch()).count(); };
  const auto submitted = run.submitted ? number(*run.submitted) : 0;
  std::map<std::string, double> slow_clocks;
  std::map<std::string, int64_t> left_out;
  std::erase_if(samples, [&](const NodeSample& sample) {
    if (!run.cluster.empty() && !sample.cluster.empty() && sample.cluster != run.cluster) return true;
    if (run.restart && sample.restart != *run.restart) return true;
    const auto late = submitted - sample.begin;
    if (late <= 0) return false;
    const bool is_of_other = std::ranges::any_of(run.others, [&](const auto& other) {
      return number(other.first) - 1 <= sample.begin && sample.begin <= number(other.second) + 1;
    });
    if (is_of_other) return true;
    if (late > static_cast<double>(kClocks.count())) {
      ++left_out[sample.host];
      return true;
    }
    if (late > static_cast<double>(kUsualClocks.count())) {
      auto& most = slow_clocks[sample.host];
      most = std::max(most, late);
    }
    return false;
  });
  std::vector<std::string> doubts;
  for (const auto& [host, late] : slow_clocks) {
    doubts.push_back(
        fmt::format("the clock of {} is at least {} behind that of slurmctld, or these samples are of an "
                    "earlier job with this number",
                    printable(host), format_duration(Seconds(static_cast<int64_t>(late)))));
  }
  for (const auto& [host, count] : left_out) {
    doubts.push_back(
        fmt::format("{} of {} under this number began before the job was submitted and {} left out: of an earlier job, "
                    "or by a clock that is more than 5 min behind",
                    counted(count, "sampling"), printable(host), count == 1 ? "is" : "are"));
  }
  return doubts;
}

std::vector<NodeSample> merged_by_host(std::vector<NodeSample> samples) {
  int64_t last = 0;
  for (const auto& sample : samples) last = std::max(last, sample.restart);
  std::erase_if(samples, [&](const auto& sample) { return sample.restart != last; });
  std::ranges::stable_sort(samples, {}, &NodeSample::begin);
  struct Merged {
    NodeSample node;
    double end;  // of the samplings so far; pauses between them do not count in the node's seconds
  };
  std::map<std::string, Merged> hosts;
  for (auto& sample : samples) {
    const auto sample_end = sample.begin + sample.seconds;
    const auto [at, is_new] = hosts.try_emplace(sample.host, sample, sample_end);
    if (is_new) continue;
    auto& [node, end] = at->second;
    const bool adds = sample.begin >= end - 1;
    for (const auto& device : sample.devices) merge_device(node, device, adds);
    add_or_raise(node.cpu_seconds, sample.cpu_seconds, adds);
    node.memory_peak_bytes = std::max(node.memory_peak_bytes, sample.memory_peak_bytes);
    node.memory_limit_bytes = std::max(node.memory_limit_bytes, sample.memory_limit_bytes);
    node.memory_with_files_peak_bytes =
        std::max(node.memory_with_files_peak_bytes, sample.memory_with_files_peak_bytes);
    node.num_oom_kills = std::max(node.num_oom_kills, sample.num_oom_kills);
    node.seconds += std::max(0.0, sample_end - std::max(end, sample.begin));
    end = std::max(end, sample_end);
    node.num_samples += sample.num_samples;
    node.num_cpus = std::max(node.num_cpus, sample.num_cpus);
    node.is_finished = sample.is_finished;
  }
  std::vector<NodeSample> result;
  for (auto& [_, merged] : hosts) result.push_back(std::move(merged.node));
  return result;
}

}  // namespace yoke::slurm
