// What a World does when ranks are lost that the launcher starts again.
//
// Keys in the job's store, outside of the groups' own prefixes:
//   ended              set when all ranks have called World::shutdown()
//   generation         the highest number of a replacement that has begun
//   generation/N       set once N has begun; wakes those who wait for it
//   here/N/RANK        RANK has left its groups, and forms them again as generation N; their keys, and which
//                      replacement that process is
//   least/RANK         processes of RANK that are earlier replacements than this one must not come any more
//   again/N/...        what the groups of generation N exchange
// All ranks meet at the highest number. Whoever finds a higher one than that at which it tries, tries again there.
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <stdexcept>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "yoke/base/environment.h"
#include "yoke/base/error.h"
#include "yoke/contract/error_file.h"
#include "yoke/contract/variables.h"
#include "yoke/dist/detail/group_impl.h"
#include "yoke/dist/detail/losses.h"
#include "yoke/dist/detail/outside.h"
#include "yoke/dist/detail/shared_memory.h"
#include "yoke/dist/detail/stop_agreement.h"
#include "yoke/dist/detail/stop_signal.h"
#include "yoke/dist/detail/store.h"
#include "yoke/dist/error_text.h"
#include "yoke/dist/ranks_lost.h"
#include "yoke/dist/shared/engine.h"
#include "yoke/dist/world.h"

namespace yoke::dist {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr const char* kGeneration = "generation";
/// A rank that waits looks so often whether there is a higher generation, or the job ends.
constexpr milliseconds kLookForOthers(20);
/// The collectives of a generation are counted from here, so that no number of an earlier one comes again.
constexpr uint64_t kCallsOfGeneration = 1'000'000'000;
/// The same for the groups that are made of another one.
constexpr int64_t kSplitsOfGeneration = 1'000'000;

/// 0 if there is none. In one question: of a key that does not exist, a store returns what was expected.
int64_t number_at(c10d::Store& store, const std::string& key) {
  const std::string none = "none";
  return parse_int(store.compareSet(key, none, none)).value_or(0);
}

int64_t highest_generation(c10d::Store& store) { return number_at(store, kGeneration); }

/// Makes the number at `key` at least `number`.
void raise(c10d::Store& store, const std::string& key, int64_t number) {
  const auto own = std::to_string(number);
  const auto compare_set = [&](const std::string& expected) { return store.compareSet(key, expected, own); };
  auto now = compare_set("");
  while (parse_int(now).value_or(0) < number) now = compare_set(now);
}

std::string least_key(int64_t rank) { return fmt::format("least/{}", rank); }

/// On a spare host that has taken the place of another one. That host may not know that it was given up, and its ranks
/// may be connected to the others still. They must not come among them any more: beside ranks of the spare they would
/// be in other places, and sums have other bits.
void shut_out_lost_host(c10d::Store& store, const RankEnv& env, int64_t replacement) {
  const char* const copies = std::getenv(variable::kStateCopies);
  if (copies == nullptr || std::string_view(copies) != "spare") return;
  const auto first_rank = env.rank - env.local_rank;
  for (int64_t local = 0; local < env.local_world_size; ++local) {
    raise(store, least_key(first_rank + local), replacement - env.local_rank + local);
  }
}

std::string text_of_bytes(const std::vector<uint8_t>& bytes) { return {bytes.begin(), bytes.end()}; }

void announce(c10d::Store& store, int64_t generation) {
  raise(store, kGeneration, generation);
  store.set(fmt::format("generation/{}", generation), std::string("1"));
}

/// A group's key among those of a rank.
std::string line_of(const std::string& key) { return "\n" + key + "\n"; }

/// Returns false if the keys are not there within a moment.
bool wait_briefly(c10d::Store& store, const std::vector<std::string>& keys) {
  try {
    store.wait(keys, kLookForOthers);
    return true;
  } catch (const c10::DistStoreError&) {
    return false;
  }
}

}  // namespace

// ---- The job --------------------------------------------------------------------------------------------------------

void Group::Job::look_for_replacements() {
  const char* const number = std::getenv(variable::kReplacement);
  if (number == nullptr || env.world_size == 1) return;
  const auto why_not = !device.is_cpu()          ? "ranks on GPUs are not replaced"
                       : !env.agent_serves_store ? "the launcher does not serve the ranks' store"
                       : !offers_shared_memory() ? "this rank does not share memory (docs/dist.md)"
                                                 : nullptr;
  replacement = parse_int(number).value_or(0);
  if (why_not == nullptr) {
    losses = std::make_shared<Losses>();
    base_store = store;
    is_outside = replacement > 0;
  } else if (replacement > 0) {
    throw Error(ErrorCode::kFailedPrecondition, "rank {} was started again alone, and cannot join the others: {}",
                env.rank, why_not);
  } else {
    replace_none(why_not);
  }
}

void Group::Job::replace_none(const char* why) {
  losses.reset();
  if (env.rank == 0) fmt::print(stderr, "rank 0: --replace has no effect, because {}\n", why);
}

std::function<void()> Group::Job::check_of_generation() const {
  if (!losses) return {};
  return [store = base_store, now = generation, rank = env.rank] {
    if (highest_generation(*store) <= now) return;
    throw RanksLost(fmt::format("rank {}: another rank was lost, and takes part again", rank), {});
  };
}

std::function<void()> Group::Job::watch_of_generation() const {
  if (!losses || std::getenv(variable::kStateCopies) == nullptr) return {};
  return [store = base_store->clone(), now = generation, known = losses] {
    if (highest_generation(*store) > now) known->set_superseded();
  };
}

SharedMemoryOptions Group::Job::sharing_of(const Impl& impl) const {
  SharedMemoryOptions options{.rank = impl.rank,
                              .size = static_cast<int64_t>(impl.ranks.size()),
                              .timeout = timeout,
                              .may_span_hosts = env.local_world_size != env.world_size,
                              .address = link_address};
  if (losses) options.losses = std::make_shared<GroupLosses>(GroupLosses{losses, impl.ranks});
  if (!losses) options.earlier = earlier;  // a host whose rank was lost is tried again
  options.check = check_of_generation();
  return options;
}

c10::intrusive_ptr<c10d::Backend> Group::Job::share_without_gloo(c10d::Store& own, const Impl& impl) const {
  const auto alone = refusing_backend(impl.rank, static_cast<int64_t>(impl.ranks.size()));
  if (impl.ranks.size() == 1) return alone;
  c10d::PrefixStore shared("shared", c10::intrusive_ptr<c10d::Store>::reclaim_copy(&own));
  auto backend = share_memory(
      shared, [&] { return alone; }, sharing_of(impl));
  if (is_shared_memory(*backend)) return backend;
  throw std::runtime_error(
      "Connection closed by peer: the ranks cannot share memory again: has one ended, or is a limit of memory or files "
      "met?");
}

void Group::Job::rethrow_loss(const Impl& impl, const std::exception& failure, bool is_closed) {
  if (!losses) return;
  if (const auto* known = dynamic_cast<const shared::RankFailure*>(&failure); known != nullptr && known->has_ended) {
    std::vector<int64_t> lost;
    for (const int64_t rank : known->ranks) lost.push_back(impl.ranks[static_cast<size_t>(rank)]);
    losses->note(lost);
  }
  if (is_closed) losses->note({});
  if (!losses->any()) return;
  const auto ranks = losses->ranks();
  has_lost_rank = true;
  const auto text = fmt::format(
      "rank {}: collective {}{} lost its connection to another rank: {} ended. If another process takes that place, "
      "World::recover() forms the groups again{}",
      env.rank, impl.sequence(), impl.name,
      ranks.empty()       ? "a rank has"
      : ranks.size() == 1 ? list_ranks(ranks) + " has"
                          : list_ranks(ranks) + " have",
      arrivals ? arrivals->heard() : "");
  note_failure_cause(text, {});
  throw RanksLost(text, ranks);
}

/// The new ranks of later generations are told what the ranks gave. Returns what all gave.
at::Tensor Group::Job::share_split(const Impl& impl, const at::Tensor& own, const std::function<at::Tensor()>& gather) {
  if (!losses) return gather();
  const auto key = [&](int64_t rank) { return fmt::format("split/{}/{}/{}", impl.key, impl.num_splits, rank); };
  if (!is_outside) {
    const auto* const numbers = own.const_data_ptr<int64_t>();
    const auto text = fmt::format("{} {}", numbers[0], numbers[1]);
    base_store->set(key(impl.rank), text);
    return gather();
  }
  const auto size = static_cast<int64_t>(impl.ranks.size());
  auto all = at::empty({size, 2}, at::kLong);
  for (int64_t rank = 0; rank < size; ++rank) {
    const auto text = text_of_bytes(base_store->get(key(rank)));
    const auto space = text.find(' ');
    all[rank][0] = parse_int(text.substr(0, space)).value_or(0);
    all[rank][1] = parse_int(text.substr(space + 1)).value_or(0);
  }
  return all;
}

void Group::Job::leave() {
  arrivals.reset();
  for (const auto& impl : groups) {
    if (impl->cpu) leave_shared_memory(*impl->cpu);
    impl->group.reset();
    impl->backend.reset();
    impl->cpu.reset();
  }
}

void Group::Job::form_again(int64_t number, const std::vector<std::string>& keys_of_ranks) {
  generation = number;
  store = c10::make_intrusive<c10d::PrefixStore>(fmt::format("again/{}", number), base_store);
  // A new rank lacks the groups that others have made since the program began.
  std::erase_if(groups, [&](const auto& impl) {
    return std::ranges::any_of(impl->ranks, [&](int64_t rank) {
      return keys_of_ranks[static_cast<size_t>(rank)].find(line_of(impl->key)) == std::string::npos;
    });
  });
  for (const auto& impl : groups) {
    auto own = store;
    if (!impl->key.empty()) own = c10::make_intrusive<c10d::PrefixStore>(impl->key, store);
    impl->cpu = share_without_gloo(*own, *impl);
    impl->calls.forget();
    impl->num_messages = 0;
    impl->num_further_calls = static_cast<uint64_t>(number) * kCallsOfGeneration;
    impl->num_compared.clear();
    impl->num_splits = number * kSplitsOfGeneration;
    adopt(impl, own);
    watch(impl);
  }
  is_outside = false;
}

int64_t Group::generation() const { return job_->generation; }
bool Group::needs_recovery() const { return job_->losses && (job_->is_outside || job_->losses->any()); }

// ---- The World ------------------------------------------------------------------------------------------------------

bool World::is_replaceable() const { return job_->losses != nullptr; }
void World::forgive_losses(bool forgives) {
  if (job_->losses) job_->losses->set_forgives(forgives);
}

void World::recover() {
  auto& job = *job_;
  if (!job.losses) {
    throw Error(ErrorCode::kFailedPrecondition,
                "rank {}: no rank of this job is replaced: start it by `yoke run --replace N`, with CPU tensors in "
                "memory that the ranks of each host share",
                rank());
  }
  const WithoutWarnings quiet;
  stop_.reset();
  job.leave();
  auto& store = *job.base_store;
  const auto deadline = steady_clock::now() + job.timeout;
  std::string last_error;
  const auto check = [&](const std::vector<std::string>& keys) {
    if (is_told_to_stop()) {
      throw Error(ErrorCode::kUnavailable, "rank {}: ranks were lost, and the job is told to end", rank());
    }
    if (store.check({kEnded})) {
      throw Error(ErrorCode::kUnavailable, "rank {}: the other ranks have ended their training, and shut down", rank());
    }
    if (steady_clock::now() < deadline) return;
    std::vector<int64_t> missing;
    for (size_t other = 0; other < keys.size(); ++other) {
      if (!store.check({keys[other]})) missing.push_back(static_cast<int64_t>(other));
    }
    throw Error(ErrorCode::kTimeout, "rank {}: the groups were not formed again within {:g} s: {}{}{}", rank(),
                std::chrono::duration<double>(job.timeout).count(),
                missing.empty() ? "no process has taken the place of the lost rank"
                                : list_ranks(missing) + (missing.size() == 1 ? " has" : " have") + " not come",
                last_error.empty() ? "" : "; the last attempt failed: ", last_error);
  };
  if (job.is_outside) {
    shut_out_lost_host(store, job.env, job.replacement);
    announce(store, job.replacement);
  }
  for (auto least = job.is_outside ? job.replacement : job.generation + 1;;) {
    const auto number = highest_generation(store);
    if (number < least) {
      check({});
      wait_briefly(store, {fmt::format("generation/{}", least)});
      continue;
    }
    least = number;
    std::vector<std::string> keys;
    for (int64_t other = 0; other < size(); ++other) keys.push_back(fmt::format("here/{}/{}", number, other));
    auto own = fmt::format("{}", job.replacement);
    for (const auto& impl : job.groups) own += line_of(impl->key);
    // A host that was given up, because it was silent, may not know it yet.
    const bool may_be_given_up = std::getenv(variable::kStateCopies) != nullptr;
    if ((may_be_given_up && number_at(store, least_key(rank())) > job.replacement) ||
        store.compareSet(keys[static_cast<size_t>(rank())], "", own) != own) {
      throw Error(ErrorCode::kUnavailable, "rank {}: another process has the place of this one", rank());
    }
    while (!wait_briefly(store, keys) && highest_generation(store) == number) check(keys);
    if (highest_generation(store) != number) continue;
    job.losses->set_forgives(false);
    job.losses->clear();
    try {
      std::vector<std::string> keys_of_ranks;
      for (const auto& bytes : store.multiGet(keys)) keys_of_ranks.push_back(text_of_bytes(bytes));
      job.form_again(number, keys_of_ranks);
      job.has_lost_rank = false;
      forget_failure_cause();
      return;
    } catch (const std::exception& error) {  // another rank was lost meanwhile, and comes again
      last_error = error_text(error);
      job.leave();
      least = number + 1;
    }
  }
}

}  // namespace yoke::dist
