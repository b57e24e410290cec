// Tests the page of `yoke top --web` and `yoke metrics --serve` over HTTP.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <csignal>
#include <thread>

#include "tests/metrics/server.h"

namespace yoke::test {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

std::string body_of(const std::string& response) { return response.substr(response.find("\r\n\r\n") + 4); }

CommandOptions top_web(const std::string& state, std::vector<std::string> more = {}) {
  std::vector<std::string> words = {"top", "--web", "--listen", "0", "--deadline", "60"};
  words.insert(words.end(), more.begin(), more.end());
  return on_machine(state, std::move(words));
}

TEST(Page, TopServesItUntilItIsToldToStop) {
  Server server(top_web("eight_a100"));
  EXPECT_THAT(server.command().out(), testing::MatchesRegex("http://127.0.0.1:[0-9]+/\n"));
  const auto page = server.get("/");
  EXPECT_THAT(page, StartsWith("HTTP/1.1 200 OK\r\n"));
  for (int i = 0; i < 8; ++i) EXPECT_THAT(page, HasSubstr("<h3>" + std::to_string(i) + " A100"));
  server.command().signal(SIGTERM);
  EXPECT_EQ(server.command().wait().exit_code, 0);
}

TEST(Page, MetricsServesTheSame) {
  Server server("eight_a100");
  EXPECT_THAT(server.get("/"), HasSubstr("<h3>7 A100"));
  EXPECT_THAT(server.get("/day.html"), HasSubstr("The last hour"));
}

TEST(Page, OtherSitesCanNeitherReadNorFrameIt) {
  Server server(top_web("eight_a100"));
  for (const std::string path : {"/", "/live.html", "/day.html", "/api/state.json", "/api/history.json"}) {
    const auto rebound = server.ask("GET " + path + " HTTP/1.1\r\nHost: evil.example\r\n\r\n");
    EXPECT_THAT(rebound, StartsWith("HTTP/1.1 403 ")) << path;
    const auto response =
        server.ask("GET " + path + " HTTP/1.1\r\nHost: localhost\r\nOrigin: http://evil.example\r\n\r\n");
    EXPECT_THAT(response, HasSubstr("frame-ancestors 'none'")) << path;
    EXPECT_THAT(response, HasSubstr("Cross-Origin-Resource-Policy: same-origin\r\n")) << path;
    EXPECT_THAT(response, HasSubstr("X-Content-Type-Options: nosniff\r\n")) << path;
    EXPECT_THAT(response, Not(HasSubstr("Access-Control"))) << path;
  }
  EXPECT_THAT(server.ask("POST / HTTP/1.1\r\nHost: localhost\r\n\r\n"), StartsWith("HTTP/1.1 405 "));
}

TEST(Page, ALostGpuSaysSo) {
  Server server(top_web("lost"));
  const auto page = server.get("/");
  EXPECT_THAT(page, HasSubstr("in trouble"));
  EXPECT_THAT(page, HasSubstr("✕ lost"));
}

TEST(Page, AMachineWithoutAGpuSaysSo) {
  Server server(top_web(""));
  EXPECT_THAT(server.get("/"), HasSubstr("This machine shows no GPU"));
}

// Another user chooses the name of a claim and the words of a program. Both are shown, and neither is markup.
TEST(Page, ShowsClaimsQueueAndProcessesAsText) {
  const std::string evil = "<script>alert(\"x\")</script>'\xe2\x80\xae";
  const std::string quoted = "&lt;script&gt;alert(&quot;x&quot;)&lt;/script&gt;&#39;?";
  const FakeMachine machine(Json{{"devices", 2}});
  machine.folder().write("locks/.keep", "");
  const auto with_locks = [&](CommandOptions options) {
    options.environment.emplace_back("YOKE_CLAIM_DIR", machine.path("locks"));
    options.without.insert(options.without.end(), {"CUDA_VISIBLE_DEVICES", "YOKE_CLAIM_CONFIG"});
    return options;
  };
  chmod(machine.path("locks").c_str(), 01777);
  Command claim(with_locks(machine.yoke(
      {"claim", "--deadline", "60", "-d", "1", "--name", evil, "--", "sh", "-c", "echo started; exec sleep 1000"})));
  ASSERT_TRUE(claim.wait_for_output("started")) << claim.err();
  Command waiting(
      with_locks(machine.yoke({"claim", "--deadline", "60", "-d", "1", "--name", "second", "--wait", "--", "true"})));
  ASSERT_TRUE(wait_until(
      [&] { return waiting.wait_until([&] { return waiting.err().find("waiting") != std::string::npos; }); }));
  Command program({.argv = {"sh", "-c", "echo started; sleep 1000; :", evil}});
  ASSERT_TRUE(program.wait_for_output("started"));
  machine.folder().write(
      "state.json",
      Json{{"devices", 2}, {"overrides", {{"0", {{"processes", {{{"pid", program.pid()}, {"memory_mib", 4096}}}}}}}}}
          .dump());
  Server server(with_locks(machine.yoke({"top", "--web", "--listen", "0", "--deadline", "60"})));

  const auto page = body_of(server.get("/"));
  EXPECT_THAT(page, HasSubstr(quoted + "</span></td>")) << "the purpose and the command";
  EXPECT_THAT(page, Not(HasSubstr("<script>alert")));
  EXPECT_THAT(page, Not(HasSubstr("\xe2\x80\xae")));
  EXPECT_THAT(page, HasSubstr("<b>1</b>request waits"));
  EXPECT_THAT(page, HasSubstr("second"));
  EXPECT_THAT(page, HasSubstr("without a claim")) << "the program on device 0";

  const auto state = Json::parse(body_of(server.get("/api/state.json")));
  ASSERT_EQ(state.at("claims").size(), 1U);
  EXPECT_EQ(state.at("claims")[0].at("device"), "1");
  EXPECT_EQ(state.at("queue")[0].at("num_devices"), 1);
  EXPECT_EQ(state.at("devices").size(), 3U);
  const auto history = Json::parse(body_of(server.get("/api/history.json")));
  EXPECT_EQ(history.at("devices").size(), 3U);
}

TEST(Page, WordsThatDoNotFitAreRefused) {
  for (const auto& words : std::vector<std::vector<std::string>>{{"top", "--web", "--json"},
                                                                 {"top", "--web", "--once"},
                                                                 {"top", "--web", "--interval", "2"},
                                                                 {"top", "--listen", "0"},
                                                                 {"top", "--web", "--listen", "gpu01"}}) {
    EXPECT_EQ(yoke_on("eight_a100", words).exit_code, 64);
  }
}

TEST(Page, OthersMayReadOnlyWhenAsked) {
  Command command(on_machine("eight_a100", {"top", "--web", "--listen", "0.0.0.0:0"}));
  EXPECT_TRUE(command.wait_for_output("http://0.0.0.0:"));
  EXPECT_TRUE(command.wait_until(
      [&] { return command.err().find("yoke top: other machines can read this") != std::string::npos; }));
}

}  // namespace
}  // namespace yoke::test
