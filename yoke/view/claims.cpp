#include "yoke/view/claims.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "yoke/base/format.h"
#include "yoke/base/json.h"
#include "yoke/base/moment.h"
#include "yoke/base/text.h"
#include "yoke/claim/idle.h"
#include "yoke/claim/policy.h"
#include "yoke/view/labels.h"

namespace yoke::view {
namespace {

using claim::Time;

constexpr std::chrono::seconds kShortIdle(60);  // two looks; an idle time below that is not worth a word

struct KnownDevice {
  std::string id, uuid;
  std::optional<bool> is_used;
};

/// By the names that locks have in the ledger.
std::map<std::string, KnownDevice> known_devices(const device::Snapshot& snapshot) {
  std::map<std::string, KnownDevice> devices;
  const auto candidates = claim::candidates_of(snapshot, {});
  device::for_each_device(snapshot, [&](const device::Device& device, const std::string& id) {
    for (const auto& candidate : candidates) {
      if (candidate.id != id || candidate.key.empty()) continue;
      devices[claim::key_in_name(candidate.key)] = {id, device.facts.uuid.empty() ? candidate.key : device.facts.uuid,
                                                    claim::is_used(device)};
    }
  });
  return devices;
}

double to_hours(std::chrono::seconds time) { return std::chrono::duration<double, std::ratio<3600>>(time).count(); }

Json time_json(const std::optional<Time>& time) { return time ? Json(seconds_since_epoch(*time)) : Json(); }

std::string ago(const std::optional<Time>& time, Time now) {
  return time ? format_duration(std::max(now - *time, Time::duration(0))) : kUnknown;
}

/// 0 if the device is used at this moment; else what those found who looked while the claim lasted.
std::optional<std::chrono::seconds> idle_of(const std::optional<bool>& is_used, const std::optional<claim::Note>& note,
                                            const std::string& key, Time now) {
  if (is_used.value_or(false)) return std::chrono::seconds(0);
  const auto idle = is_used && note ? claim::idle_time(*note, key, now) : std::nullopt;
  return idle ? std::optional(std::max(*idle, std::chrono::seconds(1))) : std::nullopt;
}

std::string use_text(const ClaimRow& row) {
  if (!row.idle) return kUnknown;
  if (row.idle->count() == 0) return "yes";
  return *row.idle < kShortIdle ? "not now" : "idle " + format_rough_duration(*row.idle);
}

std::string ahead(const std::optional<Time>& time, Time now) {
  if (!time) return kUnknown;
  return *time > now ? format_duration(*time - now) : "over";
}

/// A claim as an entry of its device.
Json claim_json(const ClaimRow& row) {
  return {{"user", or_null(row.user)},
          {"pid", or_null(row.pid)},
          {"since", time_json(row.since)},
          {"until", time_json(row.until)},
          {"purpose", row.purpose},
          {"idle_seconds", row.idle ? Json(row.idle->count()) : Json()},
          {"shared_bytes", or_null(row.share_bytes)},
          {"remark", or_null(row.remark)}};
}

}  // namespace

std::vector<ClaimRow> claim_rows(const claim::Survey& survey, const device::Snapshot& snapshot,
                                 const UserName& user_name) {
  const auto devices = known_devices(snapshot);
  std::vector<ClaimRow> rows;
  for (const auto& holding : survey.holdings) {
    ClaimRow row{.uuid = holding.key, .pid = holding.pid, .share_bytes = holding.share_bytes};
    std::optional<bool> is_used;
    if (const auto known = devices.find(holding.key); known != devices.end()) {
      row.id = known->second.id;
      row.uuid = known->second.uuid;
      is_used = known->second.is_used;
    }
    if (holding.uid) row.user = user_name(*holding.uid);
    const auto* const held = holding.note ? &survey.notes[*holding.note] : nullptr;
    row.idle = idle_of(is_used, held == nullptr ? std::nullopt : held->note, holding.key, snapshot.time);
    if (held != nullptr && held->note) {
      row.since = held->note->since;
      row.until = held->note->until;
      row.purpose = held->note->purpose;
    }
    if (held == nullptr) row.remark = "locked, but not by yoke" + (holding.doubt.empty() ? "" : ": " + holding.doubt);
    if (!holding.is_locked) row.remark = "its lock file was replaced";
    rows.push_back(std::move(row));
  }
  std::stable_sort(rows.begin(), rows.end(), [](const ClaimRow& a, const ClaimRow& b) {
    const auto order = [](const ClaimRow& row) { return std::tuple(row.id.empty(), row.id.size(), row.id); };
    return order(a) < order(b);
  });
  return rows;
}

Table claim_table(const std::vector<ClaimRow>& rows, Time now) {
  Table table{.columns = {{.title = "#", .align = Align::kRight},
                          {.title = "user", .shrinks_to = 6},
                          {.title = "pid", .align = Align::kRight},
                          {.title = "for", .align = Align::kRight, .drop_order = 2},
                          {.title = "left", .align = Align::kRight},
                          {.title = "used", .drop_order = 1},
                          {.title = "purpose", .shrinks_to = 12}}};
  const bool is_any_shared =
      std::any_of(rows.begin(), rows.end(), [](const ClaimRow& row) { return row.share_bytes.has_value(); });
  if (is_any_shared) table.columns.insert(table.columns.begin() + 3, {.title = "share", .align = Align::kRight});
  for (const auto& row : rows) {
    table.rows.push_back({row.id.empty() ? row.uuid : row.id, row.user.empty() ? "?" : row.user,
                          row.pid ? fmt::format("{}", *row.pid) : kUnknown, ago(row.since, now), ahead(row.until, now),
                          use_text(row), row.remark.empty() ? row.purpose : fmt::format("({})", row.remark)});
    if (!is_any_shared) continue;
    auto& cells = table.rows.back();
    cells.insert(cells.begin() + 3, row.share_bytes ? format_bytes(*row.share_bytes) : "all");
  }
  return table;
}

Table queue_table(const claim::Survey& survey, const Waits& waits, Time now, const UserName& user_name) {
  Table table{.columns = {{.title = "position", .align = Align::kRight},
                          {.title = "user", .shrinks_to = 6},
                          {.title = "pid", .align = Align::kRight},
                          {.title = "devices", .align = Align::kRight},
                          {.title = "waiting", .align = Align::kRight},
                          {.title = "expected in", .align = Align::kRight, .drop_order = 1},
                          {.title = "purpose", .shrinks_to = 12}}};
  int64_t position = 0;
  for (const auto& ticket : survey.tickets) {
    const auto& wait = waits[static_cast<size_t>(position)];
    table.rows.push_back({fmt::format("{}", ++position), user_name(ticket.uid),
                          ticket.pid > 0 ? fmt::format("{}", ticket.pid) : kUnknown,
                          fmt::format("{}", ticket.request.num_devices), ago(ticket.since, now),
                          ticket.is_stopped ? "stopped"
                          : wait            ? format_duration(*wait)
                                            : kUnknown,
                          ticket.request.purpose});
  }
  return table;
}

Table reservation_table(const std::vector<ReservationRow>& rows, Time now, const UserName& user_name) {
  Table table{.columns = {{.title = "reservation"},
                          {.title = "user", .shrinks_to = 6},
                          {.title = "devices", .align = Align::kRight},
                          {.title = "start"},
                          {.title = "until"},
                          {.title = "in", .align = Align::kRight, .drop_order = 1},
                          {.title = "purpose", .shrinks_to = 12}}};
  for (const auto& row : rows) {
    const auto& one = row.reservation;
    table.rows.push_back({one.id(), user_name(one.uid), fmt::format("{}", one.num_devices), moment_text(one.start),
                          moment_text(one.until), one.start > now ? format_duration(one.start - now) : "now",
                          row.remark.empty() ? one.purpose : fmt::format("(not honoured: {})", row.remark)});
  }
  return table;
}

Json reservations_json(const std::vector<ReservationRow>& rows, const UserName& user_name) {
  return json_list(rows, [&](const auto& row) {
    const auto& one = row.reservation;
    return Json{{"id", one.id()},
                {"user", user_name(one.uid)},
                {"num_devices", one.num_devices},
                {"device_uuids", one.keys.empty() ? Json() : Json(one.keys)},
                {"start", seconds_since_epoch(one.start)},
                {"until", seconds_since_epoch(one.until)},
                {"num_left", row.num_left},
                {"purpose", one.purpose},
                {"remark", or_null(row.remark)}};
  });
}

Json claims_json(const std::vector<ClaimRow>& rows, const claim::Survey& survey, const Waits& waits,
                 const std::vector<ReservationRow>& reservations, const UserName& user_name) {
  Json json = {{"claims", Json::array()},
               {"queue", Json::array()},
               {"reservations", reservations_json(reservations, user_name)}};
  for (const auto& row : rows) {
    Json entry = {{"device_uuid", row.uuid}, {"device", or_null(row.id)}};
    entry.update(claim_json(row));
    json["claims"].push_back(std::move(entry));
  }
  int64_t position = 0;
  for (const auto& ticket : survey.tickets) {
    const auto& wait = waits[static_cast<size_t>(position)];
    json["queue"].push_back({{"user", user_name(ticket.uid)},
                             {"pid", ticket.pid > 0 ? Json(ticket.pid) : Json()},
                             {"num_devices", ticket.request.num_devices},
                             {"position", ++position},
                             {"since", seconds_since_epoch(ticket.since)},
                             {"expected_wait_seconds", wait ? Json(wait->count()) : Json()},
                             {"is_stopped", ticket.is_stopped},
                             {"shared_bytes", or_null(ticket.request.share_bytes)},
                             {"purpose", ticket.request.purpose}});
  }
  return json;
}

void add_claims(Json& json, const std::vector<device::Choice>& choices, const std::vector<ClaimRow>* rows) {
  const auto add = [&](Json& device, const std::string& id) {
    auto& claims = device["claims"] = rows == nullptr ? Json() : Json::array();
    for (size_t i = 0; rows != nullptr && i < rows->size(); ++i) {
      if ((*rows)[i].id == id) claims.push_back(claim_json((*rows)[i]));
    }
  };
  for (size_t i = 0; i < choices.size(); ++i) {
    const auto& device = *choices[i].device;
    auto& entry = json["devices"][i];
    add(entry, choices[i].id());
    for (size_t k = 0; k < device.instances.size(); ++k) {
      add(entry["instances"][k], id_of(device, device.instances[k]));
    }
  }
}

std::string claim_text(const std::vector<ClaimRow>& rows, const std::string& id, bool with_idle) {
  std::string text;
  for (const auto& row : rows) {
    if (row.id != id) continue;
    text += (text.empty() ? "" : ", ") + (row.user.empty() ? "?" : row.user);
    if (row.share_bytes) text += " " + format_bytes(*row.share_bytes);
    if (with_idle && row.idle && *row.idle >= kShortIdle) text += ", idle " + format_rough_duration(*row.idle);
  }
  return text;
}

Table report_table(const std::vector<claim::ReportRow>& rows, const device::Snapshot& snapshot,
                   const UserName& user_name, Figures figures) {
  Table table{.columns = {{.title = "user", .shrinks_to = 6},
                          {.title = "device"},
                          {.title = "claims", .align = Align::kRight, .drop_order = 1},
                          {.title = "hours", .align = Align::kRight},
                          {.title = "idle hours", .align = Align::kRight}}};
  const auto devices = known_devices(snapshot);
  const bool is_exact = figures == Figures::kExact;
  const auto hours = [&](std::chrono::seconds time) {
    return is_exact ? fmt::format("{}", to_hours(time)) : fmt::format("{:.1f}", to_hours(time));
  };
  const auto add = [&](const claim::ReportRow& row, const std::string& device) {
    table.rows.push_back({user_name(row.uid), device, fmt::format("{}", row.num_claims), hours(row.held),
                          row.idle_unknown != row.held ? hours(row.idle)
                          : is_exact                   ? ""
                                                       : kUnknown});
  };
  for (size_t i = 0; i < rows.size();) {
    claim::ReportRow sum{.uid = rows[i].uid};
    size_t num_devices = 0;
    for (; i < rows.size() && rows[i].uid == sum.uid; ++i, ++num_devices) {
      const auto known = devices.find(claim::key_in_name(rows[i].key));
      add(rows[i], known == devices.end() ? rows[i].key : known->second.id);
      sum.num_claims += rows[i].num_claims;
      sum.held += rows[i].held;
      sum.idle += rows[i].idle;
      sum.idle_unknown += rows[i].idle_unknown;
    }
    if (num_devices > 1) add(sum, "all");
  }
  return table;
}

Json report_json(const std::vector<claim::ReportRow>& rows, const device::Snapshot& snapshot, Time from, Time now,
                 const UserName& user_name) {
  const auto devices = known_devices(snapshot);
  Json json = {{"since", seconds_since_epoch(from)}, {"until", seconds_since_epoch(now)}, {"use", Json::array()}};
  for (const auto& row : rows) {
    const auto known = devices.find(claim::key_in_name(row.key));
    const bool is_known = known != devices.end();
    json["use"].push_back({{"user", user_name(row.uid)},
                           {"device_uuid", is_known ? known->second.uuid : row.key},
                           {"device", is_known ? Json(known->second.id) : Json()},
                           {"num_claims", row.num_claims},
                           {"hours", to_hours(row.held)},
                           {"idle_hours", to_hours(row.idle)},
                           {"idle_unknown_hours", to_hours(row.idle_unknown)}});
  }
  return json;
}

std::map<std::string, std::string> claim_labels(const std::vector<ClaimRow>& rows) {
  std::map<std::string, std::string> labels;
  for (const auto& row : rows) {
    if (!row.id.empty()) labels[row.id] = claim_text(rows, row.id, false);
  }
  return labels;
}

}  // namespace yoke::view
