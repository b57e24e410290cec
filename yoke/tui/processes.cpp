#include "yoke/tui/processes.h"

#include <fmt/format.h>

#include <algorithm>
#include <compare>
#include <set>
#include <tuple>
#include <utility>

#include "yoke/base/text.h"
#include "yoke/view/labels.h"

namespace yoke::tui {
namespace {

using device::Device;
using device::ProcessInfo;

/// A process on one device or, in the tree, on all of its devices.
struct Entry {
  ProcessRow row;
  std::vector<std::pair<int64_t, int64_t>> devices;  ///< Index, and 0 or 1 + the index of an instance; sorted.
  std::optional<int64_t> parent_pid, uid;
};

std::string device_name(const std::pair<int64_t, int64_t>& device) {
  return device.second == 0 ? fmt::format("{}", device.first) : fmt::format("{}:{}", device.first, device.second - 1);
}

/// Formats devices as "0-3,6,7:1".
std::string device_names(const std::vector<std::pair<int64_t, int64_t>>& devices) {
  std::string names;
  for (size_t i = 0; i < devices.size();) {
    size_t last = i;
    while (last + 1 < devices.size() && devices[last].second == 0 && devices[last + 1].second == 0 &&
           devices[last + 1].first == devices[last].first + 1) {
      ++last;
    }
    if (!names.empty()) names += ',';
    names += device_name(devices[i]);
    if (last > i) names += (last > i + 1 ? "-" : ",") + device_name(devices[last]);
    i = last + 1;
  }
  return names;
}

ProcessRow row_of(int64_t pid, const ProcessInfo& info, const Model& model) {
  ProcessRow row{.key = {pid, info.start_ticks}, .user = info.user, .name = info.name};
  row.command = !info.command.empty() ? info.command : info.name;
  if (row.command.empty() && !info.reason.empty()) row.command = "(" + info.reason + ")";
  row.age = view::age_of(info, model.sample->snapshot.time);
  row.is_mine = !info.user.empty() && info.user == model.user;
  row.is_visible = info.is_visible.value_or(false);
  return row;
}

std::vector<Entry> all_entries(const Model& model) {
  std::vector<Entry> entries;
  const auto add = [&](const Device& device, std::pair<int64_t, int64_t> place) {
    for (const auto& process : device.processes) {
      auto& entry = entries.emplace_back(Entry{row_of(process.pid, process.info, model), {place}});
      entry.row.device = device_name(place);
      entry.row.memory_bytes = process.memory_bytes;
      entry.row.utilization_percent = process.utilization_percent;
      entry.row.origin = label(process.origin);
      entry.parent_pid = process.info.parent_pid;
      entry.uid = process.info.uid;
    }
  };
  for (const auto& device : model.sample->snapshot.devices) {
    add(device, {device.index, 0});
    for (const auto& instance : device.instances) add(instance, {device.index, 1 + instance.index});
  }
  return entries;
}

/// The filter matches any part of a user's name. If it is a user's whole name, only that user matches.
bool has_user(const ProcessRow& row, const Model& model, bool is_whole_name) {
  if (is_whole_name) return row.user == model.user_filter;
  return lower_case(row.user).find(lower_case(model.user_filter)) != std::string::npos;
}

bool has_text(const ProcessRow& row, const Model& model) {
  if (model.text_filter.empty()) return true;
  // The texts as shown, because the filter must match only what the user sees.
  const auto text = fmt::format("{} {} {} {}", row.key.pid, row.user, row.origin, row.command);
  return lower_case(printable(text)).find(lower_case(model.text_filter)) != std::string::npos;
}

/// Whether `a` is listed above `b`. Amounts are in descending order, names and places in ascending order.
bool is_above(const Entry& a, const Entry& b, const Model& model) {
  const auto& x = a.row;
  const auto& y = b.row;
  const auto chosen = [&]() -> std::partial_ordering {
    switch (model.sort_by) {
      case SortBy::kPid: return x.key.pid <=> y.key.pid;
      case SortBy::kUser:
        return x.user.empty() != y.user.empty() ? x.user.empty() <=> y.user.empty() : x.user <=> y.user;
      case SortBy::kDevice: return a.devices <=> b.devices;
      case SortBy::kMemory: return y.memory_bytes <=> x.memory_bytes;
      case SortBy::kUtilization: return y.utilization_percent <=> x.utilization_percent;
      case SortBy::kAge: return y.age <=> x.age;
    }
    return std::partial_ordering::equivalent;
  }();
  if (std::is_neq(chosen)) return model.is_reversed ? std::is_gt(chosen) : std::is_lt(chosen);
  return std::tie(a.devices, y.memory_bytes, x.key.pid) < std::tie(b.devices, x.memory_bytes, y.key.pid);
}

std::vector<Entry> join_devices(const std::vector<Entry>& entries) {
  std::map<int64_t, Entry> by_pid;
  const auto sum = [](std::optional<int64_t>& total, const std::optional<int64_t>& part) {
    if (part) total = total.value_or(0) + *part;
  };
  for (const auto& entry : entries) {
    const auto [found, is_new] = by_pid.emplace(entry.row.key.pid, entry);
    if (is_new) continue;
    auto& joined = found->second;
    if (joined.devices.back() != entry.devices[0]) joined.devices.push_back(entry.devices[0]);
    sum(joined.row.memory_bytes, entry.row.memory_bytes);
    sum(joined.row.utilization_percent, entry.row.utilization_percent);
  }
  std::vector<Entry> joined;
  for (auto& [pid, entry] : by_pid) {
    std::ranges::sort(entry.devices);
    entry.row.device = device_names(entry.devices);
    joined.push_back(std::move(entry));
  }
  return joined;
}

/// Returns the ancestors of `entries` that belong to the same user.
std::vector<Entry> parents_of(const std::vector<Entry>& entries, const Model& model) {
  const auto& known = model.sample->ancestors;
  std::set<int64_t> pids;
  for (const auto& entry : entries) pids.insert(entry.row.key.pid);
  std::vector<Entry> parents;
  for (const auto& entry : entries) {
    for (auto parent = entry.parent_pid; parent && *parent > 1 && entry.uid;) {
      const auto found = known.find(*parent);
      if (found == known.end() || found->second.uid != entry.uid || !pids.insert(*parent).second) break;
      auto& added = parents.emplace_back(Entry{row_of(*parent, found->second, model), {}});
      added.parent_pid = found->second.parent_pid;
      added.uid = found->second.uid;
      parent = added.parent_pid;
    }
  }
  return parents;
}

/// Arranges entries with children below their parents. Siblings are ordered by the first rows of their branches. An
/// invalid recording may contain a cycle of parents. A cycle is cut at one place.
std::vector<ProcessRow> as_tree(std::vector<Entry> entries, const Model& model) {
  std::ranges::sort(entries, [&](const Entry& a, const Entry& b) { return is_above(a, b, model); });
  auto parents = parents_of(entries, model);
  std::move(parents.begin(), parents.end(), std::back_inserter(entries));

  std::map<int64_t, size_t> by_pid;
  for (size_t i = 0; i < entries.size(); ++i) by_pid.emplace(entries[i].row.key.pid, i);
  constexpr size_t kNone = SIZE_MAX;
  std::vector<size_t> parent(entries.size(), kNone);
  std::vector<std::vector<size_t>> children(entries.size());
  std::vector<bool> is_placed(entries.size(), false);
  std::vector<size_t> roots;
  // Rows are added in order, each with its parents. So the first row of a branch determines the place of the branch.
  for (size_t i = 0; i < entries.size(); ++i) {
    for (size_t node = i; !is_placed[node];) {
      is_placed[node] = true;
      const auto found = entries[node].parent_pid ? by_pid.find(*entries[node].parent_pid) : by_pid.end();
      bool is_root = found == by_pid.end() || found->second == node;
      for (size_t above = is_root ? kNone : found->second; above != kNone && !is_root; above = parent[above]) {
        is_root = above == node;
      }
      if (is_root) {
        roots.push_back(node);
        break;
      }
      parent[node] = found->second;
      children[parent[node]].push_back(node);
      node = parent[node];
    }
  }

  struct Step {
    size_t node;
    std::string branch;  ///< The text before the node's own command.
    std::string below;   ///< The text before the commands of its children.
  };
  const bool is_ascii = model.glyphs == Glyphs::kAscii;
  std::vector<Step> steps;
  for (auto root = roots.rbegin(); root != roots.rend(); ++root) steps.push_back({*root, "", ""});
  std::vector<ProcessRow> rows;
  while (!steps.empty()) {
    const auto step = std::move(steps.back());
    steps.pop_back();
    auto& row = rows.emplace_back(std::move(entries[step.node].row));
    row.branch = step.branch;
    const auto& below = children[step.node];
    constexpr size_t kDeepest = 100;  // in bytes; deeper nodes start at the left edge again
    const auto start = step.below.size() < kDeepest ? step.below : std::string();
    for (auto child = below.rbegin(); child != below.rend(); ++child) {
      const bool is_last = child == below.rbegin();
      steps.push_back({*child, start + (is_ascii ? (is_last ? "`- " : "|- ") : (is_last ? "└─ " : "├─ ")),
                       start + (is_last    ? "   "
                                : is_ascii ? "|  "
                                           : "│  ")});
    }
  }
  return rows;
}

}  // namespace

ProcessList process_list(const Model& model) {
  if (!model.sample) return {};
  auto entries = all_entries(model);
  if (model.is_tree) entries = join_devices(entries);
  ProcessList list{.num_processes = static_cast<int64_t>(entries.size())};
  const bool is_whole_name =
      std::ranges::any_of(entries, [&](const Entry& entry) { return entry.row.user == model.user_filter; });
  std::erase_if(entries, [&](const Entry& entry) {
    const bool has_users = model.user_filter.empty() || has_user(entry.row, model, is_whole_name);
    return !has_users || !has_text(entry.row, model);
  });
  list.num_shown = static_cast<int64_t>(entries.size());
  if (model.is_tree) {
    list.rows = as_tree(std::move(entries), model);
    return list;
  }
  std::ranges::sort(entries, [&](const Entry& a, const Entry& b) { return is_above(a, b, model); });
  for (auto& entry : entries) list.rows.push_back(std::move(entry.row));
  return list;
}

std::optional<int64_t> selected_row(const Model& model, const std::vector<ProcessRow>& rows) {
  if (!model.selected) return std::nullopt;
  const auto is_selected = [&](const ProcessRow& row) { return row.key == *model.selected; };
  const auto is_exact = [&](const ProcessRow& row) { return is_selected(row) && row.device == model.selected_device; };
  auto found = std::ranges::find_if(rows, is_exact);
  if (found == rows.end()) found = std::ranges::find_if(rows, is_selected);
  if (found == rows.end()) return std::nullopt;
  return found - rows.begin();
}

std::string describe(const ProcessRow& row) {
  const auto user = row.user.empty() ? std::string("unknown user") : printable(row.user);
  return fmt::format("{} {} ({})", row.key.pid, fit(printable(row.name), 24), fit(user, 16));
}

}  // namespace yoke::tui
