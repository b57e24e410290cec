// Tests which jobs `yoke jobs` lists, and which sockets it does not trust.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstddef>
#include <map>
#include <sstream>

#include "tests/claim/attacker.h"
#include "tests/jobs/job.h"
#include "tests/support/sanitized.h"
#include "yoke/launch/job/job_client.h"

namespace yoke::test {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;
using testing::StartsWith;

std::vector<launch::JobAddress> addresses_of(pid_t pid) {
  auto addresses = find_user_sockets(read_file("/proc/net/unix"), launch::kJobService, 0);
  std::erase_if(addresses, [&](const auto& address) { return address.pid != pid; });
  return addresses;
}

TEST(Jobs, TwoAtOnceAreListed) {
  RunningJob first({"-n", "2", "--rdzv-id", "ada", "--max-restarts", "3", "--", kHang});
  auto second = RunningJob::shell(3, "echo ready; [ $RANK = 1 ] || exec sleep 1000");
  ASSERT_TRUE(first.is_ready(2));
  ASSERT_TRUE(second.is_ready(3));
  const auto one = find_job(first.pid());
  ASSERT_TRUE(one);
  EXPECT_EQ(one->at("run_id"), "ada");
  EXPECT_EQ(one->at("argv"), Json({kHang}));
  EXPECT_EQ(one->at("folder"), std::filesystem::current_path().native());
  EXPECT_EQ(one->at("num_up"), 2);
  EXPECT_EQ(one->at("max_restarts"), 3);
  ASSERT_THAT(one->at("ranks"), SizeIs(2));
  const auto& rank = one->at("ranks")[1];
  EXPECT_EQ(std::filesystem::read_symlink(fmt::format("/proc/{}/exe", rank.at("pid").get<int>())), kHang);
  EXPECT_EQ(rank.at("state"), "running");

  ASSERT_TRUE(wait_until([&] { return find_job(second.pid())->at("num_up") == 2; }));
  const auto ended = find_job(second.pid())->at("ranks")[1];
  EXPECT_EQ(ended.at("state"), "exited");
  EXPECT_EQ(ended.at("exit_code"), 0);

  const auto table = run(yoke({"jobs"}));
  EXPECT_EQ(table.exit_code, 0);
  EXPECT_THAT(table.out, AllOf(ContainsRegex(first.name() + ".* ada +yoke_test_hang +2/2 +0/3 "),
                               ContainsRegex(second.name() + ".* - +sh -c echo.* +2/3 +0/0 ")));
  const auto which = run(yoke({"logs"}));
  EXPECT_EQ(which.exit_code, 64);
  EXPECT_THAT(which.err,
              AllOf(HasSubstr("name one by its PID"), HasSubstr(first.name() + " ("), HasSubstr(second.name() + " (")));
  for (const char* command : {"logs", "stop", "stack"}) {  // checks the completion of JOB
    const auto offered = run(yoke({"complete", "--", command, ""})).out;
    EXPECT_THAT(offered, AllOf(StartsWith("words\n"), HasSubstr("\n" + first.name() + "\t" + kHang + "\n"),
                               HasSubstr("\nada\t"), HasSubstr("\n" + second.name() + "\tsh -c echo")));
  }
}

TEST(Jobs, AreWatched) {
  auto options = yoke({"jobs", "--json", "--watch", "0.05"});
  Command watching(options);
  ASSERT_TRUE(watching.wait_for_output("}\n{")) << watching.err();
  RunningJob job({"-n", "2", "--", kHang});
  EXPECT_TRUE(watching.wait_for_output("\"pid\":" + job.name() + ","));

  options = yoke({"jobs", "--watch"});
  options.on_terminal = true;
  Command screen(options);
  EXPECT_TRUE(screen.wait_for_output("every 2 s"));
  EXPECT_TRUE(screen.wait_for_output(job.name()));
  const auto wrong = run(yoke({"jobs", "--watch", "0"}));
  EXPECT_EQ(wrong.exit_code, 64);
  EXPECT_THAT(wrong.err, HasSubstr("yoke jobs: --watch 0: give 0.05 to 86400 seconds"));
}

TEST(Jobs, ARestartIsTheSameJob) {
  auto job = RunningJob({"-n", "2", "--max-restarts", "1", "--", "sh", "-c",
                         "[ $TORCHELASTIC_RESTART_COUNT = 1 ] || exit 7; echo ready; exec sleep 1000"});
  ASSERT_TRUE(job.is_ready(2));
  const auto found = find_job(job.pid());
  ASSERT_TRUE(found);
  EXPECT_EQ(found->at("num_restarts"), 1);
  EXPECT_EQ(found->at("num_up"), 2);
}

/// Returns the socket on which the launcher `pid` listens, as links in /proc/PID/fd name it: "socket:[4711]".
std::string listener_of(pid_t pid) {
  const auto text = read_file("/proc/net/unix");
  const auto addresses = addresses_of(pid);
  const auto at = addresses.empty() ? text.npos : text.find(addresses.front().name);
  if (at == text.npos) return "";
  const auto begin = text.rfind('\n', at);
  std::istringstream line(text.substr(begin + 1));
  std::string word;
  for (int field = 0; field < 7; ++field) line >> word;
  return "socket:[" + word + "]";
}

bool has_open(pid_t pid, const std::string& what) {
  for (const auto& entry : std::filesystem::directory_iterator(fmt::format("/proc/{}/fd", pid))) {
    std::error_code closed_meanwhile;
    if (std::filesystem::read_symlink(entry.path(), closed_meanwhile) == what) return true;
  }
  return false;
}

// If another process kept the launcher's socket open, its name would outlive the launcher, and clients would hang.
TEST(Jobs, TheLauncherAloneHoldsTheSocket) {
  auto job = RunningJob({"-n", "2", "--max-restarts", "1", "--", "sh", "-c",
                         "[ $TORCHELASTIC_RESTART_COUNT = 1 ] || exit 7; echo ready; exec sleep 1000"});
  ASSERT_TRUE(job.is_ready(2));
  const auto guardian = guardian_of(job.pid());
  ASSERT_TRUE(guardian);
  // The kernel returns its list of sockets in pieces. While it is read, jobs of other tests change it, so one reading
  // may miss an entry.
  std::string listener;
  EXPECT_TRUE(wait_until([&] {
    listener = listener_of(job.pid());
    return has_open(job.pid(), listener);
  }));
  EXPECT_FALSE(has_open(*guardian, listener));
  EXPECT_FALSE(has_open(find_job(job.pid())->at("ranks")[0].at("pid"), listener));
}

TEST(Jobs, NothingIsLeftOfOneThatWasKilled) {
  auto job = RunningJob::shell(2, "trap '' TERM; echo ready; while :; do sleep 0.05; done");
  ASSERT_TRUE(job.is_ready(2));
  EXPECT_THAT(addresses_of(job.pid()), SizeIs(1));
  job.signal(SIGKILL);
  EXPECT_TRUE(wait_until([&] { return addresses_of(job.pid()).empty(); }));
}

TEST(Jobs, AStoppedLauncherDelaysNobody) {
  RunningJob stopped({"-n", "2", "--", kHang}), other({"-n", "2", "--", kHang});
  ASSERT_TRUE(stopped.is_ready(2));
  ASSERT_TRUE(other.is_ready(2));
  stopped.signal(SIGSTOP);
  ASSERT_TRUE(wait_until([&] { return find_job(stopped.pid())->at("answers") == false; }));
  EXPECT_EQ(find_job(other.pid())->at("answers"), true);
  EXPECT_THAT(run(yoke({"jobs"})).out, ContainsRegex(stopped.name() + ".*stopped, by Ct"));
  EXPECT_EQ(run(yoke({"stack", stopped.name()})).exit_code, 124);
}

// Clients of the same user do not read, or send invalid requests. The job continues, and other clients are served.
TEST(Jobs, ClientsThatMisbehaveDoNoHarm) {
  auto job = RunningJob({"-n", "2", "--", "sh", "-c", "echo ready; i=0; while :; do i=$((i+1)); echo line $i; done"});
  ASSERT_TRUE(job.is_ready(2));
  const auto address = addresses_of(job.pid()).at(0);
  std::vector<launch::JobConnection> lazy;
  for (int i = 0; i < 20; ++i) {
    lazy.push_back(*launch::JobConnection::open(address, launch::JobTime::max()));
    if (i % 3 == 0) {
      lazy.back().ask_logs(true);
    } else if (i % 3 == 1) {
      const std::string garbage = std::string("{\"command\":\xff\0[[[\n", 18) + std::string(10'000, '{');
      send(lazy.back().fd(), garbage.data(), garbage.size(), MSG_NOSIGNAL);
    }
  }
  const auto found = find_job(job.pid());
  ASSERT_TRUE(found);
  EXPECT_EQ(found->at("answers"), true);
  const auto before = job.out().size();
  EXPECT_TRUE(job.wait_until([&] { return job.out().size() > before + 100'000; })) << "its output goes on";
  EXPECT_EQ(run(yoke({"stop", job.name()})).exit_code, 0);
}

class JobsOf : public testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "needs root, to be somebody else";
  }
  TemporaryFolder folder_;
};

TEST_F(JobsOf, RootAreNotSeenAndNotStoppedOfAnotherUser) {
  const auto command = for_everybody(folder_, kYoke);
  RunningJob job({"-n", "2", "--", kHang});
  ASSERT_TRUE(job.is_ready(2));
  const auto listed = run(as_somebody_else({command, "jobs"}));
  EXPECT_EQ(listed.exit_code, 0) << listed.err;
  EXPECT_THAT(listed.out, Not(HasSubstr(job.name())));
  for (const char* what : {"stop", "logs", "stack"}) {
    const auto refused = run(as_somebody_else({command, what, job.name()}));
    EXPECT_EQ(refused.exit_code, 66) << what;
  }
  EXPECT_EQ(find_job(job.pid())->at("num_up"), 2);
}

TEST_F(JobsOf, RootSeesTheJobOfAnotherUser) {
  const auto command = for_everybody(folder_, kYoke), hang = for_everybody(folder_, kHang);
  Command job(as_somebody_else({command, "run", "-n", "2", "--", hang}));
  ASSERT_TRUE(job.wait_for_output("[1] ready"));
  const auto own = run(as_somebody_else({command, "jobs"}));
  EXPECT_THAT(own.out, AllOf(HasSubstr(std::to_string(job.pid())), Not(HasSubstr("user"))));
  EXPECT_THAT(run(yoke({"jobs"})).out, ContainsRegex(fmt::format("{} +{} ", job.pid(), kSomebodyElse)));
  EXPECT_EQ(run(yoke({"stop", std::to_string(job.pid())})).exit_code, 0);
  EXPECT_EQ(job.wait().exit_code, 143);
}

/// A process of a different user that listens under the name of a job, and answers like a job. With `is_full`, the
/// queue of its socket is full, so that clients cannot connect.
class Squatter {
 public:
  /// `pid` is the PID in the name of the socket; 0 means the squatter's own.
  Squatter(int uid, pid_t pid, bool is_full = false) : pipe_(make_pipe()) {
    pid_ = fork();
    if (pid_ == 0) squat(fmt::format("yoke/{}/{}/0123456789abcdef", uid, pid == 0 ? getpid() : pid), is_full);
    char byte = 0;
    is_there_ = read(pipe_.read_end.value(), &byte, 1) == 1 && byte == 'y';
  }
  ~Squatter() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  bool is_there() const { return is_there_; }
  pid_t pid() const { return pid_; }

 private:
  [[noreturn]] void squat(const std::string& name, bool is_full) {
    if (setresuid(kSomebodyElse, kSomebodyElse, kSomebodyElse) != 0) _exit(1);
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    name.copy(address.sun_path + 1, sizeof address.sun_path - 1);
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    const auto* where = reinterpret_cast<const sockaddr*>(&address);
    bool good = bind(fd, where, size) == 0 && listen(fd, is_full ? 0 : 10) == 0;
    while (is_full && connect(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0), where, size) == 0) {
    }
    good &= write(pipe_.write_end.value(), good ? "y" : "n", 1) == 1;
    while (good && !is_full) {
      const int client = accept(fd, nullptr, nullptr);
      const auto answer = to_json(launch::Job{.argv = {"pretended"}}).dump() + '\n';
      good = client >= 0 && write(client, answer.data(), answer.size()) > 0;
    }
    while (true) pause();
  }

  Pipe pipe_;
  pid_t pid_ = -1;
  bool is_there_ = false;
};

TEST_F(JobsOf, RootAreNotBelievedUnderANameOfAnotherUser) {
  RunningJob job({"-n", "2", "--", kHang});
  Command process({.argv = {"sleep", "1000"}});
  ASSERT_TRUE(job.is_ready(2));
  const Squatter of_root(0, process.pid()), of_job(0, job.pid()), own_pid(0, 0), own_user(kSomebodyElse, process.pid()),
      full(0, getpid(), true);
  for (const auto* squatter : {&of_root, &of_job, &own_pid, &own_user, &full}) ASSERT_TRUE(squatter->is_there());
  EXPECT_THAT(addresses_of(job.pid()), SizeIs(2)) << "one of them is true";
  const auto jobs = Json::parse(run(yoke({"jobs", "--json"})).out).at("jobs");
  int num_true = 0;
  for (const auto& found : jobs) {
    EXPECT_NE(found.value("argv", Json()), Json({"pretended"})) << found;
    if (found.at("pid") == job.pid()) ++num_true;
  }
  EXPECT_EQ(num_true, 1);
  EXPECT_EQ(find_job(job.pid())->at("num_up"), 2);
  EXPECT_EQ(run(yoke({"stop", job.name()})).exit_code, 0);
}

/// Sends `answer`, and then `rest` again and again until the client hangs up.
[[noreturn]] void answer_without_end(int client, const std::string& answer, const std::string& rest) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  fcntl(client, F_SETFL, 0);
  for (std::string_view text = answer; !text.empty();) {
    const auto count = send(client, text.data(), text.size(), MSG_NOSIGNAL);
    if (count < 0) _exit(0);
    text.remove_prefix(static_cast<size_t>(count));
    if (text.empty()) text = rest;
  }
  while (true) pause();
}

/// Listens under `num` names of jobs, and answers each client in a process of its own.
void flood(int num, const std::string& answer, const std::string& rest) {
  std::vector<UniqueFd> listeners;
  std::vector<pollfd> news;
  for (int i = 0; i < num; ++i) {
    listeners.push_back(listen_as_user(launch::kJobService));
    news.push_back({listeners.back().value(), POLLIN, 0});
  }
  if (fork() != 0) return;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  signal(SIGCHLD, SIG_IGN);
  while (poll(news.data(), news.size(), -1) > 0) {
    for (const auto& listener : listeners) {
      const auto client = accept_connection(listener.value());
      if (client && fork() == 0) answer_without_end(client.value(), answer, rest);
    }
  }
  _exit(1);
}

// All that they send within a second would be gigabytes, and arrays in arrays need fifty times the memory of their
// text.
TEST_F(JobsOf, RootAreSeenAlthoughAnotherUserAnswersWithoutEnd) {
  RunningJob job({"-n", "2", "--", kHang});
  ASSERT_TRUE(job.is_ready(2));
  const std::string deep = std::string(500'000, '[') + '\n', part(1 << 16, ' ');
  const Attacker endless(kSomebodyElse, [&] { flood(40, "{", part); }),
      nested(kSomebodyElse + 1, [&] { flood(40, deep, ""); });
  const auto listed = run(yoke({"jobs", "--json"}));
  ASSERT_EQ(listed.exit_code, 0) << listed.err;
  std::map<pid_t, std::vector<bool>> answers;
  const auto jobs = Json::parse(listed.out).at("jobs");
  for (const auto& one : jobs) {
    answers[one.at("pid").get<pid_t>()].push_back(one.at("answers").get<bool>());
    if (one.at("pid") == endless.pid()) EXPECT_THAT(one.at("command"), HasSubstr("yoke_jobs_test"));
  }
  EXPECT_THAT(answers[job.pid()], testing::ElementsAre(true));
  for (const auto pid : {endless.pid(), nested.pid()}) {
    EXPECT_THAT(answers[pid], AllOf(Not(testing::IsEmpty()), testing::Each(false)));
  }
  EXPECT_THAT(run(yoke({"jobs"})).out,
              ContainsRegex(fmt::format("{} +{} +. +.does not answe", endless.pid(), kSomebodyElse)));
  rusage use = {};
  ASSERT_EQ(getrusage(RUSAGE_CHILDREN, &use), 0);
  if (!kIsSanitized) {
    EXPECT_LT(use.ru_maxrss, 200'000) << "KiB of the greatest command so far";
  }
}

}  // namespace
}  // namespace yoke::test
