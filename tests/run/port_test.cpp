// Tests what other users of the machine can do with MASTER_PORT.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <csignal>

#include "tests/claim/attacker.h"
#include "tests/run/launch.h"

namespace yoke::test {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr uid_t kNobody = 65'534;

int port_in(const std::string& out) { return std::stoi(out.substr(out.find("port=") + 5)); }

sockaddr_in address_of(int port) {
  sockaddr_in address{.sin_family = AF_INET, .sin_port = htons(static_cast<uint16_t>(port))};
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

/// Asks the store for the number of its keys. Returns the number of bytes of the answer.
ssize_t ask_store(int port) {
  const UniqueFd client(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const auto address = address_of(port);
  if (connect(client.value(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) return -1;
  const char request[] = {0, '\xce', '\xf7', '\x85', '\x3c', 7};
  if (send(client.value(), request, sizeof request, MSG_NOSIGNAL) < 0) return 0;
  char answer[16];
  return std::max<ssize_t>(0, recv(client.value(), answer, sizeof answer, 0));
}

/// Whether a socket that is made as torch's store makes its own can serve the port.
bool serve(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  const auto address = address_of(port);
  return bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 && listen(fd, 1) == 0;
}

class PortTest : public testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "needs root, to be another user";
  }
};

TEST_F(PortTest, TheStoreIsForTheUserOfTheJob) {
  Command job(yoke_run_shell(2, "echo port=$MASTER_PORT; exec sleep 1000"));
  ASSERT_TRUE(job.wait_for_output("[0] port="));
  const int port = port_in(job.out());
  EXPECT_EQ(ask_store(port), 8);
  {
    const Attacker attacker(kNobody, [port] {
      for (int i = 0; i < 3; ++i) {
        if (ask_store(port) != 0) _exit(2);
      }
      if (serve(port)) _exit(3);
    });
  }
  EXPECT_TRUE(job.wait_until([&] { return job.err().find("of this host tried to use") != std::string::npos; }));
  EXPECT_EQ(ask_store(port), 8) << "the store goes on";
  job.signal(SIGTERM);
  const auto result = job.wait();
  EXPECT_THAT(result.err, HasSubstr("(uid 65534) of this host tried to use the ranks' store (MASTER_PORT, " +
                                    std::to_string(port) + "), and may not: its connections are closed"));
  const auto first = result.err.find("tried to use");
  EXPECT_EQ(result.err.find("tried to use", first + 1), std::string::npos) << "said once";
}

TEST_F(PortTest, ARankOfAnotherUserMayUseTheStore) {
  const std::string ask =
      "bash -c 'exec 3<> /dev/tcp/127.0.0.1/$MASTER_PORT; "
      "printf \"\\0\\xce\\xf7\\x85\\x3c\\7\" >&3; head -c 8 <&3 | wc -c'";
  const auto result = run(yoke_run_shell(2, "exec setpriv --reuid 65534 --clear-groups " + ask));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(lines_of(result.out), testing::UnorderedElementsAre("[0] 8", "[1] 8")) << result.err;
}

TEST_F(PortTest, WhoIsFasterAtThePortOfARankIsNamed) {
  TemporaryFolder folder;
  auto options = yoke_run_shell(1, "echo port=$MASTER_PORT; until [ -e go ]; do sleep 0.01; done; exit 7");
  options.folder = folder.path();
  Command job(options);
  ASSERT_TRUE(job.wait_for_output("\n"));
  const int port = port_in(job.out());
  EXPECT_THAT(slurp("/proc/net/unix"), Not(HasSubstr(std::to_string(port)))) << "nobody reads there which one it is";
  const Attacker attacker(kNobody, [port] {
    if (!serve(port)) _exit(2);
  });
  folder.write("go", "");
  const auto result = job.wait();
  EXPECT_EQ(result.exit_code, 7);
  EXPECT_THAT(result.err, HasSubstr("(uid 65534) of this host serves the port that rank 0 has for its store"));
}

}  // namespace
}  // namespace yoke::test
