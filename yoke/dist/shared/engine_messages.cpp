#include <algorithm>
#include <utility>

#include "yoke/base/error.h"
#include "yoke/dist/shared/engine.h"

namespace yoke::dist::shared {
namespace {

/// Whoever starts a message usually waits for it at once, so the thread is not woken for it. It looks this often
/// whether nobody waits, and stops looking after so many looks without a new message.
constexpr std::chrono::milliseconds kWatchInterval(1);
constexpr int kMostQuietLooks = 100;
/// It lets other threads run after so few looks, because a look at messages takes longer than one at a collective, and
/// the other rank may need this processor.
constexpr int kNumSpinsForMessages = 3;

}  // namespace

bool Engine::wait_for_message(const std::shared_ptr<Transfer>& transfer, Clock::time_point until) {
  const bool may_wait = until != Clock::time_point::min();
  const auto has_ended = [&] {
    const std::lock_guard lock(mutex_);
    return transfer->has_ended;
  };
  if (has_ended()) return true;
  ++num_message_waiters_;
  Pause pause(kNumSpinsForMessages);
  bool result = false;
  while (true) {
    const auto news = num_news_.load(std::memory_order_seq_cst);
    const bool has_moved = move_messages(!may_wait || pause.is_long());
    result = has_ended();
    if (result || !may_wait) break;
    if (has_moved) pause.end();
    if (pause.take_briefly()) continue;
    const auto now = Clock::now();
    if (now >= until) break;
    sleep({}, {.until = std::min({until, transfer->deadline, now + kNap}), .news = news, .with_messages = true});
  }
  --num_message_waiters_;
  return result;
}

bool Engine::move_messages(bool looks_around) {
  Transfers ended;
  bool has_moved = false;
  try {
    has_moved = messages_.move(ended) || (looks_around && check_messages(ended));
  } catch (...) {
    set_broken(std::current_exception());
  }
  for (const auto& transfer : ended) notify_of_end(*transfer, nullptr);
  if (is_broken_) end_all(set_broken(nullptr));
  if (!ended.empty()) ring(rank_);  // another thread may sleep until one of them has ended
  return has_moved;
}

/// Throws if there is a reason not to wait any longer. Returns whether something has moved.
bool Engine::check_messages(Transfers& ended) {
  if (options_.check && !messages_.are_none()) options_.check();
  std::vector<int64_t> others;
  for (int64_t rank = 0; rank < num_ranks_; ++rank) {
    if (rank != rank_) others.push_back(rank);
  }
  for (const auto& [transfer, peer] : messages_.pending()) {
    const auto missing = peer == kAnyRank ? others : std::vector<int64_t>{peer};
    const bool may_come = std::ranges::any_of(missing, [&](int64_t rank) { return !lost_rank({rank}); });
    if (may_come && Clock::now() < transfer->deadline) continue;
    if (messages_.move(ended)) return true;  // what a rank has written before it ended is there now
    check_missing(missing, *transfer);
  }
  return false;
}

void Engine::start_watch() {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(watches_, true)) return;
  }
  wake_thread();
}

bool Engine::watch(std::unique_lock<std::mutex>& lock, uint64_t news) {
  const auto has_news = [&] { return is_stopping_ || num_news_ != news; };
  if (!watches_) {
    work_.wait(lock, has_news);
    return false;
  }
  if (work_.wait_for(lock, kWatchInterval, has_news)) return false;
  const uint64_t count = num_messages_;
  const bool is_quiet = messages_.are_none() && std::exchange(num_messages_seen_, count) == count;
  num_quiet_looks_ = is_quiet ? num_quiet_looks_ + 1 : 0;
  watches_ = num_quiet_looks_ < kMostQuietLooks;
  return are_messages_alone();
}

}  // namespace yoke::dist::shared
