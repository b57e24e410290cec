#include <algorithm>
#include <array>
#include <cstring>
#include <utility>
#include <vector>

#include "yoke/dist/shared/exchange.h"

namespace yoke::dist::shared {
namespace {

/// What is reduced and copied to its other places before the next piece; it stays in the caches nearest to the core.
constexpr int64_t kPieceBytes = kPrefetchBytes;

class ReducingExchange : public Exchange {
 public:
  ReducingExchange(const Layout& layout, int64_t rank, const ReduceOptions& options)
      : rank_(rank),
        options_(options),
        bytes_(size_of(options.type)),
        schedule_{options.num_elements, bytes_, options.scatters, layout},
        lane_(lane_bytes(layout, layout.num_ranks)) {
    header = {.kind = options.kind,
              .reduction = options.is_of_mean ? kSumOfMean : static_cast<uint32_t>(options.reduction),
              .type = static_cast<uint32_t>(options.type),
              .root = options.root,
              .bytes = options.num_elements * bytes_};
    is_large = header.bytes > layout.slot_bytes;
    // In rounds, every rank reduces a part, also for others.
    if (is_large || options.output != nullptr) sources = ~uint64_t{0};
  }

  void deposit(std::byte* slot) const override {
    if (is_large) {
      *reinterpret_cast<Place*>(slot) = place();
    } else if (header.bytes > 0) {
      copy_to_shared(slot, options_.input, header.bytes);
    }
  }

  int64_t deposited_bytes() const override { return is_large ? static_cast<int64_t>(sizeof(Place)) : header.bytes; }

  void finish(Chunks slots) override {
    if (options_.output == nullptr || header.bytes == 0) return;
    const Range own = options_.scatters ? Range{rank_ * block(), block()} : Range{0, options_.num_elements};
    std::array<const std::byte*, kMostRanks> of_ranks;
    for (size_t other = 0; other < slots.size(); ++other) of_ranks[other] = slots[other] + own.begin * bytes_;
    auto all = Chunks(of_ranks).first(slots.size());
    if (!hosts.empty()) {
      reduce_hosts(all, own.size);
      all = sources_;
    }
    shared::reduce(options_.type, options_.reduction, options_.output, all, own.size);
  }

  int64_t begin(Chunks slots) override {
    const auto place_of = [&](size_t rank) { return *reinterpret_cast<const Place*>(slots[rank]); };
    for (size_t rank = 0; rank < slots.size(); ++rank) {
      if (place_of(rank).offset < 0) return schedule_.num_rounds();
    }
    for (size_t rank = 0; rank < slots.size(); ++rank) {
      const bool is_own = static_cast<int64_t>(rank) == rank_;
      tensors_.push_back(is_own ? options_.output : options_.arena->map(place_of(rank)));
    }
    return 1;
  }
  bool reduces() const override { return true; }

  void stage(int64_t round, std::byte* chunk) override {
    if (!tensors_.empty() || is_alone(rank_)) return;
    for (int64_t other = 0; other < schedule_.layout.num_ranks; ++other) {
      if (other == rank_) continue;  // this rank reads its own part in place
      const auto part = schedule_.part(round, other);
      copy_to_shared(chunk + other * lane_, options_.input + part.begin * bytes_, part.size * bytes_);
    }
  }

  /// Between hosts nothing is reduced in place.
  Pieces staged_for(int64_t round, const std::byte* chunk, const std::vector<int64_t>& ranks) const override {
    Pieces pieces;
    for (const int64_t other : ranks) {
      const auto part = schedule_.part(round, other);
      const auto* const lane = chunk + other * lane_;
      const auto* const from = is_alone(rank_) ? options_.input + part.begin * bytes_ : lane;
      pieces.push_back({lane, {from, static_cast<size_t>(part.size * bytes_)}});
    }
    return pieces;
  }

  Piece reduced(int64_t round, const std::byte* result) const override {
    if (options_.scatters) return {};
    const auto part = schedule_.part(round, rank_);
    const auto* const from = needs_result() ? result : options_.output + part.begin * bytes_;
    return {result, {from, static_cast<size_t>(part.size * bytes_)}};
  }

  void merge(int64_t round, Chunks chunks, std::byte* own, std::span<const int64_t> locals,
             std::span<const int64_t> targets) override {
    for (const int64_t target : targets) {
      sources_.clear();
      for (const int64_t local : locals) sources_.push_back(chunks[static_cast<size_t>(local)] + target * lane_);
      shared::reduce(options_.type, options_.reduction, own + target * lane_, sources_,
                     schedule_.part(round, target).size);
    }
  }

  void reduce(int64_t round, Chunks chunks, std::byte* result) override {
    if (!tensors_.empty()) return reduce_in_place();
    const auto part = schedule_.part(round, rank_);
    sources_.clear();
    for (const int64_t other : contributors) {
      sources_.push_back(other == rank_ ? options_.input + part.begin * bytes_
                                        : chunks[static_cast<size_t>(other)] + rank_ * lane_);
    }
    if (!hosts.empty()) take_own_host_apart();
    targets_.clear();
    if (options_.output != nullptr) targets_.push_back(options_.output + (part.begin - first_wanted()) * bytes_);
    if (needs_result()) targets_.push_back(result);
    reduce_by_pieces(part.size);
  }

  void take(int64_t round, Chunks, Chunks results) override {
    if (!tensors_.empty() || options_.output == nullptr || options_.scatters) return;
    for (int64_t other = 0; other < schedule_.layout.num_ranks; ++other) {
      if (other == rank_) continue;
      const auto part = schedule_.part(round, other);
      std::memcpy(options_.output + part.begin * bytes_, results[static_cast<size_t>(other)],
                  static_cast<size_t>(part.size * bytes_));
    }
  }

 private:
  Place place() const {
    if (options_.arena == nullptr || options_.output != options_.input || options_.scatters) return {};
    return options_.arena->find(options_.input, header.bytes);
  }

  /// Makes sources_, one of each host, from one of each rank.
  void reduce_hosts(Chunks of_ranks, int64_t count) {
    partial_.resize(hosts.size() * static_cast<size_t>(count * bytes_));
    sources_.clear();
    for (size_t host = 0; host < hosts.size(); ++host) {
      here_.clear();
      for (const int64_t rank : hosts[host]) here_.push_back(of_ranks[static_cast<size_t>(rank)]);
      auto* const partial = partial_.data() + host * static_cast<size_t>(count * bytes_);
      if (here_.size() > 1) shared::reduce(options_.type, options_.reduction, partial, here_, count);
      sources_.push_back(here_.size() > 1 ? partial : here_[0]);
    }
  }

  /// Moves the sources of this host, which come from each of its ranks, to here_; reduce_by_pieces() reduces them
  /// first.
  void take_own_host_apart() {
    const auto of_contributors = std::exchange(sources_, {});
    here_.clear();
    for (const auto& host : hosts) {
      const bool is_own = std::ranges::binary_search(host, rank_);
      if (is_own) own_host_ = sources_.size();
      for (size_t i = 0; i < contributors.size(); ++i) {
        if (std::ranges::binary_search(host, contributors[i]))
          (is_own ? here_ : sources_).push_back(of_contributors[i]);
      }
      if (is_own) sources_.push_back(here_[0]);
    }
    if (here_.size() == 1) here_.clear();
  }

  /// Reduces this rank's part of all tensors into all tensors.
  void reduce_in_place() {
    const auto share = share_of(options_.num_elements, bytes_, schedule_.layout.num_ranks, rank_);
    targets_ = {options_.output + share.begin * bytes_};
    sources_.resize(tensors_.size());
    for (size_t i = 0; i < tensors_.size(); ++i) {
      auto* const part = tensors_[i] + share.begin * bytes_;
      sources_[i] = part;
      if (part != targets_[0]) targets_.push_back(part);
    }
    reduce_by_pieces(share.size);
  }

  /// Reduces `count` elements of sources_ into each of targets_, and moves both behind them.
  void reduce_by_pieces(int64_t count) {
    const int64_t piece = kPieceBytes / bytes_;
    const auto prefetch = [&](int64_t begin) {
      for (const auto* target : targets_) {
        prefetch_to_write(target + begin * bytes_, std::clamp<int64_t>(count - begin, 0, piece) * bytes_);
      }
    };
    prefetch(0);
    while (count > 0) {
      const int64_t size = std::min(piece, count);
      prefetch(piece);
      if (!here_.empty()) {
        partial_.resize(kPieceBytes);
        shared::reduce(options_.type, options_.reduction, partial_.data(), here_, size);
        for (auto& source : here_) source += size * bytes_;
        sources_[own_host_] = partial_.data();
      }
      shared::reduce(options_.type, options_.reduction, targets_[0], sources_, size);
      for (size_t i = 1; i < targets_.size(); ++i) {
        std::memcpy(targets_[i], targets_[0], static_cast<size_t>(size * bytes_));
      }
      for (auto& source : sources_) source += size * bytes_;
      for (auto& target : targets_) target += size * bytes_;
      count -= size;
    }
  }

  /// Whether other ranks of this host take this one's part of the result, or it is nowhere else.
  bool needs_result() const { return !options_.scatters && (!is_alone(rank_) || options_.output == nullptr); }
  int64_t block() const { return options_.num_elements / schedule_.layout.num_ranks; }
  int64_t first_wanted() const { return options_.scatters ? rank_ * block() : 0; }

  const int64_t rank_;
  const ReduceOptions options_;
  const int64_t bytes_;
  const ReduceSchedule schedule_;
  const int64_t lane_;
  std::vector<const std::byte*> sources_;
  std::vector<std::byte*> targets_;
  std::vector<const std::byte*> here_;  ///< Of the ranks of this host, if they are reduced before sources_.
  size_t own_host_ = 0;                 ///< The place of this host's result in sources_.
  std::vector<std::byte> partial_;      ///< What the ranks of a host give, reduced.
  std::vector<std::byte*> tensors_;     ///< Of all ranks, if they are reduced in place.
};

}  // namespace

std::unique_ptr<Exchange> make_reduction(const Layout& layout, int64_t rank, const ReduceOptions& options) {
  return std::make_unique<ReducingExchange>(layout, rank, options);
}

}  // namespace yoke::dist::shared
