#include "yoke/slurm/job/device_line.h"

#include <fmt/format.h>

#include <algorithm>

#include "yoke/base/environment.h"
#include "yoke/base/text.h"

namespace yoke::slurm {
namespace {

constexpr std::string_view kTopLine = "yoke-top";
constexpr size_t kLongestCell = 100;

/// A cell without tabs, of at most kLongestCell characters.
std::string cell(const std::string& text) { return fit(printable(text), kLongestCell); }
std::string cell(const std::optional<int64_t>& number) { return number ? fmt::format("{}", *number) : "-"; }

void add_row(const device::Device& one, const std::string& id, std::vector<DeviceRow>& rows) {
  rows.push_back({.id = id,
                  .name = one.facts.name,
                  .state = std::string(name(one.state)),
                  .utilization_percent = one.readings.utilization_percent,
                  .memory_used_bytes = one.readings.memory_used_bytes,
                  .memory_total_bytes = one.readings.memory_total_bytes,
                  .power_mw = one.readings.power_mw,
                  .temperature_celsius = one.readings.temperature_celsius,
                  .num_processes = static_cast<int64_t>(one.processes.size())});
}

}  // namespace

std::vector<DeviceRow> device_rows(const device::Snapshot& snapshot) {
  std::vector<DeviceRow> rows;
  const auto is_gpu = [](const auto& one) { return one.vendor != device::Vendor::kCpu; };
  const bool has_gpu = std::ranges::any_of(snapshot.devices, is_gpu);
  for (const auto& one : snapshot.devices) {
    if (is_gpu(one) != has_gpu) continue;
    add_row(one, id_of(one), rows);
    for (const auto& instance : one.instances) add_row(instance, fmt::format("{}:{}", one.index, instance.index), rows);
  }
  return rows;
}

int64_t num_gpus(const std::vector<DeviceRow>& rows) {
  return std::ranges::count_if(rows,
                               [](const auto& row) { return row.id != "cpu" && row.id.find(':') == row.id.npos; });
}

std::string whose_gpus(int64_t num_of_job, int64_t num_shown) {
  if (num_shown <= num_of_job) return "";
  const auto own = num_of_job == 0 ? std::string("Slurm knows no GPU of this job")
                                   : fmt::format("The job has {} GPU{}", num_of_job, num_of_job == 1 ? "" : "s");
  return fmt::format("{}; the {} shown are all that its nodes let it open, and {} may belong to other jobs.", own,
                     num_shown, num_of_job == 0 ? "they" : "the others");
}

std::string to_lines(const std::string& node, const std::vector<DeviceRow>& rows) {
  std::string text;
  for (const auto& row : rows) {
    text +=
        fmt::format("{}\t{}\tdevice\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\n", kTopLine, cell(node), cell(row.id),
                    cell(row.name), cell(row.state), cell(row.utilization_percent), cell(row.memory_used_bytes),
                    cell(row.memory_total_bytes), cell(row.power_mw), cell(row.temperature_celsius), row.num_processes);
  }
  return text + fmt::format("{}\t{}\tend\n", kTopLine, cell(node));
}

std::optional<DeviceLines::Sample> DeviceLines::take(std::string_view line) {
  const auto cells = split(line, '\t');
  if (cells.size() < 3 || cells[0] != kTopLine) return std::nullopt;
  auto found = std::ranges::find(open_, cells[1], &Sample::node);
  if (found == open_.end()) found = open_.insert(open_.end(), Sample{std::string(cells[1]), {}});
  if (cells[2] == "end") {
    auto sample = std::move(*found);
    open_.erase(found);
    return sample;
  }
  if (cells[2] != "device" || cells.size() != 12 || found->rows.size() >= 1024) return std::nullopt;
  found->rows.push_back({.id = std::string(cells[3]),
                         .name = std::string(cells[4]),
                         .state = std::string(cells[5]),
                         .utilization_percent = parse_int(cells[6]),
                         .memory_used_bytes = parse_int(cells[7]),
                         .memory_total_bytes = parse_int(cells[8]),
                         .power_mw = parse_int(cells[9]),
                         .temperature_celsius = parse_int(cells[10]),
                         .num_processes = parse_int(cells[11]).value_or(0)});
  return std::nullopt;
}

}  // namespace yoke::slurm
