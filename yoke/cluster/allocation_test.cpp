#include "yoke/cluster/allocation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "tests/support/command.h"
#include "tests/support/message_of.h"
#include "yoke/base/error.h"
#include "yoke/cluster/reach.h"
#include "yoke/cluster/resident.h"

namespace yoke::cluster {
namespace {

using test::message_of;
using testing::Contains;
using testing::HasSubstr;

Allocation example() {
  return {.job = "12",
          .name = "debug",
          .secret = "0123",
          .yoke = "/opt/yoke",
          .nodes = {{"n1", "10.77.0.11", 4711, 2, 8}, {"n2", "n2.example.org", 0, 0, 8}},
          .until = 1'795'450'311};
}

TEST(Allocation, IsTheSameAfterItWasWrittenAndRead) {
  EXPECT_EQ(parse_allocation(to_text(example())), example());
  EXPECT_EQ(parse_allocation(to_text({})), Allocation());
  auto of_cluster = example();
  of_cluster.cluster = "lumi";
  EXPECT_EQ(parse_allocation(to_text(of_cluster)), of_cluster);
}

TEST(Allocation, OtherTextsAreRefused) {
  for (const auto* text : {"", "{}", "[]", "{\"format\": 1}", "{\"format\": \"x\"}", "null"}) {
    EXPECT_THROW(parse_allocation(text), Error) << text;
  }
  auto other = to_text(example());
  other.replace(other.find("\"format\": 1"), 11, "\"format\": 2");
  EXPECT_THAT(message_of([&] { parse_allocation(other); }, ErrorCode::kDataLoss), HasSubstr("another version"));
}

TEST(Allocation, IsChosenByJobOrName) {
  const std::vector<Allocation> two = {{.job = "9", .name = "a"}, {.job = "12", .name = "b"}};
  EXPECT_EQ(choose_allocation(two, "12").name, "b");
  EXPECT_EQ(choose_allocation(two, "a").job, "9");
  EXPECT_EQ(choose_allocation({two[0]}, "").job, "9");
  EXPECT_EQ(choose_allocation({two[0]}, "last").job, "9");
  EXPECT_THAT(message_of([&] { choose_allocation(two, "last"); }), HasSubstr("name one by its job: 9 (a), 12 (b)"));
  EXPECT_THAT(message_of([&] { choose_allocation(two, "13"); }, ErrorCode::kNotFound),
              HasSubstr("no allocation 13, but these: 9 (a), 12"));
  EXPECT_THAT(message_of([] { choose_allocation({}, ""); }, ErrorCode::kNotFound),
              HasSubstr("`yoke alloc -N 2 --time 1h` gets one"));
}

TEST(Allocation, NamesAreNoNumbersAndNoOptions) {
  EXPECT_NO_THROW(check_allocation_name("debug-2"));
  for (const auto* name : {"", "12", "last", "-x", "a b", "a/b", "a\nb", "$(reboot)"}) {
    EXPECT_THROW(check_allocation_name(name), Error) << name;
  }
  EXPECT_THROW(check_allocation_name(std::string(65, 'a')), Error);
}

TEST(Allocation, FilesAreTheUsersAlone) {
  const test::TemporaryFolder folder;
  const Environment environment = {{"XDG_STATE_HOME", folder.path()}};
  EXPECT_TRUE(list_allocations(environment).empty());
  auto one = example();
  one.file = new_allocation_file(environment);
  write_allocation(one);
  struct stat status {};
  ASSERT_EQ(stat(one.file.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  ASSERT_EQ(stat(one.file.parent_path().c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700u);
  EXPECT_THAT(list_allocations(environment), testing::ElementsAre(one));
  auto request = example();
  request.nodes.clear();
  request.file = request_file(one.file);
  write_allocation(request);
  EXPECT_THAT(list_allocations(environment), testing::ElementsAre(one));  // not the request
  chmod(one.file.c_str(), 0644);
  EXPECT_THAT(message_of([&] { read_allocation(one.file); }, ErrorCode::kFailedPrecondition),
              HasSubstr("readable by nobody else"));
  EXPECT_THAT(list_allocations(environment), testing::ElementsAre(request));
  remove_allocation(one);
  EXPECT_TRUE(list_allocations(environment).empty());
  EXPECT_FALSE(std::filesystem::exists(one.file));
  EXPECT_FALSE(read_allocation(folder.path("nothing.json")));
  chmod(one.file.parent_path().c_str(), 0777);
  EXPECT_THAT(message_of([&] { new_allocation_file(environment); }, ErrorCode::kPermissionDenied),
              HasSubstr("a folder of yours"));
}

TEST(Allocation, TheLogOfOneThatEndedIsKept) {
  const test::TemporaryFolder folder;
  const Environment environment = {{"XDG_STATE_HOME", folder.path()}};
  auto one = example();
  one.cluster = "yoke";
  const auto begin = [&] {
    one.file = new_allocation_file(environment);
    write_allocation(one);
    std::ofstream(log_file(one.file)) << "srun: error: Node failure on n2\n";
  };
  begin();
  EXPECT_EQ(kept_log(one.job, environment), std::nullopt);
  end_allocation(one);
  EXPECT_TRUE(list_allocations(environment).empty());
  const auto kept = kept_log(one.job, environment);
  ASSERT_TRUE(kept);
  EXPECT_EQ(kept->filename(), one.job + ".yoke.log");
  EXPECT_EQ(test::slurp(kept->string()), "srun: error: Node failure on n2\n");
  end_allocation(one);  // every command that finds it ended does this
  EXPECT_EQ(kept_log(one.job, environment), kept);
  last_write_time(*kept, std::filesystem::file_time_type::clock::now() - std::chrono::hours(15 * 24));
  begin();
  EXPECT_EQ(kept_log(one.job, environment), std::nullopt) << "it is too old";
  remove_allocation(one);
  EXPECT_EQ(kept_log(one.job, environment), std::nullopt) << "its user gave it back";
  EXPECT_TRUE(std::filesystem::is_empty(one.file.parent_path()));
}

TEST(Resident, SaysWhereItListens) {
  const AllocationNode node{"n1", "n1", 4711, 2, 8};
  EXPECT_EQ(parse_announcement(announce(node)), node);
  for (const auto* line : {"", "hello", "yoke-resident n1 0 2 8", "yoke-resident n1 70000 2 8", "yoke-resident n1 1 2",
                           "yoke-resident n1 1 x 8"}) {
    EXPECT_FALSE(parse_announcement(line)) << line;
  }
}

TEST(Resident, CountsTheGpusThatSlurmGave) {
  EXPECT_EQ(gpus_by_slurm({{"SLURM_GPUS_ON_NODE", "4"}}), 4);
  EXPECT_EQ(gpus_by_slurm({{"SLURM_STEP_GPUS", "0,2"}}), 2);
  EXPECT_EQ(gpus_by_slurm({}), 0);
}

TEST(Reach, SaysWhichNodesDoNotAnswer) {
  auto allocation = example();
  allocation.nodes = {{"n1", "127.0.0.1", 1, 0, 1}, {"n2", "no-such-host.invalid", 1, 0, 1}};
  const auto reached = reach(allocation, allocation.nodes);
  EXPECT_EQ(reached[0].kind, Reached::Kind::kRefused);
  EXPECT_EQ(reached[0].why, "Connection refused");
  EXPECT_EQ(reached[1].kind, Reached::Kind::kUnreachable);
}

TEST(Reach, BySrunIsUnbufferedAndBesideOtherSteps) {
  const auto words = srun_agent_command(example(), "n2");
  for (const auto* one :
       {"--jobid=12", "--overlap", "--nodelist=n2", "--unbuffered", "YOKE_NODE_ADDRESS=n2.example.org", "/opt/yoke"}) {
    EXPECT_THAT(words, Contains(one));
  }
  EXPECT_EQ(words.back(), "agent");
}

}  // namespace
}  // namespace yoke::cluster
