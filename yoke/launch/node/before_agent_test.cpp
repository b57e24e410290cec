#include "yoke/launch/node/before_agent.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace yoke::launch {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr const char* kClosed = "its connection was closed";

TEST(BeforeAgent, AChangedHostKeyHasItsOwnWords) {
  // What OpenSSH 9.2 of Debian prints.
  std::vector<std::string> errors = {"@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@",
                                     "@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @",
                                     "IT IS POSSIBLE THAT SOMEONE IS DOING SOMETHING NASTY!",
                                     "Offending ED25519 key in /home/ada/.ssh/known_hosts:12",
                                     "  remove with:",
                                     "  ssh-keygen -f \"/home/ada/.ssh/known_hosts\" -R \"n1\"",
                                     "Host key for n1 has changed and you have requested strict checking.",
                                     "Host key verification failed."};
  EXPECT_THAT(why_no_agent({.errors = errors, .end = kClosed}),
              AllOf(HasSubstr("its host key has changed (Offending ED25519 key in /home/ada/.ssh/known_hosts:12)"),
                    HasSubstr("`ssh-keygen -f \"/home/ada/.ssh/known_hosts\" -R \"n1\"`")));
  errors.erase(errors.begin() + 4, errors.begin() + 6);
  EXPECT_THAT(why_no_agent({.errors = errors, .end = kClosed}), HasSubstr("`ssh-keygen -R HOST`"));
  EXPECT_THAT(
      why_no_agent({.errors = {"No ED25519 host key is known for n1 and you have requested strict checking.",
                               "Host key verification failed."},
                    .end = kClosed}),
      HasSubstr("No ED25519 host key is known for n1 and you have requested strict checking.; `ssh` to it once"));
}

TEST(BeforeAgent, TheLastLineThatSaysSomethingIsTheReason) {
  const struct {
    std::vector<std::string> errors;
    const char *out, *why;
  } cases[] = {
      {{"ssh: Could not resolve hostname n1: Name or service not known"},
       "",
       "ssh: Could not resolve hostname n1: Name or service not known"},
      {{"bash: line 1: exec: /opt/yoke: cannot execute: No such file or directory"},
       "Welcome\n",
       "bash: line 1: exec: /opt/yoke: cannot execute: No such file or directory"},
      {{"Your account has expired; please contact your system administrator.", "",
        "Connection closed by 10.77.0.1 port 22"},
       "",
       "Your account has expired; please contact your system administrator. (Connection closed by 10.77.0.1 port 22)"},
      {{"Connection to n1 closed by remote host."},
       "This account is currently not available.\n",
       "This account is currently not available. (Connection to n1 closed by remote host.)"},
      {{},
       "Welcome\nThis account is\x1b[1m locked.\n\n",
       "its connection was closed after its shell had printed \"This account is?[1m locked.\""},
      {{}, "", kClosed},
  };
  for (const auto& [errors, out, why] : cases) {
    EXPECT_EQ(why_no_agent({.errors = errors, .out = out, .end = kClosed}), why);
  }
}

TEST(BeforeAgent, AShellThatAsksIsQuoted) {
  const std::string silent = "it sent nothing for 1:00";
  EXPECT_THAT(why_no_agent({.errors = {}, .out = "Welcome\nUpdate now? [Y/n] ", .end = silent, .was_silent = true}),
              AllOf(HasSubstr(silent + " after it had printed \"Update now? [Y/n] \""), HasSubstr("[ -t 0 ]")));
  EXPECT_EQ(why_no_agent({.errors = {}, .out = "", .end = silent, .was_silent = true}), silent);
}

}  // namespace
}  // namespace yoke::launch
