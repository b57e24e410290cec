// Which devices can be shared by one more claim, decided from tables.
#include "yoke/claim/share.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace yoke::claim {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr int64_t kGibibyte = int64_t{1} << 30;
constexpr int64_t kAda = 1001, kBob = 1002;

Candidate device_of_80(int64_t index, std::map<int64_t, int64_t> used_by_uid = {}) {
  return {.id = fmt::format("{}", index),
          .key = fmt::format("GPU-{}", index),
          .temperature_celsius = 30,
          .memory_bytes = 80 * kGibibyte,
          .used_by_uid = std::move(used_by_uid)};
}

/// A claim of `uid` that shares device `index`.
void add_share(Survey& survey, int64_t index, int64_t uid, int64_t bytes) {
  survey.holdings.push_back(
      {.key = fmt::format("GPU-{}", index), .uid = uid, .pid = 41, .note = 0, .share_bytes = bytes});
}

TEST(ClaimShare, RoomBesideSharesAndEverythingElse) {
  struct Case {
    std::map<int64_t, int64_t> used, shares;  ///< In GiB.
    int64_t room;
  };
  for (const auto& [used, shares, room] : {Case{{}, {}, 80},
                                           {{}, {{kAda, 8}, {kBob, 16}}, 56},
                                           {{{kAda, 5}}, {{kAda, 8}}, 72},   // within the share
                                           {{{kAda, 30}}, {{kAda, 8}}, 50},  // more than it
                                           {{{kBob, 30}}, {{kAda, 8}}, 42},  // without a share
                                           {{{-1, 2}}, {{kAda, 8}}, 70},     // nobody knows whose
                                           {{}, {{kAda, 100}}, 0},
                                           {{{kBob, 70}}, {{kAda, 70}}, 0}}) {
    auto candidate = device_of_80(0);
    for (const auto& [uid, gib] : used) candidate.used_by_uid[uid] = gib * kGibibyte;
    std::map<int64_t, int64_t> bytes;
    for (const auto& [uid, gib] : shares) bytes[uid] = gib * kGibibyte;
    EXPECT_EQ(room_for_share(candidate, bytes), room * kGibibyte);
  }
  auto candidate = device_of_80(0);
  EXPECT_EQ(room_for_share(candidate, {{kAda, INT64_MAX}, {kBob, INT64_MAX}}), 0) << "anybody can write such numbers";
  EXPECT_EQ(room_for_share(candidate, {{kAda, -5}}), 80 * kGibibyte);
  candidate.memory_bytes.reset();
  EXPECT_EQ(room_for_share(candidate, {}), 0);
}

TEST(ClaimShare, OfUnifiedMemoryTheRestOfTheMachineUsesAPart) {
  Survey survey;
  add_share(survey, 0, kAda, 20 * kGibibyte);
  std::vector<Candidate> candidates = {device_of_80(0, {{kRestOfMachine, 30 * kGibibyte}})};
  mark_full(candidates, survey, {.memory_bytes = 51 * kGibibyte, .is_share = true});
  EXPECT_EQ(candidates[0].room_bytes, 50 * kGibibyte) << "20 of the 30 GiB may be what ada uses";
  EXPECT_EQ(candidates[0].standing, Standing::kClaimed) << "there is no room for 51 GiB";
  EXPECT_FALSE(candidates[0].is_used);
}

TEST(ClaimShare, ADeviceWithoutRoomIsMarked) {
  Survey survey;
  add_share(survey, 0, kAda, 60 * kGibibyte);
  add_share(survey, 0, kBob, 15 * kGibibyte);
  add_share(survey, 1, kAda, 60 * kGibibyte);
  std::vector candidates = {device_of_80(0), device_of_80(1), device_of_80(2, {{kBob, 75 * kGibibyte}})};
  mark_full(candidates, survey, {.memory_bytes = 8 * kGibibyte, .is_share = true});
  EXPECT_EQ(candidates[0].standing, Standing::kClaimed);
  EXPECT_THAT(candidates[0].reason, HasSubstr("(pid 41) with 60.0 GiB"));
  EXPECT_THAT(candidates[0].reason, HasSubstr("which leaves 5.0 GiB"));
  EXPECT_EQ(candidates[1].standing, Standing::kFree);
  EXPECT_EQ(candidates[1].num_sharers, 1);
  EXPECT_EQ(candidates[1].room_bytes, 20 * kGibibyte);
  EXPECT_EQ(candidates[2].standing, Standing::kInUse) << candidates[2].reason;
  candidates = {device_of_80(3)};
  candidates[0].memory_bytes.reset();
  mark_full(candidates, survey, {.memory_bytes = 8 * kGibibyte, .is_share = true});
  EXPECT_EQ(candidates[0].standing, Standing::kUnusable);
  EXPECT_EQ("device 3 is " + candidates[0].reason,
            "device 3 is not to be shared, because its driver does not tell its memory");
}

TEST(ClaimShare, ThoseWhoShareComputeWithAClaim) {
  Survey survey;
  add_share(survey, 0, kAda, 8 * kGibibyte);
  add_share(survey, 1, kAda, 8 * kGibibyte);
  std::vector candidates = {device_of_80(0, {{kAda, kGibibyte}, {-1, kGibibyte / 2}}),
                            device_of_80(1, {{kAda, kGibibyte}, {kBob, kGibibyte}})};
  for (auto& candidate : candidates) candidate.is_used = true;
  mark_full(candidates, survey, {.memory_bytes = 1, .is_share = true});
  EXPECT_FALSE(candidates[0].is_used);
  EXPECT_TRUE(candidates[1].is_used) << "by bob";
}

TEST(ClaimShare, SharesOfOneUserAreAdded) {
  Survey survey;
  add_share(survey, 0, kAda, 40 * kGibibyte);
  add_share(survey, 0, kAda, 40 * kGibibyte);
  std::vector candidates = {device_of_80(0, {{kAda, 50 * kGibibyte}})};
  mark_full(candidates, survey, {.memory_bytes = 1, .is_share = true});
  EXPECT_EQ(candidates[0].room_bytes, 0);
  EXPECT_EQ(candidates[0].standing, Standing::kClaimed);
}

TEST(ClaimShare, TheDeviceThatFitsBest) {
  struct Case {
    const char* what;
    std::vector<Candidate> candidates;
    int64_t num_devices;
    std::vector<size_t> chosen;
  };
  const auto with = [](int64_t num_sharers, int64_t room, bool is_used = false, int64_t celsius = 30) {
    auto candidate = device_of_80(0);
    candidate.num_sharers = num_sharers;
    candidate.room_bytes = room * kGibibyte;
    candidate.is_used = is_used;
    candidate.temperature_celsius = celsius;
    return candidate;
  };
  auto full = with(1, 1);
  full.standing = Standing::kClaimed;
  auto bad = with(1, 70);
  bad.damage = "it has had a memory error";
  for (const auto& [what, candidates, num_devices, chosen] :
       {Case{"one that is shared already", {with(0, 80), with(1, 70)}, 1, {1}},
        Case{"the least room that is left", {with(1, 70), with(2, 20), with(1, 40)}, 1, {1}},
        Case{"one that nobody uses without a claim", {with(0, 70, true), with(0, 80)}, 1, {1}},
        Case{"the coolest", {with(0, 80, false, 60), with(0, 80, false, 40)}, 1, {1}},
        Case{"several", {with(0, 80), with(1, 70), with(1, 40)}, 2, {1, 2}},
        Case{"a good one before one with memory errors", {bad, with(0, 80)}, 1, {1}},
        Case{"as many good ones as there are", {bad, bad, with(0, 80, true)}, 2, {0, 2}},
        Case{"not a full one", {full, with(0, 80)}, 1, {1}}, Case{"too many", {full, with(0, 80)}, 2, {}}}) {
    const auto picked = pick_shares(candidates, {.num_devices = num_devices, .is_share = true});
    EXPECT_EQ(picked.chosen, chosen) << what;
    EXPECT_FALSE(picked.sentences.empty()) << what;
  }
}

TEST(ClaimShare, ADeviceBecomesFreeWithItsLastShare) {
  const auto now = Time(std::chrono::seconds(1000));
  const auto at = [](int64_t second) { return Time(std::chrono::seconds(second)); };
  Survey survey;
  const auto add = [&](const char* key, std::optional<Time> until, std::optional<int64_t> share) {
    survey.notes.push_back({.note = Note{.keys = {key}, .until = until, .share_bytes = share}});
    survey.holdings.push_back({.key = key, .note = survey.notes.size() - 1, .share_bytes = share});
  };
  add("GPU-0", at(2000), 1);
  add("GPU-0", at(3000), 1);
  EXPECT_THAT(survey.known_ends(now), ElementsAre(at(3000)));
  add("GPU-1", at(1500), std::nullopt);
  add("GPU-2", std::nullopt, std::nullopt);
  EXPECT_THAT(survey.known_ends(now), ElementsAre(at(1500), at(3000)));
  add("GPU-0", std::nullopt, 1);
  EXPECT_THAT(survey.known_ends(now), ElementsAre(at(1500))) << "one of them does not say when it ends";
  EXPECT_FALSE(survey.knows_holders());
  EXPECT_THAT(survey.find_all("GPU-0"), SizeIs(3));
  EXPECT_THAT(survey.find_all("GPU-9"), IsEmpty());
}

}  // namespace
}  // namespace yoke::claim
