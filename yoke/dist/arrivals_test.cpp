#include "yoke/dist/arrivals.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <vector>

#include "yoke/dist/detail/advice.h"
#include "yoke/dist/detail/call_log.h"

namespace yoke::dist {
namespace {

using testing::ElementsAre;

TEST(Arrivals, NamesWhoIsBehind) {
  EXPECT_EQ(describe_arrivals(12, 0, {{0, 12}, {1, 11}, {2, 12}}), "rank 1 has not arrived (it is at collective 11)");
  EXPECT_EQ(describe_arrivals(12, 0, {{0, 12}, {1, 11}, {2, 9}, {3, 13}}),
            "ranks 1 and 2 have not arrived (the last is at collective 9)");
}

// A rank publishes at intervals, and 0 at its start.
TEST(Arrivals, DoesNotTakeWhatIsUnknownForTheBeginning) {
  EXPECT_EQ(describe_arrivals(1, 1, {{0, std::nullopt}, {1, 1}}), "rank 0 has not arrived");
  EXPECT_EQ(describe_arrivals(119, 0, {{0, 119}, {1, 119}, {2, 0}}), "rank 2 has not arrived");
  EXPECT_EQ(describe_arrivals(119, 0, {{0, 119}, {1, 118}, {2, 0}}), "ranks 1 and 2 have not arrived");
}

// A rank publishes its number at most once a second, so the number of a rank that has ended is an old one.
TEST(Arrivals, DoesNotNameTheCollectiveOfARankThatHasEnded) {
  EXPECT_EQ(describe_arrivals(57, 0, {{0, 57}, {1, 0}}, /*is_lost=*/true),
            "rank 1 has not arrived, and has probably ended");
  EXPECT_EQ(describe_arrivals(57, 0, {{0, 57}, {1, 0}, {2, 40}}, /*is_lost=*/true),
            "ranks 1 and 2 have not arrived, and one of them has probably ended");
}

// Ranks that share memory know who it is, though all of them may have entered the collective.
TEST(Arrivals, NamesWhoIsKnownToBeTheCause) {
  EXPECT_EQ(describe_arrivals(57, 0, {{0, 57}, {1, 0}, {2, 40}}, /*is_lost=*/true, {2}),
            "rank 2 has not arrived, and has ended");
  EXPECT_EQ(describe_arrivals(57, 0, {{0, 57}, {1, 57}, {2, 57}}, /*is_lost=*/false, {1}),
            "rank 1 has arrived, but goes on no further: a rank that is stopped or hangs does so");
  EXPECT_EQ(describe_arrivals(57, 0, {{0, 57}, {1, 56}, {2, 57}}, /*is_lost=*/false, {1, 2}),
            "rank 1 has not arrived (it is at collective 56)");
}

TEST(Arrivals, NamesRanksOfAGroupByTheirRankInTheWorld) {
  EXPECT_EQ(describe_arrivals(12, 4, {{1, 11}, {4, 12}, {7, 9}}),
            "ranks 1 and 7 have not arrived (the last is at collective 9)");
}

TEST(Arrivals, NamesWhoIsAheadWhereNobodyIsBehind) {
  EXPECT_EQ(describe_arrivals(5, 1, {{0, 9}, {1, 5}}),
            "rank 0 is at collective 9, ahead of this rank: the two call different collectives");
}

TEST(Arrivals, DoesNotBlameItselfOrTheArrived) {
  // The number of this rank in the store may be slightly out of date.
  EXPECT_EQ(describe_arrivals(12, 0, {{0, 11}, {1, 12}}).find("not arrived"), std::string::npos);
}

TEST(Arrivals, TellsWhoCameTooEarly) {
  EXPECT_EQ(describe_absent_ranks(12, {1}, {{0, 12}, {1, 12}}), "rank 1 has not arrived");
  EXPECT_EQ(describe_absent_ranks(12, {0, 1}, {{0, 11}, {1, std::nullopt}, {2, 12}}), "ranks 0 and 1 have not arrived");
  EXPECT_EQ(
      describe_absent_ranks(9, {0, 2}, {{0, 12}, {1, 9}, {2, 12}}),
      "ranks 0 and 2 have not arrived; rank 0 is at collective 12 and this rank has entered 9: it has skipped some");
  EXPECT_EQ(describe_absent_ranks(9, {1}, {}), "rank 1 has not arrived");
}

TEST(Arrivals, SaysWhereRanksAre) {
  EXPECT_EQ(describe_calls({}), "");
  EXPECT_EQ(describe_calls({{0, {128, "saving a checkpoint"}}, {1, {128, "barrier"}}, {3, {128, "barrier"}}}),
            "rank 0 is at saving a checkpoint (collective 128), ranks 1 and 3 are at barrier (collective 128)");
  EXPECT_EQ(describe_calls({{0, {1, "a"}}, {1, {2, "a"}}, {2, {3, "a"}}, {3, {4, "a"}}, {4, {5, "a"}}}),
            "rank 0 is at a (collective 1), rank 1 is at a (collective 2), rank 2 is at a (collective 3), rank 3 is at "
            "a (collective 4), and others elsewhere");
}

TEST(Arrivals, BlamesThoseWhoAreTheFurthestBehind) {
  const std::map<int64_t, Call> calls = {{0, {57, "all_reduce"}}, {1, {56, "barrier"}}, {2, {50, "saving"}}};
  const Call own{57, "all_reduce"};
  const auto cause = [&](const Numbers& numbers, bool is_lost = false, const std::vector<int64_t>& culprits = {}) {
    return cause_of_wait(own, 0, calls, numbers, is_lost, culprits);
  };
  EXPECT_EQ(cause({{0, 57}, {1, 56}, {2, 50}, {3, 57}}),
            (FailureCause{{2}, "had not entered all_reduce (collective 57), the last one was 50 (saving)"}));
  EXPECT_THAT(cause({{0, 57}, {1, 56}, {3, 56}}).ranks, ElementsAre(1, 3));
  EXPECT_EQ(cause({{0, 57}, {3, std::nullopt}}), (FailureCause{{3}, "had not entered all_reduce (collective 57)"}));
  EXPECT_EQ(cause({{0, 57}, {1, 57}}, false, {1}),
            (FailureCause{{1}, "had entered all_reduce (collective 57), and did not go on"}));
  EXPECT_THAT(cause({{0, 57}, {1, 60}}).ranks, ElementsAre());
  EXPECT_THAT(cause({{0, 57}, {1, 50}}, true).ranks, ElementsAre()) << "what a rank has published is old";
  EXPECT_EQ(cause({{0, 57}, {1, 50}, {2, 57}}, true, {2}),
            (FailureCause{{2}, "had ended before all_reduce (collective 57)", FailureCause::Kind::kEnded}));
}

TEST(Arrivals, ASilentConnectionIsNotTheEndOfARank) {
  const auto silence = explain_silence({57, "all_reduce of 8 Float"}, 0, 0, 2, "b");
  EXPECT_EQ(
      silence.text,
      "the connection to rank 2 on b gives no answer: the network between the hosts is cut, or that host is down; "
      "rank 2 may still run: look at the network, at what the launcher says of that host, and at `yoke ps` there");
  EXPECT_EQ(silence.cause, (FailureCause{{2},
                                         "gave no answer to rank 0 in all_reduce of 8 Float (collective 57), as behind "
                                         "a network that is cut"}));
  const auto of_another = explain_silence({57, "all_reduce of 8 Float"}, 0, 1, 2, "b");
  EXPECT_THAT(of_another.text, testing::StartsWith("the connection of rank 1 to rank 2 on b gives no answer: "));
  EXPECT_THAT(of_another.cause.what, testing::StartsWith("gave no answer to rank 1 in all_reduce"));
}

TEST(Arrivals, BlamesTheFewThatCallSomethingElse) {
  const auto ranks = [](const std::map<int64_t, Call>& calls) { return cause_of_difference(calls).ranks; };
  EXPECT_THAT(ranks({{0, {9, "saving"}}, {1, {9, "a step"}}, {2, {9, "a step"}}}), ElementsAre(0));
  EXPECT_THAT(ranks({{0, {9, "a step"}}, {1, {8, "a step"}}, {2, {9, "a step"}}, {3, {9, "a step"}}}), ElementsAre(1));
  EXPECT_THAT(ranks({{0, {9, "saving"}}, {1, {9, "a step"}}}), ElementsAre(0, 1)) << "one of them, but which?";
}

TEST(Arrivals, AdvisesWhatTheDifferenceIs) {
  EXPECT_EQ(advice_for({"all_reduce of 8 Float", "all_reduce of 9 Float"}), "the sizes must be the same on all ranks");
  EXPECT_EQ(advice_for({"all_reduce of 8 Float with SUM", "all_reduce of 8 Double with SUM"}),
            "the types must be the same on all ranks");
  EXPECT_EQ(advice_for({"all_reduce of 8 Float", "all_reduce of 9 Double"}),
            "the sizes and the types must be the same on all ranks");
  const auto same = "all of them must call the same ones, in the same order, and not only rank 0";
  for (const auto* const other : {"saving a checkpoint", "broadcast of 8 Float", "all_reduce of 9 Float with MAX"}) {
    EXPECT_EQ(advice_for({"all_reduce of 8 Float with SUM", other}), same) << other;
  }
  EXPECT_EQ(advice_for({"a step of DistributedDataParallel", "saving a checkpoint"}), same);
  for (const auto* const other : {"should_stop", "the end of an epoch of a Run"}) {
    EXPECT_EQ(advice_for({"a step of DistributedDataParallel", other}),
              std::string(same) + "; perhaps some had fewer batches than the others, or left their loop early");
  }
}

/// A store in memory that records the requests, as "check KEY" or "set KEY VALUE", and can stop to answer.
class WatchedStore : public c10d::HashStore {
 public:
  using Bytes = std::vector<uint8_t>;
  bool check(const std::vector<std::string>& keys) override {
    record("check " + keys[0]);
    return HashStore::check(keys);
  }
  Bytes get(const std::string& key) override {
    record("get " + key);
    return HashStore::get(key);
  }
  /// Who waits for the request finds its value.
  void set(const std::string& key, const Bytes& value) override {
    wait_while_frozen();
    HashStore::set(key, value);
    note("set " + key + " " + std::string(value.begin(), value.end()));
  }
  Bytes compareSet(const std::string& key, const Bytes& expected, const Bytes& value) override {
    record("compare " + key + " " + std::string(value.begin(), value.end()));
    return HashStore::compareSet(key, expected, value);
  }

  std::vector<std::string> requests() {
    const std::lock_guard lock(mutex_);
    return requests_;
  }
  int64_t count(const std::string& begin) {
    const auto all = requests();
    return std::ranges::count_if(all, [&](const auto& one) { return one.starts_with(begin); });
  }
  /// Waits for a request that ends with `end`.
  void wait_for_request(const std::string& end) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock,
                  [&] { return std::ranges::any_of(requests_, [&](const auto& one) { return one.ends_with(end); }); });
  }
  /// Until it is called with false, requests have no answer. With true, it waits until there is one.
  void freeze(bool is_frozen) {
    std::unique_lock lock(mutex_);
    is_frozen_ = is_frozen;
    changed_.notify_all();
    if (is_frozen) changed_.wait(lock, [&] { return num_waiting_ > 0; });
  }

 private:
  void record(std::string request) {
    note(std::move(request));
    wait_while_frozen();
  }
  void note(std::string request) {
    const std::lock_guard lock(mutex_);
    requests_.push_back(std::move(request));
    changed_.notify_all();
  }
  void wait_while_frozen() {
    std::unique_lock lock(mutex_);
    ++num_waiting_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return !is_frozen_; });
    --num_waiting_;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> requests_;
  bool is_frozen_ = false;
  int64_t num_waiting_ = 0;
};

/// A group of `size` ranks. The last eight of `now` calls are known, and have the kind `kind`.
CountedGroup group_of(int64_t size, const std::atomic<uint64_t>& now, const std::string& kind) {
  CountedGroup group{.key = "g", .ranks = {}, .name = "", .sequence = [&now] { return now.load(); }, .calls = {}};
  for (int64_t rank = 0; rank < size; ++rank) group.ranks.push_back(rank);
  group.calls = [kind](uint64_t last) {
    std::vector<Call> calls;
    for (uint64_t number = std::max<uint64_t>(last, 8) - 7; number <= last; ++number) calls.push_back({number, kind});
    return calls;
  };
  return group;
}

// The ranks' store is in memory, and a job may run for months.
TEST(Arrivals, ComparesOnlyAfterAWaitAndWithABoundedNumberOfKeys) {
  const auto store = c10::make_intrusive<WatchedStore>();
  std::atomic<uint64_t> now = 0;
  Arrivals first(*store, 0, std::chrono::milliseconds(1), group_of(2, now, "a"));
  std::optional<Arrivals> second;
  for (int64_t step = 0; step < 30; ++step) {
    now += 8;
    store->wait_for_request(fmt::format(" {} 0 a", now.load()));  // the rank compares this call
    if (second) store->wait_for_request(fmt::format(" {} 1 a", now.load()));
    if (step > 0) continue;
    const auto requests = store->requests();
    const auto begin = std::ranges::find(requests, "set g/0 8 a");
    const auto end = std::find_if(begin, requests.end(), [](const auto& one) { return one.starts_with("compare "); });
    ASSERT_NE(end, requests.end());
    // Each interval without a new call asks for a report.
    EXPECT_EQ(std::count(begin, end, "check report"), Arrivals::kNumIdle - 1);
    second.emplace(*store, 1, std::chrono::milliseconds(1), group_of(2, now, "a"));
  }
  EXPECT_LE(store->getNumKeys(), static_cast<int64_t>(Arrivals::kNumCallKeys) + 2);
  EXPECT_FALSE(first.mismatch());
  EXPECT_FALSE(second->mismatch());
}

TEST(Arrivals, OneOfManyRanksThatDifferReadsWhereAllAreAndPrintsIt) {
  constexpr int64_t kRanks = 24;
  const auto store = c10::make_intrusive<WatchedStore>();
  const std::atomic<uint64_t> now = 3;
  testing::internal::CaptureStderr();
  std::set<std::string> texts;
  {
    std::vector<std::unique_ptr<Arrivals>> ranks;
    for (int64_t rank = 0; rank < kRanks; ++rank) {
      ranks.push_back(std::make_unique<Arrivals>(*store, rank, std::chrono::milliseconds(1),
                                                 group_of(kRanks, now, rank == 0 ? "saving" : "barrier")));
    }
    for (const auto& rank : ranks) {
      while (!rank->mismatch()) std::this_thread::yield();
      texts.insert(rank->mismatch()->text);
      EXPECT_THAT(rank->mismatch()->cause.ranks, ElementsAre(0)) << "the only one that saves";
    }
  }
  const auto printed = testing::internal::GetCapturedStderr();
  ASSERT_EQ(texts.size(), 1u);
  EXPECT_THAT(*texts.begin(), testing::StartsWith("the ranks wait in different collectives: "));
  EXPECT_EQ(std::ranges::count(printed, '\n'), 1) << printed;
  EXPECT_THAT(printed, testing::HasSubstr(*texts.begin()));
  EXPECT_EQ(store->count("set mismatch "), 1);
  EXPECT_LE(store->count("get g/"), kRanks * Arrivals::kNumIdle);
  // A connection breaks, because another rank has ended with this error, before this rank's thread has read it.
  const Arrivals late(*store, 1, std::chrono::hours(1), group_of(kRanks, now, "barrier"));
  late.describe(0, true);
  EXPECT_EQ(late.mismatch()->text, *texts.begin());
}

// The ranks' threads look once an hour, if nobody tells them of a wait.
TEST(Arrivals, AWaitIsComparedAtOnce) {
  constexpr int64_t kRanks = 8;
  const auto store = c10::make_intrusive<WatchedStore>();
  const std::atomic<uint64_t> now = 3;
  testing::internal::CaptureStderr();
  std::vector<std::unique_ptr<Arrivals>> ranks;
  for (int64_t rank = 0; rank < kRanks; ++rank) {
    ranks.push_back(std::make_unique<Arrivals>(*store, rank, std::chrono::hours(1),
                                               group_of(kRanks, now, rank == 5 ? "barrier" : "all_reduce of 8 Float")));
  }
  for (const auto& rank : ranks) {
    while (!rank->mismatch()) {
      for (const auto& each : ranks) each->patience(0, 1);
      std::this_thread::yield();
    }
    EXPECT_THAT(rank->mismatch()->cause.ranks, ElementsAre(5));
  }
  EXPECT_EQ(store->count("compare g/call/3 "), kRanks) << "each rank compares a call once";
  EXPECT_THAT(testing::internal::GetCapturedStderr(), testing::HasSubstr("rank 5 is at barrier (collective 3)"));
}

// As when rank 0 alone saves, and the others ask should_stop(), which waits for nobody, and begin the next step.
TEST(Arrivals, EarlierCallsAreComparedWhenAWaitLasts) {
  constexpr int64_t kRanks = 3;
  const auto store = c10::make_intrusive<WatchedStore>();
  const std::atomic<uint64_t> alone = 3, others = 5;
  testing::internal::CaptureStderr();
  std::vector<std::unique_ptr<Arrivals>> ranks;
  for (int64_t rank = 0; rank < kRanks; ++rank) {
    auto group = group_of(kRanks, rank == 0 ? alone : others, "step");
    if (rank == 0) group.calls = [](uint64_t) { return std::vector<Call>{{1, "step"}, {2, "step"}, {3, "save"}}; };
    ranks.push_back(std::make_unique<Arrivals>(*store, rank, std::chrono::hours(1), std::move(group)));
  }
  for (const char* call : {"g/call/3 3 0 save", "g/call/5 5 1 step", "g/call/5 5 2 step"}) {
    while (store->count(std::string("compare ") + call) == 0) {
      for (const auto& rank : ranks) rank->patience(0, 1);
      std::this_thread::yield();
    }
  }
  EXPECT_EQ(store->count("compare g/call/4 "), 0) << "a short wait costs one request";
  for (const auto& rank : ranks) {
    while (!rank->mismatch()) {
      for (const auto& each : ranks) each->patience(0, Arrivals::kLookAtAll);
      std::this_thread::yield();
    }
    EXPECT_THAT(rank->mismatch()->cause.ranks, ElementsAre(0));
  }
  // Whoever compares later says so.
  EXPECT_THAT(
      testing::internal::GetCapturedStderr(),
      testing::ContainsRegex("collective 3 was (save on rank 0 and step on|step on rank . and save on rank 0)"));
}

TEST(Arrivals, ACallIsNotComparedWhileAnotherThreadStartsOne) {
  const auto store = c10::make_intrusive<WatchedStore>();
  const std::atomic<uint64_t> now = 3;
  auto group = group_of(1, now, "a");
  group.calls = [](uint64_t) { return std::vector<Call>{{2, "a"}}; };
  Arrivals arrivals(*store, 0, std::chrono::hours(1), group);
  for (int64_t look = 0; store->count("check report") < 4; ++look) arrivals.patience(0, 1);
  EXPECT_EQ(store->count("compare "), 0);
}

TEST(Arrivals, LooksOftenAtTheBeginningOfAWait) {
  const auto store = c10::make_intrusive<WatchedStore>();
  const std::atomic<uint64_t> now = 3;
  Arrivals arrivals(*store, 0, std::chrono::seconds(1000), group_of(1, now, "a"));
  EXPECT_EQ(arrivals.patience(0, 0), std::chrono::seconds(250));
  EXPECT_EQ(arrivals.patience(0, Arrivals::kNumLooks - 1), std::chrono::seconds(250));
  EXPECT_EQ(arrivals.patience(0, Arrivals::kNumLooks), std::chrono::seconds(1000));
}

// Of a step of a second and of a wait for a slow rank: the user hears of it after half a minute, then after one.
TEST(Arrivals, OneRankSaysForWhomItWaits) {
  const auto store = c10::make_intrusive<WatchedStore>();
  const std::atomic<uint64_t> now = 3, before = 2;
  testing::internal::CaptureStderr();
  {
    Arrivals first(*store, 0, std::chrono::seconds(1), group_of(3, now, "a"));
    Arrivals second(*store, 1, std::chrono::seconds(1), group_of(3, now, "a"));
    const Arrivals third(*store, 2, std::chrono::hours(1), group_of(3, before, "b"));
    for (const char* call : {"g/0 3 a", "g/1 3 a", "g/2 2 b"}) store->wait_for_request(fmt::format("set {}", call));
    for (const int64_t look : {7, 20, 35, 36, 40}) first.patience(0, look), second.patience(0, look);
    while (store->count("set g/0") < 1 || store->count("check mismatch") < 20) {
      first.patience(0, 1);
      std::this_thread::yield();
    }
  }
  EXPECT_THAT(
      testing::internal::GetCapturedStderr(),
      testing::MatchesRegex(
          "rank [01]: has waited in collective 3 for 30 s: rank 2 has not arrived .it is at collective 2.; ranks 0 "
          "and 1 are at a .collective 3., rank 2 is at b .collective 2.; `yoke stack` shows where the ranks are\n"));
}

// Rank 1 has waited too long for rank 2, and closes its connections. Rank 0 began to wait later.
TEST(Arrivals, ATimeoutElsewhereExplainsALostConnection) {
  const auto store = c10::make_intrusive<WatchedStore>();
  const std::atomic<uint64_t> now = 2;
  const std::atomic<uint64_t> before = 1;
  const auto hour = std::chrono::hours(1);
  Arrivals first(*store, 0, hour, group_of(3, now, "a"));
  Arrivals second(*store, 1, std::chrono::milliseconds(1), group_of(3, now, "a"));
  const Arrivals third(*store, 2, std::chrono::milliseconds(1), group_of(3, before, "a"));
  store->wait_for_request("set g/1 2 a");
  store->wait_for_request("set g/2 1 a");
  EXPECT_THAT(first.describe(0, /*is_lost=*/true).text,
              testing::EndsWith("rank 2 has not arrived, and has probably ended"));
  second.report("rank 1: collective 2 timed out after 9 s", /*is_timeout=*/true);
  EXPECT_THAT(
      first.describe(0, /*is_lost=*/true).text,
      testing::EndsWith(
          "rank 2 has not arrived (it is at collective 1); reported before: rank 1: collective 2 timed out after 9 s"));
  EXPECT_EQ(first.describe_peer(0, 2, /*is_lost=*/true).text,
            "rank 2 is at collective 1, and this rank at 2; reported before: rank 1: collective 2 timed out after 9 s");
  EXPECT_THAT(first.describe(0, /*is_lost=*/false).text, testing::Not(testing::HasSubstr("reported before")));
  EXPECT_TRUE(first.has_heard());
}

TEST(Arrivals, ARankThatAloneWaitsForAMessageIsToBlame) {
  using Kind = FailureCause::Kind;
  const Call step{44, "a step"}, before{43, "a step"};
  const FailureCause of_peer{{3}, "had not answered a message"};
  EXPECT_EQ(
      cause_of_message(43, 2, 3, {{0, step}, {1, step}, {2, before}, {3, step}}),
      (FailureCause{{2},
                    "waited for a message to or from rank 3, while ranks 0, 1 and 3 waited in a step (collective 44)",
                    Kind::kDiffers}));
  EXPECT_EQ(cause_of_message(43, 2, 3, {{0, step}, {1, before}, {2, before}, {3, step}}), of_peer);
  EXPECT_EQ(cause_of_message(43, 2, 3, {{0, before}, {1, before}, {2, before}, {3, before}}), of_peer);
  EXPECT_EQ(cause_of_message(44, 2, 3, {{0, step}, {1, step}, {2, step}, {3, before}}), of_peer);
  EXPECT_EQ(cause_of_message(43, 2, 3, {{2, before}}), of_peer);
  EXPECT_EQ(cause_of_message(43, 1, 0, {{0, step}, {1, before}}),
            (FailureCause{{0, 1},
                          "waited for each other: rank 1 for a message, and rank 0 in a step (collective 44)",
                          Kind::kDiffers}));
}

// A collective asks for it while it waits, and the store's server may be busy or stopped.
TEST(Arrivals, AMismatchIsAskedForWithoutTheStore) {
  const auto store = c10::make_intrusive<WatchedStore>();
  const std::atomic<uint64_t> now = 1;
  const Arrivals arrivals(*store, 0, std::chrono::milliseconds(1), group_of(1, now, "a"));
  store->freeze(true);
  EXPECT_FALSE(arrivals.mismatch());
  store->freeze(false);
}

TEST(CallLog, KnowsTheLastCallsByNumber) {
  const auto kinds = [](const CallLog& log, uint64_t now) {
    std::vector<std::string> result;
    for (const auto& [number, kind] : log.last(now)) result.push_back(fmt::format("{} {}", number, kind));
    return result;
  };
  CallLog log;
  EXPECT_THAT(kinds(log, 0), ElementsAre());
  log.add(1, "all_reduce", 8, at::kLong);
  log.add(2, "all_to_all");
  EXPECT_THAT(kinds(log, 2), ElementsAre("1 all_reduce of 8 Long", "2 all_to_all"));
  EXPECT_THAT(kinds(log, 3), ElementsAre("1 all_reduce of 8 Long", "2 all_to_all")) << "of an unknown kind";
  EXPECT_TRUE(log.begin("a step", 3));
  EXPECT_FALSE(log.begin("within it", 3));
  EXPECT_THAT(kinds(log, 3), ElementsAre("1 all_reduce of 8 Long", "2 all_to_all")) << "entered before the activity";
  EXPECT_THAT(kinds(log, 5), ElementsAre("1 all_reduce of 8 Long", "2 all_to_all", "5 a step"));
  log.add(6, "broadcast", 1);
  log.end(7);
  EXPECT_THAT(kinds(log, 7), ElementsAre("1 all_reduce of 8 Long", "2 all_to_all", "6 a step", "7 a step"));
  log.add(8, "barrier");
  for (uint64_t number = 9; number < 16; ++number) log.add(number, "barrier");
  EXPECT_EQ(kinds(log, 15).size(), 8u) << "the oldest are forgotten";
  EXPECT_EQ(kinds(log, 15).front(), "8 barrier");
}

TEST(Arrivals, ListsRanksForPeople) {
  EXPECT_EQ(list_ranks({3}), "rank 3");
  EXPECT_EQ(list_ranks({1, 2}), "ranks 1 and 2");
  EXPECT_EQ(list_ranks({1, 2, 5}), "ranks 1, 2 and 5");
  std::vector<int64_t> many(64);
  for (int64_t i = 0; i < 64; ++i) many[static_cast<size_t>(i)] = i;
  EXPECT_EQ(list_ranks(many), "ranks 0, 1, 2, 3 and 60 more");
}

}  // namespace
}  // namespace yoke::dist
