#include "yoke/train/checkpoint/detail/group_values.h"

#include <algorithm>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <utility>

#include "yoke/base/error.h"
#include "yoke/dist/arrivals.h"
#include "yoke/dist/group.h"
#include "yoke/train/checkpoint/detail/replica.h"

namespace yoke::train::detail {
namespace {

using nlohmann::json;
/// A tensor's name, and the first element of what a rank has of it.
using Place = std::pair<std::string, int64_t>;

Place place_of(const json& item, size_t first) { return {item[0].get<std::string>(), item[first].get<int64_t>()}; }

size_t hash_of(const at::Tensor& values) {
  const auto dense = values.detach().cpu().contiguous();
  return std::hash<std::string_view>()({static_cast<const char*>(dense.const_data_ptr()), dense.nbytes()});
}

}  // namespace

std::string describe_group_values(const TrainState& state) {
  auto list = json::array();
  for (const auto& replica : state.replicas()) {
    if (!replica.is_option && std::ssize(replica.ranks) < state.group().size()) {
      list.push_back({replica.name, replica.first, replica.ranks});
    }
  }
  return list.empty() ? "" : list.dump();
}

void refuse_group_values(const TrainState& state, const std::string& what,
                         const std::vector<std::string>& groups_by_rank,
                         const std::vector<std::string>& descriptions_by_rank) {
  std::map<Place, std::vector<int64_t>> members;  // as ranks of the World, of the first rank that knows a group
  for (const auto& text : groups_by_rank) {
    if (text.empty()) continue;
    for (const auto& item : json::parse(text)) {
      members.emplace(place_of(item, 1), item[2].get<std::vector<int64_t>>());
    }
  }
  if (members.empty()) return;
  auto& group = state.group();
  std::set<Place> shared;  // which ranks outside of that group have, too
  for (int64_t rank = 0; rank < group.size(); ++rank) {
    const auto of_world = group.ranks()[static_cast<size_t>(rank)];
    for (const auto& item : json::parse(descriptions_by_rank[static_cast<size_t>(rank)])) {
      const auto found = members.find(place_of(item, 3));
      if (found != members.end() && !std::ranges::count(found->second, of_world)) shared.insert(found->first);
    }
  }
  if (shared.empty()) return;
  // Groups may have equal values, as after an average over all ranks.
  auto own = json::array();
  for (const auto& slice : state.own_state().slices) {
    if (shared.contains({slice.name, slice.first})) own.push_back({slice.name, slice.first, hash_of(slice.values)});
  }
  std::map<Place, std::pair<size_t, int64_t>> first_hash;
  const auto hashes = group.all_gather_text(own.dump());
  for (int64_t rank = 0; rank < group.size(); ++rank) {
    for (const auto& item : json::parse(hashes[static_cast<size_t>(rank)])) {
      const auto place = place_of(item, 1);
      const auto [found, is_first] = first_hash.emplace(place, std::pair(item[2].get<size_t>(), rank));
      if (is_first || found->second.first == item[2].get<size_t>()) continue;
      throw Error(ErrorCode::kInvalidArgument,
                  "{}: '{}' has other values on rank {} than on rank {}, and a checkpoint has one tensor of that name: "
                  "only {} keep it equal; give the parts of each group of ranks names of their own, such as "
                  "state.add(\"model-\" + std::to_string(world.rank() / 2), ...), and its optimizer, too",
                  what, place.first, rank, found->second.second, dist::list_ranks(members.at(place)));
    }
  }
}

}  // namespace yoke::train::detail
