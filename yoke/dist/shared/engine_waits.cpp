// For which ranks a rank waits, and when it stops waiting for them.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <set>

#include "yoke/base/error.h"
#include "yoke/dist/shared/engine.h"

namespace yoke::dist::shared {

/// Throws if there is a reason not to wait any longer.
Engine::Step Engine::look_around(Transfer& transfer) {
  if (is_stopping_) throw std::runtime_error(kStopped);
  if (options_.check) options_.check();
  if (transfer.awaits_calls) note_mismatch(transfer);
  const auto missing = missing_ranks(transfer);
  if (lost_rank(missing)) {
    const auto step = advance(transfer);  // what that rank published before it ended is there now
    if (step != Step::kStuck) return step;
  }
  check_missing(missing, transfer);
  return Step::kStuck;
}

void Engine::check_missing(const std::vector<int64_t>& missing, const Transfer& transfer) {
  if (const auto lost = lost_rank(missing)) {
    give_up((lost->is_silent ? kSilenceOf : kEndOf) + static_cast<uint64_t>(lost->rank));
    if (transfer.mismatch) std::rethrow_exception(transfer.mismatch);  // because of which it has ended
    if (lost->is_silent) throw silence_of(lost->rank, lost->seen_by);
    throw RankFailure(fmt::format("Connection closed by peer: rank {} of the group has ended", lost->rank),
                      {lost->rank}, RankFailure::Loss::kOfEnd);
  }
  if (Clock::now() < transfer.deadline) return;
  if (transfer.mismatch) std::rethrow_exception(transfer.mismatch);
  const auto late = late_ranks(missing, transfer);
  for (const int64_t rank : late) {
    if (!mirror_ || !mirror_->gives_no_answer(rank)) continue;
    give_up(kSilenceOf + static_cast<uint64_t>(rank));
    throw silence_of(rank);
  }
  throw RankFailure(
      fmt::format("Timed out waiting for rank{} {} of the group", late.size() == 1 ? "" : "s", fmt::join(late, ", ")),
      late);
}

RankFailure Engine::silence_of(int64_t rank, int64_t seen_by) const {
  const auto& names = options_.host_names;
  const auto host = static_cast<size_t>(rank) < names.size() ? names[static_cast<size_t>(rank)] : "";
  return {
      fmt::format("No answer: the connection {}to rank {} of the group{} gives none: the network between the hosts is "
                  "cut, or that host is down; the rank may still run",
                  seen_by < 0 ? "" : fmt::format("of rank {} ", seen_by), rank, host.empty() ? "" : " on " + host),
      {rank},
      RankFailure::Loss::kOfSilence,
      host,
      seen_by};
}

std::vector<int64_t> Engine::late_ranks(const std::vector<int64_t>& missing, const Transfer& transfer) const {
  std::vector<int64_t> not_staged;
  if (transfer.exchange && transfer.has_begun && is_merged(*transfer.exchange)) {
    for (int64_t rank = 0; rank < num_ranks_; ++rank) {
      const bool is_late = segment_->state(rank).staged < transfer.base + transfer.num_reduced + 1;
      if (carrier_of(rank) != kNoCarrier && is_late) not_staged.push_back(rank);
    }
  }
  std::set<int64_t> late;
  for (const int64_t rank : missing) {
    const auto carrier = carrier_of(rank);
    if (carrier == kNoCarrier) {
      late.insert(rank);
    } else if (mirror_->is_stopped(carrier)) {
      late.insert(carrier);
    } else if (!not_staged.empty()) {  // what a rank merges waits for what the others of its host have staged
      late.insert(not_staged.begin(), not_staged.end());
    } else {
      late.insert(rank);
    }
  }
  return {late.begin(), late.end()};
}

void Engine::give_up(uint64_t why) {
  auto& word = segment_->state(rank_).has_given_up;
  uint64_t none = 0;
  if (!word.compare_exchange_strong(none, why)) return;
  if (mirror_) mirror_->publish({word, why});
  ring();
}

/// Calls `front(lacks)` for each thing that the transfer could do next. `lacks(rank)`: that rank is not so far yet.
template <class Front>
void Engine::for_each_front(const Transfer& transfer, const Front& front) const {
  const auto& exchange = *transfer.exchange;
  const auto wants = [&](int64_t rank) { return exchange.takes_from(rank); };
  const auto lacks = [&](std::atomic<uint64_t> RankState::*counter, uint64_t number) {
    return [this, counter, number](int64_t rank) { return (segment_->state(rank).*counter).load() < number; };
  };
  if (!transfer.has_begun) {
    return front([&](int64_t rank) {
      return (exchange.is_large || wants(rank)) &&
             segment_->slot(rank, transfer.sequence).sequence.load() != transfer.sequence;
    });
  }
  const auto num_chunks = static_cast<uint64_t>(layout().num_chunks);
  if (transfer.num_staged < transfer.num_rounds && exchange.is_sent_by(rank_)) {
    const auto next = transfer.base + transfer.num_staged + 1;
    front(lacks(&RankState::taken, std::max(next, num_chunks) - num_chunks));
  }
  if (is_merged(exchange)) {
    if (transfer.num_merged < transfer.num_staged) {
      const auto is_late = lacks(&RankState::staged, transfer.base + transfer.num_merged + 1);
      front([&](int64_t rank) { return topology_.is_here(rank) && is_late(rank); });
    }
    if (transfer.num_reduced < transfer.num_merged) {
      const auto is_late = lacks(&RankState::merged, transfer.base + transfer.num_reduced + 1);
      front([&](int64_t rank) { return std::ranges::binary_search(topology_.carriers(), rank) && is_late(rank); });
    }
  } else if (transfer.num_reduced < transfer.num_staged) {
    const auto is_late = lacks(&RankState::staged, transfer.base + transfer.num_reduced + 1);
    front([&](int64_t rank) { return wants(rank) && is_late(rank); });
  }
  if (transfer.num_taken < transfer.num_reduced) {
    const auto is_late = lacks(&RankState::reduced, transfer.base + transfer.num_taken + 1);
    front([&](int64_t rank) { return exchange.reduces() && is_late(rank); });
  }
}

bool Engine::can_move(const Transfer& transfer) const {
  if (transfer.mismatch) return false;
  bool result = false;
  for_each_front(transfer, [&](const auto& lacks) {
    bool is_blocked = false;
    for (int64_t rank = 0; rank < num_ranks_; ++rank) is_blocked |= rank != rank_ && lacks(rank);
    result |= !is_blocked;
  });
  return result;
}

std::vector<int64_t> Engine::missing_ranks(const Transfer& transfer) const {
  std::set<int64_t> missing;
  for_each_front(transfer, [&](const auto& lacks) {
    for (int64_t rank = 0; rank < num_ranks_; ++rank) {
      if (rank != rank_ && lacks(rank)) missing.insert(rank);
    }
  });
  return {missing.begin(), missing.end()};
}

std::optional<Engine::Lost> Engine::lost_rank(const std::vector<int64_t>& missing) const {
  const auto reason = [&](int64_t rank) { return segment_->state(rank).has_given_up.load(); };
  std::optional<int64_t> lost;
  for (const int64_t rank : missing) {
    for (const int64_t one : {carrier_of(rank), rank}) {  // what a rank sends gets lost with its carrier
      if (one != kNoCarrier && (segment_->has_ended(one) || reason(one) != 0)) lost = one;
    }
  }
  if (!lost) return std::nullopt;
  const auto why = reason(*lost);
  if (why >= kSilenceOf) return Lost{static_cast<int64_t>(why - kSilenceOf), true, *lost};
  if (why >= kEndOf) return Lost{static_cast<int64_t>(why - kEndOf)};
  for (int64_t rank = 0; why != 0 && rank < num_ranks_; ++rank) {  // the cause, if there is another one
    if (segment_->has_ended(rank) && reason(rank) == 0) return Lost{rank, segment_->is_silent(rank)};
  }
  return Lost{*lost, segment_->is_silent(*lost)};
}

std::vector<int64_t> Engine::ended_ranks() const {
  std::vector<int64_t> ended;
  for (int64_t rank = 0; rank < num_ranks_; ++rank) {
    const auto why = segment_->state(rank).has_given_up.load();
    if (rank == rank_ || segment_->is_silent(rank)) continue;
    if (why == kOwnEnd || (why == 0 && segment_->has_ended(rank))) ended.push_back(rank);
  }
  return ended;
}

void Engine::look_around_for_slots() {
  std::exception_ptr error;
  {
    const std::lock_guard lock(mutex_);
    const auto waiting = std::ranges::find_if(pending_, [](const auto& transfer) { return !transfer->is_deposited; });
    if (waiting == pending_.end()) return;
    std::vector<int64_t> missing;
    for (int64_t rank = 0; rank < num_ranks_; ++rank) {
      if (rank != rank_ && segment_->state(rank).consumed.load() < before(**waiting)) missing.push_back(rank);
    }
    try {
      if (options_.check) options_.check();
      if (!missing.empty()) check_missing(missing, **waiting);
    } catch (const std::exception&) {
      error = std::current_exception();
    }
  }
  if (error) set_broken(error);
}

bool Engine::are_staged_here(uint64_t number) const {
  return std::ranges::all_of(topology_.here(),
                             [&](int64_t rank) { return rank == rank_ || segment_->state(rank).staged >= number; });
}

bool Engine::can_reduce(const Transfer& transfer) const {
  const auto number = transfer.base + transfer.num_reduced + 1;
  const auto& exchange = *transfer.exchange;
  if (!is_merged(exchange)) return all_have(&RankState::staged, number, exchange.sources);
  return transfer.num_merged > transfer.num_reduced && std::ranges::all_of(topology_.carriers(), [&](int64_t rank) {
           return segment_->state(rank).merged >= number;
         });
}

/// What ranks of this host have staged for the ranks of other hosts goes there as one part, from the rank of this host
/// that carries them.
void Engine::merge(Transfer& transfer) {
  auto& exchange = *transfer.exchange;
  const auto round = static_cast<int64_t>(transfer.num_merged++);
  const auto number = transfer.base + transfer.num_merged;
  auto* const chunk = segment_->chunk(rank_, number - 1);
  const auto& targets = topology_.carried();
  if (topology_.here().size() > 1) exchange.merge(round, chunks_, chunk, topology_.here(), targets);
  auto& merged = segment_->state(rank_).merged;
  merged.store(number, std::memory_order_seq_cst);
  mirror_->publish({merged, number}, [&](const auto& ranks) -> std::optional<Pieces> {
    std::vector<int64_t> carried;
    std::ranges::set_intersection(ranks, targets, std::back_inserter(carried));
    return carried.empty() ? std::nullopt : std::optional(exchange.staged_for(round, chunk, carried));
  });
}

/// Ranks that send look for it, to fill chunks again. All know it at the end of an exchange; before, it is said to
/// hosts of ranks that send, so often that each of them can always fill a part of its chunks.
void Engine::publish_taken(const Transfer& transfer) {
  const auto& taken = segment_->state(rank_).taken;
  const auto number = transfer.base + transfer.num_taken;
  if (transfer.num_taken == transfer.num_rounds) return mirror_->publish({taken, number});
  if (number % std::max<uint64_t>(1, static_cast<uint64_t>(layout().num_chunks) / 2) != 0) return;
  mirror_->publish({taken, number}, [&](const auto& ranks) {
    const bool is_wanted =
        std::ranges::any_of(ranks, [&](int64_t rank) { return transfer.exchange->is_sent_by(rank); });
    return is_wanted ? std::optional(Pieces()) : std::nullopt;
  });
}

bool Engine::all_have(std::atomic<uint64_t> RankState::*counter, uint64_t number, uint64_t which) const {
  for (int64_t rank = 0; rank < num_ranks_; ++rank) {
    if (rank == rank_ || (which >> rank & 1) == 0) continue;
    if ((segment_->state(rank).*counter).load(std::memory_order_seq_cst) < number) return false;
  }
  return true;
}

}  // namespace yoke::dist::shared
