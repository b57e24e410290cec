// Tests what a rank gets when it starts: torchrun's environment, a port, arguments, and standard input.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <map>
#include <memory>
#include <sstream>

#include "tests/run/launch.h"

namespace yoke::test {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Key;
using testing::Not;
using testing::Pair;
using testing::StartsWith;

std::map<std::string, std::string> parse_environment(const std::string& text, const std::string& prefix) {
  std::map<std::string, std::string> result;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(prefix)) continue;
    const auto equals = line.find('=');
    if (equals != line.npos) result[line.substr(prefix.size(), equals - prefix.size())] = line.substr(equals + 1);
  }
  return result;
}

TEST(Environment, HasEveryVariableOfTorchrun) {
  auto options = yoke_run({"-n", "2", "env"});
  options.without = {"OMP_NUM_THREADS", "TORCH_NCCL_ASYNC_ERROR_HANDLING"};
  options.environment = {{"MASTER_PORT", "1"}, {"MASTER_ADDR", "elsewhere"}, {"WORLD_SIZE", "99"}};
  const auto result = run(options);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  for (const std::string rank : {"0", "1"}) {
    const auto environment = parse_environment(result.out, "[" + rank + "] ");
    for (const auto& [name, value] : std::map<std::string, std::string>{{"RANK", rank},
                                                                        {"LOCAL_RANK", rank},
                                                                        {"WORLD_SIZE", "2"},
                                                                        {"LOCAL_WORLD_SIZE", "2"},
                                                                        {"GROUP_RANK", "0"},
                                                                        {"GROUP_WORLD_SIZE", "1"},
                                                                        {"ROLE_RANK", rank},
                                                                        {"ROLE_NAME", "default"},
                                                                        {"ROLE_WORLD_SIZE", "2"},
                                                                        {"MASTER_ADDR", "127.0.0.1"},
                                                                        {"TORCHELASTIC_RESTART_COUNT", "0"},
                                                                        {"TORCHELASTIC_MAX_RESTARTS", "0"},
                                                                        {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                                                                        {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"}}) {
      EXPECT_THAT(environment, Contains(Pair(name, value))) << "rank " << rank;
    }
    EXPECT_THAT(environment, AllOf(Contains(Key("OMP_NUM_THREADS")), Contains(Key("MASTER_PORT"))));
    EXPECT_NE(environment.at("MASTER_PORT"), "1");
    EXPECT_THAT(environment.at("TORCHELASTIC_RUN_ID"), testing::MatchesRegex("[0-9a-f]{16}"));
  }
  EXPECT_EQ(parse_environment(result.out, "[0] ")["MASTER_PORT"], parse_environment(result.out, "[1] ")["MASTER_PORT"]);
}

/// Programs that are told "localhost" connect to [::1] first, where any user may listen while the store does not.
TEST(Environment, NamesTheAddressAtWhichTheStoreListens) {
  for (const std::vector<std::string>& options :
       {std::vector<std::string>{"--master-addr", "localhost"}, {"--rdzv-endpoint", "LocalHost:0"}}) {
    auto words = options;
    words.insert(words.end(), {"-n", "2", "--", "sh", "-c", "echo $MASTER_ADDR"});
    const auto result = run(yoke_run(words));
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.out, AllOf(HasSubstr("[0] 127.0.0.1"), HasSubstr("[1] 127.0.0.1")));
  }
}

TEST(Environment, SignalsAreIgnoredThatWereAndNoOthers) {
  const auto ignored = [](const std::string& before) {
    auto options = yoke_run({"-n", "1", "--", "grep", "SigIgn", "/proc/self/status"});
    options.argv.insert(options.argv.begin(), {"sh", "-c", before + " exec \"$@\"", "sh"});
    const auto out = run(options).out;
    return std::stoull("0" + out.substr(std::min(out.size(), out.find_first_of("0123456789abcdef", 7))), nullptr, 16);
  };
  const auto bit = [](int signal) { return uint64_t{1} << (signal - 1); };
  EXPECT_EQ(ignored(""), 0);
  EXPECT_EQ(ignored("trap '' PIPE XFSZ HUP USR1;"), bit(SIGPIPE) | bit(SIGXFSZ) | bit(SIGHUP) | bit(SIGUSR1));
}

TEST(Environment, ThePortIsHeldAndRankZeroCanListen) {
  const auto result = run(yoke_run({"-n", "1", "--", kRank, "port"}));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "ok\n");
}

// A rank 0 that ends first must not take the store away from the others. The request is that of torch's client: a
// hello, and a ping with the number 4 3 2 1, which comes back.
TEST(Environment, TheStoreOutlivesRankZero) {
  const TemporaryFolder folder;
  auto options =
      yoke_run({"-n", "3", "--", "bash", "-c",
                "[ $RANK != 0 ] || { echo $$ > new; mv new zero; exit; }; until [ -e zero ]; do sleep 0.01; done; "
                "while kill -0 $(cat zero) 2>&-; do sleep 0.01; done; exec 3<> /dev/tcp/$MASTER_ADDR/$MASTER_PORT; "
                "printf '\\0\\xce\\xf7\\x85\\x3c\\r\\4\\3\\2\\1' >&3; head -c 4 <&3 | od -An -tu1"});
  options.folder = folder.path();
  const auto result = run(options);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(lines_of(result.out), testing::UnorderedElementsAre("[1]    4   3   2   1", "[2]    4   3   2   1"));
}

TEST(Environment, RolesMayDifferByNode) {
  auto port = run(yoke_run_shell(1, "echo $MASTER_PORT")).out;  // a free port
  port.pop_back();
  const auto node = [&](const char* rank, const char* role, const char* ranks) {
    auto options = yoke_run({"--nnodes", "3", "--node-rank", rank, "--rdzv-endpoint", "127.0.0.1:" + port, "--role",
                             role, "-n", ranks, "--no-prefix", "--", "sh", "-c",
                             "echo $RANK/$WORLD_SIZE $ROLE_NAME $ROLE_RANK/$ROLE_WORLD_SIZE"});
    options.environment = {{"YOKE_JOB_TOKEN", "0123456789abcdef"}};
    return std::make_unique<Command>(options);
  };
  const auto first = node("0", "trainer", "2"), second = node("1", "reader", "1"), third = node("2", "trainer", "1");
  EXPECT_THAT(lines_of(first->wait().out), testing::UnorderedElementsAre("0/4 trainer 0/3", "1/4 trainer 1/3"));
  EXPECT_EQ(second->wait().out, "2/4 reader 0/1\n");
  EXPECT_EQ(third->wait().out, "3/4 trainer 2/3\n");
}

TEST(Environment, TorchrunsServersThatAreMissingAreNamed) {
  auto options = yoke_run_shell(1, "echo $TORCHELASTIC_HEALTH_CHECK_PORT $TORCHELASTIC_TIMER_FILE");
  options.environment = {{"TORCHELASTIC_ENABLE_FILE_TIMER", "1"},
                         {"TORCHELASTIC_TIMER_FILE", "/tmp/timers"},
                         {"TORCHELASTIC_HEALTH_CHECK_PORT", "12345"}};
  const auto result = run(options);
  EXPECT_EQ(result.out, "12345 /tmp/timers\n") << "as under torchrun";
  EXPECT_THAT(result.err, AllOf(HasSubstr("TORCHELASTIC_ENABLE_FILE_TIMER has no effect"),
                                HasSubstr("TORCHELASTIC_HEALTH_CHECK_PORT has no effect")));
  options.environment.emplace_back("TORCHELASTIC_RUN_ID", "7");
  const auto inner = run(options);
  EXPECT_EQ(inner.out, "\n") << "they belong to the torchrun around it";
  EXPECT_EQ(inner.err, "");
}

TEST(Environment, OptionsMayBeAbbreviatedAsForTorchrun) {
  const auto result = run(yoke_run({"--nproc_per=2", "--no_py", "--rol", "a", "--", "sh", "-c", "echo $ROLE_NAME"}));
  EXPECT_THAT(lines_of(result.out), testing::UnorderedElementsAre("[0] a", "[1] a")) << result.err;
  const auto refused = run(yoke_run({"--rdzv=3", "true"}));
  EXPECT_EQ(refused.exit_code, 64);
  EXPECT_THAT(refused.err,
              HasSubstr("--rdzv may be short for --rdzv-endpoint, --rdzv-backend, --rdzv-conf, --rdzv-id"));
}

TEST(Environment, TwoDashesAfterTheProgramAreDropped) {
  const auto arguments = [](std::vector<std::string> words) { return run(yoke_run(std::move(words))).out; };
  EXPECT_EQ(arguments({"echo", "--", "--r=16", "--"}), "--r=16 --\n");
  EXPECT_EQ(arguments({"--", "echo", "--", "--r=16"}), "-- --r=16\n") << "torchrun keeps it, too";
}

TEST(Environment, PythonRunsFoldersAndCompiledScripts) {
  TemporaryFolder folder;
  folder.write("app/__main__.py", "import sys; print(sys.argv[1])");
  folder.write("make",
               "import py_compile, zipapp; py_compile.compile('app/__main__.py', 'app.pyc'); "
               "zipapp.create_archive('app', 'app.pyz')");
  ASSERT_EQ(run({.argv = {"python3", "make"}, .folder = folder.path()}).exit_code, 0);
  for (const char* program : {"app", "app/", "./app", "app.pyc", "app.pyz"}) {
    auto options = yoke_run({program, "x"});
    options.folder = folder.path();
    options.environment = {{"PYTHON_EXEC", "python3"}};
    const auto result = run(options);
    EXPECT_EQ(result.out, "x\n") << program << ": " << result.err;
  }
}

TEST(Environment, AnAddressThatIsNotOursIsNamedWithItsOption) {
  const auto refusal = [](std::vector<std::string> words) {
    words.insert(words.end(), {"-n", "2", "--", "true"});
    return run(yoke_run(std::move(words))).err;
  };
  EXPECT_EQ(refusal({"--rdzv-endpoint", "192.0.2.1:29400"}),
            "yoke run: the master address 192.0.2.1 is not an address of this machine; correct --rdzv-endpoint\n");
  EXPECT_EQ(refusal({"--master-addr", "192.0.2.1"}),
            "yoke run: the master address 192.0.2.1 is not an address of this machine; correct --master-addr\n");
}

// A batch job that runs in a container may have Slurm's programs, but not its configuration.
TEST(Environment, WithoutSlurmsConfigurationRanksStartHere) {
  TemporaryFolder folder;
  folder.write("srun", "#!/bin/sh\nexit 99\n", true);
  folder.write("scontrol",
               "#!/bin/sh\necho 'scontrol: fatal: Could not establish a configuration source' >&2; exit 1\n", true);
  auto options = yoke_run_shell(1, "echo ran");
  options.environment = {{"PATH", folder.path() + ":" + std::getenv("PATH")},
                         {"SLURM_JOB_ID", "7"},
                         {"SLURM_JOB_NODELIST", "n1"},
                         {"SLURM_JOB_NUM_NODES", "1"},
                         {"SLURMD_NODENAME", "n1"},
                         {"ENVIRONMENT", "BATCH"}};
  const auto one = run(options);
  EXPECT_EQ(one.out, "ran\n");
  EXPECT_THAT(one.err,
              HasSubstr("yoke run: the ranks start without a step of Slurm, and get no signals of it: scontrol "
                        "finds no configuration of Slurm"));
  options.environment[2].second = "n[1-2]";
  options.environment[3].second = "2";
  const auto two = run(options);
  EXPECT_EQ(two.exit_code, 69);
  EXPECT_THAT(two.err, HasSubstr("in a container, mount the configuration of Slurm"));
}

TEST(Environment, ASecondRunGetsAnotherPort) {
  Command first(yoke_run_shell(2, "echo port=$MASTER_PORT; exec sleep 60"));
  ASSERT_TRUE(first.wait_for_output("[0] port="));
  const auto second = run(yoke_run_shell(2, "echo port=$MASTER_PORT"));
  EXPECT_EQ(second.exit_code, 0);
  const auto port = first.out().substr(first.out().find("port="), 10);
  EXPECT_THAT(second.out, Not(HasSubstr(port)));
  first.signal(SIGTERM);
  EXPECT_EQ(first.wait().exit_code, 143);
}

TEST(Environment, AnAskedPortIsGivenOrNamed) {
  Command holder(yoke_run_shell(1, "echo port=$MASTER_PORT; exec sleep 60"));
  ASSERT_TRUE(holder.wait_for_output("\n"));
  const auto port = holder.out().substr(5, holder.out().size() - 6);
  EXPECT_EQ(run(yoke_run({"--master_port=" + port, "true"})).exit_code, 75) << "although nobody listens on it yet";
  holder.signal(SIGTERM);
  holder.wait();
  const auto given = run(yoke_run({"--master_port=" + port, "sh", "-c", "echo $MASTER_PORT"}));
  EXPECT_EQ(given.out, port + "\n");
  const auto refused = run(yoke_run({"--master-port", "65536", "true"}));
  EXPECT_EQ(refused.exit_code, 64);
  EXPECT_THAT(refused.err, HasSubstr("65536"));
}

TEST(Environment, ArgumentsArriveAsTheyAre) {
  const auto result = run(yoke_run({"-n", "1", "printf", "<%s>", "two words", "", "\xC3\xA4\xE2\x82\xAC\n", "-n", "--",
                                    "*", "${local_rank}", "$HOME"}));
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.out, "<two words><><\xC3\xA4\xE2\x82\xAC\n><-n><--><*><0><$HOME>");
}

TEST(Environment, OnlyRankZeroReadsStandardInput) {
  auto options = yoke_run_shell(2, "read line; echo \"got <$line>\"");
  options.input = "hello\n";
  const auto result = run(options);
  EXPECT_THAT(result.out, HasSubstr("[0] got <hello>\n"));
  EXPECT_THAT(result.out, HasSubstr("[1] got <>\n"));
}

TEST(Environment, AnotherRankMayReadStandardInput) {
  auto options = yoke_run({"-n", "2", "--keyboard", "1", "--", "sh", "-c", "read line; echo \"got <$line>\""});
  options.input = "hello\n";
  EXPECT_THAT(lines_of(run(options).out), testing::UnorderedElementsAre("[0] got <>", "[1] got <hello>"));
  const auto debugger = run(yoke_run_shell(2, "[ $RANK = 0 ] || { echo bdb.BdbQuit >&2; exit 1; }; exec sleep 60"));
  EXPECT_THAT(debugger.err, HasSubstr("yoke run: rank 1 has no keyboard for its debugger; --keyboard 1 gives it the "));
  const auto refused = run(yoke_run({"-n", "2", "--keyboard", "2", "--", "true"}));
  EXPECT_EQ(refused.exit_code, 64);
  EXPECT_THAT(refused.err, HasSubstr("--keyboard 2: ranks are numbered from 0, and the job has 2"));
}

TEST(Environment, RanksHaveTheirOwnLimitsAndSignals) {
  auto options = yoke_run_shell(100, "echo $(ulimit -Sn) $(grep -E 'Sig(Blk|Ign)' /proc/self/status)");
  options.argv.insert(options.argv.begin(), {"sh", "-c", "ulimit -Sn 100; exec \"$@\"", "sh"});
  const auto result = run(options);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("[99] 100 SigBlk: 0000000000000000 SigIgn: 0000000000000000\n"));
}

TEST(Environment, NumbersOfRanks) {
  for (const char* wrong : {"0", "-5", "x", "1.5", "99999999999999999999"}) {
    const auto result = run(yoke_run({"-n", wrong, "--", "true"}));
    EXPECT_EQ(result.exit_code, 64) << wrong;
    EXPECT_THAT(result.err, HasSubstr(std::string("-n ") + wrong)) << "and what is right:";
    EXPECT_THAT(result.err, HasSubstr("auto, gpu"));
  }
  EXPECT_THAT(run(yoke_run({"--nproc_per_node=2", "echo", "x"})).out, HasSubstr("[1] x\n"));
}

TEST(Environment, AThousandRanks) {
  const auto result = Command(yoke_run({"-n", "1000", "--", "true"})).wait(milliseconds(150'000));
  // If the limit on processes is too low for the ranks, the message must say so.
  if (result.exit_code != 0) {
    EXPECT_THAT(result.err, testing::AnyOf(HasSubstr("open files"), HasSubstr("limit on processes")));
  }
}

TEST(Environment, TooFewOpenFilesIsNamed) {
  auto options = yoke_run({"-n", "1000", "--", "true"});
  options.file_limit = 512;
  const auto result = run(options);
  EXPECT_EQ(result.exit_code, 69);
  EXPECT_THAT(result.err, HasSubstr("1000 ranks need 4032 open files and the limit is 512; start at most 120 ranks"));
  options = yoke_run({"-n", "120", "--", "true"});
  options.file_limit = 512;
  EXPECT_EQ(run(options).exit_code, 0) << "and that is true";
}

// PyTorch's stores set SO_REUSEADDR. If nothing prevented that, two jobs could bind one port before their rank 0
// listens, and their ranks would use the same store.
TEST(Environment, APortIsOfOneJobAlone) {
  auto port = run(yoke_run_shell(1, "echo $MASTER_PORT")).out;  // a free port
  port.pop_back();
  Command first(yoke_run({"-n", "2", "--master-port", port, "--", "sh", "-c", "echo ready; exec sleep 60"}));
  ASSERT_TRUE(first.wait_for_output("ready")) << first.err();
  const auto second = run(yoke_run({"-n", "2", "--master-port", port, "--", "true"}));
  EXPECT_EQ(second.exit_code, 75);
  EXPECT_EQ(second.err, "yoke run: taking master port " + port +
                            ": a different job of yoke uses it; without --master-port a free one is taken\n");
  first.signal(SIGTERM);
  first.wait();
  EXPECT_EQ(run(yoke_run({"-n", "2", "--master-port", port, "--", "true"})).exit_code, 0);
  EXPECT_EQ(run(yoke_run({"-n", "2", "--master-port", "0", "--", "true"})).exit_code, 0) << "any, as torchrun has it";
}

TEST(Environment, APortOfAnotherProgramIsNamedWithIt) {
  const UniqueFd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  ASSERT_EQ(bind(listener.value(), generic, size), 0);
  ASSERT_EQ(listen(listener.value(), 1), 0);
  ASSERT_EQ(getsockname(listener.value(), generic, &size), 0);
  const auto port = std::to_string(ntohs(address.sin_port));
  const auto result = run(yoke_run({"-n", "2", "--master-port", port, "--", "true"}));
  EXPECT_EQ(result.exit_code, 75);
  EXPECT_THAT(result.err,
              testing::StartsWith("yoke run: taking master port " + port + ": Address already in use: process " +
                                  std::to_string(getpid()) + " of "));
}

TEST(Environment, PythonDoesNotKeepWhatItPrints) {
  auto options = yoke_run_shell(1, "echo $PYTHONUNBUFFERED");
  options.without = {"PYTHONUNBUFFERED"};
  EXPECT_EQ(run(options).out, "1\n");
  options.without.clear();
  options.environment = {{"PYTHONUNBUFFERED", ""}};
  EXPECT_EQ(run(options).out, "\n") << "as the user has it";
}

TEST(Environment, GpusAreCountedByTheDriver) {
  const auto count = [](const std::string& n, std::vector<std::pair<std::string, std::string>> environment) {
    auto options = yoke_run({"-n", n, "--no-prefix", "--", "sh", "-c", "echo $WORLD_SIZE"});
    environment.emplace_back("LD_LIBRARY_PATH", YOKE_FAKES_FOLDER);
    options.environment = std::move(environment);
    options.without = {"CUDA_VISIBLE_DEVICES"};
    return run(options);
  };
  EXPECT_EQ(count("gpu", {{"YOKE_FAKE_GPUS", "3"}}).out, "3\n3\n3\n");
  EXPECT_EQ(count("auto", {{"YOKE_FAKE_GPUS", "3"}, {"CUDA_VISIBLE_DEVICES", "2,0"}}).out, "2\n2\n");
  for (const char* hidden : {"", "-1"}) {
    const auto none = count("gpu", {{"YOKE_FAKE_GPUS", "3"}, {"CUDA_VISIBLE_DEVICES", hidden}});
    EXPECT_EQ(none.exit_code, 69);
    EXPECT_THAT(none.err, HasSubstr("the NVIDIA driver shows no device to this process"));
  }
  const auto cpus = count("cpu", {{"YOKE_FAKE_GPUS", "3"}});
  const auto automatic = count("auto", {{"YOKE_FAKE_GPUS", "0"}});
  EXPECT_EQ(automatic.out, cpus.out) << "without a GPU, auto is cpu";
  EXPECT_THAT(automatic.out, Not(IsEmpty()));
}

TEST(Environment, ThePlanIsShownAndNothingStarted) {
  const auto result =
      run(yoke_run({"-n", "2", "--plan", "--json", "--master-port", "4321", "--", "./absent", "${local_rank}"}));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, StartsWith("{\n  \"ranks\": [")) << "JSON is an object at the top, so that keys can be added";
  EXPECT_THAT(result.out, HasSubstr("\"MASTER_PORT\": \"4321\""));
  EXPECT_THAT(result.out, HasSubstr("\"./absent\",\n        \"1\""));
  const auto hosts = run(yoke_run({"--hosts", "a:2,b:2", "--plan", "--json", "--", "./absent"}));
  EXPECT_THAT(hosts.out, StartsWith("{\n  \"hosts\": [")) << hosts.err;
  const auto spare =
      run(yoke_run({"--hosts", "a,b", "--spares", "1", "--max-restarts", "1", "--plan", "--", "./absent"}));
  EXPECT_THAT(spare.out, HasSubstr("spare  b")) << spare.err;
  const auto refused = run(yoke_run({"--json", "--", "./absent"}));
  EXPECT_EQ(refused.exit_code, 64);
  EXPECT_THAT(refused.err, HasSubstr("--json needs --plan"));
}

TEST(Environment, EachRankHasItsCpus) {
  cpu_set_t allowed;
  ASSERT_EQ(sched_getaffinity(0, sizeof allowed, &allowed), 0);
  std::vector<std::string> cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &allowed)) cpus.push_back(std::to_string(cpu));
  }
  const auto &first = cpus.front(), &last = cpus.back();
  const auto show = std::vector<std::string>{"--", "grep", "-h", "Cpus_allowed_list", "/proc/self/status"};
  auto words = std::vector<std::string>{"-n", "2", "--bind", "cpus:" + last + "," + first};
  words.insert(words.end(), show.begin(), show.end());
  const auto bound = run(yoke_run(words));
  EXPECT_EQ(bound.exit_code, 0) << bound.err;
  EXPECT_THAT(bound.out, AllOf(HasSubstr("[0] Cpus_allowed_list:\t" + last + "\n"),
                               HasSubstr("[1] Cpus_allowed_list:\t" + first + "\n")));
  words[3] = "none";
  const auto unbound = run(yoke_run(words)).out;
  const auto own = run({.argv = {show.begin() + 1, show.end()}}).out;
  EXPECT_THAT(unbound, AllOf(HasSubstr("[0] " + own), HasSubstr("[1] " + own)));
  EXPECT_EQ(run(yoke_run({"-n", "2", "--bind", "cpus:9999,9998", "true"})).exit_code, 64);
}

}  // namespace
}  // namespace yoke::test
