#include "yoke/launch/plan/bind.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "yoke/base/error.h"
#include "yoke/base/format.h"
#include "yoke/launch/plan/share_cpus.h"

namespace yoke::launch {
namespace {

using BindKind = BindMode::Kind;
using Devices = std::vector<std::optional<device::DeviceLocality>>;

CpuSet parse_entry(std::string_view text, bool is_mask) {
  std::string list(text);
  std::ranges::replace(list, '+', ',');
  const auto set = is_mask ? CpuSet::parse_mask(text) : CpuSet::parse_list(list);
  if (set && !set->empty()) return *set;
  throw Error(ErrorCode::kInvalidArgument, "--bind: \"{}\" is not {}", text,
              is_mask ? "a mask of at least one CPU; give one for each rank, such as mask:0xfe,0xfe00 for two ranks"
                      : "a list of CPUs; give one for each rank, such as cpus:1-7,9-15 for two ranks; + joins the "
                        "ranges of one rank, as in 1-3+8-11");
}

std::vector<CpuSet> node_sets(const device::CpuLocality& machine) {
  std::vector<CpuSet> sets;
  for (const auto& node : machine.nodes) sets.push_back(node.cpus);
  return sets;
}

/// Returns text such as "rank 3" or "ranks 0-7".
std::string name_of(const CpuSet& ranks) {
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", ranks.to_list());
}

/// Indices of the units in which a rank may be placed.
using Home = std::vector<size_t>;

/// Chooses a unit (NUMA node, package or cache) for each rank, then divides each unit among its ranks.
class Planner {
 public:
  Planner(BindKind kind, const device::CpuLocality& machine, const Devices& devices)
      : machine_(machine), devices_(devices), num_ranks_(static_cast<int64_t>(devices.size())) {
    const auto nodes = node_sets(machine);
    const auto& sets = kind == BindKind::kSocket ? machine.packages : kind == BindKind::kCache ? machine.caches : nodes;
    units_ = partition(sets, machine.allowed);
    // If no cache is shared, NUMA nodes are used instead.
    if (kind == BindKind::kCache && machine.caches.empty()) units_ = partition(nodes, machine.allowed);
    may_span_ = kind == BindKind::kAuto;
    levels_ = {nodes, machine.caches, machine.cores};
  }

  std::vector<CpuSet> plan(std::vector<std::string>& warnings) {
    warnings_ = &warnings;
    result_.resize(devices_.size());
    std::map<Home, std::vector<size_t>> groups;
    Home all(units_.size());
    for (size_t unit = 0; unit < all.size(); ++unit) all[unit] = unit;
    for (size_t rank = 0; rank < devices_.size(); ++rank) groups[home_of(rank, all)].push_back(rank);
    warn_of_homes();

    auto anywhere = groups.extract(all);
    const bool have_homes = !groups.empty();
    members_.resize(units_.size());
    for (auto& [home, ranks] : groups) ranks = choose_units(home, std::move(ranks));
    // First places the ranks that can be near their device. The other ranks get the remaining CPUs, in the same package
    // if possible.
    for (auto& [home, ranks] : groups) {
      for (const auto rank : ranks) crowded_out_.add(static_cast<int64_t>(rank));
      CpuSet cpus;
      for (const auto unit : home) cpus |= units_[unit];
      choose_units(all, choose_units(near(cpus, all), std::move(ranks)));
    }
    if (!anywhere.empty()) {
      if (!have_homes && anywhere.mapped().size() < units_.size()) {
        spread(anywhere.mapped());
      } else {
        choose_units(all, std::move(anywhere.mapped()));
      }
    }
    for (size_t unit = 0; unit < units_.size(); ++unit) divide(units_[unit], members_[unit]);
    warn_of_crowding();
    return std::move(result_);
  }

 private:
  Home home_of(size_t rank, const Home& all) {
    const auto& device = devices_[rank];
    if (!device) return all;
    Home home;
    for (const auto unit : all) {
      if (units_[unit].intersects(device->cpus)) home.push_back(unit);
    }
    // If the firmware does not report a device's NUMA node, the kernel reports all CPUs as near. So the node of a
    // device that is near all nodes counts as unknown.
    const auto& nodes = machine_.nodes;
    const auto is_beside = [&](const device::NodeLocality& node) { return node.cpus.intersects(device->cpus); };
    const auto num_beside = static_cast<size_t>(std::ranges::count_if(nodes, is_beside));
    if (num_beside == 0 || (num_beside > 1 && num_beside == nodes.size())) {
      unknown_.add(static_cast<int64_t>(rank));
      return all;
    }
    if (!home.empty()) return home;
    away_.add(static_cast<int64_t>(rank));
    home = near(device->cpus, all);
    return home.empty() ? all : home;
  }

  /// Returns the elements of `units` that are in the same package as `cpus`.
  Home near(const CpuSet& cpus, const Home& units) const {
    Home result;
    for (const auto& package : machine_.packages) {
      if (!package.intersects(cpus)) continue;
      for (const auto unit : units) {
        if (units_[unit].intersects(package)) result.push_back(unit);
      }
    }
    return result;
  }

  /// Returns how many ranks fit into a unit: one per core. If the cores are too few for all ranks, one per CPU; if the
  /// CPUs are too few, all ranks.
  int64_t room(size_t unit) const {
    if (num_ranks_ <= num_cores(machine_.allowed)) return num_cores(units_[unit]);
    if (num_ranks_ <= machine_.allowed.size()) return units_[unit].size();
    return num_ranks_;
  }

  int64_t num_cores(const CpuSet& cpus) const { return count_cores(machine_.cores, cpus); }

  /// Returns a unit of `home` with room for one more rank. If several have room, the one in which each rank then has
  /// the most cores.
  std::optional<size_t> best_unit(const Home& home, const std::vector<int64_t>& loads) const {
    std::optional<size_t> best;
    for (const auto unit : home) {
      if (loads[unit] >= room(unit)) continue;
      if (!best || num_cores(units_[unit]) * (loads[*best] + 1) > num_cores(units_[*best]) * (loads[unit] + 1)) {
        best = unit;
      }
    }
    return best;
  }

  /// Places `ranks` in units of `home` while there is room, in the order of their devices, so that neighbours stay
  /// together. Returns the ranks without a place.
  std::vector<size_t> choose_units(const Home& home, std::vector<size_t> ranks) {
    sort_by_device(ranks);
    std::vector<int64_t> loads(units_.size()), added(units_.size());
    for (size_t unit = 0; unit < units_.size(); ++unit) loads[unit] = static_cast<int64_t>(members_[unit].size());
    for (size_t i = 0; i < ranks.size(); ++i) {
      const auto unit = best_unit(home, loads);
      if (!unit) break;
      ++loads[*unit], ++added[*unit];
    }
    auto next = ranks.begin();
    for (size_t unit = 0; unit < units_.size(); ++unit) {
      members_[unit].insert(members_[unit].end(), next, next + added[unit]);
      next += added[unit];
    }
    return {next, ranks.end()};
  }

  /// Spreads ranks without devices evenly over the units. REQUIRES: there are more units than ranks.
  void spread(std::vector<size_t>& ranks) {
    sort_by_device(ranks);
    for (size_t i = 0; i < ranks.size(); ++i) {
      const auto [begin, end] = block(i, units_.size(), ranks.size());
      if (may_span_) {
        for (auto unit = begin; unit < end; ++unit) result_[ranks[i]] |= units_[unit];
      } else {
        members_[begin].push_back(ranks[i]);
      }
    }
  }

  void sort_by_device(std::vector<size_t>& ranks) const {
    const auto key = [&](size_t rank) { return std::pair(devices_[rank] ? devices_[rank]->pci_bus_id : "", rank); };
    std::ranges::sort(ranks, [&](size_t a, size_t b) { return key(a) < key(b); });
  }

  void divide(const CpuSet& cpus, const std::vector<size_t>& ranks) {
    if (ranks.empty()) return;
    std::vector<Sharer> sharers;
    for (const auto rank : ranks) {
      Sharer sharer;
      if (devices_[rank]) sharer = {devices_[rank]->pci_bus_id, devices_[rank]->cpus};
      sharers.push_back(std::move(sharer));
    }
    auto shares = share_cpus(cpus, sharers, levels_);
    for (size_t i = 0; i < ranks.size(); ++i) result_[ranks[i]] = std::move(shares[i]);
  }

  void warn_of_homes() const {
    if (!unknown_.empty()) {
      warnings_->push_back(
          fmt::format("{}: the NUMA node of the device is not known; the ranks are spread evenly", name_of(unknown_)));
    }
    if (away_.empty()) return;
    CpuSet wanted;
    for (const auto rank : away_.to_vector()) wanted |= devices_[static_cast<size_t>(rank)]->cpus;
    warnings_->push_back(
        fmt::format("{}: none of the CPUs near the device ({}) may be used; using the nearest allowed ones",
                    name_of(away_), wanted.to_list()));
  }

  void warn_of_crowding() const {
    const auto cores = num_cores(machine_.allowed);
    if (num_ranks_ > machine_.allowed.size()) {
      warnings_->push_back(
          fmt::format("{} ranks share {} CPUs; start fewer ranks", num_ranks_, machine_.allowed.size()));
    } else if (num_ranks_ > cores) {
      warnings_->push_back(fmt::format("{} ranks on {} cores: some ranks get only a part of a core's hardware threads",
                                       num_ranks_, cores));
    } else if (!crowded_out_.empty()) {
      warnings_->push_back(fmt::format("{}: too few cores are near the device to give each rank one; using others too",
                                       name_of(crowded_out_)));
    }
  }

  const device::CpuLocality& machine_;
  const Devices& devices_;
  int64_t num_ranks_;
  bool may_span_ = false;
  std::vector<CpuSet> units_;
  std::vector<std::vector<CpuSet>> levels_;
  std::vector<std::vector<size_t>> members_;  ///< The ranks of each unit.
  std::vector<CpuSet> result_;
  CpuSet unknown_, away_, crowded_out_;  ///< Sets of ranks.
  std::vector<std::string>* warnings_ = nullptr;
};

std::vector<CpuSet> take_masks(const BindMode& mode, const CpuSet& allowed, size_t num_ranks,
                               std::vector<std::string>& warnings) {
  if (mode.masks.size() < num_ranks) {
    throw Error(ErrorCode::kInvalidArgument, "--bind: {} masks for {} ranks; give one for each rank", mode.masks.size(),
                num_ranks);
  }
  std::vector<CpuSet> result(mode.masks.begin(), mode.masks.begin() + static_cast<std::ptrdiff_t>(num_ranks));
  CpuSet cut, overlapping, seen;
  for (size_t rank = 0; rank < num_ranks; ++rank) {
    if (!result[rank].intersects(allowed)) {
      throw Error(ErrorCode::kInvalidArgument,
                  "--bind: none of the CPUs {} of rank {} may be used here; allowed are {}", result[rank].to_list(),
                  rank, allowed.to_list());
    }
    if (!result[rank].is_subset_of(allowed)) cut.add(static_cast<int64_t>(rank));
    result[rank] &= allowed;
    if (result[rank].intersects(seen)) overlapping.add(static_cast<int64_t>(rank));
    seen |= result[rank];
  }
  if (!cut.empty()) {
    warnings.push_back(
        fmt::format("{}: some CPUs of the mask may not be used here; allowed are {}", name_of(cut), allowed.to_list()));
  }
  if (!overlapping.empty()) {
    warnings.push_back(fmt::format("{}: the mask overlaps that of a lower rank", name_of(overlapping)));
  }
  return result;
}

/// Computes num_threads. A core that several ranks share is a fraction of a core for each of them. A CPU quota of the
/// cgroup is divided evenly.
void count_threads(const device::CpuLocality& machine, std::vector<RankBinding>& ranks) {
  std::vector<double> shares(ranks.size());
  for (const auto& core : machine.cores) {
    std::vector<size_t> users;
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      if (ranks[rank].cpus.intersects(core)) users.push_back(rank);
    }
    for (const auto rank : users) shares[rank] += 1.0 / static_cast<double>(users.size());
  }
  constexpr double kRounding = 1e-6;  // so that 21 times 1/3 counts as 7
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    auto share = shares[rank];
    if (machine.cpu_limit) share = std::min(share, *machine.cpu_limit / static_cast<double>(ranks.size()));
    ranks[rank].num_threads = std::max<int64_t>(1, static_cast<int64_t>(share + kRounding));
  }
}

CpuSet memory_of(const device::CpuLocality& machine, const CpuSet& cpus) {
  CpuSet nodes;
  for (const auto& node : machine.nodes) {
    if (node.cpus.intersects(cpus)) nodes.add(node.number);
  }
  nodes &= machine.memory_nodes;
  return nodes == machine.memory_nodes ? CpuSet() : nodes;
}

std::string reason_of(BindKind kind, const Binding& binding, const device::CpuLocality& machine,
                      const Devices& devices) {
  if (kind == BindKind::kNone) return "not bound, as asked: every rank may use all allowed CPUs";
  if (kind == BindKind::kMasks) return "bound to the CPUs that were given";
  if (!binding.is_bound) {
    return binding.ranks.size() == 1 ? "not bound: the one rank gets every allowed CPU"
                                     : "not bound: every rank gets every allowed CPU";
  }
  const bool have_devices = std::ranges::any_of(devices, [](const auto& d) { return d.has_value(); });
  const auto num_nodes = partition(node_sets(machine), machine.allowed).size();
  if (have_devices && num_nodes > 1) return "bound: each rank to the CPUs nearest to its device";
  auto where = counted(num_nodes, "NUMA node");
  if (!machine.caches.empty()) {  // the list contains only caches that several cores share
    where += " and " + counted(partition(machine.caches, machine.allowed).size(), "shared last-level cache");
  }
  return fmt::format("bound: {} CPUs in {} are divided between the ranks", machine.allowed.size(), where);
}

}  // namespace

BindMode parse_bind_mode(std::string_view text) {
  static constexpr std::pair<std::string_view, BindKind> kNames[] = {{"auto", BindKind::kAuto},
                                                                     {"none", BindKind::kNone},
                                                                     {"node", BindKind::kNode},
                                                                     {"socket", BindKind::kSocket},
                                                                     {"cache", BindKind::kCache}};
  for (const auto& [name, kind] : kNames) {
    if (text == name) return {kind, {}};
  }
  const bool is_mask = text.starts_with("mask:"), is_list = text.starts_with("cpus:");
  if (!is_mask && !is_list) {
    throw Error(ErrorCode::kInvalidArgument,
                "--bind {}: give auto, none, node, socket, cache, mask:0xfe,0xfe00 or cpus:1-7,9-15", text);
  }
  text.remove_prefix(5);
  BindMode mode{BindKind::kMasks, {}};
  for (auto comma = text.find(','); comma != text.npos; comma = text.find(',')) {
    mode.masks.push_back(parse_entry(text.substr(0, comma), is_mask));
    text.remove_prefix(comma + 1);
  }
  mode.masks.push_back(parse_entry(text, is_mask));
  return mode;
}

Binding plan_binding(const BindMode& mode, const device::CpuLocality& machine, const Devices& devices) {
  Binding binding;
  binding.ranks.resize(devices.size());
  const bool is_flat = partition(node_sets(machine), machine.allowed).size() <= 1 &&
                       partition(machine.caches, machine.allowed).size() <= 1;
  std::vector<CpuSet> sets(devices.size(), machine.allowed);
  if (mode.kind == BindKind::kMasks) {
    sets = take_masks(mode, machine.allowed, devices.size(), binding.warnings);
  } else if (mode.kind == BindKind::kAuto && is_flat) {
    binding.reason = "not bound: there is one NUMA node and one last-level cache, so no CPU is nearer than another";
  } else if (mode.kind != BindKind::kNone) {
    sets = Planner(mode.kind, machine, devices).plan(binding.warnings);
  }
  for (size_t rank = 0; rank < sets.size(); ++rank) {
    binding.ranks[rank].cpus = std::move(sets[rank]);
    binding.is_bound |= binding.ranks[rank].cpus != machine.allowed;
  }
  count_threads(machine, binding.ranks);
  if (binding.is_bound) {
    for (auto& rank : binding.ranks) rank.memory_nodes = memory_of(machine, rank.cpus);
  }
  if (binding.reason.empty()) binding.reason = reason_of(mode.kind, binding, machine, devices);
  return binding;
}

}  // namespace yoke::launch
