#include "yoke/launch/job/job_client.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <thread>

#include "tests/support/message_of.h"
#include "yoke/base/error.h"
#include "yoke/base/json.h"

namespace yoke::launch {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr const char* kSockets =
    "Num       RefCount Protocol Flags    Type St Inode Path\n"
    "0000000000000000: 00000002 00000000 00010000 0001 01 57821 @yoke/1000/812/00112233445566aa\n"
    // The socket of a client.
    "0000000000000000: 00000003 00000000 00000000 0001 03 57822 @yoke/1000/812/00112233445566aa\n"
    "0000000000000000: 00000002 00000000 00010000 0001 01 57823 @yoke/0/77/ffffffffffffffff\n"
    "0000000000000000: 00000002 00000000 00010000 0005 01 57824 @yoke/1000/813/00112233445566aa\n"  // SOCK_SEQPACKET
    "0000000000000000: 00000002 00000000 00010000 0001 01 57825 /run/@yoke/1000/814/00112233445566aa\n"
    "0000000000000000: 00000002 00000000 00010000 0001 01 57826 @yoke/1000/0812/00112233445566aa\n"
    "0000000000000000: 00000002 00000000 00010000 0001 01 57827 @yoke/1000/815/00112233445566aa \n"
    "0000000000000000: 00000002 00000000 00010000 0001 01 57828 @yoke/1000/816\n"
    "0000000000000000: 00000002 00000000 00010000 0001 01 57829 @yoke/-1/817/00112233445566aa\n"
    "0000000000000000: 00000002 00000000 00010000 0001 01\n"
    "@yoke/1000/818/00112233445566aa\n";

TEST(JobAddresses, OnlyWhatListensUnderAWholeName) {
  const JobAddress job{"yoke/1000/812/00112233445566aa", 1000, 812};
  EXPECT_THAT(find_user_sockets(kSockets, kJobService, 1000), ElementsAre(job));
  EXPECT_THAT(find_user_sockets(kSockets, kJobService, 1001), IsEmpty());
  EXPECT_THAT(find_user_sockets(kSockets, kJobService, 0),
              ElementsAre(JobAddress{"yoke/0/77/ffffffffffffffff", 0, 77}, job))
      << "root's and everybody's";
  EXPECT_THAT(find_user_sockets("", kJobService, 0), IsEmpty());
}

FoundJob job(int64_t pid, const std::string& run_id) {
  Job job{.pid = pid, .run_id = run_id, .argv = {"./train"}};
  return {{"", 0, pid}, job};
}

std::string complaint(const std::vector<FoundJob>& jobs, const std::string& name, ErrorCode code) {
  return test::message_of([&] { choose_job(jobs, name); }, code);
}

TEST(ChooseJob, ByPidByRunIdOrAlone) {
  std::vector<FoundJob> jobs = {job(10, "ada"), job(20, "none"), job(30, "none"), job(40, "20")};
  for (auto& one : jobs) one.address.uid = geteuid();
  EXPECT_EQ(choose_job(jobs, "10").address.pid, 10);
  EXPECT_EQ(choose_job(jobs, "ada").address.pid, 10);
  EXPECT_EQ(choose_job(jobs, "20").address.pid, 20) << "a PID before a run id";
  EXPECT_THAT(complaint(jobs, "none", ErrorCode::kInvalidArgument),
              AllOf(HasSubstr("2 jobs have the run id `none`"), HasSubstr("30 (./train)"), Not(HasSubstr("10 ("))));
  EXPECT_THAT(complaint(jobs, "", ErrorCode::kInvalidArgument),
              HasSubstr("4 jobs run here; name one by its PID: 10 (./train), 20"));
  EXPECT_THAT(complaint(jobs, "50", ErrorCode::kNotFound), HasSubstr("no job `50`"));
  jobs.resize(1);
  EXPECT_EQ(choose_job(jobs, "").address.pid, 10);
  jobs[0].address.uid = geteuid() + 1;
  EXPECT_THAT(complaint(jobs, "", ErrorCode::kNotFound),
              HasSubstr("no job of this user runs here; name a job of a different user by its PID: 10 (./train)"));
  EXPECT_EQ(choose_job(jobs, "10").address.pid, 10);
  jobs[0].job.reset();  // a launcher stopped by Ctrl-Z does not answer, but its PID is known
  EXPECT_EQ(choose_job(jobs, "10").address.pid, 10);
  EXPECT_THAT(complaint({}, "", ErrorCode::kNotFound), HasSubstr("no job of this user runs here under yoke"));
}

// Any user's process may answer as a launcher does.
TEST(ParseJob, RefusesNumbersThatNoJobHas) {
  Job job{.pid = 10, .run_id = "none", .argv = {"./train"}, .host = "here", .num_ranks = 2, .world_size = 4};
  job.ranks = {{.rank = 0, .host = "here", .pid = 11}, {.rank = 1, .host = "here"}};
  const auto good = to_json(job);
  EXPECT_EQ(parse_job(good), job);
  const auto is_refused = [](const Json& json) {
    try {
      parse_job(json);
    } catch (const Error& error) {
      return error.code() == ErrorCode::kDataLoss;
    }
    return false;
  };
  for (const auto* key : {"num_ranks", "world_size", "num_restarts", "max_restarts", "restart_steps"}) {
    for (const auto& value : {Json(-1), Json(INT64_MIN), Json(UINT64_MAX), Json(1e300), Json(1.5), Json("1")}) {
      auto bad = good;
      bad[key] = value;
      EXPECT_TRUE(is_refused(bad)) << key << " " << value;
    }
  }
  auto bad = good;
  bad["world_size"] = 1;
  EXPECT_TRUE(is_refused(bad)) << "less than this launcher's own ranks";
  for (const auto& [key, value] : {std::pair("rank", -1), std::pair("local_rank", -1), std::pair("pid", 0)}) {
    bad = good;
    bad["ranks"][0][key] = value;
    EXPECT_TRUE(is_refused(bad)) << key;
  }
}

std::optional<Job> read_answer(const std::string& text) {
  int ends[2];
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  std::thread launcher([text, end = UniqueFd(ends[1])] {
    for (std::string_view left = text; !left.empty();) {
      const auto count = send(end.value(), left.data(), left.size(), MSG_NOSIGNAL);
      if (count < 0) return;  // the client has heard enough
      left.remove_prefix(static_cast<size_t>(count));
    }
  });
  std::optional<Job> job;
  try {
    JobConnection connection({"", geteuid(), getpid()}, UniqueFd(ends[0]));
    job = connection.read_job(JobTime::max());
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kDataLoss);
  }
  launcher.join();
  return job;
}

TEST(ReadJob, TakesTenThousandRanksAndNoEndlessOnes) {
  Job job{.pid = getpid(), .run_id = "none", .argv = {"./train"}, .host = "here", .num_ranks = 10'000};
  for (int64_t i = 0; i < job.num_ranks; ++i) {
    const auto file = fmt::format("{}/{}/stdout.log", std::string(100, 'x'), i);
    job.ranks.push_back({.rank = i, .host = "here", .pid = 4'000'000, .out = {.file = file}, .err = {.file = file}});
  }
  const auto answer = read_answer(json_line(to_json(job)) + '\n');
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->ranks.size(), 10'000U);
  job.argv.assign(600'000, "");
  EXPECT_FALSE(read_answer(json_line(to_json(job)) + '\n')) << "many small values";
  EXPECT_FALSE(read_answer(std::string(9 << 20, ' ') + '\n')) << "long";
  EXPECT_FALSE(read_answer(std::string(100'000, '[') + std::string(100'000, ']') + '\n')) << "deep";
}

}  // namespace
}  // namespace yoke::launch
