// The job policy when a host of a job with spares is lost.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include "yoke/launch/job/job_scene_test.h"

namespace yoke::launch {
namespace {

using testing::HasSubstr;
using Kind = NodeEvent::Kind;

/// Three hosts with two ranks each, and two spares, of which the first one has one rank.
class LostHost : public testing::Test {
 protected:
  explicit LostHost(int64_t replacements = 5)
      : scene_({.min = 3, .max = 3, .hosts = {"a", "b", "c", "d", "e"}, .replacements = replacements, .spares = 2}) {
    scene_.decide();
    for (const size_t host : {0, 1, 2, 3, 4}) {
      scene_->on_agent_started(host);
      auto info = JobScene::info_of("x");
      info.num_ranks = host == 3 ? 1 : 2;
      info.replacements = replacements;
      scene_.ready(static_cast<int>(host), info);
    }
    scene_.prepared(0);
    for (const int64_t rank : {0, 1, 2, 3, 4, 5}) scene_.started(static_cast<int>(rank) / 2, rank);
  }
  void keep(int64_t rank, bool keeps = true) {
    scene_.event(static_cast<int>(rank) / 2, {.kind = Kind::kKeeps, .rank = rank, .value = keeps ? 1 : 0});
  }
  void keep_all() {
    for (const int64_t rank : {0, 1, 2, 3, 4, 5}) keep(rank);
  }
  std::string end_of_all() {
    std::string text;
    for (const int id : {0, 1, 2, 4}) {
      if (scene_->has(id) && scene_->member(id).takes_part()) text = scene_.end(id);
    }
    return text;
  }

  JobScene scene_;
};

TEST_F(LostHost, ASpareTakesItsPlaceWhileTheOthersRun) {
  keep_all();
  EXPECT_TRUE(scene_->member(2).takes_part());
  EXPECT_EQ(scene_.lose(1),
            "say yoke run: lost host b: it is off; the spare host e takes its place, and starts ranks 2-3 again, "
            "replacements 1 to 2 of 5; start 4 as node 1 of 3, rank 2 of 6, port 4000, replacement 1; forget 1; start "
            "agent 1")
      << "d has too few ranks";
  EXPECT_EQ(scene_.state(4), "running");
  for (const int64_t rank : {2, 3}) scene_.started(4, rank);
  EXPECT_EQ(scene_->ranks().num_alive(), 6);
  EXPECT_EQ(scene_.exit(4, 2, W_EXITCODE(7, 0)), "SIGTERM to 0; SIGTERM to 2; SIGTERM to 4");
  EXPECT_THAT(end_of_all(), HasSubstr("rank 2 (pid 12 on e) exited with code 7"));
}

/// It is of the list, so it stays for a restart of all.
TEST_F(LostHost, ASpareWithAnotherNumberOfRanksIsNamed) {
  scene_.lose(3);
  EXPECT_EQ(scene_->on_agent_started(3), 5);
  auto info = JobScene::info_of("x");
  info.num_ranks = 3;
  info.replacements = 5;
  EXPECT_EQ(scene_.ready(5, info),
            "say yoke run: the spare host d has 3 ranks (-n), and a spare takes the place of a host with as many: the "
            "job's hosts have 2 each; it can take a place only when all ranks start again");
}

TEST_F(LostHost, IsNamedIfARankGivesUpSoonAfterIt) {
  keep_all();
  scene_.lose(1);
  for (const int64_t rank : {2, 3}) scene_.started(4, rank);
  scene_.exit(4, 2, W_EXITCODE(75, 0));
  EXPECT_THAT(end_of_all(),
              HasSubstr("rank 2 (pid 12 on e) exited with code 75; before, lost host b: it is off, and the "
                        "spare host e took its place; stopped"));
}

TEST_F(LostHost, ItsRanksMoveOnIfTheSpareIsLostToo) {
  keep_all();
  scene_.lose(1);
  const int again = scene_->on_agent_started(1);
  auto info = JobScene::info_of("x");
  info.num_ranks = 2;
  info.replacements = 5;
  scene_.ready(again, info);
  EXPECT_THAT(scene_.lose(4),
              HasSubstr("lost host e: it is off; the spare host b takes its place, and starts ranks 2-3 "
                        "again, replacements 3 to 4 of 5; start 5 as node 1 of 3, rank 2 of 6, port "
                        "4000, replacement 3"));
  EXPECT_EQ(scene_.lose(2), "SIGTERM to 0; SIGTERM to 5; forget 2; start agent 2");
  scene_.end(0);
  EXPECT_THAT(scene_.end(5), HasSubstr("lost host c: it is off; its ranks are not replaced, because no spare host with "
                                       "as many ranks is there"));
}

/// This machine may be cut off itself. A spare that is silent, too, takes no place.
TEST_F(LostHost, AllThatAreSilentAreNamed) {
  keep_all();
  const NodeEvent lost{
      .kind = Kind::kLost, .value = static_cast<int>(NodeEvent::Loss::kSilent), .text = "it sent nothing for 15 s"};
  scene_->note_silent({0, 2, 3, 4});
  EXPECT_EQ(scene_.event(1, lost), "SIGTERM to 0; SIGTERM to 2; forget 1; start agent 1");
  EXPECT_THAT(end_of_all(), HasSubstr("yoke run: lost hosts a, b, c, d and e: they sent nothing for 15 s; all other "
                                      "hosts at once: is this host's network down?"));
}

TEST_F(LostHost, ASilentSpareTakesNoPlace) {
  keep_all();
  const NodeEvent lost{
      .kind = Kind::kLost, .value = static_cast<int>(NodeEvent::Loss::kSilent), .text = "it sent nothing for 15 s"};
  scene_->note_silent({4});
  scene_.event(1, lost);
  EXPECT_THAT(end_of_all(), HasSubstr("lost hosts b and e: they sent nothing for 15 s; their ranks are not replaced, "
                                      "because no spare host with as many ranks is there"));
}

TEST_F(LostHost, WhoeverWasHeardIsReplacedAlone) {
  keep_all();
  const NodeEvent lost{
      .kind = Kind::kLost, .value = static_cast<int>(NodeEvent::Loss::kSilent), .text = "it sent nothing for 15 s"};
  scene_->note_silent({2});
  EXPECT_THAT(scene_.event(1, lost), HasSubstr("lost host b: it sent nothing for 15 s; the spare host e takes its"));
}

TEST_F(LostHost, AllThatGaveTheHeadUpAreNamedAndNotReplaced) {
  keep_all();
  const NodeEvent gone{.kind = Kind::kLost,
                       .value = static_cast<int>(NodeEvent::Loss::kGivenUp),
                       .text = "the head node's launcher (pid 9) was stopped"};
  EXPECT_EQ(scene_.event(1, gone), "SIGTERM to 0; SIGTERM to 2; forget 1; start agent 1");
  scene_.exit(0, 0, W_EXITCODE(75, 0));
  scene_.event(2, gone);
  scene_.event(4, gone);
  EXPECT_THAT(scene_.end(0), HasSubstr("finish: yoke run: the head node's launcher (pid 9) was stopped, so hosts b and "
                                       "c gave it up; stopped the 4 other ranks"));
}

TEST_F(LostHost, AllEndIfItHadTheStore) {
  keep_all();
  scene_.lose(0);
  EXPECT_THAT(end_of_all(), HasSubstr("because the ranks' store was there, too; stopped the 4 other ranks"));
}

TEST_F(LostHost, AllEndIfARankKeptNoState) {
  keep_all();
  keep(3, false);
  EXPECT_EQ(scene_.lose(1), "SIGTERM to 0; SIGTERM to 2; forget 1; start agent 1");
  EXPECT_THAT(end_of_all(), HasSubstr("its ranks are not replaced, because they kept no state of a training then"));
}

TEST_F(LostHost, AllEndIfTheSpareRefuses) {
  keep_all();
  scene_.lose(1);
  EXPECT_EQ(scene_.event(4, {.kind = Kind::kRefused, .value = 75, .text = "no files are left"}),
            "end 4 with 75: yoke run: no files are left; SIGTERM to 0; SIGTERM to 2");
  EXPECT_THAT(end_of_all(),
              HasSubstr("finish: yoke run: the spare host e cannot start the ranks: no files are left; its "
                        "ranks are not replaced, because no spare host with as many ranks is there"));
}

class LostHostWithTwoReplacements : public LostHost {
 protected:
  LostHostWithTwoReplacements() : LostHost(2) {}
};

/// The refusal of a spare takes no replacement.
TEST_F(LostHostWithTwoReplacements, AnotherSpareStartsItsRanksIfOneRefuses) {
  keep_all();
  const int third = scene_->on_agent_started(3);
  auto info = JobScene::info_of("x");
  info.num_ranks = 2;
  info.replacements = 2;
  scene_.ready(third, info);
  scene_.lose(1);
  EXPECT_EQ(
      scene_.event(4, {.kind = Kind::kRefused, .value = 75, .text = "no files are left"}),
      "end 4 with 75: yoke run: no files are left; say yoke run: the spare host e cannot start the ranks: no files "
      "are left; the spare host d takes its place, and starts ranks 2-3 again, replacements 1 to 2 of 2; start 5 "
      "as node 1 of 3, rank 2 of 6, port 4000, replacement 1");
}

class LostHostWithOneReplacement : public LostHost {
 protected:
  LostHostWithOneReplacement() : LostHost(1) {}
};

TEST_F(LostHostWithOneReplacement, EachOfItsRanksCounts) {
  keep_all();
  scene_.lose(1);
  EXPECT_THAT(end_of_all(), HasSubstr("its ranks are not replaced, because only 1 of 1 replacements are left"));
}

}  // namespace
}  // namespace yoke::launch
