#include "yoke/dist/arrivals.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>

#include "yoke/base/environment.h"
#include "yoke/base/format.h"
#include "yoke/base/text.h"
#include "yoke/dist/detail/advice.h"
#include "yoke/dist/detail/store.h"

namespace yoke::dist {
namespace {

constexpr const char* kReport = "report";
constexpr std::string_view kOfTimeout = "timeout ";  // begins the report of a rank that has waited too long
constexpr const char* kNumHeard = "report/heard";
constexpr const char* kMismatch = "mismatch";
constexpr const char* kNumClaims = "mismatch/claims";
constexpr std::chrono::milliseconds kMaxReportTime = std::chrono::seconds(3);

std::string key_of(const CountedGroup& group, int64_t rank) { return fmt::format("{}/{}", group.key, rank); }

constexpr const char* kInAnother = "was in another collective than the others";
constexpr const char* kInDifferent = "were in different collectives";

constexpr const char* kStoreIsGone =
    "the ranks' TCPStore no longer answers, so rank 0 (or the launcher that serves it) is gone";

/// Splits "7 all_reduce" into 7 and "all_reduce". The second part may be missing.
std::pair<uint64_t, std::string> split_number(const std::string& text) {
  const auto space = std::min(text.find(' '), text.size());
  return {static_cast<uint64_t>(parse_int(text.substr(0, space)).value_or(0)),
          text.substr(std::min(space + 1, text.size()))};
}

/// Such as "all_reduce of 8 Float (collective 57)".
std::string name_of(const Call& call) {
  return call.kind.empty() ? fmt::format("collective {}", call.number)
                           : fmt::format("{} (collective {})", call.kind, call.number);
}

Numbers numbers_of(const CountedGroup& group, const std::map<int64_t, Call>& calls) {
  Numbers numbers;
  for (const int64_t rank : group.ranks) {
    const auto found = calls.find(rank);
    numbers[rank] = found == calls.end() ? std::nullopt : std::optional(found->second.number);
  }
  return numbers;
}

}  // namespace

Arrivals::Arrivals(c10d::Store& store, int64_t rank, std::chrono::milliseconds interval, CountedGroup world,
                   std::function<void()> also)
    : store_(store.clone()), rank_(rank), interval_(interval), also_(std::move(also)) {
  groups_.push_back({.group = std::move(world)});
  thread_ = std::thread([this] { publish_until_stopped(); });
}

Arrivals::~Arrivals() {
  {
    const std::lock_guard lock(stop_mutex_);
    stop_ = true;
  }
  stop_changed_.notify_all();
  thread_.join();
  try {
    publish(Look::kRegular);         // waiting ranks can then read how far this rank has come
  } catch (const std::exception&) {  // the store has ended, so no rank can read it
  }
}

size_t Arrivals::add(CountedGroup group) {
  const std::lock_guard lock(mutex_);
  groups_.push_back({.group = std::move(group)});
  return groups_.size() - 1;
}

std::chrono::milliseconds Arrivals::patience(size_t group, int64_t look) {
  const auto short_one = std::max(interval_ / 4, std::chrono::milliseconds(10));
  const auto next = look < kNumLooks ? short_one : interval_;
  if (look == 0) return next;
  const auto waited = look < kNumLooks ? look * short_one : kNumLooks * short_one + (look - kNumLooks) * interval_;
  const std::lock_guard lock(stop_mutex_);
  // With a short timeout, the error itself comes soon.
  const bool is_stalled = interval_ >= std::chrono::seconds(1) && waited >= say_after_;
  if (is_stalled) {
    stall_ = {group, waited};
    say_after_ *= 2;
  }
  if (look > kNumLooks && !is_stalled) return next;
  is_wait_told_ = true;
  is_wait_long_ = is_wait_long_ || look == kLookAtAll;
  stop_changed_.notify_all();
  return next;
}

void Arrivals::publish_until_stopped() {
  using Clock = std::chrono::steady_clock;
  std::unique_lock stop_lock(stop_mutex_);
  for (auto next = Clock::now(); !stop_;) {
    const bool is_regular = Clock::now() >= next;
    is_wait_told_ = false;
    const bool is_long = !is_regular && std::exchange(is_wait_long_, false);
    const auto look = is_regular ? Look::kRegular : is_long ? Look::kOfLongWait : Look::kOfWait;
    const auto stall = std::exchange(stall_, std::nullopt);
    stop_lock.unlock();
    try {
      const std::lock_guard lock(mutex_);
      const WithoutWarnings quiet;
      if (also_ && look == Look::kRegular) also_();
      take(look);
      if (stall) say_stall(*stall);
    } catch (const std::exception&) {
      return;  // the store has ended, so no rank can read from it
    }
    if (look == Look::kRegular) next = Clock::now() + interval_;
    stop_lock.lock();
    stop_changed_.wait_until(stop_lock, next, [this] { return stop_ || is_wait_told_; });
  }
}

void Arrivals::take(Look look) {
  const bool found_difference = difference_.has_value();
  if (publish(look) && look == Look::kRegular) return;
  // A rank with nothing to publish may be waiting for a rank that has failed. The waiting rank reads the failed rank's
  // report now, because the store may end together with the failed rank.
  listen();
  // One look after the difference was found, the other ranks have published what they are at.
  if (found_difference) publish_difference();
  read_mismatch();
}

bool Arrivals::publish(Look look) {
  const WithoutWarnings quiet;
  bool is_news = false;
  for (size_t i = 0; i < groups_.size(); ++i) {
    auto& published = groups_[i];
    const uint64_t now = published.group.sequence();
    if (now != published.number) {
      published.number = now;
      published.num_idle = 0;
      set_call(published);
      is_news = true;
    } else if (look == Look::kRegular) {
      ++published.num_idle;
      if (published.num_idle == 1 && !published.has_kind) set_call(published);
      if (published.num_idle == kNumIdle) compare_calls(i);
    }
    if (look != Look::kRegular) compare_newest(i);
    if (look == Look::kOfLongWait) compare_calls(i);
  }
  return is_news;
}

void Arrivals::set_call(Published& published) {
  const auto last = published.group.calls(*published.number);
  published.has_kind = !last.empty() && last.back().number == *published.number;
  store_->set(key_of(published.group, rank_), published.has_kind
                                                  ? fmt::format("{} {}", *published.number, last.back().kind)
                                                  : std::to_string(*published.number));
}

void Arrivals::compare_calls(size_t index) {
  auto& published = groups_[index];
  for (const auto& call : published.group.calls(*published.number)) {
    if (call.number <= published.last_compared) continue;
    published.last_compared = call.number;
    if (call.number != published.newest_compared) compare(index, call);
  }
}

void Arrivals::compare_newest(size_t index) {
  auto& published = groups_[index];
  const auto last = published.group.calls(*published.number);
  // Only if the number is that of the call: another thread may just be starting one.
  if (last.empty() || last.back().number != *published.number) return;
  if (!published.has_kind) set_call(published);
  if (published.newest_compared == *published.number) return;
  published.newest_compared = *published.number;
  compare(index, last.back());
}

void Arrivals::compare(size_t index, const Call& call) {
  const auto& [number, kind] = call;
  const auto& group = groups_[index].group;
  const auto key = fmt::format("{}/call/{}", group.key, number % kNumCallKeys);
  const auto own = fmt::format("{} {} {}", number, rank_, kind);
  auto first = store_->compareSet(key, "", own);
  while (split_number(first).first < number) first = store_->compareSet(key, first, own);  // replaces an older call
  const auto [first_number, rest] = split_number(first);
  const auto [first_rank, first_kind] = split_number(rest);
  if (difference_ || first_number > number || first_kind == kind) return;
  difference_ = Difference{.group = index,
                           .sequence = *groups_[index].number,
                           .number = number,
                           .sentence = fmt::format("collective {}{} was {} on rank {} and {} on rank {}; ", number,
                                                   group.name, first_kind, first_rank, kind, rank_),
                           .kinds = {first_kind, kind}};
}

void Arrivals::say_stall(const Stall& stall) const {
  const auto& group = groups_[stall.group].group;
  const auto now = group.sequence();
  if (store_->add(fmt::format("{}/stall/{}", group.key, now), 1) != 1) return;
  const auto calls = read(group);
  const auto known = describe_calls(calls);
  fmt::print(stderr, "rank {}: has waited in collective {}{} for {}: {}{}; `yoke stack` shows where the ranks are\n",
             rank_, now, group.name, format_duration(stall.waited),
             describe_arrivals(now, rank_, numbers_of(group, calls)), known.empty() ? "" : "; " + known);
}

void Arrivals::publish_difference() {
  const auto& group = groups_[difference_->group].group;
  const bool is_over = group.sequence() != difference_->sequence;  // the ranks go on
  // Many ranks may have found it at the same time. One of them reads where all of them are.
  const bool has_claim = difference_->num_looks > 0;
  if (is_over && has_claim) store_->add(kNumClaims, -1);
  if (is_over || (!has_claim && store_->add(kNumClaims, 1) != 1)) return difference_.reset();
  const auto calls = read(group);
  const auto is_there = [&](int64_t rank) {
    const auto call = calls.find(rank);
    return call != calls.end() && call->second.number >= difference_->number;
  };
  // Which ranks are wrong is known only once all have come.
  if (++difference_->num_looks < kNumIdle && !std::ranges::all_of(group.ranks, is_there)) return;
  const auto found = std::exchange(difference_, std::nullopt);
  const bool all_wait_there =
      std::ranges::all_of(calls, [&](const auto& one) { return one.second.number == found->number; });
  const auto text =
      fmt::format("the ranks{} wait in different collectives: {}{}: {}; `yoke stack` shows the place in the program",
                  group.name, all_wait_there ? "" : found->sentence, describe_calls(calls), advice_for(found->kinds));
  const auto cause = cause_of_difference(calls);
  auto value = cause.what;
  for (const auto rank : cause.ranks) value += fmt::format(",{}", rank);
  store_->set(kMismatch, value + "\n" + text);
  fmt::print(stderr, "rank {}: {}\n", rank_, text);
}

void Arrivals::read_mismatch() const {
  if (has_mismatch_ || !store_->check({kMismatch})) return;
  const auto bytes = store_->get(kMismatch);
  const std::string value(bytes.begin(), bytes.end());
  const auto end = value.find('\n');
  mismatch_.text = value.substr(end + 1);
  for (const auto word : split(std::string_view(value).substr(0, end), ',')) {
    if (const auto rank = parse_int(word)) {
      mismatch_.cause.ranks.push_back(*rank);
    } else {
      mismatch_.cause.what = word;
    }
  }
  mismatch_.cause.kind = FailureCause::Kind::kDiffers;
  has_mismatch_ = true;
}

std::map<int64_t, Call> Arrivals::read(const CountedGroup& group) const {
  const WithoutWarnings quiet;
  std::map<int64_t, Call> calls;
  for (const int64_t rank : group.ranks) {
    if (!store_->check({key_of(group, rank)})) continue;
    const auto value = store_->get(key_of(group, rank));
    auto [number, kind] = split_number({value.begin(), value.end()});
    calls[rank] = {number, std::move(kind)};
  }
  return calls;
}

bool Arrivals::listen() const {
  const WithoutWarnings quiet;
  if (heard_.empty() && store_->check({kReport})) {
    const auto bytes = store_->get(kReport);
    heard_.assign(bytes.begin(), bytes.end());
    has_heard_timeout_ = heard_.starts_with(kOfTimeout);
    if (has_heard_timeout_) heard_.erase(0, kOfTimeout.size());
    store_->add(kNumHeard, 1);
  }
  return !heard_.empty();
}

void Arrivals::report(const std::string& text, bool is_timeout) {
  const auto deadline = std::chrono::steady_clock::now() + std::min(20 * interval_, kMaxReportTime);
  const WithoutWarnings quiet;
  try {
    std::unique_lock lock(mutex_);
    if (listen()) return;
    store_->compareSet(kReport, "", is_timeout ? std::string(kOfTimeout) + text : text);
    listen();
    const auto num_ranks = static_cast<int64_t>(groups_.front().group.ranks.size());
    while (store_->add(kNumHeard, 0) < num_ranks && std::chrono::steady_clock::now() < deadline) {
      lock.unlock();
      std::this_thread::sleep_for(interval_ / 20);
      lock.lock();
    }
  } catch (const std::exception&) {  // the store has ended, so no rank can read the report
  }
}

std::string Arrivals::with_report(bool is_lost, const std::function<std::string(bool has_ended)>& describe) const {
  std::string text;
  try {
    listen();
    read_mismatch();
    text = describe(is_lost && !has_heard_timeout_);
  } catch (const std::exception&) {
    text = kStoreIsGone;
  }
  if (heard_.empty() || (has_heard_timeout_ && !is_lost)) return text;
  return text + after_sentence();
}

std::string Arrivals::after_sentence() const { return heard_.empty() ? "" : "; reported before: " + heard_; }

std::string Arrivals::heard() const {
  const std::lock_guard lock(mutex_);
  try {
    listen();
  } catch (const std::exception&) {  // the store has ended, so there is no report
  }
  return after_sentence();
}

Explanation Arrivals::describe(size_t group, bool is_lost, const std::vector<int64_t>& culprits) const {
  const std::lock_guard lock(mutex_);
  const auto& counted = groups_[group].group;
  FailureCause cause;
  auto whole = with_report(is_lost, [&](bool has_ended) {
    const auto calls = read(counted);
    const auto last = counted.calls(counted.sequence());
    cause = cause_of_wait({counted.sequence(), last.empty() ? "" : last.back().kind}, rank_, calls,
                          numbers_of(counted, calls), has_ended, culprits);
    auto text = describe_arrivals(counted.sequence(), rank_, numbers_of(counted, calls), has_ended, culprits);
    const auto known = is_lost ? "" : describe_calls(calls);
    if (known.empty()) return text;
    return fmt::format("{}; {}; while ranks wait, `yoke stack` shows the place in the program", text, known);
  });
  if (whole != kStoreIsGone || !is_lost || culprits.empty()) return {std::move(whole), std::move(cause)};
  return {fmt::format("{}; {}", describe_arrivals(counted.sequence(), rank_, {}, is_lost, culprits), whole),
          cause_of_wait({counted.sequence(), ""}, rank_, {}, {}, is_lost, culprits)};
}

Explanation Arrivals::describe_peer(size_t group, int64_t peer, bool is_lost) const {
  const std::lock_guard lock(mutex_);
  const auto& counted = groups_[group].group;
  FailureCause cause;
  if (!is_lost) cause = {{peer}, "had not answered a message"};
  auto text = with_report(is_lost, [&](bool has_ended) {
    if (has_ended) return fmt::format("rank {} has probably ended", peer);
    auto calls = read(counted);
    const auto own = counted.sequence(), number = calls[peer].number;
    // A rank publishes 0 before its first collective, and later numbers at intervals.
    auto where = number == 0 && own > 0 ? fmt::format("this rank is at collective {}{}", own, counted.name)
                                        : fmt::format("rank {} is at collective {}{}, and this rank at {}", peer,
                                                      number, counted.name, own);
    if (is_lost) return where;
    cause = cause_of_message(own, rank_, peer, calls);
    if (cause.kind != FailureCause::Kind::kDiffers) return where;
    std::erase_if(calls, [&](const auto& one) { return one.first == rank_; });
    const auto known = describe_calls(calls);
    return known.empty() ? where : fmt::format("{}; {}", where, known);
  });
  return {std::move(text), std::move(cause)};
}

std::optional<Explanation> Arrivals::mismatch() const {
  return has_mismatch_ ? std::optional(mismatch_) : std::nullopt;
}

bool Arrivals::has_heard() const {
  const std::lock_guard lock(mutex_);
  return !heard_.empty();
}

std::optional<Explanation> Arrivals::describe_ahead() const {
  const std::lock_guard lock(mutex_);
  for (const auto& counted : groups_) {
    const auto& group = counted.group;
    const auto own = group.sequence();
    const auto calls = read(group);
    std::vector<int64_t> ahead;
    for (const auto& [rank, call] : calls) {
      if (call.number > own) ahead.push_back(rank);
    }
    if (ahead.empty()) continue;
    const auto rank = ahead.front();
    Explanation result{fmt::format("rank {} is at collective {}{} and this rank has entered {}: ", rank,
                                   calls.at(rank).number, group.name, own)};
    if (2 * ahead.size() < group.ranks.size()) {
      result.text += fmt::format("{} called more than the others", ahead.size() == 1 ? "it has" : "a few ranks have");
      result.cause = {std::move(ahead), "had called more collectives than the others", FailureCause::Kind::kDiffers};
    } else {
      result.text += "it has skipped some, or left its loop early";
    }
    return result;
  }
  return std::nullopt;
}

std::string Arrivals::describe_absent(const std::vector<int64_t>& absent) const {
  const std::lock_guard lock(mutex_);
  const auto& world = groups_.front().group;
  try {
    return describe_absent_ranks(world.sequence(), absent, numbers_of(world, read(world)));
  } catch (const std::exception&) {
    return describe_absent_ranks(world.sequence(), absent, {});
  }
}

std::string describe_arrivals(uint64_t own, int64_t rank, const Numbers& numbers, bool is_lost,
                              const std::vector<int64_t>& culprits) {
  if (is_lost && !culprits.empty()) {
    const bool is_one = culprits.size() == 1;
    return fmt::format("{} {} not arrived, and {} ended", list_ranks(culprits), is_one ? "has" : "have",
                       is_one ? "has" : "have");
  }
  std::vector<int64_t> missing;
  uint64_t last = own;  // 0 is unknown: a rank publishes 0 before its first collective, and later numbers at intervals
  for (const auto& [other, number] : numbers) {
    if (other == rank || number.value_or(0) >= own) continue;
    missing.push_back(other);
    last = std::min(last, number.value_or(0));
  }
  for (const auto& [other, number] : numbers) {
    if (!missing.empty() || other == rank || number.value_or(0) <= own) continue;
    return fmt::format("rank {} is at collective {}, ahead of this rank: the two call different collectives", other,
                       *number);
  }
  if (missing.empty() && !culprits.empty()) {
    return fmt::format("{} {} arrived, but {} on no further: a rank that is stopped or hangs does so",
                       list_ranks(culprits), culprits.size() == 1 ? "has" : "have",
                       culprits.size() == 1 ? "goes" : "go");
  }
  if (missing.empty()) {
    return "all ranks have arrived, so the network between them is stuck, a rank has just died, or they call different "
           "collectives";
  }
  const auto absent = fmt::format("{} {} not arrived", list_ranks(missing), missing.size() == 1 ? "has" : "have");
  if (is_lost) return fmt::format("{}, and {} probably ended", absent, missing.size() == 1 ? "has" : "one of them has");
  if (last == 0) return absent;
  return fmt::format("{} ({} at collective {})", absent, missing.size() == 1 ? "it is" : "the last is", last);
}

FailureCause cause_of_wait(const Call& own, int64_t rank, const std::map<int64_t, Call>& calls, const Numbers& numbers,
                           bool is_lost, const std::vector<int64_t>& culprits) {
  const auto called = name_of(own);
  if (is_lost) {
    if (culprits.empty()) return {};  // it is not known which of them has ended
    return {culprits, fmt::format("had ended before {}", called), FailureCause::Kind::kEnded};
  }
  std::vector<int64_t> last;
  uint64_t least = own.number;
  for (const auto& [other, number] : numbers) {
    if (other == rank || number.value_or(0) > least || number.value_or(0) >= own.number) continue;
    if (number.value_or(0) < least) last.clear();
    least = number.value_or(0);
    last.push_back(other);
  }
  if (last.empty() && culprits.empty()) return {};
  if (last.empty()) return {culprits, fmt::format("had entered {}, and did not go on", called)};
  auto what = fmt::format("had not entered {}", called);
  if (least == 0) return {std::move(last), what};
  const auto found = calls.find(last.front());
  const auto kind = found == calls.end() || found->second.kind.empty() ? "" : " (" + found->second.kind + ")";
  return {std::move(last), fmt::format("{}, the last one was {}{}", what, least, kind)};
}

Explanation explain_silence(const Call& own, int64_t rank, int64_t seen_by, int64_t silent, const std::string& host) {
  return {
      fmt::format("the connection {}to rank {}{} gives no answer: the network between the hosts is cut, or that host "
                  "is down; rank {} may still run: look at the network, at what the launcher says of that host, and "
                  "at `yoke ps` there",
                  seen_by == rank ? "" : fmt::format("of rank {} ", seen_by), silent, host.empty() ? "" : " on " + host,
                  silent),
      {{silent},
       fmt::format("gave no answer to rank {} in {}, as behind a network that is cut", seen_by, name_of(own))}};
}

FailureCause cause_of_message(uint64_t own, int64_t rank, int64_t peer, const std::map<int64_t, Call>& calls) {
  const FailureCause of_peer{{peer}, "had not answered a message"};
  const auto call = calls.find(peer);
  if (call == calls.end() || call->second.number <= own) return of_peer;
  std::vector<int64_t> others;
  for (const auto& [other, one] : calls) {
    if (other == rank) continue;
    if (one.number != call->second.number || one.kind != call->second.kind) return of_peer;
    others.push_back(other);
  }
  const auto where = name_of(call->second);
  if (others.size() == 1) {
    return {{std::min(rank, peer), std::max(rank, peer)},
            fmt::format("waited for each other: rank {} for a message, and rank {} in {}", rank, peer, where),
            FailureCause::Kind::kDiffers};
  }
  return {
      {rank},
      fmt::format("waited for a message to or from rank {}, while {} waited in {}", peer, list_ranks(others), where),
      FailureCause::Kind::kDiffers};
}

FailureCause cause_of_difference(const std::map<int64_t, Call>& calls) {
  std::map<std::pair<uint64_t, std::string>, std::vector<int64_t>> ranks_in;
  for (const auto& [rank, call] : calls) ranks_in[{call.number, call.kind}].push_back(rank);
  const auto common =
      std::ranges::find_if(ranks_in, [&](const auto& one) { return 2 * one.second.size() > calls.size(); });
  const bool is_known = common != ranks_in.end();
  FailureCause cause{.ranks = {}, .what = is_known ? kInAnother : kInDifferent, .kind = FailureCause::Kind::kDiffers};
  for (const auto& [rank, call] : calls) {
    if (!is_known || std::pair(call.number, call.kind) != common->first) cause.ranks.push_back(rank);
  }
  return cause;
}

std::string describe_absent_ranks(uint64_t own, const std::vector<int64_t>& absent, const Numbers& numbers) {
  auto text = fmt::format("{} {} not arrived", list_ranks(absent), absent.size() == 1 ? "has" : "have");
  for (const int64_t rank : absent) {
    const auto found = numbers.find(rank);
    if (found == numbers.end() || found->second.value_or(0) <= own) continue;
    return text + fmt::format("; rank {} is at collective {} and this rank has entered {}: it has skipped some", rank,
                              *found->second, own);
  }
  return text;
}

std::string describe_calls(const std::map<int64_t, Call>& calls) {
  constexpr size_t kMaxNamed = 4;
  std::vector<std::pair<Call, std::vector<int64_t>>> groups;
  for (const auto& [rank, call] : calls) {
    if (call.kind.empty()) continue;
    const auto same = std::ranges::find_if(groups, [&call = call](const auto& group) {
      return group.first.number == call.number && group.first.kind == call.kind;
    });
    if (same != groups.end()) {
      same->second.push_back(rank);
    } else {
      groups.push_back({call, {rank}});
    }
  }
  std::string text;
  for (size_t i = 0; i < std::min(groups.size(), kMaxNamed); ++i) {
    const auto& [call, ranks] = groups[i];
    text += fmt::format("{}{} {} at {} (collective {})", i == 0 ? "" : ", ", list_ranks(ranks),
                        ranks.size() == 1 ? "is" : "are", call.kind, call.number);
  }
  return groups.size() > kMaxNamed ? text + ", and others elsewhere" : text;
}

std::string list_ranks(const std::vector<int64_t>& ranks) {
  constexpr size_t kMaxNamed = 8;
  const size_t named = ranks.size() <= kMaxNamed ? ranks.size() : kMaxNamed / 2;
  std::string text = ranks.size() == 1 ? "rank" : "ranks";
  for (size_t i = 0; i < named; ++i) {
    const bool is_last = i + 1 == ranks.size() && i > 0;
    text += fmt::format("{} {}", i == 0 ? "" : is_last ? " and" : ",", ranks[i]);
  }
  if (named < ranks.size()) text += fmt::format(" and {} more", ranks.size() - named);
  return text;
}

}  // namespace yoke::dist
