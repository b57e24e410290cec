// A user's library whose static constructor runs before that of libyoke_dist. The variable EARLY chooses what it does.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <thread>

namespace {

struct Early {
  Early() {
    const char* what = std::getenv("EARLY");
    const std::string_view word = what == nullptr ? "" : what;
    if (word == "thread") std::thread([] { pause(); }).detach();
    if (word == "print") std::printf("early and not flushed; ");
    if (word == "exit") _exit(3);
  }
} early;

}  // namespace

int early_library() { return 0; }
