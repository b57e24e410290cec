#include "yoke/base/user_socket.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "yoke/base/line_connection.h"

namespace yoke {
namespace {

constexpr const char* kService = "yoke-test";

TEST(UserSocket, IsFoundAndTrustedOnlyAsItsListener) {
  std::string name;
  const auto listener = listen_as_user(kService, &name);
  ASSERT_TRUE(listener);
  const auto parsed = parse_user_socket(kService, name);
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->pid, getpid());
  EXPECT_EQ(parsed->uid, geteuid());
  const auto listed = list_user_sockets(kService, geteuid());
  EXPECT_EQ(std::count(listed.begin(), listed.end(), *parsed), 1);
  EXPECT_FALSE(parse_user_socket("yoke", name)) << "another service";
  EXPECT_FALSE(parse_user_socket("yoke-tes", name));

  UniqueFd fd;
  EXPECT_EQ(connect_to(*parsed, fd), Connected::kYes);
  EXPECT_TRUE(accept_connection(listener.value()));
  auto liar = *parsed;
  liar.pid = 1;
  EXPECT_EQ(connect_to(liar, fd), Connected::kNo) << "the kernel says who listens";
  liar = *parsed;
  liar.uid += 1;
  EXPECT_EQ(connect_to(liar, fd), Connected::kNo);
  liar.name += "0";
  EXPECT_EQ(connect_to(liar, fd), Connected::kNo);
}

TEST(UserSocket, StartOfAProcessDistinguishesIt) {
  const auto own = start_ticks_of(getpid());
  ASSERT_TRUE(own);
  EXPECT_GT(*own, 0);
  const pid_t child = fork();
  if (child == 0) _exit(0);
  waitpid(child, nullptr, 0);
  EXPECT_FALSE(start_ticks_of(child));
}

TEST(LineConnection, PassesWholeLinesAndTheEnd) {
  std::string name;
  const auto listener = listen_as_user(kService, &name);
  UniqueFd fd;
  ASSERT_EQ(connect_to(*parse_user_socket(kService, name), fd), Connected::kYes);
  LineConnection near(std::move(fd)), far(accept_connection(listener.value()));
  EXPECT_FALSE(far.next()) << "returns at once";
  near.send("one");
  near.send("two");
  near.close();
  EXPECT_EQ(far.next(), "one");
  EXPECT_EQ(far.next(), "two");
  EXPECT_FALSE(far.next());
  EXPECT_TRUE(far.is_closed());
  far.send("nobody reads this, and no signal comes");
}

TEST(LineConnection, RefusesALineWithoutEnd) {
  std::string name;
  const auto listener = listen_as_user(kService, &name);
  UniqueFd fd;
  ASSERT_EQ(connect_to(*parse_user_socket(kService, name), fd), Connected::kYes);
  LineConnection near(std::move(fd)), far(accept_connection(listener.value()));
  near.send(std::string(70'000, 'x'));
  EXPECT_FALSE(far.next());
  EXPECT_TRUE(far.is_closed());
}

}  // namespace
}  // namespace yoke
