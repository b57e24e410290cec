// yoke_test_hang: a rank that waits in a function of a known name.
//
//   yoke_test_hang [RANK]     in wait_here(); the rank of that number in wait_elsewhere()
//   yoke_test_hang hidden     in wait_here(), and not to be looked into
#include <sys/prctl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

extern "C" {
__attribute__((noinline)) void wait_here() {
  while (true) pause();
}

__attribute__((noinline)) void wait_elsewhere() {
  while (true) pause();
}
}

int main(int argc, char** argv) {
  const std::string_view what = argc > 1 ? argv[1] : "";
  if (what == "hidden") prctl(PR_SET_DUMPABLE, 0);
  std::puts("ready");
  std::fflush(stdout);
  const char* rank = std::getenv("RANK");
  if (rank != nullptr && what == rank) wait_elsewhere();
  wait_here();
}
