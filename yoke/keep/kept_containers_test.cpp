#include "yoke/keep/kept_containers.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/message_of.h"
#include "yoke/base/json.h"
#include "yoke/base/line_connection.h"
#include "yoke/base/process.h"

namespace yoke::keep {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

KeptContainerRow container_row(int64_t keeper, const char* name, Json pid) {
  return {{"", 1000, keeper}, Json{{"name", name}, {"keeper", keeper}, {"pid", std::move(pid)}}};
}

TEST(KeptContainers, AreFoundByNameOrProcess) {
  const std::vector<KeptContainerRow> rows = {container_row(10, "ada_a", 11),
                                              container_row(20, "ada_b", nullptr),
                                              container_row(30, "ada_a", 31),
                                              {{"", 1000, 40}, {}}};
  EXPECT_THAT(find_named(rows, "ada_b").found, ElementsAre(1U));
  EXPECT_THAT(find_named(rows, "ada_a").found, ElementsAre(0U, 2U)) << "two have the name";
  EXPECT_THAT(find_named(rows, "30").found, ElementsAre(2U)) << "the keeper";
  EXPECT_THAT(find_named(rows, "11").found, ElementsAre(0U)) << "the first process";
  EXPECT_THAT(find_named(rows, "40").found, IsEmpty());
  EXPECT_THAT(find_named(rows, "ada_c").are_silent, ElementsAre(40)) << "it may be this one";
}

/// A keeper in a process of its own. It answers one word, with the descriptor `log` or else with a line, and then ends.
KeptContainerRow start_keeper(const UniqueFd& log, const char* answer = R"({"name": "ada_a"})") {
  int pipe[2];
  EXPECT_EQ(pipe2(pipe, O_CLOEXEC), 0);
  const UniqueFd read_end(pipe[0]), write_end(pipe[1]);
  if (fork() == 0) {
    std::string name;
    const auto listener = listen_as_user(kKeeperService, &name);
    write_all(write_end.value(), name, "a pipe");
    pollfd news{listener.value(), POLLIN, 0};
    poll(&news, 1, -1);
    LineConnection lines(accept_connection(listener.value()));
    lines.next(std::chrono::minutes(1));
    const std::byte word{};
    const int fd = log.value();
    if (log) send_with_fds(lines.fd(), {&word, 1}, {&fd, 1});
    if (!log) lines.send(answer);
    _exit(0);
  }
  char name[200];
  const auto length = read(read_end.value(), name, sizeof name);
  return {*parse_user_socket(kKeeperService, {name, static_cast<size_t>(length)}), Json{{"name", "ada_a"}}};
}

TEST(KeptContainers, HaveTheLogThatTheirKeeperSends) {
  const auto out = to_descriptor("");
  const auto keeper = start_keeper(to_descriptor("epoch 1\n"));
  copy_log_of(keeper, out.value(), true);
  EXPECT_EQ(text_of(out), "epoch 1\n");
  waitpid(static_cast<pid_t>(keeper.socket.pid), nullptr, 0);
  EXPECT_THAT(test::message_of([&] { copy_log_of(keeper, out.value(), true); }, ErrorCode::kFailedPrecondition),
              testing::HasSubstr("ada_a runs under apptainer without --detach"));
}

TEST(KeptContainers, AreBelievedOnlyIfTheirKeeperAnswersLikeOne) {
  const auto answer_of = [](const char* answer) {
    const auto keeper = start_keeper({}, answer);
    const auto rows = ask_keepers({keeper.socket}, "describe", std::chrono::minutes(1));
    waitpid(static_cast<pid_t>(keeper.socket.pid), nullptr, 0);
    EXPECT_EQ(rows.size(), 1U) << answer;
    return rows.empty() ? std::nullopt : rows[0].json;
  };
  for (const auto* answer :
       {R"({"name": "ada_a", "engine": "/tmp/program"})", R"({"name": "--privileged", "engine": "docker"})", "[]",
        R"({"engine": "docker"})", R"({"name": "ada_a", "image": 1})", R"({"name": "ada_a", "devices": [1]})",
        R"({"name": "ada_a", "since": "x"})", R"({"name": "ada_a", "pid": "x"})", "{"}) {
    EXPECT_FALSE(answer_of(answer)) << answer;
  }
  const auto good = answer_of(R"({"name": "ada_a", "engine": "docker", "pid": null, "keeper": 1})");
  ASSERT_TRUE(good);
  EXPECT_NE(good->at("keeper"), 1) << "the kernel says which process answers";
}

TEST(KeptContainers, AreStoppedIfTheirKeeperStillRuns) {
  const auto keeper = start_keeper({});
  EXPECT_TRUE(stop_container(keeper));
  waitpid(static_cast<pid_t>(keeper.socket.pid), nullptr, 0);
  EXPECT_FALSE(stop_container(keeper));
}

}  // namespace
}  // namespace yoke::keep
