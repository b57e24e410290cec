#include <algorithm>
#include <cstring>
#include <utility>

#include "yoke/dist/shared/exchange.h"

namespace yoke::dist::shared {
namespace {

/// memcpy refuses null pointers, which empty tensors have.
void copy(std::byte* to, const std::byte* from, int64_t size) {
  if (size > 0 && to != from) std::memmove(to, from, static_cast<size_t>(size));
}

class Copy : public Exchange {
 public:
  Copy(const Layout& layout, int64_t rank, CopyOptions options)
      : layout_(layout), rank_(rank), options_(std::move(options)) {
    const int64_t num_lanes = options_.for_each ? layout.num_ranks : 1;
    lane_ = lane_bytes(layout, num_lanes);
    slot_lane_ = layout.slot_bytes / num_lanes;
    // Sizes that may differ are announced in slots, so that no rank has to know those of others.
    is_large = options_.bytes < 0 || options_.bytes > slot_lane_;
    header = {.kind = options_.kind, .type = options_.type, .root = options_.root, .bytes = options_.bytes};
    if (options_.is_from_root) senders = uint64_t{1} << options_.root;
    options_.receive.resize(static_cast<size_t>(layout.num_ranks));
    for (size_t other = 0; other < options_.receive.size(); ++other) {
      // A rank that receives nothing waits for nobody. Only a barrier has empty pieces that are waited for.
      if (options_.receive[other].data() != nullptr) sources |= uint64_t{1} << other;
    }
  }

  void deposit(std::byte* slot) const override {
    if (!is_large) {
      for (size_t lane = 0; lane < options_.send.size(); ++lane) {
        copy_to_shared(slot + static_cast<int64_t>(lane) * slot_lane_, options_.send[lane].data(), size_of(lane));
      }
      return;
    }
    auto* const sizes = reinterpret_cast<int64_t*>(slot);
    for (int64_t lane = 0; lane < num_lanes(); ++lane) {
      sizes[lane] = static_cast<size_t>(lane) < options_.send.size() ? size_of(static_cast<size_t>(lane)) : 0;
    }
  }

  int64_t deposited_bytes() const override {
    if (is_large) return num_lanes() * static_cast<int64_t>(sizeof(int64_t));
    return options_.send.empty() ? 0 : (std::ssize(options_.send) - 1) * slot_lane_ + size_of(options_.send.size() - 1);
  }

  bool fits(int64_t rank, const std::byte* slot) const override {
    const auto& wanted = options_.receive[static_cast<size_t>(rank)];
    if (!is_large || wanted.data() == nullptr) return true;
    return reinterpret_cast<const int64_t*>(slot)[lane_of(rank_)] == static_cast<int64_t>(wanted.size());
  }

  void finish(Chunks slots) override {
    for (size_t other = 0; other < slots.size(); ++other) {
      const auto& to = options_.receive[other];
      if (slots[other] == nullptr) continue;
      copy(to.data(), slots[other] + lane_of(rank_) * slot_lane_, static_cast<int64_t>(to.size()));
    }
  }

  int64_t begin(Chunks slots) override {
    int64_t longest = 0;
    for (const auto* slot : slots) {
      const auto* const sizes = reinterpret_cast<const int64_t*>(slot);
      longest = std::max(longest, *std::max_element(sizes, sizes + num_lanes()));
    }
    return num_rounds_of(longest, lane_);
  }

  void stage(int64_t round, std::byte* chunk) override {
    for (size_t lane = 0; lane < options_.send.size(); ++lane) {
      if (!is_read_here(static_cast<int64_t>(lane))) continue;
      const auto part = part_of(size_of(lane), lane_, round);
      copy_to_shared(chunk + static_cast<int64_t>(lane) * lane_, options_.send[lane].data() + part.begin, part.size);
    }
  }

  Pieces staged_for(int64_t round, const std::byte* chunk, const std::vector<int64_t>& ranks) const override {
    Pieces pieces;
    for (size_t lane = 0; lane < options_.send.size(); ++lane) {
      const bool is_read = !options_.for_each || std::ranges::find(ranks, static_cast<int64_t>(lane)) != ranks.end();
      const auto part = part_of(size_of(lane), lane_, round);
      if (is_read) {
        const auto data = options_.send[lane].subspan(static_cast<size_t>(part.begin), static_cast<size_t>(part.size));
        pieces.push_back({chunk + static_cast<int64_t>(lane) * lane_, data});
      }
    }
    return pieces;
  }

  void take(int64_t round, Chunks chunks, Chunks) override {
    for (size_t other = 0; other < chunks.size(); ++other) {
      const auto& to = options_.receive[other];
      const auto part = part_of(static_cast<int64_t>(to.size()), lane_, round);
      const auto* from = chunks[other] + lane_of(rank_) * lane_;
      if (static_cast<int64_t>(other) == rank_ && !options_.send.empty()) {
        from = options_.send[static_cast<size_t>(lane_of(rank_))].data() + part.begin;
      }
      copy(to.data() + part.begin, from, part.size);
    }
  }

 private:
  /// Whether another rank of this host reads that lane of this rank's chunk. What other hosts read is sent there at
  /// once.
  bool is_read_here(int64_t lane) const {
    return options_.for_each ? lane != rank_ && share_host(lane, rank_) : !is_alone(rank_);
  }
  int64_t num_lanes() const { return options_.for_each ? layout_.num_ranks : 1; }
  int64_t lane_of(int64_t rank) const { return options_.for_each ? rank : 0; }
  int64_t size_of(size_t lane) const { return static_cast<int64_t>(options_.send[lane].size()); }

  const Layout layout_;
  const int64_t rank_;
  CopyOptions options_;
  int64_t lane_ = 0, slot_lane_ = 0;
};

}  // namespace

bool Exchange::share_host(int64_t a, int64_t b) const {
  if (hosts.empty()) return true;
  return std::ranges::any_of(hosts, [&](const auto& host) {
    return std::ranges::binary_search(host, a) && std::ranges::binary_search(host, b);
  });
}

bool Exchange::is_alone(int64_t rank) const {
  return std::ranges::any_of(hosts, [&](const auto& host) { return host.size() == 1 && host[0] == rank; });
}

std::unique_ptr<Exchange> make_copy(const Layout& layout, int64_t rank, CopyOptions options) {
  return std::make_unique<Copy>(layout, rank, std::move(options));
}

}  // namespace yoke::dist::shared
