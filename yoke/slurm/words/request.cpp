#include "yoke/slurm/words/request.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>

#include "yoke/base/text.h"

namespace yoke::slurm::check {
namespace {

/// No cluster has more nodes, tasks or CPUs, and the product of three of them is a number of 64 bits.
constexpr int64_t kMostCount = 2'000'000;

std::optional<int64_t> whole(std::string_view text) {
  int64_t value = 0;
  if (text.empty() || text.size() > 12) return std::nullopt;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

/// As strtol reads it: spaces and a plus may come first.
std::optional<int64_t> signed_whole(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
  if (text.starts_with("+")) text.remove_prefix(1);
  return whole(text);
}

std::optional<int64_t> node_count(std::string_view text) {
  int64_t factor = 1;
  if (!text.empty() && (text.back() == 'k' || text.back() == 'K')) factor = 1024;
  if (!text.empty() && (text.back() == 'm' || text.back() == 'M')) factor = 1048576;
  if (factor > 1) text.remove_suffix(1);
  const auto value = signed_whole(text);
  return value && *value * factor <= kMostCount ? std::optional(*value * factor) : std::nullopt;
}

}  // namespace

std::optional<int64_t> parse_count(std::string_view text) {
  const auto value = signed_whole(text);
  return value && *value > 0 && *value <= kMostCount ? value : std::nullopt;
}

std::optional<NodeRange> parse_nodes(std::string_view text) {
  const auto dash = text.find('-');
  const auto min = node_count(text.substr(0, dash));
  if (!min) return std::nullopt;
  if (dash == text.npos) return NodeRange{*min, *min};
  const auto max = node_count(text.substr(dash + 1));
  return max ? std::optional(NodeRange{*min, *max}) : std::nullopt;
}

std::optional<int64_t> parse_minutes(std::string_view text) {
  const auto low = lower_case(text);
  if (low == "-1" || low == "infinite" || low == "unlimited" || low == "partition_limit") return -1;
  int64_t days = 0;
  const auto dash = text.find('-');
  const bool has_days = dash != text.npos;
  if (has_days) {
    const auto value = whole(text.substr(0, dash));
    if (!value) return std::nullopt;
    days = *value;
    text = text.substr(dash + 1);
  }
  std::array<int64_t, 3> part{};
  const auto parts = split(text, ':');
  if (parts.empty() || parts.size() > 3) return std::nullopt;
  for (size_t i = 0; i < parts.size(); ++i) {
    const auto value = whole(parts[i]);
    if (!value) return std::nullopt;
    part[i] = *value;
  }
  const bool has_hours = has_days || parts.size() == 3;
  const auto seconds = has_hours ? part[0] * 3600 + part[1] * 60 + part[2] : part[0] * 60 + part[1];
  return days * 1440 + (seconds + 59) / 60;
}

std::optional<int64_t> parse_mebibytes(std::string_view text) {
  size_t end = std::min(text.find_first_not_of(" \t+"), text.size());
  while (end < text.size() && std::isdigit(static_cast<unsigned char>(text[end])) != 0) ++end;
  const auto value = signed_whole(text.substr(0, end));
  if (!value) return std::nullopt;
  auto unit = lower_case(text.substr(end));
  if (unit.size() == 2 && unit[1] == 'b') unit.pop_back();
  if (unit.empty() || unit == "m") return value;
  if (unit == "k") return (*value + 1023) / 1024;
  if (unit == "g") return *value * 1024;
  if (unit == "t") return *value * 1024 * 1024;
  return std::nullopt;
}

std::optional<int64_t> parse_gpus(std::string_view text) {
  std::map<std::string_view, int64_t> of_type;  // of two entries for one type, the last one counts
  const auto parts = split(text, ',');
  if (parts.empty()) return std::nullopt;
  for (auto part : parts) {
    const auto colon = part.rfind(':');
    const auto number = colon == part.npos ? part : part.substr(colon + 1);
    const auto value = signed_whole(number);
    const bool is_figure = number.find_first_not_of("-.0123456789") == number.npos;
    if (!value && (colon != part.npos || is_figure)) return std::nullopt;
    const auto type = colon != part.npos ? part.substr(0, colon) : value ? std::string_view() : part;
    of_type[type] = value.value_or(1);  // "a100" is one
  }
  int64_t sum = 0;
  for (const auto& [type, count] : of_type) sum += count;
  return sum;
}

std::optional<int64_t> gpus_of_gres(std::string_view text) {
  std::map<std::string_view, int64_t> of_type;
  for (auto part : split(text, ',')) {
    if (part.starts_with("gres/") || part.starts_with("gres:")) part.remove_prefix(5);
    part = part.substr(0, part.find('('));
    if (part != "gpu" && !part.starts_with("gpu:")) continue;
    const auto rest = part.size() > 4 ? part.substr(4) : std::string_view();
    const auto colon = rest.rfind(':');
    const auto value = signed_whole(colon == rest.npos ? rest : rest.substr(colon + 1));
    const auto type = colon != rest.npos ? rest.substr(0, colon) : value ? std::string_view() : rest;
    of_type[type] = value.value_or(1);  // of two entries for one type, the last one counts
  }
  if (of_type.empty()) return std::nullopt;
  int64_t sum = 0;
  for (const auto& [type, count] : of_type) sum += count;
  return sum;
}

std::map<std::string, int64_t> typed_gpus_of_gres(std::string_view text) {
  std::map<std::string, int64_t> counts;
  for (const auto part : split(text, ',')) {
    const auto fields = split(part.substr(0, part.find('(')), ':');
    if (fields.size() < 2 || fields[0] != "gpu" || fields[1].empty() || whole(fields[1])) continue;
    const auto count = fields.size() > 2 ? signed_whole(fields[2]) : std::optional<int64_t>(1);
    if (count) counts[std::string(fields[1])] = *count;  // of two entries for one type, the last one counts
  }
  return counts;
}

std::set<std::string> gpu_types_of_gres(std::string_view text) {
  std::set<std::string> types;
  for (const auto part : split(text, ',')) {
    const auto fields = split(part.substr(0, part.find('(')), ':');
    if (fields.size() < 2 || fields[0] != "gpu" || fields[1].empty() || whole(fields[1])) continue;
    types.emplace(fields[1]);
  }
  return types;
}

std::optional<int64_t> largest_index(std::string_view text) {
  std::optional<int64_t> largest;
  for (auto part : split(text, ',')) {
    part = part.substr(0, part.find_first_of("%:]"));
    if (part.starts_with("[")) part.remove_prefix(1);
    const auto dash = part.find('-');
    if (const auto index = signed_whole(dash == part.npos ? part : part.substr(dash + 1))) {
      largest = std::max(largest.value_or(0), *index);
    }
  }
  return largest;
}

bool is_signal_value(std::string_view text) {
  const auto at = text.find('@');
  auto signal = text.substr(0, at);
  while (signal.size() > 1 && (signal.starts_with("B") || signal.starts_with("R")) && signal.find(':') != signal.npos) {
    signal = signal.substr(signal[1] == ':' ? 2 : 1);
  }
  const auto seconds =
      at == text.npos || at + 1 == text.size() ? std::optional<int64_t>(0) : whole(text.substr(at + 1));
  if (!seconds || *seconds > 65535) return false;
  if (const auto number = whole(signal)) return *number > 0;
  auto low = lower_case(signal);
  if (low.starts_with("sig")) low = low.substr(3);
  static constexpr std::string_view kSignals[] = {"hup",  "int", "quit", "abrt", "kill", "alrm", "term", "usr1",
                                                  "usr2", "urg", "cont", "stop", "tstp", "ttin", "ttou"};
  return std::ranges::find(kSignals, low) != std::end(kSignals);
}

bool is_array_value(std::string_view text) {
  // The limit after % may be anything; other entries may follow it.
  const auto percent = text.find('%');
  const auto rest = percent == text.npos ? text.npos : text.find(',', percent);
  const auto joined = std::string(text.substr(0, percent)) + std::string(rest == text.npos ? "" : text.substr(rest));
  text = joined;
  if (text.starts_with("[") && text.ends_with("]")) text = text.substr(1, text.size() - 2);
  if (text.starts_with("0x") || (text.empty() && percent != text.npos)) return true;
  const auto parts = split(text, ',');
  if (parts.empty()) return false;
  for (auto part : parts) {
    if (part.empty() && parts.size() > 1) continue;
    const auto colon = part.find(':');
    if (colon != part.npos && !parse_count(part.substr(colon + 1))) return false;
    part = part.substr(0, colon);
    const auto dash = part.find('-');
    if (colon != part.npos && dash == part.npos) return false;
    const auto first = signed_whole(part.substr(0, dash));
    // Slurm reads what is missing after the dash as 0.
    const auto end = dash == part.npos ? "" : part.substr(dash + 1);
    const auto last = dash == part.npos ? first : end.empty() ? std::optional<int64_t>(0) : signed_whole(end);
    if (!first || !last || *last < *first) return false;
  }
  return true;
}

Request::Request(const ParsedOptions& options) : options_(options) {
  for (size_t i = 0; i < options_.given.size(); ++i) {
    std::erase_if(last_, [&](size_t earlier) { return name_at(earlier) == name_at(i); });
    last_.push_back(i);
  }
}

std::string_view Request::name_at(size_t i) const {
  const auto name = options_.given[i].spec->name;
  return name == "tasks-per-node" ? "ntasks-per-node" : name;
}

const GivenOption* Request::find(std::string_view name) const {
  const auto found = std::ranges::find(last_, name, [&](size_t i) { return name_at(i); });
  return found == last_.end() ? nullptr : &options_.given[*found];
}

bool Request::has_any(std::string_view names) const {
  while (!names.empty()) {
    if (has(next_word(names))) return true;
  }
  return false;
}

int64_t Request::line_of(std::string_view names) const {
  int64_t line = 0;
  while (!names.empty()) {
    if (const auto* given = find(next_word(names))) line = std::max(line, given->line);
  }
  return line;
}

std::string Request::value(std::string_view name) const {
  const auto* given = find(name);
  return given == nullptr || !given->is_known ? std::string() : given->value;
}

std::optional<int64_t> Request::count(std::string_view name) const { return parse_count(value(name)); }

std::optional<NodeRange> Request::node_range() const { return parse_nodes(value("nodes")); }

std::optional<int64_t> Request::nodes() const {
  const auto range = node_range();
  return range && range->min == range->max && range->min > 0 ? std::optional(range->min) : std::nullopt;
}

std::optional<int64_t> Request::gpus(std::string_view name) const {
  const auto text = value(name);
  return text.empty() ? std::nullopt : parse_gpus(text);
}

std::optional<int64_t> Request::gpus_per_node() const {
  if (has("gres")) {
    if (const auto gpus = gpus_of_gres(value("gres"))) return gpus;
  }
  return gpus("gpus-per-node");
}

std::map<std::string, int64_t> Request::typed_gpus_per_node() const {
  if (auto counts = typed_gpus_of_gres(value("gres")); !counts.empty()) return counts;
  const auto text = value("gpus-per-node");
  std::string as_gres;
  for (const auto part : split(text, ',')) as_gres += (as_gres.empty() ? "gpu:" : ",gpu:") + std::string(part);
  return typed_gpus_of_gres(as_gres);
}

std::optional<int64_t> Request::minutes() const {
  const auto text = value("time");
  return text.empty() ? std::nullopt : parse_minutes(text);
}

std::set<std::string> Request::gpu_types() const {
  auto types = gpu_types_of_gres(value("gres"));
  for (const auto* option : {"gpus", "gpus-per-node", "gpus-per-task", "gpus-per-socket"}) {
    const auto text = value(option);
    for (const auto part : split(text, ',')) {
      const auto type = part.substr(0, part.find(':'));
      if (!type.empty() && !whole(type)) types.emplace(type);
    }
  }
  return types;
}

bool Request::asks_for_gpus() const {
  if (has_any("gpus gpus-per-node gpus-per-task gpus-per-socket")) return true;
  const auto* gres = find("gres");
  if (gres != nullptr && (!gres->is_known || gres->value.find("gpu") != std::string::npos)) return true;
  return value("tres-per-task").find("gpu") != std::string::npos;
}

bool Request::counts_tasks_by_cores() const {
  return has_any("sockets-per-node cores-per-socket extra-node-info threads-per-core hint");
}

Layout layout_of(const Request& job) {
  Layout layout{.nodes = job.nodes(),
                .ntasks = job.count("ntasks"),
                .ntasks_per_node = job.count("ntasks-per-node"),
                .cpus_per_task = job.count("cpus-per-task"),
                .gpus_per_node = job.gpus_per_node()};
  if (!job.has_any("nodes ntasks ntasks-per-node ntasks-per-gpu nodelist")) {
    layout.nodes = 1;
    layout.ntasks = 1;
  }
  if (!job.has("nodes") && layout.ntasks == 1) layout.nodes = 1;
  // --ntasks-per-node alone is one node; a number of GPUs or tasks of the whole job may need several.
  if (!job.has_any("nodes ntasks nodelist gpus gpus-per-task ntasks-per-gpu") && layout.ntasks_per_node) {
    layout.nodes = 1;
  }
  if (!job.has_any("ntasks ntasks-per-gpu ntasks-per-socket") && layout.nodes) {
    if (layout.ntasks_per_node) layout.ntasks = *layout.nodes * *layout.ntasks_per_node;
    const bool is_one_each = !job.has_any("sockets-per-node cores-per-socket extra-node-info") &&
                             (!job.has("threads-per-core") || job.value("threads-per-core") == "1");
    if (!job.has("ntasks-per-node") && is_one_each) layout.ntasks = layout.nodes;
  }
  if (!layout.ntasks_per_node && layout.nodes && layout.ntasks && *layout.ntasks % *layout.nodes == 0) {
    layout.ntasks_per_node = *layout.ntasks / *layout.nodes;
  }
  if (!layout.gpus_per_node && layout.nodes == 1) layout.gpus_per_node = job.gpus("gpus");
  return layout;
}

Layout layout_of(const Request& step, const Layout& job) {
  Layout layout = job;
  if (step.has_unknown()) return Layout{};
  if (step.has("nodes")) layout.nodes = step.nodes();
  if (step.has("ntasks-per-node")) layout.ntasks_per_node = step.count("ntasks-per-node");
  if (step.has("ntasks")) {
    layout.ntasks = step.count("ntasks");
    if (!step.has("ntasks-per-node")) layout.ntasks_per_node = std::nullopt;
    if (!step.has("nodes") && layout.ntasks == 1) layout.nodes = 1;
  } else if (step.has("nodes") || step.has("ntasks-per-node")) {
    const auto per_node = step.has("ntasks-per-node") ? layout.ntasks_per_node
                          : job.ntasks && job.nodes   ? job.ntasks_per_node
                                                      : std::nullopt;
    layout.ntasks = layout.nodes && per_node ? std::optional(*layout.nodes * *per_node) : std::nullopt;
    layout.ntasks_per_node = per_node;
  }
  if (step.has("ntasks-per-gpu")) layout.ntasks = layout.ntasks_per_node = std::nullopt;
  if (!layout.ntasks_per_node && layout.nodes && layout.ntasks && *layout.ntasks % *layout.nodes == 0) {
    layout.ntasks_per_node = *layout.ntasks / *layout.nodes;
  }
  if (step.has("cpus-per-task")) layout.cpus_per_task = step.count("cpus-per-task");
  if (step.has("gres") || step.has("gpus-per-node")) layout.gpus_per_node = step.gpus_per_node();
  return layout;
}

}  // namespace yoke::slurm::check
