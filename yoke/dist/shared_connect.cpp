#include "yoke/dist/detail/shared_connect.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <numeric>
#include <stdexcept>
#include <system_error>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <utility>
#include <vector>

#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/host.h"
#include "yoke/dist/detail/losses.h"
#include "yoke/dist/detail/store.h"
#include "yoke/dist/shared/links.h"
#include "yoke/dist/shared/rendezvous.h"

namespace yoke::dist {
namespace {

using std::chrono::milliseconds;

/// Arrivals, whose interval is a sixtieth of the timeout and at most a second, needs about eight intervals to find out
/// what each rank has called. A rank that has met another collective waits for it, because it does not know their
/// names.
milliseconds mismatch_patience(milliseconds timeout) {
  return std::min<milliseconds>(timeout / 3, std::chrono::seconds(20));
}

template <class Resource>
bool is_limited(Resource resource) {
  rlimit limit{};
  return getrlimit(resource, &limit) != 0 || limit.rlim_cur != RLIM_INFINITY;
}

/// The memory of this rank's host, before anything uses it.
struct Memory {
  std::shared_ptr<shared::Segment> segment;  ///< Null: not all ranks of the host have it.
  std::shared_ptr<shared::Arena> arena;
};

struct MemoryOptions {
  std::vector<int64_t> ranks;  ///< Those of this host, as ranks of the group; the first makes the memory.
  bool has_arena = false;
  Clock::time_point until;
};

/// Collective over the ranks of a host, each of which calls `use` once it has the memory. If that fails on one of them,
/// or one cannot have the memory, none has it.
Memory share_memory_of_host(c10d::Store& store, const SharedMemoryOptions& options, const MemoryOptions& here,
                            const std::function<void(const std::shared_ptr<shared::Segment>&)>& use) {
  constexpr const char* kDoor = "door";
  constexpr const char* kNumAbsent = "absent";
  Memory memory;
  const auto take = [&](std::shared_ptr<shared::Segment> segment, const UniqueFd& file) {
    // Without a limit, the tensors of all ranks can be mapped. One rank without a place for its own is enough for all
    // to use chunks.
    if (!is_limited(RLIMIT_AS)) memory.arena = segment->arena_of(file, options.rank);
    use(segment);
    memory.segment = std::move(segment);
  };
  bool all_share = false;
  if (options.rank == here.ranks.front()) {
    std::optional<shared::Door> door;
    UniqueFd file;
    try {
      auto layout = shared::layout_of(options.size);
      // With a place for tensors, unless files may not be large: the kernel would end this process for making one.
      if (here.has_arena && !is_limited(RLIMIT_FSIZE)) layout.arena_bytes = shared::kMostArenaBytes;
      if (here.ranks.size() > 1) door.emplace();
      take(shared::Segment::create(layout, file), file);
    } catch (const std::exception&) {  // no memfd, or no descriptor, memory or thread is left: all ranks use Gloo
      store.set(kDoor, std::string());
      return {};
    }
    if (!door) return memory;
    store.set(kDoor, door->address());
    const auto num_absent = [&] {
      if (options.check) options.check();
      return store.add(kNumAbsent, 0);
    };
    all_share = door->pass(file, {.count = std::ssize(here.ranks) - 1, .num_absent = num_absent, .until = here.until});
  } else {
    if (options.check) wait_for_key(store, kDoor, options.check, here.until);
    const auto bytes = store.get(kDoor);
    const auto map = [&](const UniqueFd& file) { take(shared::Segment::map(file), file); };
    const auto joined = shared::join({bytes.begin(), bytes.end()}, map, here.until);
    if (joined == shared::Joined::kAbsent && !bytes.empty()) store.add(kNumAbsent, 1);
    all_share = joined == shared::Joined::kAll;
  }
  return all_share ? memory : Memory();
}

std::shared_ptr<shared::Engine> make_engine(const std::shared_ptr<shared::Segment>& segment,
                                            const SharedMemoryOptions& options, shared::Links links = {}) {
  std::function<void()> check;
  if (options.losses) {
    check = [losses = options.losses->losses] {
      if (!losses->is_superseded()) return;
      throw shared::RankFailure("Connection closed: another rank has taken the place of a lost one", {}, true);
    };
  }
  return std::make_shared<shared::Engine>(
      segment,
      shared::Engine::Options{
          .rank = options.rank, .mismatch_patience = mismatch_patience(options.timeout), .check = std::move(check)},
      std::move(links));
}

std::optional<SharedConnection> connect_one_host(c10d::Store& store, const SharedMemoryOptions& options,
                                                 const MemoryOptions& here) {
  SharedConnection connection;
  const auto memory = share_memory_of_host(
      store, options, here, [&](const auto& segment) { connection.engine = make_engine(segment, options); });
  if (memory.segment == nullptr) return std::nullopt;
  connection.arena = memory.arena;
  return connection;
}

// ---- Several hosts --------------------------------------------------------------------------------------------------

/// Ranks whose text is the same may share memory; whether they do is tried. A network namespace has its own sockets.
std::string name_of_own_host() {
  std::error_code none;
  const auto network = std::filesystem::read_symlink("/proc/self/ns/net", none);
  return fmt::format("{} {} {}", name_of_host(), network.native(), geteuid());
}

std::vector<std::string> exchange(c10d::Store& store, const SharedMemoryOptions& options, const MemoryOptions& all,
                                  const std::string& key, const std::string& own) {
  store.set(fmt::format("{}/{}", key, options.rank), own);
  std::vector<std::string> keys;
  for (const int64_t rank : all.ranks) keys.push_back(fmt::format("{}/{}", key, rank));
  if (options.check) {
    for (const auto& one : keys) wait_for_key(store, one, options.check, all.until);
  } else {
    store.wait(keys, options.timeout);
  }
  std::vector<std::string> values;
  for (const auto& bytes : store.multiGet(keys)) values.emplace_back(bytes.begin(), bytes.end());
  return values;
}

/// A firewall that drops packets gives no answer. All ranks are there when they begin to connect.
constexpr milliseconds kConnectLimit(10'000);

/// Ends a wait, because another rank of the group has no connections.
struct Unlinked {};

std::optional<SharedConnection> connect_several_hosts(c10d::Store& store, const SharedMemoryOptions& options,
                                                      const MemoryOptions& all) {
  constexpr const char* kUnlinked = "unlinked";
  std::optional<shared::Listener> listener;
  try {
    listener.emplace(options.address);
  } catch (const Error&) {  // no such address, or no descriptor: the others find that they cannot connect
  }
  shared::LinkOptions link{.rank = options.rank, .until = all.until};
  std::vector<std::string> names;
  for (const auto& value :
       exchange(store, options, all, "host", name_of_own_host() + "\t" + (listener ? listener->address() : ""))) {
    const auto tab = value.rfind('\t');
    names.push_back(value.substr(0, tab));
    link.addresses.push_back(value.substr(tab + 1));
  }
  link.hosts = shared::hosts_of(names);
  if (link.hosts.size() == 1) return connect_one_host(store, options, all);

  const MemoryOptions here{.ranks = link.hosts[shared::host_of(link.hosts, options.rank)], .until = all.until};
  c10d::PrefixStore of_host(fmt::format("of_host/{}", here.ranks.front()),
                            c10::intrusive_ptr<c10d::Store>::reclaim_copy(&store));
  const auto memory = share_memory_of_host(of_host, options, here, [](const auto&) {});
  std::optional<shared::Links> links;
  if (memory.segment != nullptr && listener) {
    link.segment = memory.segment.get();
    link.until = std::min(all.until, Clock::now() + kConnectLimit);
    link.check = [&] {
      if (options.check) options.check();
      if (store.check({kUnlinked})) throw Unlinked();
    };
    try {
      links = shared::connect_hosts(*listener, link);
    } catch (const Unlinked&) {
    } catch (const Error& error) {
      if (options.check) options.check();  // that a rank has been lost is another error
      fmt::print(stderr, "rank {} of a group over several hosts: {}; the group uses Gloo (docs/dist.md)\n",
                 options.rank, error.what());
    }
  }
  if (!links) store.set(kUnlinked, std::string("1"));
  const auto linked = exchange(store, options, all, "linked", links ? "1" : "0");
  if (std::ranges::find(linked, "0") != linked.end()) return std::nullopt;
  return SharedConnection{make_engine(memory.segment, options, std::move(*links)), nullptr};
}

}  // namespace

std::optional<SharedConnection> connect_shared(c10d::Store& store, const SharedMemoryOptions& options) {
  MemoryOptions all{.ranks = std::vector<int64_t>(static_cast<size_t>(options.size)),
                    .has_arena = true,
                    .until = Clock::now() + options.timeout};
  std::iota(all.ranks.begin(), all.ranks.end(), 0);
  return options.may_span_hosts ? connect_several_hosts(store, options, all) : connect_one_host(store, options, all);
}

std::string name_of_host() {
  std::string boot;
  try {
    boot = read_file("/proc/sys/kernel/random/boot_id");
  } catch (const Error&) {  // without a boot id (no Linux, or no /proc) only the host name is used
  }
  return fmt::format("{} {}", host_name(), boot);
}

}  // namespace yoke::dist
