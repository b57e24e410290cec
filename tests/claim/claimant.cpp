// A program that `yoke claim` starts in tests: checks that nobody else has its devices. For each of them it locks a
// file in the folder that it is given, and writes `violations` there if somebody else has that lock.
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

constexpr int kMost = 16;
int locks[kMost];
volatile sig_atomic_t num_locks = 0;

/// Its own locks end before the claim does, or the next holder would find them.
void end(int /*signal*/) {
  for (int i = 0; i < num_locks; ++i) close(locks[i]);
  _exit(143);
}

}  // namespace

int main(int argc, char** argv) {
  const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
  if (argc < 3 || visible == nullptr) return 2;
  const std::string folder = argv[1];
  std::signal(SIGTERM, end);
  const std::string devices = std::string(visible) + ",";
  int num_violations = 0;
  for (size_t begin = 0, comma = 0; (comma = devices.find(',', begin)) != std::string::npos; begin = comma + 1) {
    const auto path = folder + "/" + devices.substr(begin, comma - begin);
    const int fd = open(path.c_str(), O_RDONLY);
    if (fd < 0 || num_locks == kMost) return 3;
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
      const int out = open((folder + "/violations").c_str(), O_WRONLY | O_APPEND);
      dprintf(out, "%s\n", path.c_str());
      ++num_violations;
    }
    locks[num_locks] = fd;
    num_locks = num_locks + 1;
  }
  usleep(static_cast<useconds_t>(std::atoi(argv[2])));  // clock: the work of a program
  return num_violations == 0 ? 0 : 4;
}
