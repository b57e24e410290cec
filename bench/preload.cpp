// How long do two ranks on libtorch take to get their first tensor, if they are started by exec, and if they are forked
// from a preloaded program? Measured from the start, and from SIGKILL of a rank. Prints JSON: medians and p99 in ms.
//
//   bench_preload [ROUNDS]
#include "yoke/launch/process/preload.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "yoke/base/environment.h"
#include "yoke/launch/process/descendants.h"

namespace {

using namespace std::chrono_literals;
using namespace yoke;
using namespace yoke::launch;
using Clock = std::chrono::steady_clock;

constexpr int kRanks = 2;

double since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

struct Rank {
  pid_t pid;
  UniqueFd out;
};

std::vector<Rank> start_all(Preload* preload, const std::vector<RankPlan>& plans) {
  const UniqueFd null(open("/dev/null", O_RDWR | O_CLOEXEC));
  std::vector<Rank> ranks;
  for (const auto& plan : plans) {
    auto out = make_pipe();
    const StartOptions options{
        .in_fd = null.value(), .out_fd = out.write_end.value(), .failures = null.value(), .file_limit = {1024, 4096}};
    const pid_t pid = preload != nullptr ? preload->start_rank(plan, options).value() : start_rank(plan, options);
    ranks.push_back({pid, std::move(out.read_end)});
  }
  for (const auto& rank : ranks) {
    char byte = 0;
    if (read(rank.out.value(), &byte, 1) != 1) throw std::runtime_error("a rank failed");
  }
  return ranks;
}

int64_t kib(pid_t pid, const std::string& field) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/smaps_rollup");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(field)) return std::stoll(line.substr(field.size()));
  }
  return 0;
}

nlohmann::json summary(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  return {{"median_ms", times[times.size() / 2]}, {"p99_ms", times[times.size() * 99 / 100]}};
}

nlohmann::json measure(bool is_preloaded, int num_rounds) {
  std::vector<RankPlan> plans(kRanks);
  for (int rank = 0; rank < kRanks; ++rank) {
    auto environment = Environment::of_process();
    environment.set("RANK", std::to_string(rank));
    environment.set("OMP_NUM_THREADS", "1");
    environment.set("YOKE_DEVICE", "cpu");
    plans[static_cast<size_t>(rank)] = {
        .rank = rank, .argv = {YOKE_FIRST_TENSOR}, .environment = environment.to_strings()};
  }
  std::vector<double> starts, restarts;
  nlohmann::json result;
  for (int round = 0; round < num_rounds; ++round) {
    const auto start = Clock::now();
    std::unique_ptr<Preload> preload;
    if (is_preloaded) {
      preload = std::make_unique<Preload>(plans, PythonLoading{});
      preload->wait(-1, 60s);
    }
    const auto keep = preload ? std::vector<pid_t>{preload->pid()} : std::vector<pid_t>();
    auto ranks = start_all(preload.get(), plans);
    starts.push_back(since(start));
    for (int i = 0; i < 10; ++i) {
      const auto failure = Clock::now();
      kill(ranks[0].pid, SIGKILL);
      pollfd end{ranks[0].out.value(), POLLIN, 0};
      poll(&end, 1, -1);
      end_descendants(keep, 5s);
      ranks = start_all(preload.get(), plans);
      restarts.push_back(since(failure));
    }
    result["rank_pss_kib"] = kib(ranks[0].pid, "Pss:");
    result["rank_private_kib"] = kib(ranks[0].pid, "Private_Dirty:");
    preload.reset();
    end_descendants({}, 5s);
  }
  result["start"] = summary(std::move(starts));
  result["restart"] = summary(std::move(restarts));
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  const int num_rounds = argc > 1 ? std::atoi(argv[1]) : 10;
  become_subreaper();
  sigset_t child;
  sigemptyset(&child);
  sigaddset(&child, SIGCHLD);
  sigprocmask(SIG_BLOCK, &child, nullptr);  // blocked, because end_descendants() waits for SIGCHLD
  const nlohmann::json result = {{"exec", measure(false, num_rounds)}, {"preload", measure(true, num_rounds)}};
  std::printf("%s\n", result.dump(2).c_str());
}
