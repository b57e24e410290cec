// Ranks as processes, one of which is killed at a random moment. tests/dist does the same with whole Worlds, which take
// far longer to start.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <random>
#include <string_view>
#include <thread>

#include "yoke/base/process.h"
#include "yoke/dist/shared/run_engines_test.h"

namespace yoke::dist::shared {
namespace {

constexpr int kHasNamed = 10;  // the exit status of a survivor is this, plus the rank that it names
constexpr int kWrongResult = 1, kTimedOut = 2, kOtherError = 3;

using Numbers = std::vector<int32_t>;

/// One rank, until another one has ended. All kinds of exchanges are in flight at once; their results are checked.
class Churn {
 public:
  Churn(const std::shared_ptr<Segment>& segment, const UniqueFd& file, int64_t rank, Links links)
      : engine_(segment, {.rank = rank, .mismatch_patience = std::chrono::seconds(60)}, std::move(links)),
        arena_(segment->arena_of(file, rank)),
        rank_(rank),
        num_ranks_(segment->layout().num_ranks),
        bucket_(arena_ ? arena_->allocate(kInBucket * 4)
                       : std::shared_ptr<std::byte>(new std::byte[kInBucket * 4], std::default_delete<std::byte[]>())) {
  }

  void turn(int64_t i) {
    const auto mark = static_cast<int32_t>(rank_ + 1 + i), first = static_cast<int32_t>(1 + i);
    const auto ranks = static_cast<int32_t>(num_ranks_);
    const int32_t sum = ranks * first + ranks * (ranks - 1) / 2;
    const int64_t root = i % num_ranks_;
    auto* const bucket = reinterpret_cast<int32_t*>(bucket_.get());
    std::fill_n(bucket, kInBucket, mark);
    Numbers small(1 + static_cast<size_t>(i) % 9, mark), large(2000 + static_cast<size_t>(i) % 77, mark);
    Numbers sent(static_cast<size_t>(i) * 31 % 3000, mark), gathered(sent.size() * static_cast<size_t>(num_ranks_));
    start(reduction(bucket, kInBucket, arena_));
    start(reduction(small.data(), std::ssize(small)));
    start(reduction(large.data(), std::ssize(large)));
    auto broadcast = copy_of(sent);
    broadcast.root = static_cast<uint32_t>(root);
    broadcast.is_from_root = i % 3 != 0;
    if (rank_ == root) {
      broadcast.send = {std::as_bytes(std::span(sent))};
    } else {
      broadcast.receive[static_cast<size_t>(root)] = std::as_writable_bytes(std::span(sent));
    }
    start(make_copy(engine_.layout(), rank_, broadcast));
    const Numbers own(sent.size(), mark);
    auto gather = copy_of(sent);
    gather.send = {std::as_bytes(std::span(own))};
    for (size_t other = 0; other < gather.receive.size(); ++other) {
      gather.receive[other] = std::as_writable_bytes(std::span(gathered).subspan(other * own.size(), own.size()));
    }
    start(make_copy(engine_.layout(), rank_, gather));
    Numbers passed_on(sent.size(), mark), received(sent.size());
    start_message({.is_sent = true, .peer = (rank_ + 1) % num_ranks_}, passed_on);
    start_message({.peer = (rank_ + num_ranks_ - 1) % num_ranks_}, received);
    // All are waited for, because they use the memory of this function.
    for (const auto& transfer : in_flight_) engine_.wait(transfer, Clock::time_point::max());
    in_flight_.clear();
    if (error_) std::rethrow_exception(error_);
    const auto all = [](std::span<const int32_t> numbers, int32_t wanted) {
      return std::ranges::all_of(numbers, [&](int32_t number) { return number == wanted; });
    };
    bool are_right = all({bucket, kInBucket}, sum) && all(small, sum) && all(large, sum) &&
                     all(sent, first + static_cast<int32_t>(root)) &&
                     all(received, first + static_cast<int32_t>((rank_ + num_ranks_ - 1) % num_ranks_));
    for (size_t other = 0; other < gather.receive.size(); ++other) {
      const auto part = std::span(gathered).subspan(other * own.size(), own.size());
      are_right = are_right && all(part, first + static_cast<int32_t>(other));
    }
    if (!are_right) _exit(kWrongResult);
  }

 private:
  static constexpr int64_t kInBucket = 30'000;

  std::unique_ptr<Exchange> reduction(int32_t* numbers, int64_t size, std::shared_ptr<Arena> arena = nullptr) {
    auto* const memory = reinterpret_cast<std::byte*>(numbers);
    return make_reduction(
        engine_.layout(), rank_,
        {.type = Type::kI32, .input = memory, .output = memory, .num_elements = size, .arena = std::move(arena)});
  }

  CopyOptions copy_of(const Numbers& numbers) const {
    CopyOptions copy;
    copy.bytes = std::ssize(numbers) * 4;
    copy.receive.resize(static_cast<size_t>(num_ranks_));
    return copy;
  }

  void start(std::unique_ptr<Exchange> exchange) {
    auto transfer = std::make_shared<Transfer>();
    transfer->exchange = std::move(exchange);
    start(std::move(transfer));
  }

  void start_message(Message message, Numbers& numbers) {
    message.data = reinterpret_cast<std::byte*>(numbers.data());
    message.bytes = std::ssize(numbers) * 4;
    auto transfer = std::make_shared<Transfer>();
    transfer->message = message;
    start(std::move(transfer));
  }

  void start(std::shared_ptr<Transfer> transfer) {
    transfer->deadline = Clock::now() + std::chrono::seconds(60);
    transfer->on_end = [this](std::exception_ptr error) {
      const std::lock_guard lock(mutex_);
      if (error && !error_) error_ = std::move(error);
    };
    engine_.start(transfer, in_flight_.size() % 2 == 0 ? Driver::kEngine : Driver::kWaiter);
    in_flight_.push_back(std::move(transfer));
  }

  Engine engine_;
  const std::shared_ptr<Arena> arena_;
  const int64_t rank_, num_ranks_;
  const std::shared_ptr<std::byte> bucket_;
  std::vector<std::shared_ptr<Transfer>> in_flight_;
  std::mutex mutex_;
  std::exception_ptr error_;
};

[[noreturn]] void run_rank(const std::shared_ptr<Segment>& segment, const UniqueFd& file, int64_t rank,
                           const UniqueFd& began, const std::function<Links()>& connect) {
  try {
    Churn churn(segment, file, rank, connect());
    for (int64_t i = 0;; ++i) {
      churn.turn(i);
      if (i == 0) (void)!write(began.value(), "x", 1);
    }
  } catch (const RankFailure& failure) {
    const bool has_timed_out = std::string_view(failure.what()).starts_with("Timed out");
    _exit(has_timed_out ? kTimedOut : kHasNamed + static_cast<int>(failure.ranks[0]));
  } catch (const std::exception& error) {
    fmt::print(stderr, "rank {}: {}\n", rank, error.what());
    _exit(kOtherError);
  }
}

/// On hosts of two to four ranks, kills one of them at a random moment, again and again.
void kill_ranks(const std::function<Hosts(int64_t num_ranks)>& hosts_for) {
  const int rounds = std::getenv("YOKE_LONG") != nullptr ? 10'000 : 60;
  std::minstd_rand random(17);
  std::vector<double> times;  // until all survivors had ended
  for (int round = 0; round < rounds; ++round) {
    const int num_ranks = 2 + round % 3;
    const auto hosts = hosts_for(num_ranks);
    auto layout = layout_of(num_ranks);
    if (round % 2 == 0)
      layout = {.num_ranks = num_ranks, .slot_bytes = 256, .chunk_bytes = 1024, .num_chunks = 2, .channel_bytes = 512};
    if (hosts.size() == 1) layout.arena_bytes = kMostArenaBytes;
    std::vector<UniqueFd> files(hosts.size());
    std::vector<std::shared_ptr<Segment>> segments;
    for (auto& file : files) segments.push_back(Segment::create(layout, file));
    std::vector<Listener> listeners;
    LinkOptions options{.hosts = hosts, .until = Clock::now() + std::chrono::seconds(60)};
    for (int rank = 0; rank < num_ranks; ++rank) {
      options.addresses.push_back(listeners.emplace_back("127.0.0.1").address());
    }
    Pipe began = make_pipe();
    std::vector<pid_t> ranks;
    for (int rank = 0; rank < num_ranks; ++rank) {
      ranks.push_back(fork());
      if (ranks.back() != 0) continue;
      const auto host = host_of(hosts, rank);
      run_rank(segments[host], files[host], rank, began.write_end, [&] {
        options.rank = rank;
        options.segment = segments[host].get();
        auto links = connect_hosts(listeners[static_cast<size_t>(rank)], options);
        listeners.clear();
        return links;
      });
    }
    char letter;
    for (int rank = 0; rank < num_ranks; ++rank) ASSERT_EQ(read(began.read_end.value(), &letter, 1), 1);
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 5'000));  // clock: a random moment
    const int killed = static_cast<int>(random() % static_cast<unsigned>(num_ranks));
    kill(ranks[static_cast<size_t>(killed)], SIGKILL);
    const auto begin = std::chrono::steady_clock::now();
    for (int rank = 0; rank < num_ranks; ++rank) {
      int status = 0;
      waitpid(ranks[static_cast<size_t>(rank)], &status, 0);
      if (rank == killed) continue;
      ASSERT_TRUE(WIFEXITED(status)) << round;
      ASSERT_EQ(WEXITSTATUS(status), kHasNamed + killed) << "round " << round << ", rank " << rank;
    }
    const std::chrono::duration<double, std::milli> passed = std::chrono::steady_clock::now() - begin;
    times.push_back(passed.count());
  }
  std::ranges::sort(times);
  fmt::print("{} kills; until all survivors had ended: median {:.0f} ms, 99 % {:.0f}, most {:.0f}\n", rounds,
             times[times.size() / 2], times[times.size() * 99 / 100], times.back());
}

// YOKE_LONG: ten thousand times each.
TEST(SharedKill, SurvivorsNameTheRankThatHasEnded) {
  kill_ranks([](int64_t num_ranks) { return hosts_of(std::vector<std::string>(static_cast<size_t>(num_ranks))); });
}

TEST(SharedKill, SurvivorsOnTwoHostsDoToo) { kill_ranks(two_hosts); }

}  // namespace
}  // namespace yoke::dist::shared
