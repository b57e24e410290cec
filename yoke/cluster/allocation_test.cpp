#include "yoke/cluster/allocation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/command.h"
#include "tests/support/message_of.h"
#include "yoke/base/error.h"
#include "yoke/base/file.h"

namespace yoke::cluster {
namespace {

using test::message_of;
using testing::AllOf;
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

TEST(Allocation, WithPartsThatAreMissingOrWrongIsRefused) {
  const auto whole = nlohmann::json::parse(to_text(example()));
  for (const auto* part : {"/job", "/name", "/secret", "/yoke", "/until", "/nodes", "/nodes/1/name", "/nodes/1/address",
                           "/nodes/1/port", "/nodes/1/gpus", "/nodes/1/cpus"}) {
    const nlohmann::json::json_pointer place(part);
    auto json = whole;
    json[place.parent_pointer()].erase(place.back());
    EXPECT_THAT(message_of([&] { parse_allocation(json.dump()); }, ErrorCode::kDataLoss),
                AllOf(HasSubstr("does not describe an allocation"), HasSubstr("'" + place.back() + "'")));
    json[place] = {false};
    EXPECT_THAT(message_of([&] { parse_allocation(json.dump()); }, ErrorCode::kDataLoss),
                HasSubstr("does not describe an allocation"))
        << part;
  }
}

TEST(Allocation, OfWhichANodeIsUnknownSaysWhichItHas) {
  EXPECT_NO_THROW(check_node(example(), "n2"));
  EXPECT_EQ(message_of([] { check_node(example(), "n3"); }, ErrorCode::kNotFound),
            "n3 is no node of allocation 12; it has n1, n2");
}

TEST(Allocation, NeedsAFolder) {
  EXPECT_EQ(allocation_folder({{"HOME", "/home/ada"}}), "/home/ada/.local/state/yoke/alloc");
  EXPECT_THAT(message_of([] { allocation_folder({}); }, ErrorCode::kFailedPrecondition), HasSubstr("set HOME"));
}

TEST(Allocation, FilesThatAreNotWhatTheySeemAreLeftOut) {
  const test::TemporaryFolder folder;
  const Environment environment = {{"XDG_STATE_HOME", folder.path()}};
  auto one = example();
  one.file = new_allocation_file(environment);
  write_allocation(one);
  const auto beside = [&](const char* name) { return one.file.parent_path() / name; };
  std::filesystem::create_symlink(one.file, beside("link.json"));
  ASSERT_EQ(mkfifo(beside("fifo.json").c_str(), 0600), 0);  // who opens it waits for a writer
  std::filesystem::create_directory(beside("folder.json"));
  for (const auto* name : {"link.json", "fifo.json", "folder.json"}) {
    EXPECT_THAT(message_of([&] { read_allocation(beside(name)); }, ErrorCode::kFailedPrecondition),
                AllOf(HasSubstr(name), HasSubstr("must be yours")));
  }
  replace_file(beside("text.json"), "text", 0600);
  EXPECT_THAT(message_of([&] { read_allocation(beside("text.json")); }, ErrorCode::kDataLoss),
              AllOf(HasSubstr("text.json: it does not describe an allocation")));
  replace_file(beside("other.json"), "{\"format\": 2}", 0600);
  EXPECT_THAT(list_allocations(environment), testing::ElementsAre(one));
  if (geteuid() != 0) return;  // only root can give files away
  ASSERT_EQ(chown(one.file.c_str(), 65534, 65534), 0);
  EXPECT_THAT(message_of([&] { read_allocation(one.file); }, ErrorCode::kFailedPrecondition),
              HasSubstr("must be yours"));
}

TEST(Allocation, IsListedOnceAndInTheOrderOfJobs) {
  const test::TemporaryFolder folder;
  const Environment environment = {{"XDG_STATE_HOME", folder.path()}};
  auto one = example();
  for (const auto* job : {"12", "9", ""}) {
    for (const auto* cluster : {"lumi", "alps"}) {
      one.job = job;
      one.cluster = cluster;
      for (const bool is_ready : {false, true}) {  // such as the files of the request and of the keeper
        one.nodes = is_ready ? example().nodes : std::vector<AllocationNode>();
        one.file = new_allocation_file(environment);
        write_allocation(one);
      }
    }
  }
  std::vector<std::string> listed;
  for (const auto& found : list_allocations(environment)) {
    listed.push_back(found.job + " " + found.cluster);
    EXPECT_TRUE(found.is_ready()) << listed.back();
  }
  EXPECT_THAT(listed, testing::ElementsAre("9 alps", "9 lumi", "12 alps", "12 lumi"));
}

TEST(Allocation, TheNewestOfTheLogsIsShownAndAnEmptyOneIsNotKept) {
  const test::TemporaryFolder folder;
  const Environment environment = {{"XDG_STATE_HOME", folder.path()}};
  const auto end = [&](const std::string& cluster, const std::string& log) {
    auto one = example();
    one.cluster = cluster;
    one.file = new_allocation_file(environment);
    std::ofstream(log_file(one.file)) << log;
    end_allocation(one);
  };
  end("lumi", "");
  EXPECT_EQ(kept_log("12", environment), std::nullopt);
  end("lumi", "one\n");
  end("../../x", "two\n");
  const auto logs = allocation_folder(environment);
  ASSERT_TRUE(std::filesystem::exists(logs / "12.log")) << "a name with a slash is no part of a path";
  ASSERT_TRUE(std::filesystem::exists(logs / "12.lumi.log"));
  const auto hour = std::chrono::hours(1);
  for (const auto& [newer, older] : {std::pair("12.log", "12.lumi.log"), std::pair("12.lumi.log", "12.log")}) {
    last_write_time(logs / older, last_write_time(logs / newer) - hour);
    EXPECT_EQ(kept_log("12", environment), logs / newer);
  }
  EXPECT_EQ(kept_log("1", environment), std::nullopt);
}

}  // namespace
}  // namespace yoke::cluster
