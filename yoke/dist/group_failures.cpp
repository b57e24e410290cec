// What a Group says when a collective ends with an error.
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "yoke/base/error.h"
#include "yoke/base/text.h"
#include "yoke/contract/error_file.h"
#include "yoke/dist/detail/group_impl.h"
#include "yoke/dist/detail/stop_signal.h"
#include "yoke/dist/error_text.h"
#include "yoke/dist/group.h"
#include "yoke/dist/shared/engine.h"

namespace yoke::dist {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

/// A connection is usually lost because the other rank has ended. So this rank waits before it reports its own error.
/// Then the launcher sees the other rank's end first, and ends this rank. The kernel tells the launcher of an end
/// within milliseconds, unless it has gigabytes of the process to free first.
constexpr milliseconds kEchoDelay(300);
/// The delay after another rank has reported why it ends. That rank will exit, but on a busy machine this can take
/// seconds.
constexpr milliseconds kEchoDelayAfterReport = std::chrono::seconds(5);

/// Waits for so long, or until the launcher, which has seen that end then, tells this rank to end, too.
void wait_for_launcher(milliseconds delay) {
  constexpr milliseconds kLook(5);
  const bool was_told = is_told_to_stop();
  for (const auto until = steady_clock::now() + delay; steady_clock::now() < until;) {
    if (!was_told && is_told_to_stop()) return;
    std::this_thread::sleep_for(kLook);
  }
}

}  // namespace

void Group::explain(std::exception_ptr error) const { explain(std::move(error), -1); }

void Group::explain(std::exception_ptr error, int64_t peer) const {
  try {
    std::rethrow_exception(error);
  } catch (const shared::Mismatch& mismatch) {
    if (job_->arrivals) {
      job_->arrivals->describe(impl_->place, /*is_lost=*/false);  // reads what another rank has found
      check_same_calls();                                         // which may name what the calls belong to
    }
    const auto number = impl_->sequence() - (mismatch.is_before ? 1 : 0);
    auto given = mismatch.calls;
    std::map<int64_t, Call> calls;
    for (auto& [rank, words] : given) {
      rank = ranks()[static_cast<size_t>(rank)];
      calls[rank] = {number, words};
    }
    const bool are_exchanges =
        std::ranges::all_of(calls, [](const auto& call) { return call.second.kind.starts_with("all_to_all "); });
    const auto differs = fmt::format(
        "collective {}{} is not the same on all ranks: {}: {}", number, impl_->name, shared::Mismatch::describe(given),
        are_exchanges
            ? "the rows that one of them sends to another (Splits::input) must be as many as that one expects "
              "from it (Splits::output), of the same size and dtype"
            : "all of them must call the same ones, in the same order, with the same reduction and root");
    note_failure_cause(differs, cause_of_difference(calls));
    fail(Error(ErrorCode::kFailedPrecondition, differs));
  } catch (const Error&) {
    throw;
  } catch (const std::exception& failure) {
    const std::string_view text = failure.what();
    const auto* const known = dynamic_cast<const shared::RankFailure*>(&failure);
    const bool timed_out = contains_any(text, {"Timed out", "timed out", "timeout", "Timeout"});
    // A lost connection is recognised by Gloo's text, or by the type of the store's error.
    const bool is_closed =
        dynamic_cast<const c10::DistNetworkError*>(&failure) != nullptr ||
        contains_any(text, {"Connection closed", "Connection reset", "Broken pipe", "Connection refused"});
    const bool lost = is_closed || (known != nullptr && known->is_silent);
    job_->rethrow_loss(*impl_, failure, is_closed);
    if (!(timed_out || lost)) report_failure(error_text(failure));
    if (!job_->arrivals || !(timed_out || lost)) throw;
    const auto& arrivals = *job_->arrivals;
    const auto other = peer < 0 || peer >= size() ? -1 : ranks()[static_cast<size_t>(peer)];
    std::vector<int64_t> culprits;
    if (known != nullptr) {
      for (const int64_t rank : known->ranks) culprits.push_back(ranks()[static_cast<size_t>(rank)]);
    }
    const auto what = other < 0 ? fmt::format("collective {}{}", impl_->sequence(), impl_->name)
                                : fmt::format("a message between it and rank {}", other);
    if (known != nullptr && known->is_silent) {
      const auto last = impl_->calls.last(impl_->sequence());
      const Call own{impl_->sequence(), other < 0 && !last.empty() ? last.back().kind : ""};
      const auto seen_by = known->seen_by < 0 ? job_->env.rank : ranks()[static_cast<size_t>(known->seen_by)];
      const auto silence = explain_silence(own, job_->env.rank, seen_by, culprits.front(), known->host);
      note_failure_cause(silence.text, silence.cause);
      job_->has_lost_rank = true;
      const Error cut(ErrorCode::kUnavailable, "rank {}: {} lost {} to another rank: {}", job_->env.rank, what,
                      known->seen_by < 0 ? "its connection" : "a connection", silence.text);
      // Said now, because the store may be behind the cut, too, and then this process takes long to end.
      fmt::print(stderr, "{}\n", cut.what());
      throw cut;
    }
    const auto who =
        other < 0 ? arrivals.describe(impl_->place, lost, culprits) : arrivals.describe_peer(impl_->place, other, lost);
    check_same_calls();  // the connection may have broken because another rank has found this out and ended
    note_failure_cause(who.text, who.cause);
    if (timed_out) {  // reported, because ranks that began to wait later lose their connections to this one
      const Error timeout(ErrorCode::kTimeout, "rank {}: {} timed out after {:g} s: {}", job_->env.rank, what,
                          std::chrono::duration<double>(job_->timeout).count(), who.text);
      job_->arrivals->report(timeout.what(), /*is_timeout=*/true);
      throw timeout;
    }
    job_->has_lost_rank = true;
    wait_for_launcher(arrivals.has_heard() ? kEchoDelayAfterReport : kEchoDelay);
    throw Error(ErrorCode::kUnavailable, "rank {}: {} lost its connection to another rank: {}", job_->env.rank, what,
                who.text);
  }
}

void Group::fail(const Error& error) const {
  report_failure(error.what());
  throw Error(error.code(), fmt::format("rank {}: {}", job_->env.rank, error.what()));
}

void Group::fail(std::exception_ptr error) const {
  try {
    std::rethrow_exception(std::move(error));
  } catch (const std::exception& failure) {
    report_failure(error_text(failure));
    throw;
  }
}

void Group::report_failure(const std::string& text) const noexcept {
  try {
    if (job_ == nullptr || job_->is_forked() || (job_->losses && job_->losses->any())) return;  // the others know
    if (job_->arrivals) job_->arrivals->report(fmt::format("rank {}: {}", job_->env.rank, text));
  } catch (const std::exception&) {  // there was no memory for the text, so the other ranks end without it
  }
}

}  // namespace yoke::dist
