#include "yoke/dist/detail/shared_connect.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <numeric>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <system_error>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <utility>
#include <vector>

#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/host.h"
#include "yoke/base/text.h"
#include "yoke/dist/detail/losses.h"
#include "yoke/dist/detail/shared_words.h"
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
  std::string why_not;  ///< Why it is null, if this rank has found it out.
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
    segment->touch_slots(options.rank);
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
      auto layout = shared::layout_of(options.size, std::ssize(here.ranks) < options.size);
      // With a place for tensors, unless files may not be large: the kernel would end this process for making one.
      if (here.has_arena && !is_limited(RLIMIT_FSIZE)) layout.arena_bytes = shared::kMostArenaBytes;
      if (here.ranks.size() > 1) door.emplace();
      take(shared::Segment::create(layout, file), file);
    } catch (const std::exception& error) {  // no memfd, or no descriptor, memory or thread is left: all ranks use Gloo
      store.set(kDoor, std::string());
      return {.segment = nullptr, .arena = nullptr, .why_not = error.what()};
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
    const auto map = [&](const UniqueFd& file) {
      try {
        take(shared::Segment::map(file), file);
      } catch (const std::exception& error) {
        memory.why_not = error.what();
        throw;
      }
    };
    const auto joined = shared::join({bytes.begin(), bytes.end()}, map, here.until);
    if (joined == shared::Joined::kAbsent && !bytes.empty()) {
      store.add(kNumAbsent, 1);
      memory.why_not =
          fmt::format("it cannot reach the socket of rank {}, which has its host's name", here.ranks.front());
    }
    all_share = joined == shared::Joined::kAll;
  }
  return all_share ? memory : Memory{.segment = nullptr, .arena = nullptr, .why_not = memory.why_not};
}

std::shared_ptr<shared::Engine> make_engine(const std::shared_ptr<shared::Segment>& segment,
                                            const SharedMemoryOptions& options, shared::Links links = {},
                                            std::vector<std::string> host_names = {}) {
  std::function<void()> check;
  if (options.losses) {
    check = [losses = options.losses->losses] {
      if (!losses->is_superseded()) return;
      throw shared::RankFailure("Connection closed: another rank has taken the place of a lost one", {},
                                shared::RankFailure::Loss::kOfEnd);
    };
  }
  return std::make_shared<shared::Engine>(
      segment,
      shared::Engine::Options{.rank = options.rank,
                              .mismatch_patience = mismatch_patience(options.timeout),
                              .describe = describe_call,
                              .host_names = std::move(host_names),
                              .check = std::move(check)},
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

/// Ends a wait, because another rank of the group has no connections.
struct Unlinked {};

/// The first word of a name_of_own_host().
std::string in_short(const std::string& host) { return host.substr(0, host.find(' ')); }

/// The ranks of a group over several hosts, as all of them know them.
struct Places {
  std::vector<std::string> names;  ///< Of the host of each rank.
  shared::LinkOptions link;
  bool are_some_silent = false;  ///< Two of the hosts are known to have no connection.
};

Places exchange_places(c10d::Store& store, const SharedMemoryOptions& options, const MemoryOptions& all,
                       const std::optional<shared::Listener>& listener) {
  auto own = name_of_own_host() + "\t" + (listener ? listener->address() : "");
  if (options.earlier) {
    for (const auto& host : options.earlier->silent_hosts) own += "\t" + host;
  }
  Places places{.names = {}, .link = {.rank = options.rank, .until = all.until}};
  std::set<std::string> silent;
  for (const auto& value : exchange(store, options, all, "host", own)) {
    const auto words = split(value, '\t');
    places.names.emplace_back(words[0]);
    places.link.addresses.emplace_back(words.size() > 1 ? words[1] : "");
    for (size_t i = 2; i < words.size(); ++i) silent.emplace(words[i]);
  }
  // What a rank has found out concerns its own host and another one, so both are there if one of them is named.
  places.are_some_silent = std::ranges::any_of(places.names, [&](const auto& name) { return silent.contains(name); });
  places.link.hosts = shared::hosts_of(places.names);
  return places;
}

/// What `linked/RANK` says about a rank.
struct Linked {
  bool is_linked = false;
  std::string silent_host, why_not;
};

std::string to_text(const Linked& linked) {
  return linked.is_linked ? "1" : fmt::format("0\t{}\t{}", linked.silent_host, linked.why_not);
}

Linked to_linked(const std::string& text) {
  const auto words = split(text, '\t');
  const auto word = [&](size_t index) { return index < words.size() ? std::string(words[index]) : ""; };
  return {.is_linked = text == "1", .silent_host = word(1), .why_not = word(2)};
}

/// Remembers for later groups which hosts have no connection. The first rank says why the group uses Gloo.
void note_failures(const SharedMemoryOptions& options, const Places& places, const std::vector<Linked>& ranks) {
  const auto& own = places.names[static_cast<size_t>(options.rank)];
  std::string why;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const auto& host = places.names[rank];
    const auto& other = ranks[rank].silent_host;
    if (options.earlier && !other.empty() && host == own) options.earlier->silent_hosts.insert(other);
    if (options.earlier && other == own) options.earlier->silent_hosts.insert(host);
    if (ranks[rank].why_not.empty()) continue;
    const auto text = fmt::format("on {}, of rank {}: {}", in_short(host), rank, ranks[rank].why_not);
    if (why.empty()) why = text;
    if (options.earlier && options.earlier->no_answer.empty() && !other.empty()) options.earlier->no_answer = text;
  }
  if (options.rank != 0 || (options.earlier && std::exchange(options.earlier->has_said, true))) return;
  fmt::print(stderr, "a group over several hosts uses Gloo (docs/dist.md): {}\n",
             why.empty() ? "its ranks cannot share memory, or connect" : why);
}

std::optional<SharedConnection> connect_several_hosts(c10d::Store& store, const SharedMemoryOptions& options,
                                                      const MemoryOptions& all) {
  constexpr const char* kUnlinked = "unlinked";
  std::optional<shared::Listener> listener;
  Linked own;
  try {
    listener.emplace(options.address);
  } catch (const Error& error) {  // no such address, or no descriptor: the others find that they cannot connect
    own.why_not = error.what();
  }
  auto places = exchange_places(store, options, all, listener);
  auto& link = places.link;
  if (link.hosts.size() == 1) return connect_one_host(store, options, all);
  if (places.are_some_silent) return std::nullopt;

  const MemoryOptions here{.ranks = link.hosts[shared::host_of(link.hosts, options.rank)], .until = all.until};
  c10d::PrefixStore of_host(fmt::format("of_host/{}", here.ranks.front()),
                            c10::intrusive_ptr<c10d::Store>::reclaim_copy(&store));
  const auto memory = share_memory_of_host(of_host, options, here, [&](const auto& segment) {
    const shared::Topology topology(link.hosts, options.rank);
    for (const int64_t other : topology.carried()) segment->touch_slots(other);
  });
  if (own.why_not.empty()) own.why_not = memory.why_not;
  shared::Links links;
  if (memory.segment != nullptr && listener) {
    link.segment = memory.segment.get();
    link.until = std::min(all.until, Clock::now() + options.connect_limit);  // all ranks are there
    link.check = [&] {
      if (options.check) options.check();
      if (store.check({kUnlinked})) throw Unlinked();
    };
    try {
      links = shared::connect_hosts(*listener, link);
      own.is_linked = true;
    } catch (const Unlinked&) {
    } catch (const shared::NoAnswer& error) {
      if (options.check) options.check();
      own.silent_host = places.names[static_cast<size_t>(link.hosts[error.host].front())];
      own.why_not = error.what();
    } catch (const Error& error) {
      if (options.check) options.check();  // that a rank has been lost is another error
      own.why_not = error.what();
    }
  }
  if (!own.is_linked) store.set(kUnlinked, std::string("1"));
  std::vector<Linked> ranks;
  for (const auto& text : exchange(store, options, all, "linked", to_text(own))) ranks.push_back(to_linked(text));
  if (std::ranges::all_of(ranks, &Linked::is_linked)) {
    std::vector<std::string> names;
    for (const auto& name : places.names) names.push_back(in_short(name));
    return SharedConnection{make_engine(memory.segment, options, std::move(links), std::move(names)), nullptr};
  }
  note_failures(options, places, ranks);
  return std::nullopt;
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
