// Tests the page in Chromium: what its script makes of it, and what it makes of texts that attack it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <regex>
#include <thread>

#include "tests/support/command.h"
#include "yoke/web/server.h"

namespace yoke::test {
namespace {

using testing::HasSubstr;
using testing::Not;
using OrderedJson = nlohmann::ordered_json;

/// A server in this process, so that a test knows how often its machine was looked at.
class MachineServer {
 public:
  explicit MachineServer(std::function<web::Machine(int64_t)> machine)
      : server_({.address = {.port = 0}, .max_age = milliseconds(0), .history_interval = std::chrono::hours(1)},
                [this, machine = std::move(machine)] { return machine(++num_samples_); }),
        thread_([this] { server_.run(); }) {}
  ~MachineServer() {
    server_.stop();
    thread_.join();
  }
  std::string url() const { return server_.url("/"); }
  int64_t num_samples() const { return num_samples_; }

 private:
  std::atomic<int64_t> num_samples_ = 0;
  web::Server server_;
  std::thread thread_;
};

/// The page's elements after nine seconds of a browser's own time, which passes faster where nothing happens. Chromium
/// cannot resolve names, so it talks to nobody else.
Result browse(const std::string& url) {
  const TemporaryFolder folder;
  CommandOptions options{.argv = {"chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                                  "--disable-background-networking", "--no-first-run",
                                  "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
                                  "--user-data-dir=" + folder.path("profile"), "--virtual-time-budget=9000",
                                  "--enable-logging=stderr", "--dump-dom", url}};
  return run(options);
}

std::string main_of(const std::string& html) {
  const auto begin = html.find("<main"), end = html.find("</main>");
  return begin == html.npos || end == html.npos ? "no main in: " + html : html.substr(begin, end - begin);
}

/// A machine with all that the page can show, of which other users chose the words.
web::Machine machine_with(const std::string& text, int64_t use = 42) {
  web::Machine machine;
  machine.snapshot.time = std::chrono::system_clock::time_point(std::chrono::seconds(1'795'420'800));
  machine.snapshot.host = text;
  for (int64_t i = 0; i < 3; ++i) {
    auto& device = machine.snapshot.devices.emplace_back();
    device.index = i;
    device.vendor = device::Vendor::kNvidia;
    device.state = i == 2 ? device::State::kLost : device::State::kBusy;
    device.reason = i == 2 ? text : "";
    device.facts.name = text;
    device.readings.utilization_percent = use;
    device::DeviceProcess process{.pid = 4121, .type = "compute"};
    process.info.user = process.info.name = process.info.command = text;
    device.processes.push_back(process);
  }
  const OrderedJson claim = {{"device", "0"}, {"device_uuid", text}, {"user", text}, {"pid", 1}, {"purpose", text}};
  const OrderedJson ticket = {{"user", text}, {"num_devices", 1}, {"position", 1}, {"purpose", text}};
  machine.claims = {{"claims", {claim}}, {"queue", {ticket}}, {"reservations", {ticket}}};
  return machine;
}

class Browser : public testing::Test {
 protected:
  void SetUp() override {
    if (std::system("command -v chromium >/dev/null 2>&1") != 0) GTEST_SKIP() << "no chromium";
  }
};

TEST_F(Browser, TheScriptRenewsThePage) {
  const MachineServer server([](int64_t number) { return machine_with("gpu01", number); });
  const auto result = browse(server.url());
  EXPECT_EQ(result.exit_code, 0) << result.err;
  std::smatch match;
  ASSERT_TRUE(std::regex_search(result.out, match, std::regex("<span>([0-9]+)%</span>"))) << result.out;
  // The first sample is taken at the start, the second for the page, and the others for the script.
  EXPECT_GE(std::stoi(match[1]), 4);
  EXPECT_THAT(result.out, HasSubstr("<title>gpu01: 0 of 3 available</title>"));
  EXPECT_THAT(result.err, Not(HasSubstr("Content Security Policy"))) << "the policy allows what the page has";
}

// The script is a second way by which elements come to the page, so it must make the same ones as the server.
TEST_F(Browser, ThePageIsTheSameWithAndWithoutScript) {
  const auto machine = machine_with("größer & <b>bold</b>");
  const MachineServer server([&](int64_t) { return machine; });
  const auto with = browse(server.url());
  EXPECT_GE(server.num_samples(), 4) << "the script has renewed it";
  web::History history;
  history.add(machine.snapshot);
  auto html = web::page(machine, history);
  html.erase(html.rfind("<script>"));
  const TemporaryFolder folder;
  folder.write("page.html", html);
  EXPECT_EQ(main_of(with.out), main_of(browse("file://" + folder.path("page.html")).out));
  EXPECT_THAT(main_of(with.out), HasSubstr("größer &amp; &lt;b&gt;bold"));
}

TEST_F(Browser, TextsOfOthersStayText) {
  const std::string evil =
      "</title></main></summary><img src=x onerror=document.title='attacked'>\"'><script>document.title='attacked'"
      "</script><svg onload=document.title='attacked'>\xe2\x80\xae";
  const MachineServer server([&](int64_t) { return machine_with(evil); });
  const auto result = browse(server.url());
  EXPECT_THAT(result.out, HasSubstr("&lt;script&gt;document.title"));
  EXPECT_THAT(result.out, Not(HasSubstr("<title>attacked")));
  EXPECT_THAT(result.out, Not(HasSubstr("<img")));
  EXPECT_THAT(result.out, Not(HasSubstr("\xe2\x80\xae")));
  const auto count = [&](const std::string& what) {
    int64_t number = 0;
    for (auto at = result.out.find(what); at != std::string::npos; at = result.out.find(what, at + 1)) ++number;
    return number;
  };
  EXPECT_EQ(count("<script"), 1) << "the page's own";
  EXPECT_EQ(count("<main"), 1);
  EXPECT_EQ(count("</title>"), 1);
}

TEST_F(Browser, AServerThatNoLongerAnswersIsReported) {
  const MachineServer server([](int64_t number) {
    if (number > 2) throw std::runtime_error("the driver has gone");
    return machine_with("gpu01");
  });
  EXPECT_THAT(browse(server.url()).out,
              testing::ContainsRegex("id=\"stale\" role=\"status\">The server has not answered since"));
}

}  // namespace
}  // namespace yoke::test
