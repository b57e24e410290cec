#include "yoke/view/processes.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "yoke/base/format.h"
#include "yoke/base/json.h"
#include "yoke/view/labels.h"

namespace yoke::view {
namespace {

using device::DeviceUse;
using device::ProcessInfo;
using std::chrono::system_clock;

/// Returns the type as nvidia-smi writes it: "C", "G", "C+G", "M".
std::string type_letters(const std::string& type) {
  std::string letters;
  bool is_first = true;
  for (const char c : type) {
    if (is_first || c == '+') letters += is_first ? static_cast<char>(c >= 'a' && c <= 'z' ? c - 32 : c) : c;
    is_first = c == '+';
  }
  return letters.empty() ? kUnknown : letters;
}

std::string number_or_empty(const std::optional<int64_t>& value) { return value ? fmt::format("{}", *value) : ""; }

/// A column of the table. An optional column is left out if none of its values is known.
struct Field {
  Column column;
  std::function<std::string(const DeviceUse&)> text;
  bool is_optional = false;
};

Table make_table(const std::vector<DeviceUse>& uses, const std::vector<Field>& fields) {
  Table table;
  table.rows.resize(uses.size());
  for (const auto& field : fields) {
    std::vector<std::string> cells(uses.size());
    std::ranges::transform(uses, cells.begin(), field.text);
    const auto is_known = [](const std::string& cell) { return !cell.empty() && cell != kUnknown; };
    if (field.is_optional && std::ranges::none_of(cells, is_known)) continue;
    table.columns.push_back(field.column);
    for (size_t i = 0; i < cells.size(); ++i) table.rows[i].push_back(std::move(cells[i]));
  }
  return table;
}

}  // namespace

nlohmann::ordered_json unanswered_json(const std::vector<device::Unanswered>& unanswered) {
  return json_list(unanswered, [](const auto& one) {
    return Json{{"device", or_null(one.device_id)},
                {"device_uuid", or_null(one.device_uuid)},
                {"backend", or_null(one.backend)},
                {"state", one.state},
                {"reason", or_null(one.reason)}};
  });
}

std::string command_text(const ProcessInfo& info, CommandText which) {
  if (info.command.empty()) return fmt::format("({})", info.reason.empty() ? "not known" : info.reason);
  if (which == CommandText::kWhole || info.name.empty()) return info.command;
  for (auto at = info.command.find(info.name); at != std::string::npos; at = info.command.find(info.name, at + 1)) {
    const auto end = at + info.name.size();
    const bool begins = at == 0 || info.command[at - 1] == '/' || info.command[at - 1] == ' ';
    const bool ends = end == info.command.size() || info.command[end] == ' ';  // otherwise a folder of the same name
    if (begins && ends) return info.command.substr(at);
  }
  return info.command;
}

std::string age_text(const ProcessInfo& info, system_clock::time_point now) {
  const auto age = age_of(info, now);
  return age ? format_duration(*age) : kUnknown;
}

Table process_table(const std::vector<DeviceUse>& uses, system_clock::time_point now, CommandText which,
                    const std::map<std::string, std::string>& claims) {
  const std::vector<Field> fields = {
      {{"#", Align::kRight}, [](const DeviceUse& use) { return use.device_id; }},
      {{"user", Align::kLeft, 6},
       [](const DeviceUse& use) { return use.process.info.user.empty() ? "?" : use.process.info.user; }},
      {{"pid", Align::kRight}, [](const DeviceUse& use) { return fmt::format("{}", use.process.pid); }},
      {{.title = "type", .drop_order = 2}, [](const DeviceUse& use) { return type_letters(use.process.type); }},
      {{"memory", Align::kRight},
       [](const DeviceUse& use) {
         return use.process.memory_bytes ? format_bytes(*use.process.memory_bytes) : std::string(kUnknown);
       }},
      {{.title = "util", .align = Align::kRight, .drop_order = 4},
       [](const DeviceUse& use) { return percent_text(use.process.utilization_percent); },
       true},
      {{.title = "age", .align = Align::kRight, .drop_order = 3},
       [&](const DeviceUse& use) { return age_text(use.process.info, now); }},
      {{.title = "origin", .shrinks_to = 10, .drop_order = 1},
       [](const DeviceUse& use) { return label(use.process.origin); },
       true},
      {{.title = "claim", .shrinks_to = 5, .drop_order = 5},
       [&](const DeviceUse& use) {
         const auto claim = claims.find(use.device_id);
         return claim == claims.end() ? std::string() : claim->second;
       },
       true},
      {{"command", Align::kLeft, 12}, [&](const DeviceUse& use) { return command_text(use.process.info, which); }}};
  return make_table(uses, fields);
}

Table process_csv(const std::vector<DeviceUse>& uses, system_clock::time_point now) {
  const std::vector<Field> fields = {
      {{"device"}, [](const DeviceUse& use) { return use.device_id; }},
      {{"device_uuid"}, [](const DeviceUse& use) { return use.device_uuid; }},
      {{"user"}, [](const DeviceUse& use) { return use.process.info.user; }},
      {{"pid"}, [](const DeviceUse& use) { return fmt::format("{}", use.process.pid); }},
      {{"type"}, [](const DeviceUse& use) { return use.process.type; }},
      {{"memory_bytes"}, [](const DeviceUse& use) { return number_or_empty(use.process.memory_bytes); }},
      {{"utilization_percent"}, [](const DeviceUse& use) { return number_or_empty(use.process.utilization_percent); }},
      {{"age_seconds"},
       [&](const DeviceUse& use) {
         const auto age = age_of(use.process.info, now);
         return age ? fmt::format("{:.0f}", age->count()) : std::string();
       }},
      {{"origin"}, [](const DeviceUse& use) { return label(use.process.origin); }},
      {{"name"}, [](const DeviceUse& use) { return use.process.info.name; }},
      {{"command"}, [](const DeviceUse& use) { return use.process.info.command; }},
      {{"reason"}, [](const DeviceUse& use) { return use.process.info.reason; }}};
  return make_table(uses, fields);
}

}  // namespace yoke::view
