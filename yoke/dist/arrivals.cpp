#include "yoke/dist/arrivals.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>

#include "yoke/base/environment.h"
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

constexpr const char* kStoreIsGone =
    "the ranks' TCPStore no longer answers, so rank 0 (or the launcher that serves it) is gone";

/// Splits "7 all_reduce" into 7 and "all_reduce". The second part may be missing.
std::pair<uint64_t, std::string> split_number(const std::string& text) {
  const auto space = std::min(text.find(' '), text.size());
  return {static_cast<uint64_t>(parse_int(text.substr(0, space)).value_or(0)),
          text.substr(std::min(space + 1, text.size()))};
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

Arrivals::Arrivals(c10d::Store& store, int64_t rank, std::chrono::milliseconds interval, CountedGroup world)
    : store_(store.clone()), rank_(rank), interval_(interval) {
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
    publish();                       // waiting ranks can then read how far this rank has come
  } catch (const std::exception&) {  // the store has ended, so no rank can read it
  }
}

size_t Arrivals::add(CountedGroup group) {
  const std::lock_guard lock(mutex_);
  groups_.push_back({.group = std::move(group)});
  return groups_.size() - 1;
}

void Arrivals::publish_until_stopped() {
  std::unique_lock stop_lock(stop_mutex_);
  while (!stop_) {
    stop_lock.unlock();
    try {
      const std::lock_guard lock(mutex_);
      const WithoutWarnings quiet;
      const bool found_difference = difference_.has_value();
      if (!publish()) {
        // A rank with nothing to publish may be waiting for a rank that has failed. The waiting rank reads the failed
        // rank's report now, because the store may end together with the failed rank.
        listen();
        // One interval after the difference was found, the other ranks have published what they are at.
        if (found_difference) publish_difference();
        read_mismatch();
      }
    } catch (const std::exception&) {
      return;  // the store has ended, so no rank can read from it
    }
    stop_lock.lock();
    stop_changed_.wait_for(stop_lock, interval_, [this] { return stop_; });
  }
}

bool Arrivals::publish() {
  const WithoutWarnings quiet;
  bool is_news = false;
  for (size_t i = 0; i < groups_.size(); ++i) {
    auto& published = groups_[i];
    const uint64_t now = published.group.sequence();
    if (now != published.number) {
      store_->set(key_of(published.group, rank_), std::to_string(now));
      published.number = now;
      published.num_idle = 0;
      is_news = true;
      continue;
    }
    ++published.num_idle;
    if (published.num_idle == 1) publish_kind(published);
    if (published.num_idle == kNumIdle) compare_calls(i);
  }
  return is_news;
}

void Arrivals::publish_kind(const Published& published) {
  const auto last = published.group.calls(*published.number);
  if (last.empty() || last.back().number != *published.number) return;
  store_->set(key_of(published.group, rank_), fmt::format("{} {}", *published.number, last.back().kind));
}

void Arrivals::compare_calls(size_t index) {
  auto& [group, published, num_idle, last_compared] = groups_[index];
  for (const auto& [number, kind] : group.calls(*published)) {
    if (number <= last_compared) continue;
    last_compared = number;
    const auto key = fmt::format("{}/call/{}", group.key, number % kNumCallKeys);
    const auto own = fmt::format("{} {} {}", number, rank_, kind);
    auto first = store_->compareSet(key, "", own);
    while (split_number(first).first < number) first = store_->compareSet(key, first, own);  // replaces an older call
    const auto [first_number, rest] = split_number(first);
    const auto [first_rank, first_kind] = split_number(rest);
    if (difference_ || first_number > number || first_kind == kind) continue;
    difference_ = Difference{.group = index,
                             .sequence = *published,
                             .number = number,
                             .sentence = fmt::format("collective {}{} was {} on rank {} and {} on rank {}; ", number,
                                                     group.name, first_kind, first_rank, kind, rank_)};
  }
}

void Arrivals::publish_difference() {
  const auto found = std::exchange(difference_, std::nullopt);
  const auto& group = groups_[found->group].group;
  if (group.sequence() != found->sequence) return;  // the ranks go on
  // Many ranks may have found it at the same time. One of them reads where all of them are.
  if (store_->add(kNumClaims, 1) != 1) return;
  const auto calls = read(group);
  const bool all_wait_there =
      std::ranges::all_of(calls, [&](const auto& one) { return one.second.number == found->number; });
  const auto text = fmt::format(
      "the ranks{} wait in different collectives: {}{}: all of them must call the same ones, in the same order, and "
      "not only rank 0; `yoke stack` shows the place in the program",
      group.name, all_wait_there ? "" : found->sentence, describe_calls(calls));
  store_->set(kMismatch, text);
  fmt::print(stderr, "rank {}: {}\n", rank_, text);
}

void Arrivals::read_mismatch() const {
  if (has_mismatch_ || !store_->check({kMismatch})) return;
  const auto text = store_->get(kMismatch);
  mismatch_.assign(text.begin(), text.end());
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
  return fmt::format("{}; reported before: {}", text, heard_);
}

std::string Arrivals::describe(size_t group, bool is_lost, const std::vector<int64_t>& culprits) const {
  const std::lock_guard lock(mutex_);
  const auto& counted = groups_[group].group;
  auto whole = with_report(is_lost, [&](bool has_ended) {
    const auto calls = read(counted);
    auto text = describe_arrivals(counted.sequence(), rank_, numbers_of(counted, calls), has_ended, culprits);
    const auto known = is_lost ? "" : describe_calls(calls);
    if (known.empty()) return text;
    return fmt::format("{}; {}; while ranks wait, `yoke stack` shows the place in the program", text, known);
  });
  if (whole != kStoreIsGone || !is_lost || culprits.empty()) return whole;
  return fmt::format("{}; {}", describe_arrivals(counted.sequence(), rank_, {}, is_lost, culprits), whole);
}

std::string Arrivals::describe_peer(size_t group, int64_t peer, bool is_lost) const {
  const std::lock_guard lock(mutex_);
  const auto& counted = groups_[group].group;
  return with_report(is_lost, [&](bool has_ended) {
    if (has_ended) return fmt::format("rank {} has probably ended", peer);
    return fmt::format("rank {} is at collective {}{}, and this rank at {}", peer, read(counted)[peer].number,
                       counted.name, counted.sequence());
  });
}

std::optional<std::string> Arrivals::mismatch() const {
  return has_mismatch_ ? std::optional(mismatch_) : std::nullopt;
}

bool Arrivals::has_heard() const {
  const std::lock_guard lock(mutex_);
  return !heard_.empty();
}

std::optional<std::string> Arrivals::describe_ahead() const {
  const std::lock_guard lock(mutex_);
  for (const auto& counted : groups_) {
    const auto& group = counted.group;
    const auto own = group.sequence();
    for (const auto& [rank, call] : read(group)) {
      if (call.number <= own) continue;
      return fmt::format(
          "rank {} is at collective {}{} and this rank has entered {}: it has skipped some, or left its loop early",
          rank, call.number, group.name, own);
    }
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
  std::optional<uint64_t> last;
  bool is_last_known = true;
  for (const auto& [other, number] : numbers) {
    if (other == rank || number.value_or(0) >= own) continue;
    missing.push_back(other);
    is_last_known = is_last_known && number;
    last = std::min(last.value_or(own), number.value_or(0));
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
  if (!is_last_known) return fmt::format("{} (not even at the first collective)", absent);
  return fmt::format("{} ({} at collective {})", absent, missing.size() == 1 ? "it is" : "the last is", *last);
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
