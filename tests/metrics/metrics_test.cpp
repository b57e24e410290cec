// Tests `yoke metrics` with Prometheus, curl and misbehaving clients.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <set>

#include "tests/metrics/server.h"
#include "tests/support/lines.h"

namespace yoke::test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

TEST(Metrics, EveryStateIsValid) {
  for (const auto* state :
       {"eight_a100", "lost", "many_processes", "mig", "throttled", "unsupported", "version_mismatch"}) {
    const auto result =
        yoke_on(state, {"metrics", "--deadline", "60"});  // so that a busy machine does not count as a slow driver
    EXPECT_EQ(result.exit_code, 0) << state << result.err;
    std::set<std::string> samples;
    for (const auto& line : lines_of(result.out)) {
      if (!line.starts_with("#")) {
        EXPECT_TRUE(samples.insert(line.substr(0, line.rfind(' '))).second) << state << ": " << line;
      }
    }
    EXPECT_THAT(result.out, HasSubstr("\nyoke_device_up{device=\"cpu\"} 1\n")) << state;
  }
  EXPECT_THAT(yoke_on("", {"metrics"}).out, HasSubstr("yoke_backend_up{backend=\"nvml\"} 0\n"));
}

TEST(Metrics, PromtoolFindsNothing) {
  if (std::system("command -v promtool >/dev/null 2>&1") != 0) GTEST_SKIP() << "no promtool";
  const TemporaryFolder folder;
  for (const auto* state : {"eight_a100", "mig", "many_processes"}) {
    folder.write("metrics", yoke_on(state, {"metrics"}).out);
    const auto checked = run({.argv = {"sh", "-c", "promtool check metrics <" + folder.path("metrics")}});
    EXPECT_EQ(checked.exit_code, 0) << state << ": " << checked.out << checked.err;
  }
}

TEST(Metrics, NumbersAreThoseOfDevices) {
  const auto metrics = yoke_on("eight_a100", {"metrics"}).out;
  for (const auto& gpu : gpus_of(yoke_on("eight_a100", {"devices", "--json"}))) {
    const auto labels = "{device=\"" + std::to_string(gpu.at("index").get<int>()) + "\",uuid=\"" +
                        gpu.at("uuid").get<std::string>() + "\"} ";
    EXPECT_THAT(metrics, HasSubstr("\nyoke_device_memory_used_bytes" + labels +
                                   std::to_string(gpu.at("memory_used_bytes").get<int64_t>()) + "\n"));
    EXPECT_THAT(metrics, HasSubstr("\nyoke_device_temperature_celsius" + labels +
                                   std::to_string(gpu.at("temperature_celsius").get<int64_t>()) + "\n"));
    EXPECT_THAT(metrics, HasSubstr("\nyoke_device_up" + labels + "1\n"));
  }
}

TEST(Metrics, ServesUntilItIsToldToStop) {
  for (const int signal : {SIGTERM, SIGINT}) {
    Server server("eight_a100");
    EXPECT_THAT(server.command().out(), testing::MatchesRegex("http://127.0.0.1:[0-9]+/metrics\n"));
    EXPECT_THAT(server.get("/metrics"), HasSubstr("yoke_device_utilization_ratio{device=\"7\""));
    const auto json = server.get("/devices.json");
    EXPECT_EQ(Json::parse(json.substr(json.find("\r\n\r\n") + 4)).at("devices").size(), 9U);
    server.command().signal(signal);
    const auto result = server.command().wait();
    EXPECT_EQ(result.exit_code, 0) << signal;
    EXPECT_THAT(result.err, IsEmpty());
  }
}

TEST(Metrics, NothingServesOnWhenItIsKilled) {
  Server server("eight_a100");
  server.command().signal(SIGKILL);
  server.command().wait();
  EXPECT_TRUE(wait_until([&] { return server.scrape(1) == 0; }));
}

TEST(Metrics, OthersMayReadOnlyWhenAsked) {
  Command command(on_machine("eight_a100", {"metrics", "--serve", "0.0.0.0:0"}));
  EXPECT_TRUE(command.wait_for_output("other machines can read this"));
  const auto taken = [] {
    Server server("eight_a100");
    return run(on_machine("eight_a100", {"metrics", "--serve", std::to_string(server.port())}));
  }();
  EXPECT_EQ(taken.exit_code, 75);
  EXPECT_THAT(taken.err, HasSubstr("is taken by process "));
  const auto wrong = yoke_on("eight_a100", {"metrics", "--serve", "gpu01:9000"});
  EXPECT_EQ(wrong.exit_code, 64);
  EXPECT_THAT(wrong.err, HasSubstr("`gpu01:9000` is not an address to listen on"));
}

TEST(Metrics, AHungGpuIsARowAndNoMore) {
  Server server("hung");
  const auto first = server.get("/metrics");
  EXPECT_THAT(first, HasSubstr("yoke_device_up{device=\"5\"} 0\n"));
  EXPECT_THAT(first, HasSubstr("state=\"no answer\"} 1\n"));
  EXPECT_THAT(first, HasSubstr("yoke_device_utilization_ratio{device=\"6\""));
  server.command().signal(SIGTERM);
  EXPECT_EQ(server.command().wait().exit_code, 0) << "and it ends with a driver that does not";
}

TEST(Metrics, AThousandScrapesAtOnceAgainAndAgainDoNotGrowIt) {
  Server server("eight_a100");
  ASSERT_EQ(server.scrape(1000), 1000);
  ASSERT_EQ(server.scrape(1000), 1000);
  const auto before = server.resident_kib();
  const int rounds = std::getenv("YOKE_LONG") != nullptr ? 100 : 4;
  for (int i = 0; i < rounds; ++i) ASSERT_EQ(server.scrape(1000), 1000);
  EXPECT_TRUE(kIsSanitized || server.resident_kib() < before + 16 * 1024) << before << " " << server.resident_kib();
}

TEST(Metrics, SlowClientsAndThoseWhoNeverReadDoNotKeepPrometheusOut) {
  Server server("eight_a100", {"--max-age", "0"});
  std::vector<Client> slow;
  for (int i = 0; i < 200; ++i) {
    slow.emplace_back(server.port());
    slow.back().ask(i % 2 == 0 ? "GET /met" : "GET /devices.json HTTP/1.1\r\nHost: localhost\r\n\r\n");
    slow.back().go_on();
  }
  // A server that waited for each of the slow ones until it is given up would answer after minutes, which is longer
  // than scrape() waits. server_test has more of them than connections.
  for (int i = 0; i < 5; ++i) EXPECT_EQ(server.scrape(1), 1);
}

TEST(Metrics, OversizedRequestsAreRefusedAndCostNothing) {
  Server server("eight_a100");
  server.scrape(100);
  const auto before = server.resident_kib();
  std::string headers = "GET /metrics HTTP/1.1\r\n";
  while (headers.size() < 20'000'000) headers += "X-Header-Of-No-Use: " + std::string(4000, 'x') + "\r\n";
  EXPECT_THAT(server.ask("GET /metrics HTTP/1.1\r\nX: " + std::string(9000, 'x') + "\r\n\r\n"),
              StartsWith("HTTP/1.1 431 "));
  for (int i = 0; i < 5; ++i) server.ask(headers);
  EXPECT_THAT(server.ask("POST /metrics HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n"), StartsWith("HTTP/1.1 413 "));
  EXPECT_EQ(server.scrape(1), 1);
  EXPECT_TRUE(kIsSanitized || server.resident_kib() < before + 8 * 1024) << before << " " << server.resident_kib();
}

TEST(Metrics, ARecordingIsServedToo) {
  TemporaryFolder folder;
  ASSERT_EQ(yoke_on("eight_a100", {"devices", "--record", folder.path("a.jsonl")}).exit_code, 0);
  const auto result = yoke_on("", {"metrics", "--replay", folder.path("a.jsonl")});
  EXPECT_THAT(result.out, HasSubstr("yoke_device_up{device=\"7\""));
  EXPECT_EQ(yoke_on("", {"metrics", "--replay", folder.path("b.jsonl")}).exit_code, 66);
}

}  // namespace
}  // namespace yoke::test
