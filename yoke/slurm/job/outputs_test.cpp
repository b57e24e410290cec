#include "yoke/slurm/job/outputs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/command.h"
#include "tests/support/message_of.h"
#include "yoke/base/error.h"

namespace yoke::slurm {
namespace {

using testing::ElementsAre;

TEST(SlurmOutputs, HaveTheRankInTheirNames) {
  EXPECT_EQ(parse_rank_output("/a/slurm-13-rank10.out"),
            (RankOutput{.path = "/a/slurm-13-rank10.out", .job_id = "13", .is_node = false, .index = 10}));
  EXPECT_EQ(parse_rank_output("slurm-13_4-node0.out")->job_id, "13_4");
  EXPECT_EQ(to_text(*parse_rank_output("slurm-13_4-node0.out")), "node 0");
  for (const auto* name : {"slurm-13.out", "slurm-13-rank.out", "slurm-13-rank1.out.0", "slurm-13-rank01.out",
                           "slurm--rank1.out", "slurm-x-rank1.out", "slurm-13-task1.out", "slurm-.out", "rank1.out"}) {
    EXPECT_EQ(parse_rank_output(name), std::nullopt) << name;
  }
}

TEST(SlurmOutputs, NeedAFolder) {
  test::TemporaryFolder folder;
  std::filesystem::create_directory(folder.path("logs"));
  struct Row {
    std::string pattern, missing;
  };
  const std::vector<Row> rows = {{"x.out", ""},
                                 {"logs/%j.out", ""},
                                 {"nowhere/%j.out", "nowhere"},
                                 {"logs/deep/%j.out", "logs/deep"},
                                 {"logs/%x/%j.out", ""},
                                 {folder.path("logs/a.out"), ""},
                                 {folder.path("no/a.out"), folder.path("no")},
                                 {"/nodes-alone-have/this/a.out", ""}};
  for (const auto& [pattern, missing] : rows) {
    EXPECT_EQ(missing_output_folder(pattern, folder.path()).value_or("").string(), missing) << pattern;
  }
  EXPECT_NO_THROW(require_plain_folder("/home/ada/my runs", ""));
  for (const auto* name : {"/home/ada/a\\b", "/home/ada/50%", "/home/ada/a\nb"}) {
    const auto error = test::error_of([&] { require_plain_folder(name, "choose another one"); });
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument) << name;
    EXPECT_THAT(error.what(), testing::HasSubstr("; choose another one")) << name;
  }
}

TEST(SlurmOutputs, OfAJobAreSortedByRank) {
  test::TemporaryFolder folder;
  for (const auto* name : {"slurm-1-rank10.out", "slurm-1-rank2.out", "slurm-1_2-rank0.out", "slurm-11-rank0.out"}) {
    folder.write(name, "");
  }
  std::vector<std::string> names;
  for (const auto& output : rank_outputs(folder.path(), "1")) names.push_back(to_text(output));
  EXPECT_THAT(names, ElementsAre("rank 2", "rank 10"));
  EXPECT_TRUE(rank_outputs(folder.path("none"), "1").empty());
}

TEST(SlurmOutputs, OfEarlierRunsHaveNumbers) {
  test::TemporaryFolder folder;
  for (const auto* name : {"a", "a.0", "a.1", "a.3"}) folder.write(name, "");
  EXPECT_THAT(kept_outputs(folder.path("a")), ElementsAre(folder.path("a.0"), folder.path("a.1")));
}

TEST(SlurmOutputs, AreKeptUnderOtherNames) {
  test::TemporaryFolder folder;
  for (const auto* name : {"a", "a.0", "b"}) folder.write(name, name);
  KeptOutputs kept;
  for (const auto* name : {"a", "b", "none"}) kept.keep(folder.path(name));
  EXPECT_EQ(test::slurp(folder.path("a.1")), "a");
  EXPECT_EQ(kept.text(), "what it has printed is in " + folder.path("a.1") + ", " + folder.path("b.0"));
  kept.undo();
  EXPECT_EQ(test::slurp(folder.path("a")), "a");
  EXPECT_EQ(test::slurp(folder.path("a.0")), "a.0");
  EXPECT_EQ(kept.text(), "");
}

}  // namespace
}  // namespace yoke::slurm
