// How a World ends of which some ranks never call shutdown().
//
// Keys in the store, beside those of World::shutdown():
//   gone/RANK     how many collectives RANK had entered when its World was destroyed without shutdown(), and no
//                 exception was on its way
//   some_gone     set when there is such a rank
//   said_gone     counts who would say so
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <thread>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "yoke/base/environment.h"
#include "yoke/base/error.h"
#include "yoke/contract/error_file.h"
#include "yoke/dist/detail/group_impl.h"
#include "yoke/dist/detail/stop_signal.h"
#include "yoke/dist/detail/store.h"

namespace yoke::dist {
namespace {

constexpr const char* kSomeGone = "some_gone";
/// A rank has ended, perhaps with an error. The launcher should hear of that end before it hears of this rank's.
constexpr std::chrono::milliseconds kAfterOthersEnd(300);

std::string gone_key(int64_t rank) { return fmt::format("gone/{}", rank); }

}  // namespace

void Group::Job::say_farewell(const Impl& world) noexcept {
  try {
    if (!arrivals || is_outside || has_lost_rank || !world.group) return;
    const WithoutWarnings quiet;
    store->set(gone_key(env.rank), std::to_string(world.sequence()));
    store->set(kSomeGone, std::string("1"));
    if (!env.agent_serves_store && env.rank != 0) store->add("left", 1);
  } catch (const std::exception&) {  // nobody serves the store any more
  }
}

/// Whether the rank, which has ended, needs nothing more of what this rank has entered.
bool Group::Job::has_done_all(int64_t rank) const {
  return std::ranges::all_of(groups, [&](const auto& impl) {
    const auto place = std::ranges::find(impl->ranks, rank);
    if (place == impl->ranks.end() || !impl->cpu) return true;
    return impl->backend == impl->cpu && has_consumed_all(*impl->cpu, place - impl->ranks.begin());
  });
}

bool Group::Job::is_over_without_some(const Impl& world) {
  const auto ended = ended_ranks(*world.cpu);
  if (ended.empty() && !store->check({kSomeGone})) return false;
  std::vector<int64_t> absent, lost;
  for (const int64_t rank : world.ranks) {
    if (!store->check({fmt::format("leaving/{}", rank)})) absent.push_back(rank);
  }
  bool is_over = !absent.empty();
  num_ended = 0;
  for (const int64_t rank : absent) {
    if (store->check({gone_key(rank)})) {
      const auto bytes = store->get(gone_key(rank));
      const auto number = static_cast<uint64_t>(parse_int(std::string(bytes.begin(), bytes.end())).value_or(0));
      if (number >= world.sequence()) continue;
      const auto text = fmt::format(
          "rank {} has ended without World::shutdown() after collective {}, and this rank has entered {}: rank {} has "
          "skipped some, or left its loop early",
          rank, number, world.sequence(), rank);
      note_failure_cause(text,
                         {{rank}, fmt::format("had ended after collective {}", number), FailureCause::Kind::kEnded});
      has_lost_rank = true;
      throw Error(ErrorCode::kFailedPrecondition, "rank {}: {}", env.rank, text);
    }
    if (!std::ranges::binary_search(ended, rank)) {
      is_over = false;
    } else if (has_done_all(rank)) {
      ++num_ended;
    } else {
      lost.push_back(rank);
    }
  }
  // If ranks are replaced, one that is lost here may come again, until the launcher ends the job.
  if (!lost.empty() && losses && !is_told_to_stop()) return false;
  if (!lost.empty()) {
    const auto text = fmt::format("the end of the job cannot be reached: {} {} ended before it{}", list_ranks(lost),
                                  lost.size() == 1 ? "has" : "have", arrivals->heard());
    note_failure_cause(text, {lost, "had ended before the end of the job", FailureCause::Kind::kEnded});
    has_lost_rank = true;
    std::this_thread::sleep_for(kAfterOthersEnd);
    throw Error(ErrorCode::kUnavailable, "rank {}: {}", env.rank, text);
  }
  if (!is_over) return false;
  some_left_early = true;
  if (store->add("said_gone", 1) == 1) {
    fmt::print(stderr, "rank {}: {} {} ended without World::shutdown(), after the last collective of all ranks\n",
               env.rank, list_ranks(absent), absent.size() == 1 ? "has" : "have");
  }
  return true;
}

}  // namespace yoke::dist
