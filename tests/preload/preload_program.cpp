// A rank for tests/preload that prints its properties as a line of JSON.
//
//   preload_program          ends with exit code 7
//   preload_program wait     waits for ever
#include <ATen/Parallel.h>
#include <ATen/ops/ones.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string_view>

#include "yoke/dist/plug.h"

int main(int argc, char** argv) {
  nlohmann::json facts;
  facts["arguments"] = std::vector<std::string>(argv, argv + argc);
  size_t num_variables = 0;
  std::string environment;
  for (char** variable = environ; *variable != nullptr; ++variable, ++num_variables) (environment += *variable) += '\n';
  facts["num_variables"] = num_variables;
  facts["environment"] = std::hash<std::string>{}(environment);
  facts["rank"] = std::string(std::getenv("RANK"));
  std::string fds;
  for (int fd = 0; fd < 1024; ++fd) {
    if (fcntl(fd, F_GETFD) >= 0) fds += std::to_string(fd) + (fcntl(fd, F_GETFD) == FD_CLOEXEC ? "c " : " ");
  }
  facts["descriptors"] = fds;
  cpu_set_t cpus;
  sched_getaffinity(0, sizeof cpus, &cpus);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &cpus)) facts["cpus"].push_back(cpu);
  }
  facts["is_session_leader"] = getsid(0) == getpid();
  int death_signal = 0;
  prctl(PR_GET_PDEATHSIG, &death_signal);
  facts["death_signal"] = death_signal;
  sigset_t mask;
  sigprocmask(SIG_SETMASK, nullptr, &mask);
  for (int number = 1; number < 65; ++number) {
    struct sigaction action {};
    if (sigismember(&mask, number) == 1) facts["blocked"].push_back(number);
    if (sigaction(number, nullptr, &action) == 0 && action.sa_handler != SIG_DFL)
      facts["not_default"].push_back(number);
  }
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  facts["file_limit"] = {limit.rlim_cur, limit.rlim_max};
  facts["program"] = std::filesystem::read_symlink("/proc/self/exe").string();
  facts["num_threads"] = at::get_num_threads();
  // This operation is so large that it uses all of libtorch's threads. A fork does not copy threads, so this would hang
  // if the thread pool had been created before the fork.
  facts["product"] = at::ones({300, 300}).mm(at::ones({300, 300})).sum().item<double>();
  facts["plug"] = yoke::dist::plug_status().reason;
  std::printf("%s\n", facts.dump().c_str());
  std::fflush(stdout);
  if (argc > 1 && std::string_view(argv[1]) == "wait") {
    while (true) pause();
  }
  return 7;
}
