// Groups over several hosts. Ranks are threads, and a host is a name of its own (a UTS namespace), so the connections
// are those of loopback. tests/nodes has hosts with networks, yoke/dist/shared what is below c10d.
#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <barrier>
#include <cerrno>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <utility>
#include <vector>

#include "yoke/base/error.h"
#include "yoke/dist/detail/outside.h"
#include "yoke/dist/detail/shared_memory.h"
#include "yoke/dist/shared/firewall_test.h"
#include "yoke/dist/world.h"

namespace yoke::dist {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// Ranks of three hosts, which are not in a row.
const std::vector<std::string> kHosts = {"a", "b", "a", "c", "b"};

class Hosts : public testing::Test {
 protected:
  void SetUp() override {
    bool can_name = false;
    std::thread([&] { can_name = unshare(CLONE_NEWUTS) == 0; }).join();
    if (!can_name) GTEST_SKIP() << "this user may make no UTS namespace";
  }

  /// Calls `body` on a thread for each rank, whose host has that name.
  static void run_on(const std::vector<std::string>& hosts, const std::function<void(int64_t rank)>& body) {
    std::vector<std::exception_ptr> errors(hosts.size());
    std::vector<std::thread> threads;
    for (size_t rank = 0; rank < hosts.size(); ++rank) {
      threads.emplace_back([&, rank] {
        try {
          if (unshare(CLONE_NEWUTS) != 0 || sethostname(hosts[rank].data(), hosts[rank].size()) != 0) {
            throw system_error(errno, "naming a host");
          }
          body(static_cast<int64_t>(rank));
        } catch (...) {
          errors[rank] = std::current_exception();
        }
      });
    }
    for (auto& thread : threads) thread.join();
    for (const auto& error : errors) {
      if (error) std::rethrow_exception(error);
    }
  }

  static void run_worlds(const std::vector<std::string>& hosts, const std::function<void(World& world)>& body,
                         std::chrono::milliseconds timeout = std::chrono::seconds(30)) {
    const auto store = c10::make_intrusive<c10d::HashStore>();
    run_on(hosts, [&](int64_t rank) {
      RankEnv env;
      env.rank = rank;
      env.world_size = static_cast<int64_t>(hosts.size());
      env.local_world_size = std::ranges::count(hosts, hosts[static_cast<size_t>(rank)]);
      env.node_rank = hosts[static_cast<size_t>(rank)][0];
      World world(env, store, {.timeout = timeout, .device = c10::Device(c10::kCPU)});
      body(world);
      world.shutdown();
    });
  }

  static c10d::Backend& backend_of(const Group& group) {
    return *group.process_group().getBackend(c10::DeviceType::CPU);
  }
};

TEST_F(Hosts, ShareMemoryWithinAndHaveConnectionsBetween) {
  run_worlds(kHosts, [](World& world) {
    EXPECT_TRUE(is_shared_memory(backend_of(world)));
    EXPECT_EQ(arena_of(backend_of(world)), nullptr);
    auto here = world.of_this_host();
    EXPECT_EQ(is_shared_memory(backend_of(here)), here.size() > 1);
    if (here.size() > 1) {
      EXPECT_NE(arena_of(backend_of(here)), nullptr);
    }
    auto others = world.split(world.rank() % 2);
    const auto sum = at::full({3}, world.rank());
    others.all_reduce(sum);
    EXPECT_EQ(sum[2].item<int64_t>(), world.rank() % 2 == 0 ? 6 : 4);
  });
}

TEST_F(Hosts, CollectivesAndMessagesGiveWhatOneHostGives) {
  for (const int64_t size : {1, 1000, 200'001}) {
    const auto of = [&](int64_t rank) { return at::arange(size, at::kLong).mul(rank + 3).remainder(7).to(at::kFloat); };
    run_worlds(kHosts, [&](World& world) {
      const auto rank = world.rank(), num = world.size();
      std::vector<at::Tensor> list;
      for (int64_t other = 0; other < num; ++other) list.push_back(of(other));
      const auto all = at::stack(list);
      const auto own = of(rank);
      ASSERT_TRUE(at::equal(world.all_gather(own), all));
      for (const auto op : {ReduceOp::kSum, ReduceOp::kMean, ReduceOp::kMin, ReduceOp::kMax}) {
        const auto reduced = own.clone();
        world.all_reduce(reduced, op);
        const auto expected = op == ReduceOp::kSum    ? all.sum(0)
                              : op == ReduceOp::kMean ? all.sum(0).div(num)
                              : op == ReduceOp::kMin  ? all.amin(0)
                                                      : all.amax(0);
        ASSERT_TRUE(at::equal(reduced, expected));
      }
      const auto flat = at::empty({num * size}), block = at::empty({size});
      world.all_gather_into(flat, own);
      ASSERT_TRUE(at::equal(flat, all.flatten()));
      world.reduce_scatter(block, flat);
      ASSERT_TRUE(at::equal(block, own * num));
      for (int64_t root = 0; root < num; ++root) {
        const auto first = own.clone();
        world.broadcast(first, root);
        ASSERT_TRUE(at::equal(first, all[root]));
        const auto gathered = world.gather(own, root);
        ASSERT_TRUE(rank != root || at::equal(gathered, all));
      }
      const auto received = at::empty_like(own);
      auto sent = world.start_send(own, (rank + 1) % num);
      world.receive(received, (rank + num - 1) % num);
      sent.wait();
      ASSERT_TRUE(at::equal(received, all[(rank + num - 1) % num]));
      const auto texts = world.all_gather_text(std::to_string(rank));
      ASSERT_THAT(texts, ElementsAre("0", "1", "2", "3", "4"));
      world.barrier();
    });
  }
}

TEST_F(Hosts, ARankThatDoesNotArriveIsNamed) {
  std::barrier<> all(3);
  const auto body = [&](World& world) {
    if (world.rank() != 1) {
      try {
        world.all_reduce(at::ones({3}));
        ADD_FAILURE() << "one rank has not called it";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kTimeout);
        EXPECT_THAT(error.what(), HasSubstr("rank 1 has not arrived"));
      }
    }
    all.arrive_and_wait();
  };
  run_worlds({"a", "b", "b"}, body, std::chrono::seconds(3));
}

/// A store that answers otherwise for some keys, by how they end.
class ChangedStore : public c10d::HashStore {
 public:
  using Bytes = std::vector<uint8_t>;
  using Change = std::function<std::string(const std::string& value)>;
  explicit ChangedStore(std::map<std::string, Change> changes) : changes_(std::move(changes)) {}

  Bytes get(const std::string& key) override { return changed(key, HashStore::get(key)); }
  std::vector<Bytes> multiGet(const std::vector<std::string>& keys) override {
    auto values = HashStore::multiGet(keys);
    for (size_t i = 0; i < keys.size(); ++i) values[i] = changed(keys[i], std::move(values[i]));
    return values;
  }

 private:
  Bytes changed(const std::string& key, Bytes value) const {
    for (const auto& [end, change] : changes_) {
      if (!key.ends_with(end)) continue;
      const auto text = change({value.begin(), value.end()});
      value.assign(text.begin(), text.end());
    }
    return value;
  }
  const std::map<std::string, Change> changes_;
};

/// Ranks of the hosts a, b and b make two groups, one after the other, which have to use Gloo. What they print.
std::string make_groups_that_use_gloo(const c10::intrusive_ptr<ChangedStore>& store,
                                      const std::function<void(const std::function<void(int64_t rank)>&)>& run) {
  std::vector<std::shared_ptr<EarlierGroups>> earlier;
  for (int rank = 0; rank < 3; ++rank) earlier.push_back(std::make_shared<EarlierGroups>());
  testing::internal::CaptureStderr();
  run([&](int64_t rank) {
    for (const auto* const group : {"first", "second"}) {
      const auto own = c10::make_intrusive<c10d::PrefixStore>(group, store);
      const auto gloo = refusing_backend(rank, 3);  // in its place
      const auto backend = share_memory(*own, [&] { return gloo; },
                                        {.rank = rank,
                                         .size = 3,
                                         .timeout = std::chrono::seconds(30),
                                         .may_span_hosts = true,
                                         .address = "127.0.0.1",
                                         .connect_limit = std::chrono::milliseconds(300),
                                         .earlier = earlier[static_cast<size_t>(rank)]});
      EXPECT_EQ(backend, gloo);
    }
  });
  return testing::internal::GetCapturedStderr();
}

TEST_F(Hosts, AHostThatGivesNoAnswerIsNotTriedAgain) {
  const shared::Firewall firewall;
  const auto blocked = [&](const std::string& value) {
    return value.substr(0, value.find('\t') + 1) + firewall.address();
  };
  // What the second group publishes about earlier ones stays as it is.
  const auto store =
      c10::make_intrusive<ChangedStore>(std::map<std::string, ChangedStore::Change>{{"first/host/1", blocked}});
  const auto said = make_groups_that_use_gloo(store, [](const auto& body) { run_on({"a", "b", "b"}, body); });
  EXPECT_EQ(
      said,
      "a group over several hosts uses Gloo (docs/dist.md): on a, of rank 0: rank 1 at 127.0.0.1 gives no answer, "
      "as behind a firewall that drops packets\n");
  EXPECT_TRUE(store->check({"first/linked/0"}));
  for (const int rank : {0, 1, 2}) {
    EXPECT_FALSE(store->check({"second/linked/" + std::to_string(rank)})) << "all decide before they try";
  }
}

TEST_F(Hosts, OneWithoutMemoryIsNamed) {
  const auto store = c10::make_intrusive<ChangedStore>(std::map<std::string, ChangedStore::Change>{
      {"of_host/1/door", [](const std::string&) { return "nobody listens"; }}});
  const auto said = make_groups_that_use_gloo(store, [](const auto& body) { run_on({"a", "b", "b"}, body); });
  EXPECT_EQ(
      said,
      "a group over several hosts uses Gloo (docs/dist.md): on b, of rank 2: it cannot reach the socket of rank 1, "
      "which has its host's name\n")
      << "and not for each group";
}

TEST_F(Hosts, OneWithoutAnAddressMakesAllUseGloo) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  run_on({"a", "b", "b"}, [&](int64_t rank) {
    const auto gloo = refusing_backend(rank, 3);  // in its place
    const auto backend = share_memory(*store, [&] { return gloo; },
                                      {.rank = rank,
                                       .size = 3,
                                       .timeout = std::chrono::seconds(30),
                                       .may_span_hosts = true,
                                       .address = rank == 2 ? "203.0.113.7" : "127.0.0.1"});
    EXPECT_EQ(backend, gloo);
  });
}

}  // namespace
}  // namespace yoke::dist
