#include "yoke/claim/note.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace yoke::claim {
namespace {

TEST(ClaimNote, IsReadAsItWasWritten) {
  const Note note{.keys = {"GPU-1", "MIG-2/1/0"},
                  .pid = 4121,
                  .start_ticks = 99,
                  .program_pid = 4122,
                  .program_start_ticks = 101,
                  .purpose = "train \"x\"\n",
                  .since = Time(std::chrono::seconds(1'700'000'000)),
                  .until = Time(std::chrono::seconds(1'700'014'400)),
                  .heirs = {{.pid = 4130, .start_ticks = 7, .positions = {1}}},
                  .is_forced = true};
  EXPECT_EQ(parse_note(to_text(note)), note);
  EXPECT_EQ(parse_note(to_text(note) + "      "), note) << "blanks replace what was longer";
  const QueuedRequest request{.num_devices = 4, .purpose = "x"};
  EXPECT_EQ(parse_request(to_text(request)), request);
}

TEST(ClaimNote, AnyOtherTextIsNone) {
  for (const std::string text : {"", "{", "[]", "null", "{}", R"({"keys":1,"since":1})", R"({"keys":[1],"since":1})",
                                 R"({"keys":[],"since":"x"})", R"({"keys":[],"since":-1})",
                                 R"({"keys":[],"since":1e300})", R"({"keys":[]})", "\xff\xfe"}) {
    EXPECT_EQ(parse_note(text), std::nullopt) << text;
  }
  for (const std::string text : {"", "{}", R"({"num_devices":0})", R"({"num_devices":-4})", R"({"num_devices":"4"})",
                                 R"({"num_devices":99999999999})"}) {
    EXPECT_EQ(parse_request(text), std::nullopt) << text;
  }
}

TEST(ClaimNote, ForgedValuesAreCut) {
  const auto note = parse_note(R"({"keys":[],"since":1,"until":99999999999999,"pid":"x","purpose":")" +
                               std::string(5000, 'a') + "\"}");
  ASSERT_TRUE(note);
  EXPECT_EQ(note->purpose.size(), 200U);
  EXPECT_EQ(note->pid, 0);
  EXPECT_EQ(note->until, std::nullopt);
  std::string keys = "{\"since\":1,\"keys\":[";
  for (int i = 0; i < 1000; ++i) keys += "\"a\",";
  EXPECT_EQ(parse_note(keys + "\"a\"]}"), std::nullopt);
}

TEST(ClaimNote, ThoseWhoEndAClaimAreFound) {
  const Note plain{.pid = 1, .start_ticks = 10, .program_pid = 2, .program_start_ticks = 20};
  auto with_heirs = plain;
  with_heirs.heirs = {{.pid = 3, .start_ticks = 30}, {.pid = 4, .start_ticks = 40}, {.pid = 5, .start_ticks = 50}};
  auto inherited = with_heirs;
  inherited.pid = 4;
  inherited.start_ticks = 40;
  using Keepers = std::vector<Keeper>;
  const struct {
    const char* what;
    const Note* note;
    std::vector<int64_t> living;
    Keepers expected;
  } rows[] = {
      {"the process that took the locks", &plain, {1, 2}, {{1, 10}}},
      {"its program, which has outlived it", &plain, {2}, {{2, 20}}},
      {"nobody", &plain, {}, {}},
      {"the process tells its heirs itself", &with_heirs, {1, 2, 3, 4, 5}, {{1, 10}}},
      {"all heirs that live", &with_heirs, {2, 3, 5}, {{3, 30}, {5, 50}}},
      {"all heirs, of which one has taken over", &inherited, {2, 3, 4}, {{3, 30}, {4, 40}}},
      {"the others, when that one has ended", &inherited, {2, 3}, {{3, 30}}},
  };
  for (const auto& row : rows) {
    const auto lives = [&](const Keeper& keeper) {
      return std::find(row.living.begin(), row.living.end(), keeper.pid) != row.living.end();
    };
    EXPECT_EQ(keepers_of(*row.note, lives), row.expected) << row.what;
  }
}

}  // namespace
}  // namespace yoke::claim
