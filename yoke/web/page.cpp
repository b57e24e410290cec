#include "yoke/web/page.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sodium.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "yoke/base/format.h"
#include "yoke/base/json.h"
#include "yoke/base/text.h"
#include "yoke/device/json.h"
#include "yoke/device/uses.h"
#include "yoke/view/labels.h"
#include "yoke/view/processes.h"
#include "yoke/web/page_assets.h"
#include "yoke/web/page_graphs.h"

namespace yoke::web {
namespace {

using device::Device;
using Time = std::chrono::system_clock::time_point;

constexpr size_t kProcessRows = 50;       ///< Of each owner. The page stays small however many processes there are.
constexpr size_t kOpenProcesses = 40;     ///< If there are at most so many in all, their lists are open at first.
constexpr int64_t kCommandColumns = 300;  ///< Of a command line.

/// How a device can be used, as a reader wants to know it. The first ones count as trouble.
enum class Standing { kTrouble, kBusy, kClaimed, kAvailable };

std::optional<int64_t> number_of(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? std::optional(found->get<int64_t>()) : std::nullopt;
}

/// The list of this name in what view::claims_json() made; empty if there is none.
Json list_member(const Json& claims, const char* key) {
  return claims.is_object() ? claims.value(key, Json()) : Json();
}

std::string until_text(const std::optional<int64_t>& seconds, Time now) {
  if (!seconds) return "";
  const auto left = Time(std::chrono::seconds(*seconds)) - now;
  return left.count() > 0 ? format_duration(left) : "over";
}

std::string since_text(const std::optional<int64_t>& seconds, Time now) {
  if (!seconds) return view::kUnknown;
  return format_duration(std::max(now - Time(std::chrono::seconds(*seconds)), Time::duration(0)));
}

std::string idle_text(int64_t seconds) { return "idle for " + format_duration(std::chrono::seconds(seconds)); }

std::string user_or_unknown(const std::string& user) { return user.empty() ? "an unknown user" : user; }

std::multimap<std::string, Json> claims_by_device(const Json& claims) {
  std::multimap<std::string, Json> result;
  for (const auto& claim : list_member(claims, "claims")) result.emplace(text_member(claim, "device"), claim);
  return result;
}

bool is_trouble(const Device& device) {
  return device.state != device::State::kFree && device.state != device::State::kBusy;
}

Standing standing_of(const Device& device, bool is_claimed) {
  if (is_trouble(device)) return Standing::kTrouble;
  if (device.state == device::State::kBusy) return Standing::kBusy;
  return is_claimed ? Standing::kClaimed : Standing::kAvailable;
}

/// A class of the style, and a sign that can be told apart without colours.
constexpr std::pair<const char*, const char*> kLooks[] = {
    {"trouble", "✕"}, {"busy", "●"}, {"claimed", "◐"}, {"free", "○"}};  // in the order of Standing

// ---- Tables ----

struct Cell {
  std::string text;
  const char* style = "";
};

bool is_known(const Cell& cell) { return !cell.text.empty() && cell.text != view::kUnknown; }

/// Makes a table that can be scrolled sideways, also with the keyboard. Columns in which nothing is known are left out.
std::string table(const std::string& label, const std::vector<Cell>& titles,
                  const std::vector<std::vector<Cell>>& rows) {
  std::vector<size_t> columns;
  for (size_t i = 0; i < titles.size(); ++i) {
    if (std::any_of(rows.begin(), rows.end(), [&](const auto& row) { return is_known(row[i]); })) columns.push_back(i);
  }
  const auto style = [](const Cell& title) {
    return *title.style == '\0' ? std::string() : fmt::format(" class=\"{}\"", title.style);
  };
  std::string html = fmt::format(
      "<div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"{}\"><table><thead><tr>", html_text(label));
  for (const auto i : columns) {
    html += fmt::format("<th scope=\"col\"{}>{}</th>", style(titles[i]), html_text(titles[i].text));
  }
  html += "</tr></thead><tbody>\n";
  for (const auto& row : rows) {
    html += "<tr>";
    for (const auto i : columns) {
      html += fmt::format("<td{}><span>{}</span></td>", style(titles[i]), html_text(row[i].text));
    }
    html += "</tr>\n";
  }
  return html + "</tbody></table></div>\n";
}

// ---- Devices ----

std::string meter(const char* style, const char* label, const std::optional<double>& percent,
                  const std::string& value) {
  return fmt::format(
      "<div class=\"meter\"><span>{}</span><svg class=\"bar\" viewBox=\"0 0 100 1\" preserveAspectRatio=\"none\" "
      "aria-hidden=\"true\"><rect class=\"track\" width=\"100\" height=\"1\"/><rect class=\"{}\" width=\"{:.0f}\" "
      "height=\"1\"/></svg><span>{}</span></div>\n",
      label, style, std::clamp(percent.value_or(0), 0.0, 100.0), html_text(value));
}

std::string meters(const Device& device) {
  const auto& readings = device.readings;
  std::string html;
  if (readings.utilization_percent) {
    html += meter("use", "use", static_cast<double>(*readings.utilization_percent),
                  view::percent_text(readings.utilization_percent));
  }
  if (readings.memory_used_bytes && readings.memory_total_bytes.value_or(0) > 0) {
    const double used = view::to_gib(*readings.memory_used_bytes), total = view::to_gib(*readings.memory_total_bytes);
    html += meter("memory", "memory", 100 * used / total, fmt::format("{:.1f}/{:.0f} GiB", used, total));
  }
  return html;
}

std::string temperature_and_power(const device::Readings& readings) {
  std::string text;
  if (readings.temperature_celsius) text = fmt::format("{} °C", *readings.temperature_celsius);
  if (readings.power_mw) {
    text += fmt::format("{}{}", text.empty() ? "" : " · ", view::to_watts(*readings.power_mw));
    if (readings.power_limit_mw) text += fmt::format("/{}", view::to_watts(*readings.power_limit_mw));
    text += " W";
  }
  return text;
}

std::string joined(const std::vector<std::string>& words) { return fmt::format("{}", fmt::join(words, ", ")); }

std::string claim_line(const Json& claim, Time now) {
  auto line = fmt::format("claimed by <b>{}</b>", html_text(user_or_unknown(text_member(claim, "user"))));
  if (const auto purpose = text_member(claim, "purpose"); !purpose.empty()) {
    line += fmt::format(": {}", html_text(fit(printable(purpose), 80)));
  }
  if (const auto share = number_of(claim, "shared_bytes")) line += fmt::format(", shares {}", format_bytes(*share));
  if (const auto left = until_text(number_of(claim, "until"), now); !left.empty()) {
    line += left == "over" ? ", its time is over" : fmt::format(", {} left", left);
  }
  if (const auto idle = number_of(claim, "idle_seconds"); idle && *idle > 0) line += ", " + idle_text(*idle);
  if (const auto remark = text_member(claim, "remark"); !remark.empty())
    line += fmt::format(" ({})", html_text(remark));
  return line;
}

/// Who uses the device and who has claimed it, as lines.
std::string people(const Device& device, const std::string& id, const std::multimap<std::string, Json>& claims,
                   bool are_claims_used, Time now) {
  std::string html;
  if (const auto users = view::users_of(device); !users.empty()) {
    html += fmt::format("<p class=\"facts\">used by <b>{}</b>", html_text(joined(users)));
    if (are_claims_used && !claims.contains(id) && device.instances.empty()) html += " without a claim";
    html += "</p>\n";
  }
  const auto [first, last] = claims.equal_range(id);
  for (auto claim = first; claim != last; ++claim) {
    html += fmt::format("<p class=\"facts\">{}</p>\n", claim_line(claim->second, now));
  }
  return html;
}

std::string instance_lines(const Device& device, const std::multimap<std::string, Json>& claims, bool are_claims_used,
                           Time now) {
  std::string html;
  for (const auto& instance : device.instances) {
    const auto id = id_of(device, instance);
    html += fmt::format("<p class=\"facts\"><b>{}</b> {}: {}</p>\n", html_text(id),
                        html_text(view::full_name(instance)), html_text(name(instance.state)));
    html += meters(instance) + people(instance, id, claims, are_claims_used, now);
  }
  return html;
}

std::string card(const Device& device, const Machine& state, const History& history,
                 const std::multimap<std::string, Json>& claims) {
  const auto id = id_of(device);
  const auto now = state.snapshot.time;
  const bool are_claims_used = !claims.empty();
  const bool is_cpu = device.vendor == device::Vendor::kCpu;
  const auto standing = standing_of(device, claims.contains(id));
  const auto [style, sign] = kLooks[static_cast<size_t>(standing)];
  std::string html = fmt::format("<article class=\"card {}\"><div class=\"title\"><h3>{}{}</h3>",
                                 is_cpu && !is_trouble(device) ? "" : style, is_cpu ? "" : html_text(id) + " ",
                                 html_text(view::short_name(device)));
  if (!is_cpu || is_trouble(device)) {
    html += fmt::format("<span class=\"state\">{} {}</span>", sign,
                        html_text(standing == Standing::kClaimed ? "claimed" : name(device.state)));
  }
  html += "</div>\n";
  if (!device.reason.empty()) html += fmt::format("<p class=\"facts bad\">{}</p>\n", html_text(device.reason));
  html += meters(device);
  if (const auto* const kept = history.find(id)) html += recent_graph(kept->recent, now);
  if (const auto facts = temperature_and_power(device.readings); !facts.empty()) {
    html += fmt::format("<p class=\"facts\">{}</p>\n", html_text(facts));
  }
  if (!is_cpu) {
    html += people(device, id, claims, are_claims_used, now) + instance_lines(device, claims, are_claims_used, now);
  }
  return html + "</article>\n";
}

// ---- The head ----

struct Counts {
  std::map<Standing, int64_t> devices;
  int64_t num_gpus = 0, num_waiting = 0;
};

Counts count(const Machine& state, const std::multimap<std::string, Json>& claims) {
  Counts counts;
  device::for_each_device(state.snapshot, [&](const Device& device, const std::string& id) {
    if (device.vendor == device::Vendor::kCpu || !device.instances.empty()) return;
    ++counts.num_gpus;
    ++counts.devices[standing_of(device, claims.contains(id))];
  });
  counts.num_waiting = static_cast<int64_t>(list_member(state.claims, "queue").size());
  return counts;
}

std::string title_of(const Machine& state, const Counts& counts) {
  const auto available = counts.devices.find(Standing::kAvailable);
  return fmt::format("{}: {} of {} available", printable(state.snapshot.host),
                     available == counts.devices.end() ? 0 : available->second, counts.num_gpus);
}

std::string head(const Machine& state, Counts counts) {
  const auto& snapshot = state.snapshot;
  std::string drivers;
  for (const auto& report : snapshot.backends) {
    if (!report.is_available || report.driver_version.empty()) continue;
    drivers +=
        fmt::format("{}driver {}{}", drivers.empty() ? "" : ", ", report.driver_version,
                    report.backend == "nvml" && !report.api_version.empty() ? ", CUDA " + report.api_version : "");
  }
  const auto seconds = std::chrono::system_clock::to_time_t(snapshot.time);
  std::tm local = {};
  localtime_r(&seconds, &local);
  std::array<char, 32> clock = {};
  strftime(clock.data(), clock.size(), "%H:%M:%S", &local);
  auto html = fmt::format("<header><h1>{}</h1><p>{}</p><p class=\"muted\">{}</p></header>\n", html_text(snapshot.host),
                          clock.data(), html_text(drivers));
  if (counts.num_gpus == 0) return html;
  html += "<ul class=\"counts\">";
  const auto add = [&](int64_t number, const char* what, const char* style = "") {
    html += fmt::format("<li class=\"{}\"><b>{}</b>{}</li>", style, number, what);
  };
  add(counts.devices[Standing::kAvailable], "available");
  add(counts.devices[Standing::kBusy], "busy");
  if (counts.devices[Standing::kClaimed] > 0) add(counts.devices[Standing::kClaimed], "claimed, not busy");
  if (counts.devices[Standing::kTrouble] > 0) add(counts.devices[Standing::kTrouble], "in trouble", "bad");
  if (counts.num_waiting > 0) add(counts.num_waiting, counts.num_waiting == 1 ? "request waits" : "requests wait");
  return html + "</ul>\n";
}

// ---- Claims ----

/// What the devices of a claim do now.
std::string now_text(const std::vector<Json>& claims) {
  std::optional<int64_t> least;
  int64_t num_used = 0, num_known = 0;
  for (const auto& claim : claims) {
    const auto idle = number_of(claim, "idle_seconds");
    if (!idle) continue;
    ++num_known;
    num_used += *idle == 0 ? 1 : 0;
    least = std::min(least.value_or(*idle), *idle);
  }
  const auto num_devices = static_cast<int64_t>(claims.size());
  if (num_used == num_devices) return "in use";
  if (num_used > 0) return fmt::format("{} of {} in use", num_used, num_devices);
  return num_known == num_devices ? idle_text(*least) : "";
}

/// A claim of several devices is one row.
std::string claims_table(const Json& claims, Time now) {
  std::vector<std::pair<Json, std::vector<Json>>> groups;
  for (const auto& claim : claims) {
    auto rest = claim;
    for (const auto* key : {"device", "device_uuid", "idle_seconds"}) rest.erase(key);
    const auto same =
        std::find_if(groups.begin(), groups.end(), [&](const auto& group) { return group.first == rest; });
    if (same == groups.end()) {
      groups.emplace_back(std::move(rest), std::vector{claim});
    } else {
      same->second.push_back(claim);
    }
  }
  std::vector<std::vector<Cell>> rows;
  for (const auto& [claim, parts] : groups) {
    std::vector<std::string> ids;
    for (const auto& part : parts) {
      const auto id = text_member(part, "device");
      ids.push_back(id.empty() ? text_member(part, "device_uuid") : id);
    }
    const auto remark = text_member(claim, "remark");
    const auto left = until_text(number_of(claim, "until"), now);
    if (const auto share = number_of(claim, "shared_bytes")) ids.back() += fmt::format(" ({})", format_bytes(*share));
    rows.push_back({{joined(ids)},
                    {user_or_unknown(text_member(claim, "user"))},
                    {remark.empty() ? text_member(claim, "purpose") : fmt::format("({})", remark)},
                    {since_text(number_of(claim, "since"), now)},
                    {left.empty() ? "no end" : left},
                    {now_text(parts)}});
  }
  return table("Claims",
               {{"device"}, {"user"}, {"purpose", "long"}, {"for", "n"}, {"left", "n"}, {"now", "nowrap wide"}}, rows);
}

std::string queue_table(const Json& queue, Time now) {
  std::vector<std::vector<Cell>> rows;
  for (const auto& ticket : queue) {
    const auto expected = number_of(ticket, "expected_wait_seconds");
    rows.push_back({{fmt::format("{}", number_of(ticket, "position").value_or(0))},
                    {user_or_unknown(text_member(ticket, "user"))},
                    {fmt::format("{}", number_of(ticket, "num_devices").value_or(0))},
                    {since_text(number_of(ticket, "since"), now)},
                    {expected ? format_duration(std::chrono::seconds(*expected)) : view::kUnknown},
                    {text_member(ticket, "purpose")}});
  }
  return table(
      "Queue",
      {{"position", "n"}, {"user"}, {"devices", "n"}, {"waits for", "n"}, {"expected", "n wide"}, {"purpose", "long"}},
      rows);
}

std::string reservations_table(const Json& reservations, Time now) {
  std::vector<std::vector<Cell>> rows;
  for (const auto& one : reservations) {
    const auto start = number_of(one, "start"), until = number_of(one, "until");
    const bool has_begun = start && Time(std::chrono::seconds(*start)) <= now;
    rows.push_back({{user_or_unknown(text_member(one, "user"))},
                    {fmt::format("{}", number_of(one, "num_devices").value_or(0))},
                    {!start      ? view::kUnknown
                     : has_begun ? "has begun"
                                 : "in " + until_text(start, now)},
                    {start && until ? format_duration(std::chrono::seconds(*until - *start)) : view::kUnknown},
                    {text_member(one, "purpose")}});
  }
  return table("Reservations", {{"user"}, {"devices", "n"}, {"begins"}, {"lasts", "n"}, {"purpose", "long"}}, rows);
}

std::string claims_part(const Machine& state) {
  const auto now = state.snapshot.time;
  std::string html = "<section aria-labelledby=\"claims\"><h2 id=\"claims\">Claims</h2>\n";
  if (state.claims.is_null()) {
    const auto why = state.claims_problem.empty() ? "" : ": " + html_text(state.claims_problem);
    return html + fmt::format("<p class=\"muted\">The claims are not known{}.</p></section>\n", why);
  }
  const auto claims = list_member(state.claims, "claims"), queue = list_member(state.claims, "queue"),
             reservations = list_member(state.claims, "reservations");
  html += claims.empty() ? "<p class=\"muted\">No device is claimed. <code>yoke claim</code> takes one.</p>\n"
                         : claims_table(claims, now);
  html += "</section>\n";
  if (!queue.empty()) {
    html +=
        "<section aria-labelledby=\"queue\"><h2 id=\"queue\">Queue</h2>\n" + queue_table(queue, now) + "</section>\n";
  }
  if (!reservations.empty()) {
    html += "<section aria-labelledby=\"reserved\"><h2 id=\"reserved\">Reservations</h2>\n" +
            reservations_table(reservations, now) + "</section>\n";
  }
  return html;
}

// ---- Processes ----

struct Owner {
  std::string name;  ///< Empty: not known.
  std::vector<const device::DeviceUse*> uses;
  std::set<int64_t> pids;
  std::vector<std::string> devices;
  int64_t memory_bytes = 0;
};

std::vector<Owner> owners_of(const std::vector<device::DeviceUse>& uses) {
  std::map<std::string, Owner> by_name;
  for (const auto& use : uses) {
    auto& owner = by_name[use.process.info.user];
    owner.name = use.process.info.user;
    owner.uses.push_back(&use);
    owner.pids.insert(use.process.pid);
    owner.memory_bytes += use.process.memory_bytes.value_or(0);
    if (std::find(owner.devices.begin(), owner.devices.end(), use.device_id) == owner.devices.end()) {
      owner.devices.push_back(use.device_id);
    }
  }
  std::vector<Owner> owners;
  for (auto& [name, owner] : by_name) owners.push_back(std::move(owner));
  std::stable_sort(owners.begin(), owners.end(),
                   [](const Owner& a, const Owner& b) { return a.memory_bytes > b.memory_bytes; });
  for (auto& owner : owners) {
    std::stable_sort(owner.uses.begin(), owner.uses.end(), [](const auto* a, const auto* b) {
      return a->process.memory_bytes.value_or(0) > b->process.memory_bytes.value_or(0);
    });
  }
  return owners;
}

std::string owner_part(const Owner& owner, Time now, bool is_open) {
  const auto who = user_or_unknown(owner.name);
  auto html =
      fmt::format("<details data-key=\"{0}\"{1}><summary><b>{0}</b>: {2} {3} on {4} {5}, {6} of memory</summary>\n",
                  html_text(who), is_open ? " open" : "", owner.pids.size(),
                  owner.pids.size() == 1 ? "process" : "processes", owner.devices.size() == 1 ? "device" : "devices",
                  html_text(joined(owner.devices)), format_bytes(owner.memory_bytes));
  std::vector<std::vector<Cell>> rows;
  for (const auto* use : owner.uses) {
    if (rows.size() == kProcessRows) break;
    const auto& process = use->process;
    rows.push_back({{use->device_id},
                    {fmt::format("{}", process.pid)},
                    {process.memory_bytes ? format_bytes(*process.memory_bytes) : view::kUnknown},
                    {view::percent_text(process.utilization_percent)},
                    {view::age_text(process.info, now)},
                    {label(process.origin)},
                    {fit(printable(view::command_text(process.info, view::CommandText::kShort)), kCommandColumns)}});
  }
  html += table("Processes of " + who,
                {{"device"},
                 {"pid", "n"},
                 {"memory", "n"},
                 {"use", "n"},
                 {"age", "n wide"},
                 {"origin", "wide"},
                 {"command", "long"}},
                rows);
  if (owner.uses.size() > rows.size()) {
    html += fmt::format("<p class=\"muted facts\">{} more with less memory; <code>yoke ps</code> lists all.</p>\n",
                        owner.uses.size() - rows.size());
  }
  return html + "</details>\n";
}

std::string processes_part(const device::Snapshot& snapshot) {
  std::string html = "<section aria-labelledby=\"processes\"><h2 id=\"processes\">Processes by owner</h2>\n";
  const auto uses = device::uses_of(snapshot);
  const auto unanswered = device::unanswered_of(snapshot);
  for (const auto& owner : owners_of(uses)) html += owner_part(owner, snapshot.time, uses.size() <= kOpenProcesses);
  if (uses.empty() && unanswered.empty()) html += "<p class=\"muted\">No process uses a device.</p>\n";
  for (const auto& one : unanswered) {
    html += fmt::format("<p class=\"muted\">The processes of {} are not known: {}.</p>\n", html_text(one.what()),
                        html_text(one.why()));
  }
  return html + "</section>\n";
}

std::string base64_sha256(std::string_view text) {
  std::array<unsigned char, crypto_hash_sha256_BYTES> hash = {};
  crypto_hash_sha256(hash.data(), reinterpret_cast<const unsigned char*>(text.data()), text.size());
  std::array<char, sodium_base64_ENCODED_LEN(crypto_hash_sha256_BYTES, sodium_base64_VARIANT_ORIGINAL)> base64 = {};
  return sodium_bin2base64(base64.data(), base64.size(), hash.data(), hash.size(), sodium_base64_VARIANT_ORIGINAL);
}

}  // namespace

std::string html_text(std::string_view text) {
  std::string html;
  for (const char c : printable(text)) {
    switch (c) {
      case '&': html += "&amp;"; break;
      case '<': html += "&lt;"; break;
      case '>': html += "&gt;"; break;
      case '"': html += "&quot;"; break;
      case '\'': html += "&#39;"; break;
      default: html += c;
    }
  }
  return html;
}

std::string live_part(const Machine& state, const History& history) {
  const auto claims = claims_by_device(state.claims);
  const auto counts = count(state, claims);
  auto html = fmt::format("<main id=\"live\" data-title=\"{}\">\n", html_text(title_of(state, counts)));
  html += head(state, counts);
  if (const auto missing = view::find_missing_gpu(state.snapshot)) {
    html += fmt::format("<p class=\"bad\">This machine shows {}.</p>\n", html_text(missing->text()));
  }
  html += "<section aria-label=\"Devices\"><div class=\"cards\">\n";
  for (const auto& device : state.snapshot.devices) html += card(device, state, history, claims);
  html += "</div></section>\n";
  return html + claims_part(state) + processes_part(state.snapshot) + "</main>\n";
}

std::string day_part(const Machine& state, const History& history) {
  const auto now = state.snapshot.time;
  const auto period = shown_period(history.begin(), now);
  auto title = period_text(period);
  title[0] = 'T';
  std::string html =
      "<section id=\"day\" aria-labelledby=\"day-title\"><h2 id=\"day-title\">" + title + "</h2>\n" +
      "<p class=\"muted\"><span class=\"key use\"></span>mean use <span class=\"key band\"></span>from the least to "
      "the most in five minutes <span class=\"key memory\"></span>memory</p>\n";
  if (const auto begin = history.begin(); begin && now - *begin < std::chrono::hours(24)) {
    html += fmt::format("<p class=\"muted\">This server has recorded for {}.</p>\n",
                        format_duration(std::max<Time::duration>(now - *begin, Time::duration(0))));
  }
  html += "<div class=\"days\">\n";
  for (const auto& device : state.snapshot.devices) {
    const auto* const kept = history.find(id_of(device));
    if (kept == nullptr) continue;
    const auto label = device.vendor == device::Vendor::kCpu ? "CPU" : id_of(device) + " " + view::short_name(device);
    html += day_graph(kept->day, now, period, html_text(label));
  }
  return html + "</div></section>\n";
}

std::string page(const Machine& state, const History& history) {
  const auto title = title_of(state, count(state, claims_by_device(state.claims)));
  return fmt::format(
             "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{}</title>\n"
             "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
             "<meta name=\"referrer\" content=\"no-referrer\"><link rel=\"icon\" href=\"data:,\">\n"
             "<noscript><meta http-equiv=\"refresh\" content=\"10\"></noscript>\n<style>",
             html_text(title)) +
         std::string(kPageStyle) + "</style></head><body>\n<p id=\"stale\" role=\"status\"></p>\n" +
         live_part(state, history) + day_part(state, history) +
         "<footer class=\"muted\">For programs: <a href=\"api/state.json\">state.json</a>, "
         "<a href=\"api/history.json\">history.json</a>, <a href=\"devices.json\">devices.json</a>; "
         "for Prometheus: <a href=\"metrics\">metrics</a>.</footer>\n<script>" +
         std::string(kPageScript) + "</script></body></html>\n";
}

std::string content_security_policy() {
  return fmt::format(
      "default-src 'none'; style-src 'sha256-{}'; script-src 'sha256-{}'; connect-src 'self'; img-src data:; "
      "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
      base64_sha256(kPageStyle), base64_sha256(kPageScript));
}

Json state_json(const Machine& state) {
  auto json = device::to_json(state.snapshot);
  for (const auto* key : {"claims", "queue", "reservations"}) {
    json[key] = state.claims.is_object() ? state.claims.value(key, Json::array()) : Json();
  }
  json["claims_problem"] = or_null(printable(state.claims_problem));
  return json;
}

}  // namespace yoke::web
