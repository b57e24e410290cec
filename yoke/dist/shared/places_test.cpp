// Who touches the pages of the shared file first, because that decides on which NUMA node they lie.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <filesystem>
#include <new>
#include <set>
#include <utility>
#include <vector>

#include "yoke/base/affinity.h"
#include "yoke/base/file.h"
#include "yoke/base/text.h"
#include "yoke/dist/shared/run_engines_test.h"

namespace yoke::dist::shared {
namespace {

const int64_t kPage = sysconf(_SC_PAGESIZE);

/// The pages between two places of the file that exist, because somebody has touched them.
std::set<int64_t> pages_between(const UniqueFd& file, uint64_t begin, uint64_t end) {
  std::set<int64_t> pages;
  for (auto at = static_cast<off_t>(begin);;) {
    at = lseek(file.value(), at, SEEK_DATA);
    if (at < 0 || at >= static_cast<off_t>(end)) return pages;
    for (const off_t hole = lseek(file.value(), at, SEEK_HOLE); at < hole; at += kPage) {
      if (at < static_cast<off_t>(end)) pages.insert(at / kPage);
    }
  }
}

TEST(SharedPlaces, ARankThatWaitsForAnotherTouchesNoneOfItsPages) {
  const auto layout = layout_of(2);
  for (const size_t size : {4, 1 << 20}) {
    UniqueFd file;
    const auto segment = Segment::create(layout, file);
    for (int64_t rank = 0; rank < 2; ++rank) segment->touch_slots(rank);
    const auto pages_of = [&](int64_t rank) {
      auto pages = pages_between(file, segment->offset_of(&segment->slot(rank, 0)),
                                 segment->offset_of(&segment->slot(rank + 1, 0)));
      pages.merge(pages_between(file, segment->offset_of(segment->chunk(rank, 0)),
                                segment->offset_of(segment->chunk(rank + 1, 0))));
      pages.merge(pages_between(file, segment->offset_of(segment->result(rank, 0)),
                                segment->offset_of(segment->result(rank + 1, 0))));
      return pages;
    };
    const auto own = pages_of(0), others = pages_of(1);
    EXPECT_EQ(others.size(), static_cast<size_t>(layout.num_slots)) << "one of each slot";

    Engine engine(segment, {.rank = 0, .mismatch_patience = std::chrono::milliseconds(50)});
    std::vector<std::byte> numbers(size);
    auto sum = make_reduction(layout, 0,
                              {.type = Type::kU8,
                               .input = numbers.data(),
                               .output = numbers.data(),
                               .num_elements = static_cast<int64_t>(size)});
    // The rank looks often for the other one, which never comes.
    const auto waited = start(engine, std::move(sum), Driver::kWaiter, std::chrono::milliseconds(30)).wait(engine);
    EXPECT_TRUE(waited.starts_with("Timed out")) << waited;
    EXPECT_EQ(pages_of(0), own);
    EXPECT_EQ(pages_of(1), others);
  }
}

// ---- On the nodes of this machine -----------------------------------------------------------------------------------

/// The processors of each NUMA node that this process may use.
std::vector<CpuSet> nodes_here() {
  std::vector<CpuSet> nodes;
  for (int node = 0; std::filesystem::exists(fmt::format("/sys/devices/system/node/node{}", node)); ++node) {
    const auto cpus =
        CpuSet::parse_list(trimmed(read_file(fmt::format("/sys/devices/system/node/node{}/cpulist", node)), " \n"));
    if (cpus) nodes.push_back(*cpus & allowed_cpus());
  }
  return nodes;
}

/// The node of a page; -1 where the kernel does not say it, as in some containers.
int node_of(const std::byte* memory) {
  static_cast<void>(*static_cast<const volatile std::byte*>(memory));  // the kernel knows pages that are mapped here
  void* page = const_cast<std::byte*>(memory);
  int node = -1;
  return syscall(SYS_move_pages, 0, 1, &page, nullptr, &node, 0) == 0 ? node : -1;
}

/// A rank on the processors of one node: collectives and messages of all ways, then the nodes of its pages.
class BoundRank {
 public:
  BoundRank(const std::shared_ptr<Segment>& segment, const UniqueFd& file, int64_t rank)
      : segment_(segment),
        rank_(rank),
        num_ranks_(segment->layout().num_ranks),
        arena_(segment->arena_of(file, rank)),
        bucket_(arena_->allocate(kBytes)),
        engine_(segment, {.rank = rank, .mismatch_patience = std::chrono::seconds(60)}) {}

  void communicate() {
    std::vector<std::byte> own(kBytes, std::byte(1));
    std::fill_n(bucket_.get(), kBytes, std::byte(1));
    for (int turn = 0; turn < 20; ++turn) {  // so that all slots and chunks are in use
      reduce(own.data(), 4);
      reduce(own.data(), 4096);
    }
    reduce(own.data(), kBytes);
    reduce(bucket_.get(), kBytes);
    std::vector<std::byte> received(kBytes);
    const auto sent = start(engine_, Message{.is_sent = true, .peer = next(1), .data = own.data(), .bytes = kBytes});
    start(engine_, Message{.peer = next(-1), .data = received.data(), .bytes = kBytes}).wait(engine_);
    sent.wait(engine_);
  }

  /// Of how many pages, and how many of them are on another node than `node`.
  std::pair<int, int> count_pages(const UniqueFd& file, int node) const {
    int pages = 0, elsewhere = 0;
    const auto count = [&](const std::byte* begin, const std::byte* end) {
      for (const int64_t page : pages_between(file, segment_->offset_of(begin), segment_->offset_of(end))) {
        const auto at = node_of(begin + (page * kPage - static_cast<int64_t>(segment_->offset_of(begin))));
        ++pages;
        elsewhere += at >= 0 && at != node;
      }
    };
    const auto bytes_of = [](const auto& place) { return reinterpret_cast<const std::byte*>(&place); };
    count(bytes_of(segment_->slot(rank_, 0)), bytes_of(segment_->slot(rank_ + 1, 0)));
    count(segment_->chunk(rank_, 0), segment_->chunk(rank_ + 1, 0));
    count(segment_->result(rank_, 0), segment_->result(rank_ + 1, 0));
    // The first page of a ring has the positions, at which the receiver may look first.
    auto* const ring = segment_->channel(rank_, next(1)).data();
    const auto offset = static_cast<int64_t>(segment_->offset_of(ring));
    count(ring + (round_up(offset, kPage) - offset), ring + segment_->layout().channel_bytes / kPage * kPage - kPage);
    for (int64_t at = 0; at < kBytes; at += kPage) {
      ++pages;
      const auto found = node_of(bucket_.get() + at);
      elsewhere += found >= 0 && found != node;
    }
    return {pages, elsewhere};
  }

 private:
  static constexpr int64_t kBytes = 4 << 20;

  int64_t next(int64_t step) const { return (rank_ + step + num_ranks_) % num_ranks_; }

  void reduce(std::byte* memory, int64_t size) {
    const ReduceOptions options{
        .type = Type::kU8, .input = memory, .output = memory, .num_elements = size, .arena = arena_};
    if (start(engine_, make_reduction(engine_.layout(), rank_, options), Driver::kWaiter).wait(engine_) != "") _exit(3);
  }

  const std::shared_ptr<Segment> segment_;
  const int64_t rank_, num_ranks_;
  const std::shared_ptr<Arena> arena_;
  const std::shared_ptr<std::byte> bucket_;
  Engine engine_;
};

/// Waits for all ranks, which are processes.
void meet(std::atomic<int>& arrived, int wanted) {
  const auto until = Clock::now() + std::chrono::seconds(120);  // a rank that has failed never comes
  for (++arrived; arrived < wanted; sched_yield()) {
    if (Clock::now() > until) _exit(6);
  }
}

// tests/support/two-nodes runs this on a machine with two nodes, which qemu plays. With one node it only shows that
// the pages are counted.
TEST(SharedPlaces, LieOnTheNodeOfTheirRank) {
  const auto nodes = nodes_here();
  std::vector<int> usable;
  for (size_t node = 0; node < nodes.size(); ++node) {
    if (!nodes[node].empty()) usable.push_back(static_cast<int>(node));
  }
  ASSERT_FALSE(usable.empty());
  const int64_t num_ranks = std::max<int64_t>(2, 2 * std::ssize(usable));
  auto layout = layout_of(num_ranks);
  layout.arena_bytes = kMostArenaBytes;
  UniqueFd file;
  const auto segment = Segment::create(layout, file);
  auto* const memory =
      mmap(nullptr, sizeof(std::atomic<int>), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  auto& arrived = *new (memory) std::atomic<int>(0);
  const auto wanted = [&](int times) { return times * static_cast<int>(num_ranks); };
  std::vector<pid_t> ranks;
  for (int64_t rank = 0; rank < num_ranks; ++rank) {
    ranks.push_back(fork());
    if (ranks.back() != 0) continue;
    const int node = usable[static_cast<size_t>(rank) % usable.size()];  // neighbours in the file are on other nodes
    prefer_cpus(to_kernel_mask(nodes[static_cast<size_t>(node)]));
    segment->touch_slots(rank);
    meet(arrived, wanted(1));
    BoundRank bound(segment, file, rank);
    bound.communicate();
    meet(arrived, wanted(2));
    const auto [pages, elsewhere] = bound.count_pages(file, node);
    fmt::print("rank {} on node {}: {} pages, {} of them on another node\n", rank, node, pages, elsewhere);
    std::fflush(stdout);
    meet(arrived, wanted(3));
    _exit(pages * kPage < 4 << 20 ? 4 : elsewhere > 0 ? 5 : 0);
  }
  for (const pid_t rank : ranks) {
    int status = -1;
    waitpid(rank, &status, 0);
    EXPECT_EQ(status, 0) << "4: too few pages, 5: some are elsewhere";
  }
  munmap(memory, sizeof(std::atomic<int>));
}

}  // namespace
}  // namespace yoke::dist::shared
