// Who holds what, decided from tables of what the kernel says.
#include "yoke/claim/detail/survey.h"

#include <gtest/gtest.h>

#include <map>

namespace yoke::claim {
namespace {

/// A machine with these processes.
struct Processes {
  std::map<pid_t, ProcessFacts> facts;
  std::map<pid_t, bool> opens = {};

  Lookup lookup() const {
    return {.facts = [this](pid_t pid) -> std::optional<ProcessFacts> {
              const auto found = facts.find(pid);
              return found == facts.end() ? std::nullopt : std::optional(found->second);
            },
            .opens = [this](pid_t pid, uint64_t) -> std::optional<bool> {
              const auto found = opens.find(pid);
              return found == opens.end() ? std::nullopt : std::optional(found->second);
            }};
  }
};

ProcessFacts process(int64_t uid, int64_t start_ticks) { return {uid, uid, start_ticks}; }

LockedFile device(const std::string& key, pid_t locker) {
  return {.name = std::string(kDevicePrefix) + key, .is_held = true, .locker = locker};
}

LockedFile note_file(uid_t uid, pid_t locker, const Note& note) {
  LockedFile file{.name = "yoke-claim-x", .is_held = true, .locker = locker, .text = to_text(note)};
  file.status.st_uid = uid;
  return file;
}

Note note_of(std::vector<std::string> keys, int64_t pid, int64_t start_ticks) {
  return {.keys = std::move(keys), .pid = pid, .start_ticks = start_ticks, .since = Time(std::chrono::seconds(1))};
}

TEST(ClaimSurvey, ANoteExplainsTheLockOfItsProcess) {
  const Processes machine{{{10, process(1000, 5)}}};
  const auto notes = held_notes({note_file(1000, 10, note_of({"GPU-0"}, 10, 5))}, machine.lookup());
  ASSERT_EQ(notes.size(), 1U);
  EXPECT_EQ(notes[0].pid, 10);
  const auto holdings = holdings_of({device("GPU-0", 10)}, notes, machine.lookup());
  ASSERT_EQ(holdings.size(), 1U);
  EXPECT_EQ(holdings[0].uid, 1000);
  EXPECT_EQ(holdings[0].pid, 10);
  EXPECT_EQ(holdings[0].note, 0U);
  EXPECT_TRUE(holdings[0].is_locked);
}

TEST(ClaimSurvey, AForgedNoteDoesNotTakeOverALock) {
  // User 2000 claims in a note of its own to hold what process 10 of user 1000 holds.
  const Processes machine{{{10, process(1000, 5)}, {20, process(2000, 6)}}, {{10, true}}};
  const auto notes = held_notes({note_file(2000, 20, note_of({"GPU-0"}, 10, 5))}, machine.lookup());
  ASSERT_EQ(notes.size(), 1U);
  EXPECT_EQ(notes[0].pid, 20) << "process 10 does not belong to the owner of the note";
  const auto holdings = holdings_of({device("GPU-0", 10)}, notes, machine.lookup());
  ASSERT_EQ(holdings.size(), 1U);
  EXPECT_EQ(holdings[0].uid, 1000);
  EXPECT_EQ(holdings[0].pid, 10);
  EXPECT_EQ(holdings[0].note, std::nullopt);
}

TEST(ClaimSurvey, APidThatWasUsedAgainIsNotTheHolder) {
  // Process 10 took the locks and was killed; its program 11 holds them. Somebody else's process is number 10 now.
  const Processes machine{{{10, process(2000, 900)}, {11, process(1000, 6)}}};
  auto note = note_of({"GPU-0"}, 10, 5);
  note.program_pid = 11;
  note.program_start_ticks = 6;
  const auto notes = held_notes({note_file(1000, 10, note)}, machine.lookup());
  EXPECT_EQ(notes[0].pid, 11);
  const auto holdings = holdings_of({device("GPU-0", 10)}, notes, machine.lookup());
  EXPECT_EQ(holdings[0].uid, 1000);
  EXPECT_EQ(holdings[0].pid, 11);
}

TEST(ClaimSurvey, AnHeirIsTheProcessOfAClaimThatHasLostItsOwn) {
  // Process 10 took the locks and has ended, and so has the heir 12 that took over; the heir 13 lives.
  const Processes machine{{{13, process(1000, 8)}, {14, process(2000, 9)}}};
  auto note = note_of({"GPU-0"}, 12, 7);
  note.heirs = {{.pid = 12, .start_ticks = 7}, {.pid = 14, .start_ticks = 9}, {.pid = 13, .start_ticks = 8}};
  EXPECT_EQ(held_notes({note_file(1000, 10, note)}, machine.lookup())[0].pid, 13) << "14 is somebody else's";
}

TEST(ClaimSurvey, WithoutANoteTheLockerIsNamedOnlyIfItHasTheFileOpen) {
  const Processes machine{{{10, process(2000, 900)}}, {{10, false}}};
  auto holdings = holdings_of({device("GPU-0", 10)}, {}, machine.lookup());
  EXPECT_EQ(holdings[0].uid, std::nullopt);
  const Processes other{{{10, process(2000, 900)}}, {{10, true}}};
  holdings = holdings_of({device("GPU-0", 10)}, {}, other.lookup());
  EXPECT_EQ(holdings[0].uid, 2000);
  holdings = holdings_of({device("GPU-0", 0)}, {}, other.lookup());
  EXPECT_EQ(holdings[0].uid, std::nullopt) << "of a different PID namespace";
}

TEST(ClaimSurvey, SomebodyIsNotNamedForALockOfAProcessThatMayHaveHadTheSameNumber) {
  // Process 10 passed the descriptor on and ended. Nobody but root sees which files others have open.
  const Processes machine{{{10, process(2000, 900)}}};
  const auto holdings = holdings_of({device("GPU-0", 10)}, {}, machine.lookup());
  EXPECT_EQ(holdings[0].uid, std::nullopt);
  EXPECT_EQ(holdings[0].pid, std::nullopt);
  EXPECT_EQ(holdings[0].doubt, "by process 10 of uid 2000, or by one that had this number before");
  EXPECT_EQ(holdings_of({device("GPU-0", 10)}, {}, Processes{}.lookup())[0].doubt,
            "by process 10, which has ended or is hidden");
}

TEST(ClaimSurvey, ANoteThatNamesNoProcessOfItsUserIsHeldByWhoLockedIt) {
  Processes machine{{{10, process(1000, 5)}}};
  EXPECT_EQ(held_notes({note_file(1000, 10, note_of({"GPU-0"}, 1, 0))}, machine.lookup())[0].pid, 10);
  auto broken = note_file(1000, 10, {});
  broken.text = "x";
  EXPECT_EQ(held_notes({broken}, machine.lookup())[0].pid, 10);
  EXPECT_EQ(held_notes({note_file(2000, 10, note_of({"GPU-0"}, 1, 0))}, machine.lookup())[0].pid, std::nullopt)
      << "the number is somebody else's now";
  machine.opens = {{10, false}};
  EXPECT_EQ(held_notes({broken}, machine.lookup())[0].pid, std::nullopt);
}

TEST(ClaimSurvey, ALockOfAHiddenProcessIsThatOfTheOnlyNoteAboutIt) {
  const Processes machine{{{10, process(1000, 5)}}};
  auto notes = held_notes({note_file(1000, 0, note_of({"GPU-0"}, 10, 5)), note_file(1001, 0, note_of({"GPU-1"}, 4, 5))},
                          machine.lookup());
  auto holdings = holdings_of({device("GPU-0", 0), device("GPU-1", 0)}, notes, machine.lookup());
  EXPECT_EQ(holdings[0].uid, 1000);
  EXPECT_EQ(holdings[0].pid, 10);
  EXPECT_EQ(holdings[1].uid, 1001);
  EXPECT_EQ(holdings[1].pid, std::nullopt);
  notes.push_back(held_notes({note_file(2000, 0, note_of({"GPU-0"}, 20, 6))}, machine.lookup()).front());
  holdings = holdings_of({device("GPU-0", 0)}, notes, machine.lookup());
  EXPECT_EQ(holdings[0].uid, std::nullopt) << "two say that they have it";
  EXPECT_TRUE(holdings[0].is_locked);
}

Note share_of(std::vector<std::string> keys, int64_t pid, int64_t start_ticks, int64_t bytes) {
  auto note = note_of(std::move(keys), pid, start_ticks);
  note.share_bytes = bytes;
  return note;
}

TEST(ClaimSurvey, ADeviceThatSeveralShareHasAHoldingForEach) {
  const Processes machine{{{10, process(1000, 5)}, {20, process(2000, 6)}, {30, process(3000, 7)}}, {{20, true}}};
  // Process 30 says in a note that it shares, and holds no lock of the device. Process 20 holds it without a note.
  const auto notes = held_notes(
      {note_file(1000, 10, share_of({"GPU-0"}, 10, 5, 100)), note_file(1000, 10, share_of({"GPU-0"}, 10, 5, 200)),
       note_file(3000, 30, share_of({"GPU-0"}, 30, 7, 1'000'000))},
      machine.lookup());
  auto shared = device("GPU-0", 10);
  shared.is_shared = true;
  shared.sharers = {10, 10};
  auto holdings = holdings_of({shared}, notes, machine.lookup());
  ASSERT_EQ(holdings.size(), 2U) << "a note counts only with the lock";
  EXPECT_EQ(holdings[0].share_bytes, 100);
  EXPECT_EQ(holdings[1].share_bytes, 200);
  EXPECT_EQ(holdings[1].uid, 1000);
  shared.sharers = {10, 20};
  holdings = holdings_of({shared}, notes, machine.lookup());
  ASSERT_EQ(holdings.size(), 2U);
  EXPECT_EQ(holdings[1].uid, 2000);
  EXPECT_EQ(holdings[1].pid, 20);
  EXPECT_EQ(holdings[1].share_bytes, std::nullopt) << "so nobody else is given the device";
  // Who holds the device for himself does not share it, whatever his note says.
  holdings = holdings_of({device("GPU-0", 10)}, notes, machine.lookup());
  ASSERT_EQ(holdings.size(), 1U);
  EXPECT_EQ(holdings[0].share_bytes, std::nullopt);
}

TEST(ClaimSurvey, SharersThatTheKernelDoesNotShowHereAreThoseWithNotes) {
  const Processes machine{{}};
  const auto notes =
      held_notes({note_file(1000, 0, share_of({"GPU-0"}, 10, 5, 100)),
                  note_file(2000, 0, share_of({"GPU-0"}, 20, 6, 200)), note_file(3000, 0, note_of({"GPU-0"}, 30, 7))},
                 machine.lookup());
  auto shared = device("GPU-0", 0);
  shared.is_shared = true;
  const auto holdings = holdings_of({shared}, notes, machine.lookup());
  ASSERT_EQ(holdings.size(), 2U);
  EXPECT_EQ(holdings[0].share_bytes, 100);
  EXPECT_EQ(holdings[1].uid, 2000);
  EXPECT_EQ(holdings_of({shared}, {}, machine.lookup()).size(), 1U) << "somebody holds it";
}

TEST(ClaimSurvey, AHeldNoteKeepsADeviceWhoseLockFileWasReplaced) {
  const Processes machine{{{10, process(1000, 5)}}};
  const auto notes = held_notes({note_file(1000, 10, note_of({"GPU-0", "MIG-GPU-1/2/0"}, 10, 5))}, machine.lookup());
  const auto holdings = holdings_of({}, notes, machine.lookup());
  ASSERT_EQ(holdings.size(), 2U);
  EXPECT_FALSE(holdings[0].is_locked);
  EXPECT_EQ(holdings[0].uid, 1000);
  EXPECT_EQ(holdings[1].key, "MIG-GPU-1_2_0");
  Survey survey{.holdings = holdings};
  EXPECT_NE(survey.find("MIG-GPU-1/2/0"), nullptr);
  EXPECT_EQ(survey.find("GPU-1"), nullptr);
}

TEST(ClaimSurvey, NotesThatNobodyHoldsAreNothing) {
  auto file = note_file(1000, 0, note_of({"GPU-0"}, 10, 5));
  file.is_held = false;
  EXPECT_TRUE(held_notes({file}, Processes{}.lookup()).empty());
}

TEST(ClaimSurvey, TicketsAreInTheOrderOfTheirChangeTimes) {
  const auto ticket = [](const std::string& name, int64_t seconds, int64_t nanoseconds) {
    LockedFile file{.name = name, .is_held = true, .text = to_text(QueuedRequest{.num_devices = 2})};
    file.status.st_ctim = {seconds, nanoseconds};
    return file;
  };
  auto gone = ticket("gone", 1, 0);
  gone.is_held = false;
  auto broken = ticket("broken", 1, 0);
  broken.text = "{}";
  auto stopped = ticket("c", 9, 9);
  stopped.locker = 7;
  const Processes processes{.facts = {{7, {.is_stopped = true}}}};
  const auto tickets = tickets_of({ticket("a", 10, 5), ticket("b", 10, 4), stopped, gone, broken}, processes.lookup());
  ASSERT_EQ(tickets.size(), 3U);
  EXPECT_EQ(tickets[0].name, "c");
  EXPECT_TRUE(tickets[0].is_stopped);
  EXPECT_FALSE(tickets[1].is_stopped);
  EXPECT_EQ(tickets[1].name, "b");
  EXPECT_EQ(tickets[2].name, "a");
}

TEST(ClaimSurvey, NamesThatPretendAreNotRead) {
  EXPECT_EQ(uid_in("yoke-claim-1000-77-00ff", kNotePrefix), 1000);
  for (const char* name : {"yoke-claim-", "yoke-claim-1000", "yoke-claim-x-1-0", "yoke-claim--1-1-0", "yoke-claim-1-\n",
                           "yoke-claim-1-", "yoke-ticket-1000-77-00ff", "yoke-claim-1000-\x1b[2J"}) {
    EXPECT_EQ(uid_in(name, kNotePrefix), std::nullopt) << name;
  }
}

}  // namespace
}  // namespace yoke::claim
