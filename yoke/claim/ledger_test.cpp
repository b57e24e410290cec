// Tests the ledger with real files, locks and processes.
#include "yoke/claim/ledger.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <functional>
#include <memory>

#include "yoke/base/error.h"
#include "yoke/base/process.h"
#include "yoke/base/user_socket.h"
#include "yoke/claim/detail/locked_text.h"
#include "yoke/claim/queue.h"

namespace yoke::claim {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// A process that runs `work`, says that it did, and then waits to be killed.
class Waiting {
 public:
  explicit Waiting(const std::function<void()>& work) {
    auto pipe = make_pipe();
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      work();
      if (write(pipe.write_end.value(), "x", 1) != 1) _exit(1);
      for (;;) pause();
    }
    pipe.write_end.reset();
    char byte = 0;
    is_ready_ = read(pipe.read_end.value(), &byte, 1) == 1;
  }
  ~Waiting() { end(); }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

  bool is_ready() const { return is_ready_; }
  pid_t pid() const { return pid_; }
  void end() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

 private:
  pid_t pid_ = -1;
  bool is_ready_ = false;
};

class ClaimLedger : public testing::Test {
 protected:
  ClaimLedger() : path_(testing::TempDir() + "yoke-claim-XXXXXX") {
    if (mkdtemp(path_.data()) == nullptr) throw std::runtime_error("mkdtemp");
    chmod(path_.c_str(), 01777);
  }
  ~ClaimLedger() override {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  Ledger ledger() const { return Ledger(LockFolder(path_, LockFolder::Owner::kRootOrSelf)); }

  static std::optional<Claim> take(const Ledger& ledger, const std::vector<std::string>& keys) {
    std::string held;
    const Note note{.purpose = "test", .since = Time(std::chrono::seconds(1'700'000'000))};
    return ledger.open(Ledger::Access::kTake).take(keys, note, held);
  }
  static bool share(const Ledger& ledger, Claim& claim, int64_t position) {
    return ledger.share(claim, [&](const std::vector<Heir>&) { return std::vector{position}; }).has_value();
  }
  /// Begins at once, although another process, or another session of this one, holds the lock.
  static Ledger::Session pass_by(const Ledger& ledger) {
    return ledger.open(Ledger::Access::kTake, {.patience = std::chrono::milliseconds(0)});
  }
  static Survey survey(const Ledger& ledger) { return ledger.open(Ledger::Access::kLook).survey(); }
  static std::vector<std::string> held(const Ledger& ledger) {
    std::vector<std::string> keys;
    for (const auto& holding : survey(ledger).holdings) keys.push_back(holding.key);
    return keys;
  }

  std::string path_;
};

TEST_F(ClaimLedger, GivesADeviceToOneAtATime) {
  const auto ledger = this->ledger();
  auto claim = take(ledger, {"GPU-1", "GPU-0"});
  ASSERT_TRUE(claim);
  EXPECT_THAT(held(ledger), ElementsAre("GPU-0", "GPU-1"));
  EXPECT_FALSE(take(ledger, {"GPU-1", "GPU-2"}));
  EXPECT_THAT(held(ledger), ElementsAre("GPU-0", "GPU-1")) << "all or nothing";
  claim->release();
  EXPECT_TRUE(held(ledger).empty());
  EXPECT_TRUE(take(ledger, {"GPU-1"}));
}

TEST_F(ClaimLedger, SaysWhoHoldsWhat) {
  const auto ledger = this->ledger();
  const auto claim = take(ledger, {"GPU-0"});
  for (const auto& seen : {survey(ledger), ledger.look_without_lock()}) {
    ASSERT_EQ(seen.holdings.size(), 1U);
    EXPECT_EQ(seen.holdings[0].uid, geteuid());
    EXPECT_EQ(seen.holdings[0].pid, getpid());
    ASSERT_TRUE(seen.holdings[0].note);
    const auto& note = seen.notes[*seen.holdings[0].note].note;
    ASSERT_TRUE(note);
    EXPECT_EQ(note->purpose, "test");
  }
}

TEST_F(ClaimLedger, AKilledHolderLeavesNothing) {
  const auto ledger = this->ledger();
  std::optional<Claim> claim;
  Waiting holder([&] { claim.emplace(std::move(*take(ledger, {"GPU-0", "GPU-1"}))); });
  ASSERT_TRUE(holder.is_ready());
  EXPECT_THAT(held(ledger), ElementsAre("GPU-0", "GPU-1"));
  EXPECT_FALSE(take(ledger, {"GPU-0"}));
  holder.end();
  EXPECT_TRUE(held(ledger).empty());
  EXPECT_EQ(ledger.folder().names("yoke-claim-").size(), 1U) << "the text of the dead process";
  {
    const auto again = take(ledger, {"GPU-0", "GPU-1"});
    EXPECT_TRUE(again);
  }
  ledger.open(Ledger::Access::kTake).survey();
  EXPECT_TRUE(ledger.folder().names("yoke-claim-").empty());
}

TEST_F(ClaimLedger, AProgramThatInheritedItKeepsItWhenItsLauncherIsKilled) {
  const auto ledger = this->ledger();
  auto pipe = make_pipe();
  Waiting launcher([&] {
    auto claim = take(ledger, {"GPU-0"});
    const pid_t child = fork();
    if (child == 0) {
      for (;;) pause();
    }
    if (write(pipe.write_end.value(), &child, sizeof child) != sizeof child) _exit(1);
    std::optional<Claim>* const kept = new std::optional<Claim>(std::move(claim));
    static_cast<void>(kept);
  });
  pid_t program = 0;
  ASSERT_EQ(read(pipe.read_end.value(), &program, sizeof program), ssize_t{sizeof program});
  const auto launcher_pid = launcher.pid();
  launcher.end();
  const auto seen = survey(ledger);
  ASSERT_EQ(seen.holdings.size(), 1U) << "the program may still use the device";
  EXPECT_EQ(seen.holdings[0].uid, geteuid());
  EXPECT_NE(seen.holdings[0].pid, launcher_pid) << "it has ended";
  kill(program, SIGKILL);
  for (int i = 0; i < 20'000 && !held(ledger).empty(); ++i) usleep(1000);  // its parent is not this process
  EXPECT_TRUE(held(ledger).empty());
}

TEST_F(ClaimLedger, ReleaseWorksAlthoughAGrandchildInheritedIt) {
  const auto ledger = this->ledger();
  auto claim = take(ledger, {"GPU-0"});
  const Waiting grandchild([] {});
  ASSERT_TRUE(grandchild.is_ready());
  claim->release();
  EXPECT_TRUE(held(ledger).empty());
  EXPECT_TRUE(take(ledger, {"GPU-0"}));
}

TEST_F(ClaimLedger, AChildDoesNotReleaseTheClaimOfItsParent) {
  const auto ledger = this->ledger();
  const auto claim = take(ledger, {"GPU-0"});
  const pid_t child = fork();
  if (child == 0) {
    const_cast<std::optional<Claim>&>(claim).reset();  // as the destructor at the end of a scope
    _exit(0);
  }
  waitpid(child, nullptr, 0);
  EXPECT_THAT(held(ledger), ElementsAre("GPU-0"));
}

TEST_F(ClaimLedger, ALockOfSomethingElseIsSeenAndNeverTaken) {
  const auto ledger = this->ledger();
  { const auto claim = take(ledger, {"GPU-0"}); }
  const UniqueFd foreign(open((path_ + "/yoke-dev-GPU-0").c_str(), O_RDONLY));
  ASSERT_EQ(flock(foreign.value(), LOCK_SH), 0);
  const auto seen = survey(ledger);
  ASSERT_EQ(seen.holdings.size(), 1U);
  EXPECT_EQ(seen.holdings[0].uid, geteuid());
  EXPECT_EQ(seen.holdings[0].pid, getpid());
  EXPECT_FALSE(seen.holdings[0].note);
  EXPECT_FALSE(take(ledger, {"GPU-0"}));
}

TEST_F(ClaimLedger, AReplacedLockFileDoesNotGiveTheDeviceTwice) {
  const auto ledger = this->ledger();
  const auto claim = take(ledger, {"GPU-0"});
  ASSERT_EQ(unlink((path_ + "/yoke-dev-GPU-0").c_str()), 0);
  const auto seen = survey(ledger);
  ASSERT_EQ(seen.holdings.size(), 1U);
  EXPECT_FALSE(seen.holdings[0].is_locked);
  EXPECT_EQ(seen.holdings[0].pid, getpid());
}

TEST_F(ClaimLedger, AHeldAllocationLockIsAnErrorThatNamesItsHolder) {
  const auto ledger = this->ledger();
  ledger.open(Ledger::Access::kTake);
  const UniqueFd foreign(open((path_ + "/yoke-alloc").c_str(), O_RDONLY));
  ASSERT_EQ(flock(foreign.value(), LOCK_EX), 0);
  try {
    ledger.open(Ledger::Access::kTake, {.limit = std::chrono::milliseconds(20)});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnavailable);
    EXPECT_THAT(error.what(), HasSubstr(std::to_string(getpid())));
    EXPECT_THAT(error.what(), HasSubstr("yoke-alloc"));
  }
}

TEST_F(ClaimLedger, WhoeverKeepsTheLockIsPassedBy) {
  const auto ledger = this->ledger();
  const auto keeper = ledger.open(Ledger::Access::kTake);
  EXPECT_FALSE(keeper.has_passed_by());
  std::string held;
  auto second = ledger.open(Ledger::Access::kTake);
  EXPECT_TRUE(second.has_passed_by());
  // The second lock is held now, too.
  auto third = ledger.open(Ledger::Access::kTake);
  EXPECT_TRUE(third.has_passed_by());
  third.survey();
  const auto claim = third.take({"GPU-0"}, {}, held);
  ASSERT_TRUE(claim);
  const auto seen = third.survey();
  ASSERT_EQ(seen.holdings.size(), 1U);
  EXPECT_EQ(seen.holdings[0].pid, getpid());
  EXPECT_FALSE(pass_by(ledger).take({"GPU-0"}, {}, held));
  EXPECT_EQ(held, "GPU-0");
}

TEST_F(ClaimLedger, AProcessThatWasPassedByTakesNothing) {
  const auto ledger = this->ledger();
  // It is stopped after it has looked, and then takes what was free.
  const auto stop_and_take = [&](const std::string& key) {
    const pid_t child = fork();
    if (child == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      auto session = ledger.open(Ledger::Access::kTake);
      if (session.survey().find(key) != nullptr) _exit(10);
      raise(SIGSTOP);
      std::string held = "-";
      const auto claim = session.take({key}, {}, held);
      _exit(claim ? 1 : held.empty() ? 2 : 3);
    }
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, WUNTRACED), child);
    EXPECT_TRUE(WIFSTOPPED(status)) << status;
    return child;
  };
  const auto go_on = [](pid_t child) {
    int status = 0;
    kill(child, SIGCONT);
    EXPECT_EQ(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  };
  auto stopped = stop_and_take("GPU-0");
  auto claim = take(ledger, {"GPU-0"});
  ASSERT_TRUE(claim) << "it was passed by";
  EXPECT_EQ(go_on(stopped), 3) << "the lock of the device decides";
  EXPECT_THAT(held(ledger), ElementsAre("GPU-0"));
  stopped = stop_and_take("GPU-1");
  ASSERT_TRUE(take(ledger, {"GPU-1"})) << "and given back at once";
  EXPECT_EQ(go_on(stopped), 2) << "the device is free, and what it has seen is old";
  EXPECT_THAT(held(ledger), ElementsAre("GPU-0"));
  EXPECT_EQ(ledger.folder().names("yoke-claim-").size(), 1U);
}

TEST_F(ClaimLedger, OfTwoThatTakeAtOnceTheLaterOneBeginsAnew) {
  const auto ledger = this->ledger();
  std::string held;
  for (const std::string key : {"GPU-0", "GPU-1"}) {
    auto first = ledger.open(Ledger::Access::kTake);
    first.survey();
    auto second = pass_by(ledger);
    second.survey();
    const auto claim = second.take({"GPU-0"}, {}, held);
    ASSERT_TRUE(claim) << key;
    // Not even if the file of the lock was replaced meanwhile.
    ASSERT_EQ(unlink((path_ + "/yoke-dev-GPU-0").c_str()), 0);
    held = "-";
    EXPECT_FALSE(first.take({key}, {}, held)) << "limits and shares may allow only one of them";
    EXPECT_EQ(held, "") << key;
    EXPECT_EQ(ledger.folder().names("yoke-claim-").size(), 1U);
  }
}

TEST_F(ClaimLedger, AProcessThatIsStoppedWhileItLooksDisturbsNobody) {
  const auto ledger = this->ledger();
  { const auto claim = take(ledger, {"GPU-0"}); }
  // As it tries locks: for a moment it has the lock of a note that was left behind.
  ledger.folder().create("yoke-claim-" + std::to_string(geteuid()) + "-1-00");
  const UniqueFd looking(open((path_ + "/yoke-claim-" + std::to_string(geteuid()) + "-1-00").c_str(), O_RDONLY));
  ASSERT_EQ(flock(looking.value(), LOCK_SH), 0);
  EXPECT_TRUE(ledger.open(Ledger::Access::kLook).survey().notes.empty());
  EXPECT_TRUE(ledger.look_without_lock().notes.empty());
  EXPECT_TRUE(take(ledger, {"GPU-0"}));
}

TEST_F(ClaimLedger, LooksOfManyDoNotKeepAnybodyFromTaking) {
  const auto ledger = this->ledger();
  std::vector<std::unique_ptr<Waiting>> others;
  for (int i = 0; i < 2; ++i) {
    others.push_back(std::make_unique<Waiting>([&] {
      if (fork() != 0) return;
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      for (;;) ledger.look_at_notes();
    }));
  }
  for (int i = 0; i < 200; ++i) {
    const auto claim = take(ledger, {"GPU-0"});
    ASSERT_TRUE(claim) << i;
    const auto place = ledger.open(Ledger::Access::kTake).join({.num_devices = 1});
    auto session = ledger.open(Ledger::Access::kTake);
    const auto seen = session.survey(Ledger::Session::Owners::kOfNotes);
    ASSERT_EQ(seen.tickets.size(), 1U) << i;
    ASSERT_TRUE(seen.knows_holders()) << i;
    ASSERT_NE(seen.find("GPU-0"), nullptr) << i;
  }
}

TEST_F(ClaimLedger, WritersOfANoteWaitForEachOtherAlone) {
  const auto ledger = this->ledger();
  const auto claim = take(ledger, {"GPU-0"});
  const auto path = path_ + "/" + claim->name();
  const UniqueFd first(open(path.c_str(), O_RDWR)), second(open(path.c_str(), O_RDWR)),
      reader(open(path.c_str(), O_RDONLY));
  constexpr std::chrono::milliseconds kNone(0);
  {
    const auto lock = NoteLock::take(first.value(), kNone);
    ASSERT_TRUE(lock);
    EXPECT_FALSE(NoteLock::take(second.value(), kNone));
    EXPECT_THAT(held(ledger), ElementsAre("GPU-0")) << "others are not concerned";
    EXPECT_TRUE(take(ledger, {"GPU-1"}));
  }
  EXPECT_TRUE(NoteLock::take(second.value(), kNone));
  // Everybody can lock for reading what he can read.
  struct flock lock {};
  lock.l_type = F_RDLCK;
  lock.l_whence = SEEK_SET;
  ASSERT_EQ(fcntl(reader.value(), F_OFD_SETLK, &lock), 0);
  EXPECT_TRUE(NoteLock::take(first.value(), kNone));
}

TEST_F(ClaimLedger, ExtendedTextIsReadBack) {
  const auto ledger = this->ledger();
  auto claim = take(ledger, {"GPU-0"});
  auto note = claim->note();
  note.purpose = std::string(150, 'p');
  EXPECT_TRUE(claim->write(note));
  note.purpose = "short";
  EXPECT_TRUE(claim->write(note));
  EXPECT_EQ(claim->read(), note);
  ASSERT_EQ(truncate((path_ + "/" + claim->name()).c_str(), 0), 0);
  EXPECT_EQ(claim->read(), note) << "a damaged text does not end the claim";
}

TEST_F(ClaimLedger, PlacesEndWithTheirProcesses) {
  const auto ledger = this->ledger();
  std::optional<Place> place;
  Waiting first([&] { place.emplace(ledger.open(Ledger::Access::kTake).join({.num_devices = 8})); });
  ASSERT_TRUE(first.is_ready());
  const auto second = ledger.open(Ledger::Access::kTake).join({.num_devices = 1});
  auto tickets = survey(ledger).tickets;
  ASSERT_EQ(tickets.size(), 2U);
  EXPECT_EQ(tickets[0].pid, first.pid());
  EXPECT_EQ(tickets[0].request.num_devices, 8);
  EXPECT_EQ(tickets[1].name, second.name());
  EXPECT_EQ(tickets[1].uid, geteuid());
  first.end();
  EXPECT_EQ(survey(ledger).tickets.size(), 1U);
}

TEST_F(ClaimLedger, AWaiterIsWokenByAReleaseAndByADeath) {
  const auto ledger = this->ledger();
  auto claim = take(ledger, {"GPU-0"});
  std::optional<Claim> other;
  Waiting holder([&] { other.emplace(std::move(*take(ledger, {"GPU-1"}))); });
  ASSERT_TRUE(holder.is_ready());
  Wakeup wakeup(ledger.folder());
  survey(ledger);
  ledger.open(Ledger::Access::kTake).survey();
  EXPECT_FALSE(wakeup.drain()) << "those who look wake nobody";
  claim->release();
  EXPECT_TRUE(wakeup.drain());
  holder.end();
  EXPECT_TRUE(wakeup.drain());
}

TEST_F(ClaimLedger, HeirsKeepItUntilTheLastOneReleasesIt) {
  const auto ledger = this->ledger();
  EXPECT_FALSE(ledger.inherited()) << "this process runs under no claim";
  auto claim = take(ledger, {"GPU-0", "GPU-1"});
  const auto inherit = [&](int64_t position) {
    auto found = ledger.inherited();
    if (!found || !share(ledger, *found, position)) _exit(1);
    return found;
  };
  Waiting brief([&] { inherit(0)->release(); });
  ASSERT_TRUE(brief.is_ready());
  EXPECT_TRUE(claim->living_heirs().empty());
  auto go = make_pipe();
  auto done = make_pipe();
  const pid_t heir = fork();
  if (heir == 0) {
    auto kept = inherit(1);
    char byte = 'x';
    if (write(done.write_end.value(), &byte, 1) != 1 || read(go.read_end.value(), &byte, 1) != 1) _exit(1);
    const bool is_ours = kept->succeed(getpid());
    if (write(done.write_end.value(), &byte, 1) != 1 || read(go.read_end.value(), &byte, 1) != 1) _exit(1);
    kept->release();
    _exit(is_ours ? 0 : 1);
  }
  const auto wait = [&] {
    char byte = 0;
    ASSERT_EQ(read(done.read_end.value(), &byte, 1), 1);
  };
  wait();
  const auto heirs = claim->living_heirs();
  ASSERT_EQ(heirs.size(), 1U);
  EXPECT_EQ(heirs[0].pid, heir);
  EXPECT_THAT(heirs[0].positions, ElementsAre(1));
  claim->release();
  EXPECT_THAT(held(ledger), ElementsAre("GPU-0", "GPU-1")) << "the heir lives";
  ASSERT_EQ(write(go.write_end.value(), "x", 1), 1);
  wait();
  ASSERT_EQ(survey(ledger).holdings.size(), 2U);
  EXPECT_EQ(survey(ledger).holdings[0].pid, heir) << "it is the process of the claim now";
  ASSERT_EQ(write(go.write_end.value(), "x", 1), 1);
  int status = 1;
  waitpid(heir, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(held(ledger).empty());
  EXPECT_TRUE(ledger.folder().names("yoke-claim-").empty());
}

TEST_F(ClaimLedger, RefusesAnHeirForWhomItsNoteHasNoRoom) {
  const auto ledger = this->ledger();
  auto claim = take(ledger, {"GPU-0"});
  auto note = claim->note();
  note.heirs.assign(kMostHeirs, {getpid(), start_ticks_of(getpid()).value_or(0), {0}});
  ASSERT_TRUE(claim->write(note));
  const pid_t heir = fork();
  if (heir == 0) {
    auto found = ledger.inherited();
    try {
      share(ledger, *found, 0);
    } catch (const Error& error) {
      _exit(error.code() == ErrorCode::kFailedPrecondition ? 0 : 1);
    }
    _exit(1);
  }
  int status = 1;
  waitpid(heir, &status, 0);
  EXPECT_EQ(status, 0);
  claim->set_program(heir);
  EXPECT_EQ(claim->read().heirs.size(), kMostHeirs) << "other writers lose nothing";
}

TEST_F(ClaimLedger, RequestsOfOneUserAreReadUpToALimit) {
  constexpr int kMost = 1000;
  const auto prefix = path_ + "/yoke-ticket-" + std::to_string(geteuid()) + "-0-";
  for (int i = 0; i < kMost; ++i) std::ofstream(prefix + std::to_string(i));
  const auto ledger = this->ledger();
  const auto place = ledger.open(Ledger::Access::kTake).join({.num_devices = 1});
  EXPECT_TRUE(survey(ledger).tickets.empty()) << "names are read in their order";
  std::filesystem::remove(prefix + "0");
  EXPECT_EQ(survey(ledger).tickets.size(), 1U);
}

TEST_F(ClaimLedger, NamesOfLocks) {
  EXPECT_EQ(lock_name("GPU-4f1a"), "yoke-dev-GPU-4f1a");
  EXPECT_EQ(lock_name("MIG-GPU-1/2/0"), "yoke-dev-MIG-GPU-1_2_0");
  for (const std::string key : {"", "a\n", "\x1b[2J", "a b"}) EXPECT_THROW(lock_name(key), Error) << key;
  EXPECT_THROW(lock_name(std::string(500, 'a')), Error);
}

}  // namespace
}  // namespace yoke::claim
