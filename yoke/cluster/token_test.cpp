#include "yoke/cluster/token.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <deque>
#include <fstream>

#include "tests/support/forked_process.h"
#include "tests/support/message_of.h"
#include "yoke/base/error.h"
#include "yoke/base/file.h"

namespace yoke::cluster {
namespace {

class JobToken : public testing::Test {
 protected:
  JobToken() {
    auto path = testing::TempDir() + "/yoke-token-XXXXXX";
    home_ = mkdtemp(path.data());
    environment_ = {{"HOME", home_}};
  }
  ~JobToken() override { std::filesystem::remove_all(home_); }
  std::string home_;
  Environment environment_;
};

TEST_F(JobToken, IsMadeOnceAndForItsOwnerAlone) {
  const auto token = job_token(environment_);
  EXPECT_EQ(token.size(), 64u);
  EXPECT_EQ(job_token(environment_), token);
  struct stat status {};
  ASSERT_EQ(stat(token_file(environment_).c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  // No other file is left in the folder.
  const auto folder = token_file(environment_).parent_path();
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), std::filesystem::directory_iterator()), 1);
}

TEST_F(JobToken, IsTheVariableWhereThereIsOne) {
  environment_.set("YOKE_JOB_TOKEN", "a secret of mine");
  EXPECT_EQ(job_token(environment_), "a secret of mine");
  EXPECT_FALSE(std::filesystem::exists(token_file(environment_)));
  environment_.set("YOKE_JOB_TOKEN", "easily guessed");
  EXPECT_THROW(job_token(environment_), Error);
  environment_.set("YOKE_JOB_TOKEN", "x");
  EXPECT_THAT(test::message_of([&] { job_token(environment_); }, ErrorCode::kFailedPrecondition),
              testing::StartsWith("YOKE_JOB_TOKEN has 1 byte; "));
}

// Jobs of CI and containers often have a HOME that does not exist, or is read-only.
TEST_F(JobToken, SaysWhatElseToDoWhereHomeCannotBeWritten) {
  environment_.set("HOME", "/proc/no-home");
  EXPECT_THAT(test::message_of([&] { job_token(environment_); }, ErrorCode::kNotFound),
              testing::AllOf(testing::HasSubstr("/proc/no-home/.config/yoke"),
                             testing::HasSubstr("set YOKE_JOB_TOKEN to the same secret on all nodes")));
}

TEST_F(JobToken, ThatOthersMayReadIsRefused) {
  job_token(environment_);
  chmod(token_file(environment_).c_str(), 0644);
  EXPECT_THROW(job_token(environment_), Error);
}

TEST_F(JobToken, ThatIsEmptyIsRefused) {
  job_token(environment_);
  std::ofstream(token_file(environment_)) << "\n";
  EXPECT_THROW(job_token(environment_), Error);
  std::filesystem::remove(token_file(environment_));
  ASSERT_EQ(mkfifo(token_file(environment_).c_str(), 0600), 0);
  EXPECT_THROW(job_token(environment_), Error) << "no wait for somebody who writes";
}

TEST_F(JobToken, OfAnotherUserOrBehindALinkIsRefused) {
  job_token(environment_);
  const auto file = token_file(environment_);
  const std::string kept = home_ + "/kept";
  std::filesystem::rename(file, kept);
  std::filesystem::create_symlink(kept, file);
  EXPECT_THAT(test::error_of([&] { job_token(environment_); }).what(),
              testing::AllOf(testing::HasSubstr(file.string()), testing::HasSubstr("set YOKE_JOB_TOKEN")));
  std::filesystem::remove(file);
  if (geteuid() != 0) return;  // only root can give files away
  std::filesystem::rename(kept, file);
  ASSERT_EQ(chown(file.c_str(), 65534, 65534), 0);
  EXPECT_THAT(test::message_of([&] { job_token(environment_); }, ErrorCode::kFailedPrecondition),
              testing::StartsWith(file.string() + " must belong to you"));
}

TEST_F(JobToken, IsInTheFolderForConfiguration) {
  environment_.set("XDG_CONFIG_HOME", home_ + "/config");
  EXPECT_EQ(token_file(environment_), home_ + "/config/yoke/token");
  EXPECT_THAT(test::message_of([] { token_file({}); }, ErrorCode::kFailedPrecondition),
              testing::HasSubstr("set YOKE_JOB_TOKEN to the same value on all"));
}

TEST_F(JobToken, IsOneForAllThatMakeItAtOnce) {
  auto start = make_pipe(), out = make_pipe();
  std::deque<test::ForkedProcess> makers;
  for (int i = 0; i < 8; ++i) {
    makers.emplace_back([&] {
      start.write_end.reset();
      test::read_to_end(start.read_end.value());  // until all others are here
      write_all(out.write_end.value(), job_token(environment_), "the test");
      return 0;
    });
  }
  start.write_end.reset();
  out.write_end.reset();
  const auto tokens = test::read_to_end(out.read_end.value());
  ASSERT_EQ(tokens.size(), 8 * 64U);
  EXPECT_EQ(tokens.substr(0, 7 * 64), tokens.substr(64)) << "all are the same";
  EXPECT_EQ(tokens.substr(0, 64), job_token(environment_));
  EXPECT_NE(new_token(), new_token());
}

}  // namespace
}  // namespace yoke::cluster
