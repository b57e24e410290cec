#include "yoke/web/page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "yoke/base/json.h"
#include "yoke/web/page_assets.h"
#include "yoke/web/page_graphs.h"

namespace yoke::web {
namespace {

using std::chrono::hours;
using std::chrono::minutes;
using std::chrono::seconds;
using testing::HasSubstr;
using testing::Not;

const Series::Time kNow = Series::Time(seconds(1'795'420'800));

device::Device h100(int64_t index, device::State state = device::State::kFree) {
  device::Device device{.index = index, .vendor = device::Vendor::kNvidia, .state = state};
  device.facts.name = "NVIDIA H100 80GB HBM3";
  device.readings.memory_total_bytes = int64_t{80} << 30;
  device.readings.memory_used_bytes = int64_t{20} << 30;
  device.has_process_list = true;
  return device;
}

device::DeviceProcess process_of(const std::string& user, const std::string& command, int64_t pid = 4121) {
  device::DeviceProcess process{.pid = pid, .type = "compute", .memory_bytes = 1 << 30};
  process.info.user = user;
  process.info.command = command;
  return process;
}

Machine machine(std::vector<device::Device> devices) {
  Machine machine;
  machine.snapshot = {.time = kNow, .host = "gpu01", .devices = std::move(devices)};
  machine.claims = {{"claims", Json::array()}, {"queue", Json::array()}, {"reservations", Json::array()}};
  return machine;
}

Json claim(const std::string& device, const std::string& user, const std::string& purpose) {
  return {{"device_uuid", "GPU-" + device},
          {"device", device},
          {"user", user},
          {"pid", 4121},
          {"since", 1'795'420'800 - 600},
          {"until", 1'795'420'800 + 3600},
          {"purpose", purpose},
          {"idle_seconds", nullptr},
          {"remark", nullptr}};
}

std::string live(const Machine& machine) { return live_part(machine, History()); }

/// Everything between '<' and '>', so that a test can see what a browser takes for markup.
std::set<std::string> tags_of(std::string_view html) {
  std::set<std::string> tags;
  for (auto at = html.find('<'); at != html.npos; at = html.find('<', at + 1)) {
    tags.insert(std::string(html.substr(at + 1, html.find_first_of(" >", at) - at - 1)));
  }
  return tags;
}

TEST(HtmlText, QuotesWhatMarkupConsistsOf) {
  const std::vector<std::pair<std::string, std::string>> rows = {
      {"plain", "plain"},
      {"<script>alert(1)</script>", "&lt;script&gt;alert(1)&lt;/script&gt;"},
      {"\" onload=\"x", "&quot; onload=&quot;x"},
      {"it's", "it&#39;s"},
      {"a & b", "a &amp; b"},
      {"\xe2\x80\xae"
       "exe.nohtyp",
       "?exe.nohtyp"},  // U+202E reverses what follows
      {"\x1b[31m", "?[31m"},
      {"\xff", "?"},
      {"größer", "größer"}};
  for (const auto& [text, html] : rows) EXPECT_EQ(html_text(text), html);
}

// Whatever other users call themselves, their programs and their claims, the page has the same elements.
TEST(Page, TextsOfOthersAreNeverMarkup) {
  const std::string evil =
      "</summary></main></title><img src=x onerror=alert(1)>\"'><script>alert(2)</script>\xe2\x80\xae<!--";
  const auto with = [](const std::string& text) {
    auto result = machine({h100(0, device::State::kBusy), h100(1, device::State::kLost)});
    auto& device = result.snapshot.devices[0];
    result.snapshot.host = device.facts.name = text;
    result.snapshot.devices[1].reason = text;
    device.processes = {process_of(text, text)};
    device.processes[0].origin.systemd_unit = text;
    device.processes[0].info.name = text;
    result.snapshot.backends = {{.backend = "nvml", .is_available = true, .reason = text, .driver_version = text}};
    result.claims["claims"].push_back(claim("0", text, text));
    result.claims["claims"].push_back(claim(text, text, text));
    result.claims["claims"][1]["remark"] = text;
    result.claims["queue"].push_back({{"user", text}, {"num_devices", 2}, {"position", 1}, {"purpose", text}});
    result.claims["reservations"].push_back(
        {{"user", text}, {"num_devices", 2}, {"start", 1'795'424'400}, {"purpose", text}});
    History history;
    history.add(result.snapshot);
    auto html = page(result, history);
    result.claims = nullptr;
    result.claims_problem = text;
    return html + live_part(result, history);
  };
  const auto attacked = with(evil), plain = with("plain");
  EXPECT_EQ(tags_of(attacked), tags_of(plain));
  EXPECT_EQ(std::count(attacked.begin(), attacked.end(), '<'), std::count(plain.begin(), plain.end(), '<'));
  EXPECT_EQ(std::count(attacked.begin(), attacked.end(), '"'), std::count(plain.begin(), plain.end(), '"'));
  EXPECT_THAT(attacked, Not(HasSubstr("\xe2\x80\xae")));
  EXPECT_THAT(plain, HasSubstr("plain"));
}

TEST(Page, NeedsNothingElse) {
  const auto html = page(machine({h100(0)}), History());
  for (const auto* part : {"http:", "https:", "//", " onclick", " onload", " style=", "src="}) {
    auto text = html;
    text.erase(text.find(kPageScript), kPageScript.size());  // has comments of its own
    EXPECT_THAT(text, Not(HasSubstr(part)));
  }
  EXPECT_THAT(html, HasSubstr("<title>gpu01: 1 of 1 available</title>"));
}

TEST(Page, PolicyAllowsItsOwnStyleAndScriptOnly) {
  const auto policy = content_security_policy();
  EXPECT_THAT(policy, testing::MatchesRegex("default-src 'none'; style-src 'sha256-[A-Za-z0-9+/]{43}='; "
                                            "script-src 'sha256-[A-Za-z0-9+/]{43}='; connect-src 'self'; .*"));
  EXPECT_THAT(policy, Not(HasSubstr("unsafe")));
}

TEST(Page, CountsDevicesByWhatAReaderCanDoWithThem) {
  auto state = machine({h100(0), h100(1, device::State::kBusy), h100(2), h100(3, device::State::kNoAnswer)});
  state.claims["claims"].push_back(claim("2", "ada", "notebook"));
  state.claims["queue"].push_back({{"user", "bob"}, {"num_devices", 2}, {"position", 1}});
  const auto html = live(state);
  for (const auto* count : {"<b>1</b>available", "<b>1</b>busy", "<b>1</b>claimed, not busy", "<b>1</b>in trouble",
                            "<b>1</b>request waits"}) {
    EXPECT_THAT(html, HasSubstr(count));
  }
  EXPECT_THAT(html, HasSubstr("<span class=\"state\">◐ claimed</span>"));
  EXPECT_THAT(html, HasSubstr("data-title=\"gpu01: 1 of 4 available\""));
}

TEST(Page, AClaimOfSeveralDevicesIsOneRow) {
  auto state = machine({h100(0), h100(1)});
  state.claims["claims"] = {claim("0", "ada", "vit-l"), claim("1", "ada", "vit-l")};
  EXPECT_THAT(live(state), HasSubstr("<span>0, 1</span></td><td><span>ada</span></td><td class=\"long\"><span>vit-l"));
  EXPECT_THAT(live(state), HasSubstr("claimed by <b>ada</b>: vit-l, 1:00:00 left"));
}

TEST(Page, SaysWhatTheDevicesOfAClaimDo) {
  using Idle = std::vector<Json>;
  const std::vector<std::pair<Idle, std::string>> rows = {{{0, 0}, ">in use<"},
                                                          {{0, 600}, ">1 of 2 in use<"},
                                                          {{0, nullptr}, ">1 of 2 in use<"},
                                                          {{2400, 600}, ">idle for 10:00<"}};
  for (const auto& [idle, text] : rows) {
    auto state = machine({h100(0), h100(1)});
    state.claims["claims"] = {claim("0", "ada", "vit-l"), claim("1", "ada", "vit-l")};
    for (size_t i = 0; i < 2; ++i) state.claims["claims"][i]["idle_seconds"] = idle[i];
    EXPECT_THAT(live(state), HasSubstr(text));
  }
}

TEST(Page, SaysWhoUsesADeviceWithoutAClaim) {
  auto state = machine({h100(0, device::State::kBusy), h100(1)});
  state.snapshot.devices[0].processes = {process_of("bob", "python")};
  EXPECT_THAT(live(state), Not(HasSubstr("without a claim"))) << "nobody uses claims here";
  state.claims["claims"].push_back(claim("1", "ada", "vit-l"));
  EXPECT_THAT(live(state), HasSubstr("used by <b>bob</b> without a claim"));
}

TEST(Page, NoGpuAndNoClaimsAreSentences) {
  auto state = machine({});
  state.snapshot.backends = {{.backend = "nvml", .reason = "libnvidia-ml.so.1 is not installed"}};
  EXPECT_THAT(live(state), HasSubstr("This machine shows no GPU: libnvidia-ml.so.1 is not installed."));
  EXPECT_THAT(live(state), HasSubstr("No device is claimed."));
  state.claims = nullptr;
  state.claims_problem = "there is no folder of locks";
  EXPECT_THAT(live(state), HasSubstr("The claims are not known: there is no folder of locks."));
}

TEST(Page, UnknownReadingsAreLeftOut) {
  auto state = machine({h100(0)});
  state.snapshot.devices[0].readings = {};
  const auto html = live(state);
  EXPECT_THAT(html, Not(HasSubstr("GiB")));
  EXPECT_THAT(html, Not(HasSubstr("°C")));
  EXPECT_THAT(html, Not(HasSubstr(" W")));
}

TEST(Page, OwnersAreSortedByMemoryAndListsAreBounded) {
  auto state = machine({h100(0, device::State::kBusy)});
  auto& processes = state.snapshot.devices[0].processes;
  for (int i = 0; i < 1000; ++i) processes.push_back(process_of("ada", "python train.py", 5000 + i));
  processes.push_back(process_of("bob", "python"));
  processes.back().memory_bytes = int64_t{2000} << 30;
  const auto html = live(state);
  EXPECT_LT(html.find("<b>bob</b>: 1 process on device 0"), html.find("<b>ada</b>: 1000 processes on device 0"));
  EXPECT_THAT(html, HasSubstr("950 more with less memory"));
  EXPECT_THAT(html, Not(HasSubstr("<details data-key=\"ada\" open>"))) << "a long list is closed at first";
  EXPECT_LT(html.size(), 30'000U);
}

TEST(Graph, DrawsRunsOfKnownValues) {
  Series series(seconds(10), 90);
  for (const auto& [ago, percent] : std::vector<std::pair<int, int64_t>>{{40, 50}, {30, 50}, {20, 80}, {0, 100}}) {
    series.add(kNow - seconds(ago), {.utilization_percent = percent});
  }
  const auto svg = recent_graph(series, kNow);
  EXPECT_THAT(svg, HasSubstr("d=\"M85 50H87V20H88V100H85zM89 0H90V100H89z\"")) << "a gap is no zero";
  EXPECT_THAT(svg,
              HasSubstr("aria-label=\"the last 15 minutes: use 70% on average, at most 100%; memory is not known\""));
  EXPECT_THAT(recent_graph(series, kNow + hours(1)), Not(HasSubstr("<path"))) << "all of it is older";
}

TEST(Graph, TheDayHasARangeAndAMean) {
  Series series(minutes(5), 288);
  series.add(kNow, {.utilization_percent = 20});
  series.add(kNow + seconds(1), {.utilization_percent = 60});
  const auto svg = day_graph(series, kNow, hours(24), "0 H100");
  EXPECT_THAT(svg, HasSubstr("<path class=\"band\" d=\"M287 40H288V80H287z\"/>"));
  EXPECT_THAT(svg, HasSubstr("<path class=\"mean\" d=\"M287 60H288\"/>"));
  EXPECT_THAT(svg, HasSubstr("<span>24 h ago</span><span>18</span><span>12</span><span>6</span><span>now</span>"));
}

TEST(Graph, AYoungServerShowsItsOwnTime) {
  EXPECT_EQ(shown_period(std::nullopt, kNow), hours(24));
  EXPECT_EQ(shown_period(kNow, kNow), hours(1));
  EXPECT_EQ(shown_period(kNow - minutes(61), kNow), hours(2));
  EXPECT_EQ(shown_period(kNow - hours(9), kNow), hours(12));
  EXPECT_EQ(shown_period(kNow - hours(13), kNow), hours(24));
  Series series(minutes(5), 288);
  series.add(kNow, {.utilization_percent = 20});
  const auto svg = day_graph(series, kNow, hours(1), "0 H100");
  EXPECT_THAT(svg, HasSubstr("viewBox=\"0 0 12 100\""));
  EXPECT_THAT(svg, HasSubstr("M11 80H12"));
  EXPECT_THAT(svg, HasSubstr("the last hour"));
  EXPECT_THAT(svg, HasSubstr("<span>60 min ago</span><span>45</span><span>30</span><span>15</span><span>now</span>"));
}

TEST(StateJson, HasWhatTheCommandsPrint) {
  auto state = machine({h100(0)});
  state.claims["claims"].push_back(claim("0", "ada", "vit-l"));
  auto json = state_json(state);
  EXPECT_EQ(json["devices"][0]["index"], 0);
  EXPECT_EQ(json["claims"][0]["user"], "ada");
  EXPECT_TRUE(json["claims_problem"].is_null());
  state.claims = nullptr;
  state.claims_problem = "no folder";
  json = state_json(state);
  EXPECT_TRUE(json["queue"].is_null());
  EXPECT_EQ(json["claims_problem"], "no folder");
}

}  // namespace
}  // namespace yoke::web
