#include "yoke/environment/kernel_process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "yoke/base/file.h"

namespace yoke::environment {
namespace {

using Words = std::vector<std::string>;

TEST(KernelProcess, ARefusalHasTheConnectionOfTheKernel) {
  const Words kernel = {"python", "-m", "ipykernel_launcher", "-f", "/run/kernel.json"};
  ASSERT_NE(connection_file(kernel), nullptr);
  EXPECT_EQ(*connection_file(kernel), "/run/kernel.json");
  EXPECT_EQ(refusal_command(kernel, "/s.py", "no\ndevice"),
            (Words{"python", "/s.py", "no device", "-f", "/run/kernel.json"}));
  EXPECT_EQ(connection_file({"python", "-f"}), nullptr);
  EXPECT_EQ(refusal_command({"python"}, "/s.py", "no"), (Words{"python", "/s.py", "no"}));
}

/// The process of a kernel: it says on `ready` that it would end with its server, and goes on without it.
[[noreturn]] void be_a_kernel(int ready, const std::string& server) {
  end_with_server({{"JPY_PARENT_PID", server}});
  const pid_t self = getpid();
  if (write(ready, &self, sizeof self) != sizeof self) _exit(1);
  for (;;) pause();
}

/// Starts a server with a kernel, and kills the server as soon as the kernel is ready. Returns the kernel, which is
/// then a child of this process.
pid_t kernel_of_ended_server() {
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  auto ready = make_pipe();
  const pid_t server = fork();
  if (server == 0) {
    if (fork() == 0) be_a_kernel(ready.write_end.value(), std::to_string(getppid()));
    for (;;) pause();
  }
  pid_t kernel = 0;
  EXPECT_EQ(read(ready.read_end.value(), &kernel, sizeof kernel), static_cast<ssize_t>(sizeof kernel));
  kill(server, SIGKILL);
  waitpid(server, nullptr, 0);
  return kernel;
}

TEST(KernelProcess, EndsWithTheServerThatStartedIt) {
  int status = 0;
  const pid_t kernel = kernel_of_ended_server();
  ASSERT_EQ(waitpid(kernel, &status, 0), kernel);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
}

}  // namespace
}  // namespace yoke::environment
