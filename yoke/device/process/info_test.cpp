#include "yoke/device/process/info.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <thread>

#include "yoke/base/file.h"
#include "yoke/device/json.h"

namespace yoke::device {
namespace {

using namespace std::string_literals;
using testing::HasSubstr;

const std::string kAfterName =
    " S 17 21 21 34816 21 4194304 105 0 0 0 12 34 0 0 20 0 3 0 98765 9999 42 18446744073709551615 1 1 0 0\n";

TEST(ProcessStat, OfNastyNames) {
  for (const std::string name :
       {"python", "", ")", "a) S 1 2 (b", "new\nline", "\x1b[31m\xff", "tmux: server", "((("}) {
    const auto stat = parse_process_stat("21 (" + name + ")" + kAfterName);
    ASSERT_TRUE(stat) << name;
    EXPECT_EQ(*stat, (ProcessStat{name, 'S', 17, 46, 98765, 42}));
  }
}

TEST(ProcessStat, RefusesWhatIsNoWholeLine) {
  const auto whole = "21 (x)" + kAfterName;
  for (size_t size = 0; size < whole.find(" 42 ") + 2; ++size) {
    EXPECT_EQ(parse_process_stat(whole.substr(0, size)), std::nullopt) << size;
  }
  for (const auto& text : {"21 )x(" + kAfterName, "21 (x) S x 0 0 0 0 0 0 0 0 0 1 2 0 0 0 0 0 0 3 0 4 0\n"s,
                           "21 (x) S 1 0 0 0 0 0 0 0 0 0 1 2 0 0 0 0 0 0 -3 0 4 0\n"s,
                           "21 (x) S 1 0 0 0 0 0 0 0 0 0 99999999999999999999 2 0 0 0 0 0 0 3 0 4 0\n"s}) {
    EXPECT_EQ(parse_process_stat(text), std::nullopt) << text;
  }
}

TEST(Command, JoinsArguments) {
  EXPECT_EQ(join_command("python\0train.py\0--lr\0000.1\0"s), "python train.py --lr 0.1");
  EXPECT_EQ(join_command("a\0\0b\0"s), "a  b");
  EXPECT_EQ(join_command(""), "");
  EXPECT_EQ(join_command("\0\0"s), "");
  EXPECT_EQ(join_command("nginx: worker process\0\0\0\0"s), "nginx: worker process");
  EXPECT_EQ(join_command("sshd: ada [priv]      "), "sshd: ada [priv]");
}

TEST(Command, HasTheNameThatPeopleGiveIt) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"/usr/bin/ffmpeg\0-i\0x\0"s, "ffmpeg"},
      {"./train\0--epochs\0005\0"s, "train"},
      {"/opt/my tools/run it\0"s, "run it"},
      {"python3.11\0-u\0/home/ada/train.py\0--lr\0001\0"s, "train.py"},
      {"/venv/bin/python\0train.py\0-m\0x\0"s, "train.py"},
      {"python\0-m\0torch.distributed.run\0--nproc-per-node\0008\0"s, "torch.distributed.run"},
      {"python\0-Wignore\0-um\0vllm.entrypoints.api_server\0"s, "vllm.entrypoints.api_server"},
      {"python\0-W\0ignore\0-X\0dev\0x.py\0"s, "x.py"},
      {"python\0-c\0import x; x.y()\0a.py\0"s, "python"},
      {"python\0-uc\0print()\0"s, "python"},
      {"python\0"s, "python"},
      {"python"s, "python"},
      {"python\0-m\0"s, "python"},
      {"python\0-\0"s, "-"},
      {"python-config\0--libs\0"s, "python-config"},
      {"bash\0-xe\0./run.sh\0"s, "run.sh"},
      {"/bin/bash\0-lc\0python train.py\0"s, "bash"},
      {"-bash\0"s, "-bash"},
      {"perl\0-ne\0print\0file\0"s, "perl"},
      {"julia\0--project=.\0fit.jl\0"s, "fit.jl"},
      {"ray::train()\0"s, "ray::train()"},
      {"nginx: worker process /etc/nginx\0"s, "nginx"},
      {""s, ""},
      {"\0x\0"s, ""},
  };
  for (const auto& [cmdline, name] : cases) EXPECT_EQ(short_command(cmdline), name) << join_command(cmdline);
}

/// A child that sleeps until the end of the test.
class Child {
 public:
  explicit Child(const std::function<void()>& prepare = [] {}) {
    auto ready = make_pipe();
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      prepare();
      ready.write_end.reset();
      while (true) pause();
    }
    ready.write_end.reset();
    char byte = 0;
    [[maybe_unused]] const auto count = read(ready.read_end.value(), &byte, 1);
  }
  ~Child() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_;
};

TEST(ProcessInfo, OfThisProcess) {
  const auto info = describe_process(getpid());
  EXPECT_EQ(info.is_visible, true);
  EXPECT_EQ(info.reason, "");
  EXPECT_EQ(info.uid, geteuid());
  EXPECT_EQ(info.user, user_name(geteuid()));
  EXPECT_EQ(info.parent_pid, getppid());
  EXPECT_EQ(info.state, 'R');
  EXPECT_EQ(info.name, "yoke_device_test");
  EXPECT_THAT(info.command, HasSubstr("yoke_device_test"));
  EXPECT_GT(info.resident_bytes, 1 << 20);
  EXPECT_TRUE(info.cpu_time);
  ASSERT_TRUE(info.started_at);
  const auto age = std::chrono::system_clock::now() - *info.started_at;
  EXPECT_GT(age, -std::chrono::seconds(1));
  EXPECT_LT(age, std::chrono::minutes(10));
}

TEST(ProcessInfo, OfAName) {
  const Child child([] { prctl(PR_SET_NAME, ") R 1\n\x1b[2J"); });
  const auto info = describe_process(child.pid());
  EXPECT_EQ(info.parent_pid, getpid());
  EXPECT_TRUE(info.state);
  EXPECT_TRUE(info.start_ticks);
}

TEST(ProcessInfo, OfAZombie) {
  const pid_t pid = fork();
  if (pid == 0) _exit(0);
  siginfo_t ended;
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(pid), &ended, WEXITED | WNOWAIT), 0);
  const auto info = describe_process(pid);
  EXPECT_EQ(info.is_visible, true);
  EXPECT_EQ(info.state, 'Z');
  EXPECT_EQ(info.command, "[yoke_device_tes]");
  EXPECT_EQ(info.name, "yoke_device_tes");
  waitpid(pid, nullptr, 0);
  const auto gone = describe_process(pid);
  EXPECT_EQ(gone.is_visible, false);
  EXPECT_THAT(gone.reason, HasSubstr("PID namespace"));
}

TEST(ProcessInfo, OfWhatCannotBe) {
  for (const int64_t pid : {int64_t{0}, int64_t{-1}, INT64_MAX, INT64_MIN}) {
    const auto info = describe_process(pid);
    EXPECT_EQ(info.is_visible, false) << pid;
    EXPECT_EQ(info.uid, std::nullopt);
  }
  EXPECT_EQ(describe_process(1, "/nowhere").is_visible, false);
}

TEST(ProcessInfo, BelowAnotherRoot) {
  const auto proc = std::filesystem::temp_directory_path() / ("yoke-proc-" + std::to_string(getpid()));
  std::filesystem::create_directories(proc / "21");
  std::filesystem::create_directories(proc / "22");
  std::ofstream(proc / "stat") << "cpu  1 2 3\nintr 5 6\nctxt 7\nbtime 1700000000\nprocesses 9\n";
  std::ofstream(proc / "21/stat") << "21 (py) thon)" << kAfterName;
  std::ofstream(proc / "21/cmdline") << "python\0x.py\0"s << std::string(1 << 20, 'a');
  const auto info = describe_process(21, proc);
  EXPECT_EQ(info.name, "x.py");
  EXPECT_THAT(info.command, testing::StartsWith("python x.py aaa"));
  EXPECT_EQ(info.command.size(), size_t{64} << 10) << "and no more";
  EXPECT_EQ(info.start_ticks, 98765);
  const auto started = std::chrono::system_clock::from_time_t(1'700'000'000) +
                       std::chrono::milliseconds(int64_t{98765} * 1000 / sysconf(_SC_CLK_TCK));
  EXPECT_EQ(info.started_at, started);
  EXPECT_EQ(info.cpu_time, std::chrono::milliseconds(int64_t{46} * 1000 / sysconf(_SC_CLK_TCK)));
  EXPECT_EQ(info.resident_bytes, 42 * sysconf(_SC_PAGESIZE));
  // As with hidepid=1, the folder exists, but its files cannot be read.
  const auto closed = describe_process(22, proc);
  EXPECT_EQ(closed.is_visible, true);
  EXPECT_EQ(closed.uid, geteuid());
  EXPECT_EQ(closed.start_ticks, std::nullopt);
  EXPECT_THAT(closed.reason, HasSubstr("hidepid"));
  std::filesystem::remove_all(proc);
}

TEST(ProcessInfo, OfAllThatComeAndGo) {
  // Children end while they are read. Each description may be incomplete, but never mixes two processes.
  for (int round = 0; round < 200; ++round) {
    const pid_t pid = fork();
    if (pid == 0) _exit(0);
    std::thread reaper([pid] { waitpid(pid, nullptr, 0); });
    const auto info = describe_process(pid);
    EXPECT_EQ(info.parent_pid.value_or(getpid()), getpid());
    reaper.join();
  }
}

TEST(ProcessInfo, SurvivesJson) {
  auto info = describe_process(getpid());
  info.cpu_time = std::chrono::milliseconds(1230);
  ProcessInfo hidden;
  hidden.is_visible = false;
  hidden.reason = "hidden";
  for (const auto& each : {info, hidden, ProcessInfo{}}) {
    auto json = nlohmann::ordered_json::object();
    write_json(each, json);
    ProcessInfo back;
    read_json(nlohmann::ordered_json::parse(json.dump()), back);
    EXPECT_EQ(back, each) << json;
  }
}

TEST(ProcessInfo, JsonOfAnyBytes) {
  ProcessInfo info;
  info.command = "x\xff\x1b[2J";
  info.user = "\xc3";
  info.state = '\xfe';
  auto json = nlohmann::ordered_json::object();
  write_json(info, json);
  EXPECT_EQ(json["command"], "x\uFFFD\x1b[2J");
  EXPECT_THAT(json.dump(), HasSubstr("\\u001b[2J"));
  ProcessInfo back;
  read_json(nlohmann::ordered_json::parse(R"({"started_at_seconds": 1e300, "cpu_time_seconds": -1e300})"), back);
}

TEST(UserName, IsTheNumberWhereThereIsNone) {
  EXPECT_EQ(user_name(0), "root");
  EXPECT_EQ(user_name(3'999'999'999), "3999999999");
}

}  // namespace
}  // namespace yoke::device
