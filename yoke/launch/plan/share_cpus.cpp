#include "yoke/launch/plan/share_cpus.h"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

namespace yoke::launch {
namespace {

using Units = std::vector<CpuSet>;
using Indices = std::vector<size_t>;

class Divider {
 public:
  Divider(const std::vector<Sharer>& sharers, const std::vector<Units>& levels)
      : sharers_(sharers), levels_(levels), result_(sharers.size()) {}

  std::vector<CpuSet> divide(const CpuSet& cpus) {
    Indices ranks(sharers_.size());
    for (size_t i = 0; i < ranks.size(); ++i) ranks[i] = i;
    // If there are fewer CPUs than ranks, every rank may use all of them, and the kernel schedules the ranks.
    if (static_cast<int64_t>(ranks.size()) > cpus.size()) return std::vector<CpuSet>(ranks.size(), cpus);
    const auto key = [&](size_t rank) {
      const auto near = (sharers_[rank].near & cpus).first();
      return std::tuple(near.value_or(*cpus.first()), sharers_[rank].pci_bus_id, rank);
    };
    std::ranges::sort(ranks, [&](size_t a, size_t b) { return key(a) < key(b); });
    divide(cpus, ranks, 0);
    return std::move(result_);
  }

 private:
  /// REQUIRES: at least one rank; `ranks` is in the order of their devices.
  void divide(const CpuSet& cpus, const Indices& ranks, size_t level) {
    if (ranks.size() == 1 || level > levels_.size()) {  // below hardware threads there is no level
      for (const auto rank : ranks) result_[rank] = cpus;
      return;
    }
    const auto units = level < levels_.size() ? partition(levels_[level], cpus) : single_cpus(cpus);
    const bool is_last = level + 1 >= levels_.size();  // on the level of cores or threads, all units are given away
    if (units.size() == 1) return divide(cpus, ranks, level + 1);
    if (ranks.size() > units.size() || (ranks.size() == units.size() && !is_last)) {
      const auto members = give_ranks(units, ranks, is_last);
      if (is_last || is_fair(units, members, cpus, ranks.size())) {
        for (size_t unit = 0; unit < units.size(); ++unit) {
          divide(units[unit], members[unit], level + 1);
        }
        return;
      }
    } else {
      const auto shares = give_units(units, ranks);
      if (is_last || is_fair(shares, ranks, cpus)) {
        for (size_t i = 0; i < ranks.size(); ++i) result_[ranks[i]] = shares[i];
        return;
      }
    }
    divide(cpus, ranks, level + 1);
  }

  static Units single_cpus(const CpuSet& cpus) {
    Units units;
    for (const auto cpu : cpus.to_vector()) units.push_back({cpu});
    return units;
  }

  int64_t num_cores(const CpuSet& cpus) const { return count_cores(levels_.back(), cpus); }

  int64_t even_share(const CpuSet& cpus, size_t count) const { return num_cores(cpus) / static_cast<int64_t>(count); }

  /// Returns the units nearest to the device of `rank`; empty if all are equally near.
  Indices home_of(size_t rank, const Units& units) const {
    Indices home;
    for (size_t unit = 0; unit < units.size(); ++unit) {
      if (units[unit].intersects(sharers_[rank].near)) home.push_back(unit);
    }
    return home.size() == units.size() ? Indices() : home;
  }

  /// Groups ranks by their nearest units. Groups with few nearest units come first, the group without any comes last.
  std::vector<std::pair<Indices, Indices>> groups_of(const Units& units, const Indices& ranks) const {
    std::map<std::pair<size_t, Indices>, Indices> groups;
    for (const auto rank : ranks) {
      auto home = home_of(rank, units);
      const auto width = home.empty() ? units.size() : home.size();
      groups[{width, std::move(home)}].push_back(rank);
    }
    std::vector<std::pair<Indices, Indices>> result;
    result.reserve(groups.size());
    for (const auto& [key, members] : groups) result.emplace_back(key.second, members);
    return result;
  }

  /// Returns the ranks of each unit, chosen so that each rank gets as much as possible. `is_last`: no finer level
  /// follows, so every unit is used, even one that is not near a device. REQUIRES: at least as many ranks as units.
  std::vector<Indices> give_ranks(const Units& units, const Indices& ranks, bool is_last) const {
    std::vector<Indices> members(units.size());
    for (const auto& [home, group] : groups_of(units, ranks)) {
      std::vector<size_t> added(units.size());
      const auto load = [&](size_t unit) { return static_cast<int64_t>(members[unit].size() + added[unit]); };
      const auto is_better = [&](size_t a, size_t b) {
        if (is_last && (load(a) == 0) != (load(b) == 0)) return load(a) == 0;
        return units[a].size() * (load(b) + 1) > units[b].size() * (load(a) + 1);
      };
      for (size_t i = 0; i < group.size(); ++i) {
        std::optional<size_t> best;
        for (size_t unit = 0; unit < units.size(); ++unit) {
          if (!is_last && !home.empty() && std::ranges::find(home, unit) == home.end()) continue;
          if (!best || is_better(unit, *best)) best = unit;
        }
        ++added[*best];
      }
      size_t next = 0;
      for (size_t unit = 0; unit < units.size(); ++unit) {
        for (; added[unit] > 0; --added[unit]) members[unit].push_back(group[next++]);
      }
    }
    return members;
  }

  /// Returns the CPUs of each rank. A rank first gets the units nearest to its device. REQUIRES: at most as many ranks
  /// as units.
  std::vector<CpuSet> give_units(const Units& units, const Indices& ranks) const {
    std::map<size_t, size_t> quota;  // number of units by rank
    for (size_t i = 0; i < ranks.size(); ++i) {
      const auto [begin, end] = block(i, units.size(), ranks.size());
      quota[ranks[i]] = end - begin;
    }
    std::map<size_t, Indices> taken;
    std::vector<bool> is_free(units.size(), true);
    const auto take = [&](size_t rank, size_t unit) {
      is_free[unit] = false;
      taken[rank].push_back(unit);
    };
    for (const auto& [home, group] : groups_of(units, ranks)) {
      Indices free;
      for (const auto unit : home) {
        if (is_free[unit]) free.push_back(unit);
      }
      for (size_t i = 0; i < group.size(); ++i) {
        const auto [begin, end] = block(i, free.size(), group.size());
        for (auto at = begin; at < end && taken[group[i]].size() < quota[group[i]]; ++at) take(group[i], free[at]);
      }
    }
    size_t next = 0;
    for (const auto rank : ranks) {
      for (; taken[rank].size() < quota[rank]; ++next) {
        if (is_free[next]) take(rank, next);
      }
    }
    std::vector<CpuSet> shares;
    for (const auto rank : ranks) {
      CpuSet share;
      for (const auto unit : taken[rank]) share |= units[unit];
      shares.push_back(std::move(share));
    }
    return shares;
  }

  /// Returns whether every core is used and no rank has fewer cores than an even division would give it.
  bool is_fair(const Units& units, const std::vector<Indices>& members, const CpuSet& cpus, size_t num_ranks) const {
    for (size_t unit = 0; unit < units.size(); ++unit) {
      const auto count = members[unit].size();
      if (count == 0 || count > static_cast<size_t>(units[unit].size())) return false;
      if (even_share(units[unit], count) < even_share(cpus, num_ranks)) return false;
    }
    return true;
  }

  /// Whether every rank has at least as many cores as in an even division, and a CPU near its device if there is one.
  bool is_fair(const std::vector<CpuSet>& shares, const Indices& ranks, const CpuSet& cpus) const {
    for (size_t i = 0; i < shares.size(); ++i) {
      if (num_cores(shares[i]) < even_share(cpus, ranks.size())) return false;
      const auto near = sharers_[ranks[i]].near & cpus;
      if (!near.empty() && !near.intersects(shares[i])) return false;
    }
    return true;
  }

  const std::vector<Sharer>& sharers_;
  const std::vector<Units>& levels_;
  std::vector<CpuSet> result_;
};

}  // namespace

std::vector<CpuSet> share_cpus(const CpuSet& cpus, const std::vector<Sharer>& sharers,
                               const std::vector<std::vector<CpuSet>>& levels) {
  return Divider(sharers, levels).divide(cpus);
}

std::vector<CpuSet> partition(const std::vector<CpuSet>& sets, const CpuSet& cpus) {
  std::vector<CpuSet> parts;
  auto rest = cpus;
  for (const auto& set : sets) {
    if (!set.intersects(rest)) continue;
    parts.push_back(set & rest);
    rest -= set;
  }
  if (!rest.empty()) parts.push_back(std::move(rest));
  std::ranges::sort(parts, [](const CpuSet& a, const CpuSet& b) { return a.first() < b.first(); });
  return parts;
}

int64_t count_cores(const std::vector<CpuSet>& cores, const CpuSet& cpus) {
  return std::ranges::count_if(cores, [&](const CpuSet& core) { return core.intersects(cpus); });
}

std::pair<size_t, size_t> block(size_t i, size_t count, size_t num_parts) {
  const auto bound = [&](size_t part) { return (part * count + num_parts - 1) / num_parts; };
  return {bound(i), bound(i + 1)};
}

}  // namespace yoke::launch
