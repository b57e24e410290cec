#include "yoke/web/resources.h"

#include "yoke/base/json_text.h"
#include "yoke/device/json.h"
#include "yoke/web/prometheus.h"

namespace yoke::web {
namespace {

constexpr std::string_view kHtml = "text/html; charset=utf-8", kJson = "application/json";

std::string to_text(const nlohmann::ordered_json& json) { return json_line(json) + "\n"; }

}  // namespace

const std::array<Resource, 7> kResources = {{
    {"/", kHtml, page},
    {"/live.html", kHtml, live_part},
    {"/day.html", kHtml, day_part},
    {"/api/state.json", kJson, [](const Machine& state, const History&) { return to_text(state_json(state)); }},
    {"/api/history.json", kJson,
     [](const Machine& state, const History& history) { return to_text(history.to_json(state.snapshot.time)); }},
    {"/devices.json", kJson,
     [](const Machine& state, const History&) { return to_text(device::to_json(state.snapshot)); }},
    {"/metrics", "text/plain; version=0.0.4; charset=utf-8",
     [](const Machine& state, const History&) { return to_prometheus(state.snapshot, state.claims); }},
}};

std::optional<size_t> find_resource(std::string_view path) {
  for (size_t i = 0; i < kResources.size(); ++i) {
    if (kResources[i].path == path) return i;
  }
  return std::nullopt;
}

}  // namespace yoke::web
