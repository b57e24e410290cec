// yoke/dist/shared/mirror.h -- repeats on other hosts what this rank publishes in the memory of its own host.
//
// Each host of a group has such memory, with a place for every rank. What a rank writes into its places, it also sends
// to each other host. One rank there, its carrier, writes the same into the same places. So an Engine sees all ranks in
// the memory of its host, and calls them by the same rules.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "yoke/base/clock.h"
#include "yoke/base/file.h"
#include "yoke/dist/shared/exchange.h"
#include "yoke/dist/shared/segment.h"
#include "yoke/dist/shared/topology.h"

namespace yoke::dist::shared {

/// The connections of one rank of a group over several hosts. Each carries bytes in one direction.
struct Links {
  struct Out {
    UniqueFd socket;
    std::vector<int64_t> ranks;  ///< All ranks of the host to which it leads.
  };
  struct In {
    UniqueFd socket;
    int64_t from = 0;
  };
  std::optional<Topology> topology = {};  ///< Nullopt: all ranks are on one host.
  std::vector<Out> out = {};              ///< One for each other host.
  std::vector<In> in = {};                ///< One for each rank that this one carries.
};

/// Threads  any.
class Mirror {
 public:
  struct Options {
    int64_t rank = 0;
    std::function<void()> ring;  ///< Wakes the ranks of this host. Called on the Mirror's thread.
  };
  Mirror(std::shared_ptr<Segment> segment, Links links, const Options& options);
  ~Mirror();
  Mirror(const Mirror&) = delete;
  Mirror& operator=(const Mirror&) = delete;

  /// What a rank publishes: `pieces` of the segment, and then `value` in `word` of the segment. Never waits, so what
  /// the network does not take at once is copied.
  struct News {
    const std::atomic<uint64_t>& word;
    uint64_t value;
  };
  void publish(const News& news, const Pieces& pieces = {});
  /// The same, with other pieces for each host. `pieces_for` gets the ranks of a host; nullopt: nothing is sent there.
  using PiecesFor = std::function<std::optional<Pieces>(const std::vector<int64_t>& ranks)>;
  void publish(const News& news, const PiecesFor& pieces_for);
  /// Only to the host of `rank`; nowhere if that is this host.
  void publish_to(int64_t rank, const News& news, const Pieces& pieces = {});

  /// Whether that rank's thread has not run for a while, as if the rank has been stopped.
  bool is_stopped(int64_t carrier) const;
  /// Whether the kernel of the rank's host has given no answer to this one for some seconds. The connection itself ends
  /// much later. False for a rank of this host.
  bool gives_no_answer(int64_t rank) const;

  /// Closes the connections once the network has taken everything, or after `patience`.
  void close(std::chrono::milliseconds patience);

 private:
  struct Frame {
    uint64_t offset = 0;  ///< In the segment.
    uint64_t bytes = 0;   ///< So many follow, and belong there. 0: a word has `value` now.
    uint64_t value = 0;
  };
  struct Outgoing {
    UniqueFd socket;
    std::vector<int64_t> ranks;
    std::mutex mutex;  ///< Guards what follows.
    bool is_closed = false;
    std::vector<std::byte> queue;
    size_t num_sent = 0;  ///< Of the queue.
  };
  struct Incoming {
    UniqueFd socket;
    int64_t from = 0;
    std::vector<std::byte> buffer;
    size_t num_kept = 0;      ///< Bytes at the beginning of the buffer that are no whole Frame yet.
    std::byte* to = nullptr;  ///< Where the next bytes of a piece belong.
    size_t num_left = 0;      ///< Bytes of the piece that have not come yet.
  };

  void run();
  void send(Outgoing& outgoing, const News& news, const Pieces& pieces);
  void send_queue(Outgoing& outgoing);
  /// Returns what RankState::is_cut_off becomes.
  uint64_t read(Incoming& incoming, bool& has_news);
  bool take(Incoming& incoming, std::span<const std::byte> bytes, bool& has_news);
  bool are_queues_empty();
  void wake() const;

  const std::shared_ptr<Segment> segment_;
  const int64_t rank_;
  const std::function<void()> ring_;
  std::vector<std::unique_ptr<Outgoing>> outgoing_;
  std::vector<Incoming> incoming_;  ///< Of the thread.
  const UniqueFd wakeup_;           ///< An eventfd.
  std::atomic<bool> is_stopping_ = false;
  std::thread thread_;  ///< Declared last: it uses the other members.
};

}  // namespace yoke::dist::shared
