#include "yoke/claim/note.h"

#include "yoke/base/json_text.h"
#include "yoke/base/moment.h"
#include "yoke/claim/detail/json_fields.h"

namespace yoke::claim {
namespace {

constexpr size_t kMostKeys = 128;
constexpr int64_t kLatest = 253'402'300'799;  // the year 9999; later times would overflow the clock's nanoseconds

std::optional<int64_t> whole_number(const SortedJson& json, const char* name) {
  return number_in(json, name, 0, kLatest);
}

std::optional<int64_t> share_bytes_in(const SortedJson& json) {
  constexpr int64_t kMost = int64_t{1} << 50;  // a petabyte
  return number_in(json, "share_bytes", 0, kMost);
}

std::optional<Time> time_of(const SortedJson& json, const char* name) {
  const auto seconds = number_in(json, name, 0, kLastSecond);
  return seconds ? std::optional(Time(std::chrono::seconds(*seconds))) : std::nullopt;
}

/// REQUIRES: `json` is an object.
std::optional<Activity> activity_of(const SortedJson& json) {
  const auto looked_at = time_of(json, "looked_at");
  const auto times = json.find("used_at");
  if (!looked_at || times == json.end() || !times->is_array() || times->size() > kMostKeys) return std::nullopt;
  Activity activity{.looked_at = *looked_at,
                    .idle_device_seconds = whole_number(json, "idle_device_seconds").value_or(0)};
  for (const auto& time : *times)
    activity.used_at.push_back(time_of(SortedJson{{"at", time}}, "at").value_or(*looked_at));
  return activity;
}

SortedJson to_json(const Activity& activity) {
  SortedJson json = {{"looked_at", seconds_since_epoch(activity.looked_at)},
                     {"idle_device_seconds", activity.idle_device_seconds}};
  json["used_at"] = SortedJson::array();
  for (const auto time : activity.used_at) json["used_at"].push_back(seconds_since_epoch(time));
  return json;
}

std::vector<Heir> heirs_of(const SortedJson& json) {
  std::vector<Heir> heirs;
  const auto found = json.find("heirs");
  if (found == json.end() || !found->is_array()) return heirs;
  for (const auto& one : *found) {
    if (heirs.size() == kMostHeirs) break;
    if (!one.is_object()) continue;
    Heir heir{.pid = whole_number(one, "pid").value_or(0), .start_ticks = whole_number(one, "start_ticks").value_or(0)};
    const auto positions = one.find("positions");
    if (positions != one.end() && positions->is_array() && positions->size() <= kMostKeys) {
      for (const auto& at : *positions)
        heir.positions.push_back(whole_number(SortedJson{{"at", at}}, "at").value_or(0));
    }
    heirs.push_back(std::move(heir));
  }
  return heirs;
}

SortedJson to_json(const std::vector<Heir>& heirs) {
  SortedJson array = SortedJson::array();
  for (const auto& heir : heirs) {
    array.push_back({{"pid", heir.pid}, {"start_ticks", heir.start_ticks}, {"positions", heir.positions}});
  }
  return array;
}

std::string dump(const SortedJson& json) { return json_line(json) + "\n"; }

SortedJson parse_object(std::string_view text) {
  auto json = SortedJson::parse(text, nullptr, false);
  return json.is_object() ? json : SortedJson();
}

}  // namespace

std::vector<Keeper> keepers_of(const Note& note, const std::function<bool(const Keeper&)>& lives) {
  std::vector<Keeper> heirs;
  bool is_heir = false;
  for (const auto& heir : note.heirs) {
    const Keeper keeper{heir.pid, heir.start_ticks};
    is_heir = is_heir || heir.pid == note.pid;
    if (lives(keeper)) heirs.push_back(keeper);
  }
  const Keeper taker{note.pid, note.start_ticks}, program{note.program_pid, note.program_start_ticks};
  if (!is_heir && lives(taker)) return {taker};
  if (!heirs.empty()) return heirs;
  if (lives(program)) return {program};
  return {};
}

std::string to_text(const Note& note) {
  SortedJson json = {{"keys", note.keys},
                     {"pid", note.pid},
                     {"start_ticks", note.start_ticks},
                     {"program_pid", note.program_pid},
                     {"program_start_ticks", note.program_start_ticks},
                     {"is_holder", note.is_holder},
                     {"purpose", note.purpose.substr(0, kMostPurposeBytes)},
                     {"since", seconds_since_epoch(note.since)}};
  if (note.until) json["until"] = seconds_since_epoch(*note.until);
  if (note.share_bytes) json["share_bytes"] = *note.share_bytes;
  if (note.activity) json["activity"] = to_json(*note.activity);
  if (!note.heirs.empty()) json["heirs"] = to_json(note.heirs);
  if (note.is_forced) json["is_forced"] = true;
  return dump(json);
}

std::optional<Note> parse_note(std::string_view text) {
  const auto json = parse_object(text);
  const auto since = time_of(json, "since");
  const auto keys = keys_in(json, kMostKeys);
  if (!since || !keys) return std::nullopt;
  Note note{.purpose = purpose_in(json), .since = *since, .until = time_of(json, "until")};
  note.keys = *keys;
  if (const auto activity = json.find("activity"); activity != json.end() && activity->is_object())
    note.activity = activity_of(*activity);
  note.share_bytes = share_bytes_in(json);
  note.heirs = heirs_of(json);
  note.pid = whole_number(json, "pid").value_or(0);
  note.start_ticks = whole_number(json, "start_ticks").value_or(0);
  note.is_holder = json.value("is_holder", SortedJson()) == true;
  note.is_forced = json.value("is_forced", SortedJson()) == true;
  note.program_pid = whole_number(json, "program_pid").value_or(0);
  note.program_start_ticks = whole_number(json, "program_start_ticks").value_or(0);
  return note;
}

std::string to_text(const QueuedRequest& request) {
  SortedJson json = {{"num_devices", request.num_devices}, {"purpose", request.purpose.substr(0, kMostPurposeBytes)}};
  if (request.length) json["length"] = request.length->count();
  if (request.share_bytes) json["share_bytes"] = *request.share_bytes;
  if (!request.keys.empty()) json["keys"] = request.keys;
  return dump(json);
}

std::optional<QueuedRequest> parse_request(std::string_view text) {
  const auto json = parse_object(text);
  const auto num_devices = whole_number(json, "num_devices");
  if (!num_devices || *num_devices < 1 || *num_devices > 4096) return std::nullopt;
  QueuedRequest request{.num_devices = *num_devices,
                        .purpose = purpose_in(json),
                        .share_bytes = share_bytes_in(json),
                        .keys = keys_in(json, kMostKeys).value_or(std::vector<std::string>())};
  constexpr int64_t kTenYears = int64_t{3653} * 86'400;
  if (const auto length = whole_number(json, "length"); length && *length <= kTenYears) {
    request.length = std::chrono::seconds(*length);
  }
  return request;
}

}  // namespace yoke::claim
