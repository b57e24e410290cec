// How many nanoseconds does DeviceGuardrails add to an operation on 16 floats on the CPU (median of the rounds)?
//
//   never   before the first guardrail of this process, so that nothing is registered with libtorch
//   off     after the first guardrail, outside of any scope
//   on      within a scope
//
//   bench_guardrails [--rounds N] [--never]    --never: constructs no guardrail at all. This is a control, because the
//                                              rounds of `never` precede those of `off` and `on`.
// Rounds of `off` and `on` alternate.
#include "yoke/train/device/guardrails.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/ones.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;
using yoke::train::DeviceGuardrails;

constexpr int kOperations = 1000;
constexpr int kNodes = 20;  // number of nodes in the graph of the measured backward

/// Returns the nanoseconds per operation. `per_call` is the number of operations in a call.
double nanoseconds_each(const std::function<void()>& call, int per_call = 1) {
  const auto begin = Clock::now();
  for (int i = 0; i < kOperations; i += per_call) call();
  return std::chrono::duration<double, std::nano>(Clock::now() - begin).count() / kOperations;
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<int64_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

double median_difference(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> differences;
  for (size_t i = 0; i < a.size(); ++i) differences.push_back(a[i] - b[i]);
  return median(std::move(differences));
}

struct Row {
  const char* name;
  std::function<void()> call;
  int per_call = 1;
  std::vector<double> never = {}, off = {}, on = {};
};

}  // namespace

int main(int argc, char** argv) {
  int rounds = 400;
  bool is_control = false;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--never") == 0) is_control = true;
    if (std::strcmp(argv[i], "--rounds") == 0 && i + 1 < argc) rounds = std::max(1, std::atoi(argv[++i]));
  }
  const auto x = at::ones({16}), y = at::ones({16}), number = at::ones({});
  const auto leaf = at::ones({16}).requires_grad_();
  const auto chain = [&] {
    auto result = leaf;
    for (int i = 0; i < kNodes - 1; ++i) result = result * 1.5;
    result.sum().backward();
  };
  std::vector<Row> rows(6);
  rows[0] = {"add_ (not watched)", [&] { x.add_(y); }};
  rows[1] = {"view (not watched)", [&] { x.view({4, 4}); }};
  rows[2] = {"copy_", [&] { x.copy_(y); }};
  rows[3] = {"to, nothing to do", [&] { x.to(at::kFloat); }};
  rows[4] = {"item", [&] { (void)number.item(); }};
  rows[5] = {"mul, forward and backward", chain, kNodes};

  for (auto& row : rows) nanoseconds_each(row.call, row.per_call);  // warm-up
  for (int i = 0; i < rounds; ++i) {
    for (auto& row : rows) row.never.push_back(nanoseconds_each(row.call, row.per_call));
  }
  Json json{{"operations_per_round", kOperations}, {"rounds", rounds}};
  if (!is_control) {
    const auto begin = Clock::now();
    { const DeviceGuardrails first; }
    json["first_guardrail_ms"] = std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
    json["scope_ns"] = nanoseconds_each([] { const DeviceGuardrails guard; });
  }
  for (int i = 0; i < rounds; ++i) {
    for (auto& row : rows) {
      row.off.push_back(nanoseconds_each(row.call, row.per_call));
      std::optional<DeviceGuardrails> guard;
      if (!is_control) guard.emplace();
      row.on.push_back(nanoseconds_each(row.call, row.per_call));
    }
  }
  json["results"] = Json::array();
  for (const auto& row : rows) {
    json["results"].push_back({{"operation", row.name},
                               {"never_ns", median(row.never)},
                               {"off_ns", median(row.off)},
                               {"on_ns", median(row.on)},
                               {"on_minus_off_ns", median_difference(row.on, row.off)}});
  }
  std::printf("%s\n", json.dump(2).c_str());
  return 0;
}
