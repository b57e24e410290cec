#include "yoke/keep/kept_containers.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>

#include "yoke/base/clock.h"
#include "yoke/base/environment.h"
#include "yoke/base/error.h"
#include "yoke/base/json.h"
#include "yoke/base/line_connection.h"
#include "yoke/base/process.h"
#include "yoke/base/text.h"
#include "yoke/container/config.h"
#include "yoke/container/engine.h"
#include "yoke/device/process/info.h"
#include "yoke/device/process/signal.h"
#include "yoke/keep/container_log.h"

namespace yoke::keep {
namespace {

using std::chrono::milliseconds;

bool is_own(const UserSocket& socket) { return socket.uid == int64_t{geteuid()}; }

struct Asked {
  size_t row;
  LineConnection lines;
};

/// Returns whether `json` is what a keeper says. Root asks those of all users, and a program that any user has written
/// may answer: with the name of another program as the engine, with an option as the name.
bool is_description(const Json& json) {
  if (!json.is_object()) return false;
  const auto is_good = [&](const char* key, auto check) { return !json.contains(key) || check(json.at(key)); };
  const auto is_text = [](const Json& value) { return value.is_string(); };
  const auto is_number = [](const Json& value) { return value.is_number_integer(); };
  const auto are_texts = [&](const Json& value) { return value.is_array() && std::ranges::all_of(value, is_text); };
  const auto is_name = [](const Json& value) {
    return value.is_string() && container::is_container_name(value.get<std::string>());
  };
  const auto is_engine = [](const Json& value) {
    return value.is_string() && container::parse_engine_kind(value.get<std::string>());
  };
  const auto is_pid = [&](const Json& value) { return value.is_null() || is_number(value); };
  return json.contains("name") && is_good("name", is_name) && is_good("engine", is_engine) &&
         is_good("image", is_text) && is_good("user", is_text) && is_good("state", is_text) && is_good("pid", is_pid) &&
         is_good("since", is_number) && is_good("devices", are_texts);
}

/// Takes the answer if it has come. Returns false as long as it has not.
bool take_answer(Asked& asked, KeptContainerRow& row) {
  const auto line = asked.lines.next();
  if (!line) return asked.lines.is_closed();
  auto json = Json::parse(*line, nullptr, false);
  if (!is_description(json)) return true;
  json["keeper"] = row.socket.pid;
  if (!is_own(row.socket)) json["user"] = device::user_name(row.socket.uid);
  row.json = std::move(json);
  return true;
}

bool is_ended(const KeptContainerRow& row) { return !row.json && !start_ticks_of(static_cast<pid_t>(row.socket.pid)); }

KeptContainerRow chosen(const std::vector<KeptContainerRow>& rows, const NamedContainers& named,
                        const std::string& word) {
  if (named.found.size() == 1) return rows[named.found[0]];
  std::vector<int64_t> keepers;
  for (const auto position : named.found) keepers.push_back(rows[position].json->value("keeper", int64_t{0}));
  throw Error(ErrorCode::kInvalidArgument,
              "several containers have the name {}; give the process that keeps the right one instead: {}",
              printable(word), fmt::join(keepers, ", "));
}

/// Returns nullopt if the keeper has ended.
std::optional<device::ProcessHandle> open_keeper(const KeptContainerRow& row) {
  try {
    const auto start = start_ticks_of(static_cast<pid_t>(row.socket.pid));
    if (start) return device::ProcessHandle(row.socket.pid, *start);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kNotFound) throw;
  }
  return std::nullopt;
}

}  // namespace

std::vector<KeptContainerRow> ask_keepers(const std::vector<UserSocket>& sockets, std::string_view word,
                                          milliseconds patience) {
  std::vector<KeptContainerRow> rows;
  std::vector<Asked> asked;
  for (const auto& socket : sockets) {
    UniqueFd fd;
    Connected connected = Connected::kNo;
    try {
      connected = connect_to(socket, fd);
    } catch (const Error&) {  // out of descriptors
      connected = Connected::kBusy;
    }
    if (connected == Connected::kNo) continue;
    rows.push_back({socket, {}});
    if (connected == Connected::kBusy) continue;
    asked.push_back({rows.size() - 1, LineConnection(std::move(fd))});
    asked.back().lines.send(word);
  }
  const auto until = Clock::now() + patience;
  while (!asked.empty()) {
    std::erase_if(asked, [&](Asked& one) { return take_answer(one, rows[one.row]); });
    const auto left = std::chrono::ceil<milliseconds>(until - Clock::now());
    if (asked.empty() || left.count() <= 0) break;
    std::vector<pollfd> news;
    for (const auto& one : asked) news.push_back({one.lines.fd(), POLLIN, 0});
    poll(news.data(), news.size(), static_cast<int>(left.count()));
  }
  std::erase_if(rows, is_ended);
  return rows;
}

std::vector<KeptContainerRow> kept_containers() {
  auto sockets = list_user_sockets(kKeeperService, geteuid());
  // Others may have made more sockets than this process may have descriptors.
  std::ranges::stable_partition(sockets, is_own);
  return ask_keepers(sockets, "describe");
}

NamedContainers find_named(const std::vector<KeptContainerRow>& rows, const std::string& word) {
  NamedContainers result;
  const auto pid = parse_int(word);
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto& row = rows[i];
    if (!row.json) {
      result.are_silent.push_back(row.socket.pid);
      continue;
    }
    const auto is_pid = [&](const char* key) {
      const auto found = row.json->find(key);
      return pid && found != row.json->end() && found->is_number_integer() && found->get<int64_t>() == *pid;
    };
    if (row.text("name") == word || is_pid("keeper") || is_pid("pid")) result.found.push_back(i);
  }
  return result;
}

KeptContainerRow find_container(const std::string& word) {
  const auto all = list_user_sockets(kKeeperService, geteuid());
  std::vector<UserSocket> own, others;
  for (const auto& socket : all) (is_own(socket) ? own : others).push_back(socket);
  std::vector<int64_t> are_silent;
  for (const auto* sockets : {&own, &others}) {
    const auto rows = ask_keepers(*sockets, "describe");
    const auto named = find_named(rows, word);
    if (!named.found.empty()) return chosen(rows, named, word);
    are_silent.insert(are_silent.end(), named.are_silent.begin(), named.are_silent.end());
  }
  if (are_silent.empty()) {
    throw Error(ErrorCode::kNotFound,
                "no container {} runs that `yoke container run` has started; see `yoke container ps`", printable(word));
  }
  constexpr size_t kMost = 5;
  const auto num_more = are_silent.size() > kMost ? are_silent.size() - kMost : 0;
  are_silent.resize(are_silent.size() - num_more);
  throw Error(ErrorCode::kUnavailable,
              "no container {} answers; it may be one whose keeper is stopped or hangs: process {}{} does not answer",
              printable(word), fmt::join(are_silent, ", "),
              num_more > 0 ? fmt::format(" (and {} more)", num_more) : "");
}

bool has_container(const std::string& name) {
  auto sockets = list_user_sockets(kKeeperService, geteuid());
  std::erase_if(sockets, [](const UserSocket& socket) { return !is_own(socket); });
  const auto rows = ask_keepers(sockets, "describe");
  return std::ranges::any_of(rows, [&](const auto& row) { return row.text("name") == name; });
}

void copy_log_of(const KeptContainerRow& row, int out, bool follows) {
  UniqueFd fd;
  std::vector<UniqueFd> files;
  std::byte word{};
  if (connect_to(row.socket, fd) == Connected::kYes) {
    constexpr std::string_view kAsk = "log\n";
    write_all(fd.value(), kAsk, "the process that keeps the container");
    pollfd news{fd.value(), POLLIN, 0};
    constexpr int kLimitMs = 2000;
    if (poll(&news, 1, kLimitMs) > 0) receive_with_fds(fd.value(), {&word, 1}, files);
  }
  if (files.empty()) {
    throw Error(ErrorCode::kFailedPrecondition,
                "{} runs under apptainer without --detach, so its output is in the terminal or the file to which it "
                "was sent",
                printable(row.text("name")));
  }
  copy_log(files[0].value(), out, fd.value(), follows);
}

bool stop_container(const KeptContainerRow& row) {
  const auto keeper = open_keeper(row);  // before it is asked, as it may then end at once
  if (!keeper || ask_keepers({row.socket}, "stop").empty()) return false;
  constexpr std::chrono::seconds kLimit{30};  // SIGKILL follows after ten
  if (keeper->wait_for_end(kLimit)) return true;
  throw Error(ErrorCode::kTimeout, "{} got SIGTERM and SIGKILL and has not ended after {} s",
              printable(row.text("name")), kLimit.count());
}

}  // namespace yoke::keep
