// What ranks have called, if they have called different collectives.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "yoke/dist/shared/engine.h"

namespace yoke::dist::shared {
namespace {

/// A rank that knows which calls differ waits for those of other ranks for this part of the patience.
constexpr int kPartForCalls = 8;

std::string numbers_of(const Header& header) {
  return fmt::format("kind {} (reduction {}, type {}, root {}, {} bytes)", header.kind, header.reduction, header.type,
                     header.root, header.bytes);
}

/// Whether the two differ in a way that the names and sizes of calls show, too, of which others find out more.
bool differ_in_name(const Header& a, const Header& b) {
  return a.kind != b.kind || a.type != b.type || a.bytes != b.bytes;
}

bool differ(const Header& a, const Header& b) {
  return differ_in_name(a, b) || a.reduction != b.reduction || a.root != b.root;
}

}  // namespace

Mismatch::Mismatch(std::vector<Call> which, bool before)
    : Error(ErrorCode::kFailedPrecondition,
            "the ranks of the group have called different collectives{}: {}: all of them must call the same ones, in "
            "the same order, with the same reduction and root, and with splits that fit",
            before ? " before this one" : "", describe(which)),
      calls(std::move(which)),
      is_before(before) {}

std::string Mismatch::describe(const std::vector<Call>& calls) {
  std::vector<std::pair<std::string, std::vector<int64_t>>> by_words;
  for (const auto& [rank, words] : calls) {
    auto found = std::ranges::find(by_words, words, &std::pair<std::string, std::vector<int64_t>>::first);
    if (found == by_words.end()) found = by_words.insert(found, {words, {}});
    found->second.push_back(rank);
  }
  std::string text;
  for (const auto& [words, ranks] : by_words) {
    const bool is_one = ranks.size() == 1;
    text += fmt::format("{}rank{} {} {} called {}", text.empty() ? "" : ", ", is_one ? "" : "s", fmt::join(ranks, ", "),
                        is_one ? "has" : "have", words);
  }
  return text;
}

void Engine::note_mismatch(Transfer& transfer) {
  const auto& exchange = *transfer.exchange;
  const auto& own = exchange.header;
  // Also calls that this rank does not read, so that the rank is named which differs from the most.
  const auto is_there = [&](int64_t rank) {
    return rank == rank_ || segment_->slot(rank, transfer.sequence).sequence == transfer.sequence;
  };
  const auto header_of = [&](int64_t rank) -> const Header& {
    return rank == rank_ ? own : segment_->slot(rank, transfer.sequence).header;
  };
  const auto fits = [&](int64_t rank) {
    return rank == rank_ || exchange.fits(rank, segment_->slot(rank, transfer.sequence).data());
  };
  bool is_named = false, is_here = false, are_all_there = true;
  for (int64_t rank = 0; rank < num_ranks_; ++rank) {
    are_all_there &= is_there(rank);
    if (!is_there(rank)) continue;
    is_named |= differ_in_name(own, header_of(rank));
    is_here |= differ(own, header_of(rank)) || !fits(rank);
  }
  std::vector<Mismatch::Call> calls;
  for (int64_t rank = 0; rank < num_ranks_; ++rank) {
    if (!is_there(rank)) continue;
    const auto header = is_here ? header_of(rank) : from_short(header_of(rank).previous);
    auto words = options_.describe != nullptr ? options_.describe(header) : numbers_of(header);
    if (is_here && !differ(own, header) && !fits(rank)) {
      words += fmt::format(", with another size than rank {} expects", rank_);
    }
    calls.push_back({rank, std::move(words)});
  }
  const Mismatch mismatch(std::move(calls), !is_here);
  if (!is_named && are_all_there) throw mismatch;  // nobody else finds it out
  transfer.mismatch = std::make_exception_ptr(mismatch);
  transfer.awaits_calls = !is_named;
  const auto patience = options_.mismatch_patience / (is_named ? 1 : kPartForCalls);
  transfer.deadline = std::min(transfer.deadline, Clock::now() + patience);
}

}  // namespace yoke::dist::shared
