#include "yoke/dist/shared/engine.h"

#include <fmt/format.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <iterator>
#include <stdexcept>
#include <utility>

#include "yoke/base/error.h"

namespace yoke::dist::shared {
namespace {

using std::chrono::milliseconds;

/// A waiter first looks so often without giving its processor away, if each rank may have one: a message between two
/// running ranks takes less. There is no pause instruction between the looks, because a loop of them makes hypervisors
/// take the processor away, which was measured to make large collectives three times as long.
constexpr int kNumSpins = 300, kNumSpinsOfMany = 30;

/// How long this rank keeps its connections to other hosts at its end, for what the network has not taken yet.
constexpr milliseconds kLastWords(2000);

int num_spins_of(int64_t num_ranks) {
  cpu_set_t processors;
  const bool is_known = sched_getaffinity(0, sizeof processors, &processors) == 0;
  return is_known && num_ranks > CPU_COUNT(&processors) ? kNumSpinsOfMany : kNumSpins;
}

/// The futex is shared by processes, so FUTEX_PRIVATE_FLAG is not set.
void futex_wait(std::atomic<uint32_t>& word, uint32_t seen, std::chrono::nanoseconds time) {
  const timespec limit{.tv_sec = static_cast<time_t>(time.count() / 1'000'000'000),
                       .tv_nsec = static_cast<long>(time.count() % 1'000'000'000)};
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT, seen, &limit, nullptr, 0);
}

void futex_wake(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace

Engine::Engine(std::shared_ptr<Segment> segment, const Options& options, Links links)
    : segment_(std::move(segment)),
      rank_(options.rank),
      num_ranks_(segment_->layout().num_ranks),
      num_spins_(links.topology ? kNumSpinsOfMany : num_spins_of(num_ranks_)),
      options_(options),
      topology_(links.topology ? *links.topology : Topology(one_host(num_ranks_), rank_)),
      chunks_(static_cast<size_t>(num_ranks_)),
      results_(chunks_.size()),
      consumed_early_(static_cast<size_t>(4 * segment_->layout().num_slots)),
      mirror_(links.topology ? std::make_unique<Mirror>(segment_, std::move(links),
                                                        Mirror::Options{.rank = rank_, .ring = [this] { ring(); }})
                             : nullptr),
      messages_(segment_, rank_, mirror_.get(), [this](int64_t rank) { ring(rank); }) {
  thread_ = std::thread([this] { run(); });
  std::unique_lock lock(mutex_);
  ended_.wait(lock, [this] { return is_alive_; });
}

Engine::~Engine() { stop(); }

void Engine::stop() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  give_up(kOwnEnd);  // before its thread ends, which looks like the end of a process
  wake_thread();
  if (thread_.joinable()) thread_.join();
  if (mirror_) mirror_->close(is_over() ? milliseconds(0) : kLastWords);
  end_all(std::make_exception_ptr(std::runtime_error(kStopped)));
}

/// Whether nobody waits for what this rank still has to say.
bool Engine::is_over() const {
  try {
    if (options_.check) options_.check();
  } catch (const std::exception&) {
    return true;
  }
  return is_broken_;
}

void Engine::end_all(const std::exception_ptr& error) {
  Transfers left;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& transfer : pending_) {
      if (!transfer->is_driven) left.push_back(transfer);
      transfer->is_driven = true;
    }
  }
  for (const auto& transfer : left) end(transfer, error);
  for (const auto& message : messages_.take_all()) notify_of_end(*message.transfer, error);
}

// ---- The calls of other threads -------------------------------------------------------------------------------------

void Engine::start(const std::shared_ptr<Transfer>& transfer, Driver driver) {
  std::exception_ptr broken;
  bool is_for_thread = false;
  {
    const std::lock_guard lock(mutex_);
    if (transfer->message) {
      ++num_messages_;
    } else {
      transfer->sequence = ++num_started_;
    }
    if (broken_ || is_stopping_) {
      broken = broken_ ? broken_ : std::make_exception_ptr(std::runtime_error(kStopped));
      transfer->has_ended = true;
    } else if (transfer->message) {
      messages_.add(transfer);
    } else {
      pending_.push_back(transfer);
      const bool is_large = transfer->exchange->is_large;
      if (is_large) large_.push_back(transfer.get());
      deposit();
      // Two large exchanges would wait for their waiters in the wrong order.
      if (!transfer->is_deposited || (is_large && (driver == Driver::kEngine || large_.size() > 1))) {
        num_handed_over_ = std::max(num_handed_over_, transfer->sequence);
        is_for_thread = true;
      }
    }
  }
  if (broken) return transfer->on_end(broken);
  if (is_for_thread) wake_thread();
  if (!transfer->message) return;
  move_messages(false);
  if (!messages_.are_none()) start_watch();
}

bool Engine::poll(const std::shared_ptr<Transfer>& transfer) { return wait(transfer, Clock::time_point::min()); }

bool Engine::wait(const std::shared_ptr<Transfer>& transfer, Clock::time_point until) {
  if (transfer->message) return wait_for_message(transfer, until);
  {
    std::unique_lock lock(mutex_);
    if (transfer->has_ended) return true;
    const bool may_wait = until != Clock::time_point::min();
    const bool is_claimed = claim(*transfer);
    // Another rank may not be able to deposit this one before earlier ones have been consumed here.
    const bool are_earlier = !pending_.empty() && pending_.front()->sequence < transfer->sequence;
    const auto handed_over = transfer->sequence - (is_claimed ? 1 : 0);
    if (may_wait && (are_earlier || !is_claimed) && num_handed_over_ < handed_over) {
      num_handed_over_ = handed_over;
      lock.unlock();
      wake_thread();
      lock.lock();
    }
    if (!is_claimed) return may_wait && ended_.wait_until(lock, until, [&] { return transfer->has_ended; });
  }
  return drive(transfer, until);
}

void Engine::hand_over(const Transfer& transfer) {
  if (transfer.message) return;  // the thread watches messages
  {
    const std::lock_guard lock(mutex_);
    num_handed_over_ = std::max(num_handed_over_, transfer.sequence);
  }
  wake_thread();
}

// ---- The thread -----------------------------------------------------------------------------------------------------

/// Advances all that are handed over, and waits for none of them alone: a later one may be what another rank needs
/// first.
void Engine::run() {
  segment_->mark_alive(rank_);
  {
    const std::lock_guard lock(mutex_);
    is_alive_ = true;
  }
  ended_.notify_all();
  Transfers driven;
  Pause pause(num_spins_);
  bool moves_messages = false;
  while (true) {
    const auto news = num_news_.load(std::memory_order_seq_cst);
    {
      std::unique_lock lock(mutex_);
      take_handed_over(driven);
      if (is_stopping_ && driven.empty()) return;
      const bool is_idle = driven.empty() && (pending_.empty() || pending_.back()->is_deposited);
      moves_messages = are_messages_alone() && (moves_messages || !is_idle);
      if (is_idle && !moves_messages) {
        moves_messages = watch(lock, news);
        pause.end();
        continue;
      }
    }
    bool has_moved = false;
    const bool looks_around = pause.is_long();
    if (looks_around) look_around_for_slots();
    if (is_broken_) end_all(set_broken(nullptr));
    if (moves_messages) has_moved = move_messages(looks_around);
    std::erase_if(driven, [&](const auto& transfer) {
      const auto step = advance_or_end(transfer, looks_around);
      has_moved |= step != Step::kStuck;
      return step == Step::kEnded;
    });
    if (has_moved) pause.end();
    if (has_moved || pause.take_briefly()) continue;
    sleep(driven, {.until = Clock::now() + kNap, .news = news, .with_messages = moves_messages});
  }
}

void Engine::take_handed_over(Transfers& driven) {
  deposit();
  for (const auto& transfer : pending_) {
    if (transfer->sequence > num_handed_over_) break;
    if (!claim(*transfer)) continue;
    driven.push_back(transfer);
  }
}

// ---- A transfer -----------------------------------------------------------------------------------------------------

bool Engine::claim(Transfer& transfer) {
  if (transfer.is_driven) return false;
  if (!transfer.is_deposited) deposit();
  if (!transfer.is_deposited) return false;
  if (transfer.exchange->is_large && large_.front() != &transfer) return false;
  return transfer.is_driven = true;
}

bool Engine::deposit() {
  // Those that are not deposited are the last ones.
  auto next = pending_.end();
  while (next != pending_.begin() && !(*std::prev(next))->is_deposited) --next;
  const auto first = next;
  for (; next != pending_.end(); ++next) {
    const auto sequence = (*next)->sequence, last = before(**next);
    // This rank reads its own slot, too.
    if (num_consumed_ < last || !all_have(&RankState::consumed, last)) break;
    auto& slot = segment_->slot(rank_, sequence);
    auto& header = (*next)->exchange->header;
    header.previous = std::exchange(previous_, in_short(header));
    slot.header = header;
    (*next)->exchange->deposit(slot.data());
    slot.sequence.store(sequence, std::memory_order_seq_cst);
    if (mirror_) {
      const auto* const begin = reinterpret_cast<const std::byte*>(&slot.header);
      const auto* const end = slot.data() + (*next)->exchange->deposited_bytes();
      mirror_->publish({slot.sequence, sequence}, {piece_at(begin, end - begin)});
    }
    (*next)->is_deposited = true;
    ring();
  }
  return next != first;
}

uint64_t Engine::before(const Transfer& transfer) const {
  const auto num_slots = static_cast<uint64_t>(layout().num_slots);
  return std::max(transfer.sequence, num_slots) - num_slots;
}

bool Engine::drive(const std::shared_ptr<Transfer>& transfer, Clock::time_point until) {
  const bool may_wait = until != Clock::time_point::min();
  Pause pause(num_spins_);
  while (true) {
    const auto step = advance_or_end(transfer, !may_wait || pause.is_long());
    if (step == Step::kEnded) return true;
    if (may_wait && step == Step::kMoved) pause.end();
    if (may_wait && pause.take_briefly()) continue;
    const auto now = Clock::now();
    if (now >= until) break;
    sleep({transfer}, {.until = std::min({until, transfer->deadline, now + kNap}), .news = num_news_});
  }
  bool is_for_thread = false;
  {
    const std::lock_guard lock(mutex_);
    transfer->is_driven = false;
    is_for_thread = transfer->sequence <= num_handed_over_;
  }
  // The thread is not woken for nothing, because a caller may ask often whether it has ended.
  if (is_for_thread) wake_thread();
  return false;
}

Engine::Step Engine::advance_or_end(const std::shared_ptr<Transfer>& transfer, bool looks_around) {
  Step step = Step::kEnded;
  std::exception_ptr error;
  try {
    step = advance(*transfer);
    if (step == Step::kStuck && looks_around) step = look_around(*transfer);
  } catch (...) {
    step = Step::kEnded;
    error = set_broken(std::current_exception());
  }
  if (step == Step::kEnded) end(transfer, error);
  if (error) wake_thread();  // which ends all others
  return step;
}

std::exception_ptr Engine::set_broken(std::exception_ptr error) {
  const std::lock_guard lock(mutex_);
  if (!broken_) broken_ = std::move(error);
  is_broken_ = true;
  return broken_;
}

Engine::Step Engine::advance(Transfer& transfer) {
  if (is_broken_) {
    const std::lock_guard lock(mutex_);
    std::rethrow_exception(broken_);
  }
  if (transfer.mismatch) return Step::kStuck;
  if (!transfer.has_begun && !begin(transfer)) return Step::kStuck;
  return transfer.exchange->is_large ? move_rounds(transfer) : Step::kEnded;
}

/// Reads the slots once they are there. Returns whether that is so, and all ranks have called the same.
bool Engine::begin(Transfer& transfer) {
  auto& exchange = *transfer.exchange;
  const uint64_t read = exchange.is_large ? ~uint64_t{0} : exchange.sources;
  std::array<const std::byte*, kMostRanks> slots;
  for (int64_t rank = 0; rank < num_ranks_; ++rank) {
    auto& slot = segment_->slot(rank, transfer.sequence);
    const bool is_read = (read >> rank & 1) != 0;
    if (is_read && slot.sequence.load(std::memory_order_seq_cst) != transfer.sequence) return false;
    slots[static_cast<size_t>(rank)] = is_read ? slot.data() : nullptr;
  }
  for (int64_t rank = 0; rank < num_ranks_; ++rank) {
    const auto* const data = slots[static_cast<size_t>(rank)];
    if (data == nullptr) continue;
    if (Slot::of(data).header == exchange.header && exchange.fits(rank, data)) continue;
    note_mismatch(transfer);
    return false;
  }
  const auto all = Chunks(slots).first(static_cast<size_t>(num_ranks_));
  if (mirror_) exchange.hosts = topology_.hosts();
  if (exchange.is_large) {
    exchange.contributors = topology_.contributors();
    transfer.base = num_rounds_;
    transfer.num_rounds = static_cast<uint64_t>(exchange.begin(all));
    num_rounds_ += transfer.num_rounds;
    const std::lock_guard lock(mutex_);
    consume(transfer.sequence);
  } else {
    exchange.finish(all);  // end() consumes it, so that it locks once
  }
  transfer.has_begun = true;
  return true;
}

Engine::Step Engine::move_rounds(Transfer& transfer) {
  auto& exchange = *transfer.exchange;
  auto& own = segment_->state(rank_);
  const auto num_chunks = static_cast<uint64_t>(layout().num_chunks);
  const auto point_at = [&](uint64_t round) {
    for (int64_t rank = 0; rank < num_ranks_; ++rank) {
      chunks_[static_cast<size_t>(rank)] = segment_->chunk(rank, round);
      results_[static_cast<size_t>(rank)] = segment_->result(rank, round);
    }
  };
  if (!exchange.is_sent_by(rank_)) transfer.num_staged = transfer.num_rounds;  // nobody looks at what would be staged
  bool has_moved = false;
  for (bool moves = true; moves; has_moved |= moves) {
    moves = false;
    const auto stage = transfer.base + transfer.num_staged;
    if (transfer.num_staged < transfer.num_rounds &&
        (stage < num_chunks || all_have(&RankState::taken, stage + 1 - num_chunks))) {
      auto* const chunk = segment_->chunk(rank_, stage);
      const auto round = static_cast<int64_t>(transfer.num_staged++);
      exchange.stage(round, chunk);
      own.staged.store(stage + 1, std::memory_order_seq_cst);
      if (mirror_) {
        mirror_->publish({own.staged, stage + 1}, [&](const auto& ranks) {
          return exchange.reduces() ? Pieces() : exchange.staged_for(round, chunk, ranks);
        });
      }
      ring();
      moves = true;
    }
    if (is_merged(exchange) && transfer.num_merged < transfer.num_staged &&
        are_staged_here(transfer.base + transfer.num_merged + 1)) {
      point_at(transfer.base + transfer.num_merged);
      merge(transfer);
      moves = true;
    }
    const auto reduce = transfer.base + transfer.num_reduced;
    if (transfer.num_reduced < transfer.num_staged && can_reduce(transfer)) {
      auto* const result = segment_->result(rank_, reduce);
      const auto round = static_cast<int64_t>(transfer.num_reduced++);
      if (exchange.reduces()) {
        point_at(reduce);
        exchange.reduce(round, chunks_, result);
      }
      own.reduced.store(reduce + 1, std::memory_order_seq_cst);
      if (mirror_ && exchange.reduces()) {
        mirror_->publish({own.reduced, reduce + 1}, {exchange.reduced(round, result)});
      }
      if (exchange.reduces()) ring();
      moves = true;
    }
    const auto take = transfer.base + transfer.num_taken;
    if (transfer.num_taken < transfer.num_reduced && (!exchange.reduces() || all_have(&RankState::reduced, take + 1))) {
      point_at(take);
      exchange.take(static_cast<int64_t>(transfer.num_taken++), chunks_, results_);
      own.taken.store(take + 1, std::memory_order_seq_cst);
      if (mirror_) publish_taken(transfer);
      ring();
      moves = true;
    }
  }
  if (transfer.num_taken == transfer.num_rounds) return Step::kEnded;
  return has_moved ? Step::kMoved : Step::kStuck;
}

void Engine::consume(uint64_t sequence) {
  const auto place = [&](uint64_t number) -> uint64_t& { return consumed_early_[number % consumed_early_.size()]; };
  place(sequence) = sequence;
  if (sequence != num_consumed_ + 1) return;
  while (place(num_consumed_ + 1) == num_consumed_ + 1) ++num_consumed_;
  auto& consumed = segment_->state(rank_).consumed;
  consumed.store(num_consumed_, std::memory_order_seq_cst);
  // Others need the slots later, so not each of these numbers is worth a message.
  if (mirror_ &&
      num_consumed_ - num_consumed_sent_ >= std::max<uint64_t>(1, static_cast<uint64_t>(layout().num_slots) / 2)) {
    num_consumed_sent_ = num_consumed_;
    mirror_->publish({consumed, num_consumed_});
  }
  ring();
}

void Engine::end(const std::shared_ptr<Transfer>& transfer, std::exception_ptr error) {
  bool is_next_large = false;
  {
    const std::lock_guard lock(mutex_);
    if (!transfer->exchange->is_large) {
      if (transfer->has_begun) consume(transfer->sequence);
    } else if (large_.front() == transfer.get()) {
      large_.pop_front();
      is_next_large = !large_.empty() && large_.front()->sequence <= num_handed_over_;
    } else {
      std::erase(large_, transfer.get());
    }
    if (pending_.front() == transfer) {
      pending_.pop_front();
    } else {
      std::erase(pending_, transfer);
    }
    ++num_ending_;
  }
  if (is_next_large) wake_thread();
  notify_of_end(*transfer, error, 1);
}

void Engine::wait_for_all(milliseconds limit) {
  std::unique_lock lock(mutex_);
  ended_.wait_for(lock, limit, [this] { return pending_.empty() && num_ending_ == 0; });
}

void Engine::notify_of_end(Transfer& transfer, const std::exception_ptr& error, int num_ending) {
  std::function<void(std::exception_ptr)> on_end;
  on_end.swap(transfer.on_end);
  on_end(error);
  {
    const std::lock_guard lock(mutex_);
    transfer.has_ended = true;
    num_ending_ -= num_ending;
  }
  ended_.notify_all();
}

// ---- Between ranks --------------------------------------------------------------------------------------------------

/// Wakes the ranks that sleep. A sleeper counts itself before it looks a last time, and this rank has published before
/// it looks for sleepers; both in the one order of sequentially consistent operations. So either the sleeper sees what
/// was published, or this rank sees the sleeper.
void Engine::ring() {
  for (int64_t rank = 0; rank < num_ranks_; ++rank) ring(rank);
}

void Engine::ring(int64_t rank) {
  auto& state = segment_->state(rank);
  if (state.num_sleepers.load(std::memory_order_seq_cst) == 0) return;
  state.bell.fetch_add(1, std::memory_order_seq_cst);
  futex_wake(state.bell);
}

void Engine::sleep(const Transfers& transfers, const Sleep& sleep) {
  auto& own = segment_->state(rank_);
  const auto seen = own.bell.load(std::memory_order_seq_cst);
  own.num_sleepers.fetch_add(1, std::memory_order_seq_cst);
  bool is_blocked = num_news_.load(std::memory_order_seq_cst) == sleep.news &&
                    std::ranges::none_of(transfers, [&](const auto& one) { return can_move(*one); }) &&
                    !(sleep.with_messages && messages_.can_move());
  {
    const std::lock_guard lock(mutex_);
    if (deposit()) is_blocked = false;
  }
  const auto now = Clock::now();
  if (is_blocked && now < sleep.until && !is_stopping_) futex_wait(own.bell, seen, sleep.until - now);
  own.num_sleepers.fetch_sub(1, std::memory_order_seq_cst);
}

void Engine::wake_thread() {
  {
    const std::lock_guard lock(mutex_);
    num_news_.fetch_add(1, std::memory_order_seq_cst);
  }
  work_.notify_one();
  ring(rank_);
}

}  // namespace yoke::dist::shared
