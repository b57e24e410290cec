#include "yoke/launch/process/plan_codec.h"

#include <nlohmann/json.hpp>

#include "yoke/base/error.h"

namespace yoke::launch {

using nlohmann::json;

std::string encode_plans(const std::vector<RankPlan>& plans) {
  auto all = json::array();
  for (const auto& plan : plans) {
    all.push_back({{"rank", plan.rank},
                   {"argv", plan.argv},
                   {"environment", plan.environment},
                   {"inherited_fds", plan.inherited_fds},
                   {"holds_master_port", plan.holds_master_port},
                   {"is_store", plan.is_store},
                   {"process_group", plan.process_group},
                   {"cpus", plan.cpus.to_vector()},
                   {"memory_nodes", plan.memory_nodes.to_vector()}});
  }
  std::string text;
  json::to_cbor(all, text);
  return text;
}

std::vector<RankPlan> decode_plans(std::string_view text) {
  const auto to_set = [](const json& numbers) {
    CpuSet set;
    for (const auto& number : numbers) set.add(number.get<int64_t>());
    return set;
  };
  try {
    std::vector<RankPlan> plans;
    for (const auto& one : json::from_cbor(text)) {
      RankPlan plan;
      one.at("rank").get_to(plan.rank);
      one.at("argv").get_to(plan.argv);
      one.at("environment").get_to(plan.environment);
      one.at("inherited_fds").get_to(plan.inherited_fds);
      one.at("holds_master_port").get_to(plan.holds_master_port);
      one.at("is_store").get_to(plan.is_store);
      one.at("process_group").get_to(plan.process_group);
      plan.cpus = to_set(one.at("cpus"));
      plan.memory_nodes = to_set(one.at("memory_nodes"));
      plans.push_back(std::move(plan));
    }
    return plans;
  } catch (const json::exception& error) {
    throw Error(ErrorCode::kInternal, "the guardian cannot read its plan: {}", error.what());
  }
}

}  // namespace yoke::launch
