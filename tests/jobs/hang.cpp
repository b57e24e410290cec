// yoke_test_hang: a rank that waits in a function with a known name.
//
//   yoke_test_hang [RANK]          waits in wait_here(); rank RANK waits in wait_elsewhere()
//   yoke_test_hang hidden          waits in wait_here(), and prevents debuggers from attaching
//   yoke_test_hang threads [RANK]  also has threads, whose numbers and positions differ from rank to rank, as with
//   Gloo and OpenMP: rank R has R + 2 threads in pool_thread() and one in loop_thread()
#include <poll.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

extern "C" {
__attribute__((noinline)) void wait_here() {
  while (true) pause();
}

__attribute__((noinline)) void wait_elsewhere() {
  while (true) pause();
}

__attribute__((noinline)) void wait_for_work() {
  while (true) pause();
}

__attribute__((noinline)) void do_work() {
  while (true) poll(nullptr, 0, 1'000'000);
}

__attribute__((noinline)) void* pool_thread(void* is_idle) {
  is_idle != nullptr ? wait_for_work() : do_work();
  return nullptr;
}

__attribute__((noinline)) void* loop_thread(void* is_idle) {
  is_idle != nullptr ? wait_for_work() : do_work();
  return nullptr;
}
}

/// Counts the threads of this process that sleep according to the kernel.
static int num_sleeping_threads() {
  int count = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream file(task.path() / "stat");
    const std::string text(std::istreambuf_iterator<char>(file), {});
    const auto end_of_name = text.rfind(')');
    if (end_of_name != std::string::npos && text.substr(end_of_name, 3) == ") S") ++count;
  }
  return count;
}

int main(int argc, char** argv) {
  std::string_view what = argc > 1 ? argv[1] : "";
  const char* text = std::getenv("RANK");
  const std::string_view rank = text != nullptr ? text : "";
  if (what == "hidden") prctl(PR_SET_DUMPABLE, 0);
  if (what == "threads") {
    const int number = text != nullptr ? std::atoi(text) : 0;
    static int yes = 1;
    const auto start = [](void* (*function)(void*), bool is_idle) {
      pthread_t thread;
      pthread_create(&thread, nullptr, function, is_idle ? &yes : nullptr);
    };
    for (int i = 0; i < number + 2; ++i) start(pool_thread, i % 2 == 0);
    start(loop_thread, number % 2 == 0);
    while (num_sleeping_threads() < number + 3) usleep(1000);
    what = argc > 2 ? argv[2] : "";
  }
  std::puts("ready");
  std::fflush(stdout);
  if (!rank.empty() && what == rank) wait_elsewhere();
  wait_here();
}
