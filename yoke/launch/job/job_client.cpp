#include "yoke/launch/job/job_client.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <list>
#include <map>
#include <utility>

#include "yoke/base/clock.h"
#include "yoke/base/environment.h"
#include "yoke/base/json.h"
#include "yoke/base/text.h"
#include "yoke/device/process/info.h"

namespace yoke::launch {
namespace {

using std::chrono::milliseconds;

constexpr size_t kMaxAnswerBytes = 8 << 20;
constexpr size_t kMaxUserBytes = 2 * kMaxAnswerBytes;
constexpr size_t kMaxAsked = 256;       // at once, as descriptors are few
constexpr int kMaxDepth = 8;            // a job has four levels
constexpr size_t kMaxValues = 500'000;  // and about thirty events of the parser for each rank

constexpr gid_t kNobody = 65'534;

Error no_answer(const JobAddress& address) {
  return {ErrorCode::kDataLoss, "job {}: its process does not answer as `yoke run` does", address.pid};
}

/// Sorts own sockets first, and then those of users who have few.
void sort_to_ask(std::vector<JobAddress>& addresses) {
  std::map<int64_t, size_t> num_sockets;
  for (const auto& address : addresses) ++num_sockets[address.uid];
  std::ranges::stable_sort(addresses, {}, [&](const JobAddress& address) {
    return std::pair(address.uid != int64_t{geteuid()}, num_sockets[address.uid]);
  });
}

Connected try_to_connect(const JobAddress& address, UniqueFd& fd) {
  try {
    return connect_to(address, fd);
  } catch (const Error&) {  // out of descriptors
    return Connected::kBusy;
  }
}

std::string listed(const std::vector<FoundJob>& jobs) {
  std::string text;
  for (const auto& [address, job] : jobs) {
    text += fmt::format("{}{}", text.empty() ? "" : ", ", address.pid);
    if (job) text += fmt::format(" ({})", job->argv.empty() ? "" : fit(printable(job->argv.front()), 40));
  }
  return text;
}

}  // namespace

JobConnection::JobConnection(JobAddress address, UniqueFd fd)
    : address_(std::move(address)),
      fd_(std::move(fd)),
      rights_{.uid = static_cast<uid_t>(address_.uid), .gid = kNobody} {
  if (auto rights = rights_of_peer(fd_.value())) rights_ = std::move(*rights);
}

std::optional<JobConnection> JobConnection::open(const JobAddress& address, JobTime until) {
  UniqueFd fd;
  auto connected = connect_to(address, fd);
  while (connected == Connected::kBusy && Clock::now() < until) {
    poll(nullptr, 0, 5);
    connected = connect_to(address, fd);
  }
  if (connected != Connected::kYes) return std::nullopt;
  return JobConnection(address, std::move(fd));
}

void JobConnection::ask_job() { ask({{"command", "job"}}); }
void JobConnection::ask_stop(bool now) { ask({{"command", "stop"}, {"now", now}}); }
void JobConnection::ask_logs(bool follow, std::optional<int64_t> last, std::optional<int64_t> rank) {
  Json question = {{"command", "logs"}, {"follow", follow}};
  if (last) question["last"] = *last;
  if (last && rank) question["rank"] = *rank;
  ask(question);
}

void JobConnection::ask(const Json& question) {
  const auto text = question.dump() + '\n';  // the question fits into the socket's buffer
  if (fd_ && send(fd_.value(), text.data(), text.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(text.size())) {
    fd_.reset();
  }
}

/// Returns false if nothing arrived in time, or the launcher has closed the connection.
bool JobConnection::receive(JobTime until) {
  while (fd_) {
    char buffer[1 << 16];
    const ssize_t count = recv(fd_.value(), buffer, sizeof buffer, MSG_DONTWAIT);
    if (count > 0) {
      received_.erase(0, std::exchange(num_taken_, 0));
      received_.append(buffer, static_cast<size_t>(count));
      if (received_.size() > kMaxAnswerBytes) throw no_answer(address_);
      return true;
    }
    if (count == 0 || (errno != EAGAIN && errno != EINTR)) {
      fd_.reset();
      return false;
    }
    const auto now = Clock::now();
    if (now >= until) return false;
    const auto left = std::min<Clock::duration>(until - now, std::chrono::minutes(1));
    pollfd news{fd_.value(), POLLIN, 0};
    poll(&news, 1, static_cast<int>(std::chrono::ceil<milliseconds>(left).count()));
  }
  return false;
}

std::optional<std::string_view> JobConnection::first_line() const {
  const auto left = std::string_view(received_).substr(num_taken_);
  const auto end = left.find('\n');
  return end == left.npos ? std::nullopt : std::optional(left.substr(0, end));
}

void JobConnection::close() { fd_.reset(); }

std::optional<Job> JobConnection::read_job(JobTime until) {
  while (!first_line()) {
    if (!receive(until)) return std::nullopt;
  }
  const auto line = *first_line();
  num_taken_ += line.size() + 1;
  size_t num_values = 0;
  const auto check_size = [&](int depth, Json::parse_event_t /*event*/, const Json& /*value*/) {
    return depth <= kMaxDepth && ++num_values <= kMaxValues ? true : throw no_answer(address_);
  };
  try {
    return parse_job(Json::parse(line, check_size));
  } catch (const std::exception&) {  // of nlohmann's, or of parse_job()
    throw no_answer(address_);
  }
}

std::optional<RecentLines::Line> JobConnection::read_line(JobTime until) {
  do {
    if (auto line = take_line()) return line;
  } while (!is_over_ && receive(until));
  return std::nullopt;
}

std::optional<RecentLines::Line> JobConnection::take_line() {
  const auto header = first_line();
  if (!header) return std::nullopt;
  try {
    const auto json = Json::parse(*header);
    is_over_ = json.contains("end");
    if (is_over_) return std::nullopt;
    const auto num_bytes = json.at("bytes").get<size_t>();
    if (num_bytes > RecentLines::kMaxLineBytes) throw no_answer(address_);
    const auto begin = num_taken_ + header->size() + 1;
    if (received_.size() < begin + num_bytes) return std::nullopt;
    RecentLines::Line line{
        .rank = json.at("rank"),
        .stream = json.at("stream").get<std::string>() == "stderr" ? LineStream::kErr : LineStream::kOut,
        .text = received_.substr(begin, num_bytes),
        .num_missed = json.at("missed"),
        .num_gone = json.value("gone", uint64_t{0})};
    num_taken_ = begin + num_bytes;
    return line;
  } catch (const nlohmann::json::exception&) {
    throw no_answer(address_);
  }
}

std::vector<FoundJob> find_jobs(milliseconds patience) {
  const auto until = Clock::now() + patience;
  auto addresses = list_user_sockets(kJobService, geteuid());
  sort_to_ask(addresses);
  std::vector<FoundJob> jobs;
  std::list<JobConnection> asked;
  std::map<int64_t, size_t> num_bytes;  // by user
  const auto is_done = [&](JobConnection& connection) {
    const auto num_before = connection.num_received();
    try {
      auto job = connection.read_job(JobTime::min());
      auto& total = num_bytes[connection.address().uid] += connection.num_received() - num_before;
      if (total > kMaxUserBytes) throw no_answer(connection.address());
      if (!job) return connection.is_closed();
      job->pid = connection.address().pid;
      jobs.push_back({connection.address(), std::move(job)});
    } catch (const Error&) {
      jobs.push_back({connection.address(), std::nullopt});
    }
    return true;
  };
  while (true) {
    std::erase_if(addresses, [&](const JobAddress& address) {
      if (asked.size() >= kMaxAsked) return false;
      UniqueFd fd;
      const auto connected = try_to_connect(address, fd);
      if (connected == Connected::kBusy) return false;  // maybe no launcher, so it is asked last
      if (connected == Connected::kNo) return true;
      asked.push_back(JobConnection(address, std::move(fd)));
      asked.back().ask_job();
      return true;
    });
    // After each answer the first ones are looked at again: parsing those of others must not take their time.
    const auto done = std::ranges::find_if(asked, is_done);
    const bool is_some_done = done != asked.end();
    if (is_some_done) asked.erase(done);
    const auto left = std::chrono::ceil<milliseconds>(until - Clock::now()).count();
    if ((addresses.empty() && asked.empty()) || left <= 0) break;
    if (is_some_done) continue;
    std::vector<pollfd> polls;
    for (const auto& connection : asked) polls.push_back({connection.fd(), POLLIN, 0});
    poll(polls.data(), polls.size(), static_cast<int>(addresses.empty() ? left : std::min<int64_t>(left, 5)));
  }
  for (const auto& connection : asked) jobs.push_back({connection.address(), std::nullopt});
  std::ranges::sort(jobs, [](const auto& a, const auto& b) { return a.address.pid < b.address.pid; });
  return jobs;
}

const FoundJob& choose_job(const std::vector<FoundJob>& jobs, const std::string& name) {
  if (jobs.empty()) throw Error(ErrorCode::kNotFound, "no job of this user runs here under yoke");
  const auto pid = parse_int(name);
  std::vector<const FoundJob*> meant;
  for (const auto& found : jobs) {
    if (pid && found.address.pid == *pid) return found;
    const bool is_meant = name.empty() ? found.address.uid == geteuid() : found.job && found.job->run_id == name;
    if (is_meant) meant.push_back(&found);
  }
  if (meant.size() == 1) return *meant.front();
  if (name.empty() && meant.empty()) {
    throw Error(ErrorCode::kNotFound, "no job of this user runs here; name a job of a different user by its PID: {}",
                listed(jobs));
  }
  if (name.empty()) {
    throw Error(ErrorCode::kInvalidArgument, "{} jobs run here; name one by its PID: {}; see `yoke jobs`", jobs.size(),
                listed(jobs));
  }
  if (meant.empty()) {
    throw Error(ErrorCode::kNotFound, "no job `{}` runs here, but these do: {}; see `yoke jobs`", printable(name),
                listed(jobs));
  }
  std::vector<FoundJob> those;
  for (const auto* found : meant) those.push_back(*found);
  throw Error(ErrorCode::kInvalidArgument, "{} jobs have the run id `{}`; name the PID: {}; see `yoke jobs`",
              meant.size(), printable(name), listed(those));
}

Error does_not_answer(int64_t launcher) {
  const auto state = device::describe_process(launcher).state.value_or('?');
  if (state == 'T' || state == 't') {
    return {ErrorCode::kTimeout,
            "job {} does not answer: its `yoke run` is stopped (Ctrl-Z?); `kill -CONT {}` lets it go on", launcher,
            launcher};
  }
  return {ErrorCode::kTimeout,
          "job {} does not answer (its `yoke run` is in state {}); `kill -KILL {}` ends it with its ranks", launcher,
          state, launcher};
}

OpenJob open_job(const std::string& name) {
  const auto jobs = find_jobs();
  const auto& found = choose_job(jobs, name);
  auto connection = JobConnection::open(found.address, Clock::now() + std::chrono::seconds(1));
  if (!connection) throw Error(ErrorCode::kNotFound, "job {} has just ended", found.address.pid);
  auto job = found.job;
  const auto state = device::describe_process(found.address.pid).state.value_or('?');
  if (!job && state != 'T' && state != 't') {  // this is the job that is wanted, and its machine may be very busy
    connection->ask_job();
    job = connection->read_job(Clock::now() + std::chrono::seconds(10));
    if (job) job->pid = found.address.pid;
  }
  if (!job) throw does_not_answer(found.address.pid);
  return {std::move(*job), std::move(*connection)};
}

}  // namespace yoke::launch
