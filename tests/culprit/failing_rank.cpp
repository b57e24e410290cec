// One rank of a job that goes wrong, for campaign_test.cpp and bench/failures.
//
//   failing_rank KIND RANK STEP [TIMEOUT_MS]    rank RANK fails in step STEP as KIND says, the other ranks do nothing
//   wrong
//
// Each rank prints "ready PID" after its first collective, and the one that fails "failing" right before it does.
#include <ATen/ops/full.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "yoke/base/environment.h"
#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/contract/program.h"
#include "yoke/dist/on_all_ranks.h"
#include "yoke/dist/world.h"

namespace {

using yoke::dist::World;

constexpr int64_t kNumSteps = 300;

void say(const char* text) {
  fmt::print("{}\n", text);
  std::fflush(stdout);
}

/// The work of a step between its collectives.
void compute() { std::this_thread::sleep_for(std::chrono::milliseconds(5)); }  // clock: the work of a step

/// Waits for ever, as a program does that waits for a notification which was lost.
void wait_for_nothing() {
  std::mutex mutex;
  std::condition_variable never;
  std::unique_lock lock(mutex);
  while (true) never.wait(lock);
}

/// Takes memory until the kernel ends this process. CGROUP_PROCS: the file by which a process joins a control group.
void use_up_memory() {
  if (const char* const procs = std::getenv("CGROUP_PROCS")) std::ofstream(procs) << getpid();
  std::vector<std::unique_ptr<char[]>> blocks;
  while (true) {
    constexpr size_t kBlock = 1 << 20;
    blocks.push_back(std::make_unique<char[]>(kBlock));
    std::memset(blocks.back().get(), 1, kBlock);
  }
}

/// The parent of a vfork waits in the kernel, in state D, until its child has ended.
void sleep_in_kernel() {
  if (vfork() == 0) {
    while (true) pause();
  }
}

void write_to_full_disk() {
  const yoke::UniqueFd fd(open("/dev/full", O_WRONLY | O_CLOEXEC));
  if (write(fd.value(), "x", 1) != 1) throw std::system_error(errno, std::generic_category(), "writing the log");
}

const std::map<std::string, std::function<void(World&)>>& failures() {
  static const std::map<std::string, std::function<void(World&)>> all = {
      {"none", [](World&) {}},
      // It ends.
      {"throw", [](World&) { throw std::runtime_error("no more rice"); }},
      {"bad_alloc", [](World&) { std::vector<char>(size_t{1} << 62).front() = 1; }},
      {"full_disk", [](World&) { write_to_full_disk(); }},
      {"thread_throws", [](World&) { std::thread([] { throw std::runtime_error("no rice in the thread"); }).join(); }},
      {"segv", [](World&) { raise(SIGSEGV); }},
      {"abort", [](World&) { std::abort(); }},
      {"kill", [](World&) { raise(SIGKILL); }},
      {"_exit3", [](World&) { _exit(3); }},
      {"_exit0", [](World&) { _exit(0); }},
      {"exit0", [](World&) { std::exit(0); }},
      {"oom", [](World&) { use_up_memory(); }},
      // It goes on no further.
      {"stop", [](World&) { raise(SIGSTOP); }},
      {"loop",
       [](World&) {
         while (true) static_cast<void>(getppid());
       }},
      {"deadlock", [](World&) { wait_for_nothing(); }},
      {"kernel_sleep", [](World&) { sleep_in_kernel(); }},
      // It calls other collectives than the others.
      {"other_call", [](World& world) { world.all_gather(at::full({4}, 1.0)); }},
      {"other_size", [](World& world) { world.all_reduce(at::full({999}, 1.0)); }},
      {"other_dtype", [](World& world) { world.all_reduce(at::full({1000}, 1, at::kLong)); }},
      {"alone", [](World& world) { world.all_gather_text("as if it saved"); }},
      {"message", [](World& world) { world.receive(at::full({4}, 1.0), (world.rank() + 1) % world.size()); }},
      {"skip", [](World&) {}},    // see train
      {"shared", [](World&) {}},  // see train
  };
  return all;
}

void train(World& world, const std::string& kind, int64_t failing, int64_t failing_step) {
  const auto tensor = at::full({1000}, 1.0);
  for (int64_t step = 0; step < kNumSteps; ++step) {
    compute();
    const bool fails = world.rank() == failing && step == failing_step;
    if (fails) say("failing");
    if (fails) failures().at(kind)(world);
    if (kind == "shared" && step == failing_step) {
      yoke::dist::on_all_ranks(world, "the checkpoint was not written", [&] {
        if (fails) throw yoke::Error(yoke::ErrorCode::kUnavailable, "no rice on the disk");
      });
    }
    if (!fails || kind != "skip") world.all_reduce(tensor);
    if (step == 0) say(fmt::format("ready {}", getpid()).c_str());
    if (step % 7 == 3) world.barrier();
  }
  world.shutdown();
}

}  // namespace

int main(int argc, char** argv) {
  return yoke::run_program("failing_rank", [&] {
    if (argc < 4) throw std::invalid_argument("usage: failing_rank KIND RANK STEP [TIMEOUT_MS]");
    const auto timeout = argc > 4 ? yoke::parse_int(argv[4]).value() : 60'000;
    World world({.timeout = std::chrono::milliseconds(timeout)});
    train(world, argv[1], yoke::parse_int(argv[2]).value(), yoke::parse_int(argv[3]).value());
  });
}
