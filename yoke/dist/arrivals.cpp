#include "yoke/dist/arrivals.h"

#include <fmt/format.h>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "yoke/base/environment.h"

namespace yoke::dist {
namespace {

constexpr const char* kReport = "report";
constexpr const char* kNumHeard = "report/heard";

std::string key_of(int64_t rank) { return fmt::format("arrivals/{}", rank); }

}  // namespace

Arrivals::Arrivals(c10d::Store& store, int64_t rank, int64_t size, std::chrono::milliseconds interval,
                   std::function<uint64_t()> sequence)
    : store_(store.clone()),
      rank_(rank),
      size_(size),
      interval_(interval),
      sequence_(std::move(sequence)),
      thread_([this] { publish_until_stopped(); }) {}

Arrivals::~Arrivals() {
  {
    const std::lock_guard lock(stop_mutex_);
    stop_ = true;
  }
  stop_changed_.notify_all();
  thread_.join();
  try {
    store_->set(key_of(rank_), std::to_string(sequence_()));  // how far this rank has come, for those who wait for it
  } catch (const std::exception&) {                           // the store is gone: nobody can ask
  }
}

void Arrivals::publish_until_stopped() {
  std::optional<uint64_t> published;
  std::unique_lock lock(stop_mutex_);
  while (!stop_) {
    if (const uint64_t now = sequence_(); now != published) {
      lock.unlock();
      try {
        const std::lock_guard store_lock(store_mutex_);
        store_->set(key_of(rank_), std::to_string(now));
        published = now;
      } catch (const std::exception&) {
        return;  // the store is gone, and with it whoever could ask
      }
      lock.lock();
    } else {  // no news of its own: it may be waiting for a rank that has failed, and whose store may soon be gone
      lock.unlock();
      try {
        const std::lock_guard store_lock(store_mutex_);
        listen();
      } catch (const std::exception&) {
        return;
      }
      lock.lock();
    }
    stop_changed_.wait_for(lock, interval_, [this] { return stop_; });
  }
}

bool Arrivals::listen() const {
  if (heard_.empty() && store_->check({kReport})) {
    const auto text = store_->get(kReport);
    heard_.assign(text.begin(), text.end());
    store_->add(kNumHeard, 1);
  }
  return !heard_.empty();
}

void Arrivals::report(const std::string& text) {
  const auto deadline = std::chrono::steady_clock::now() + 3 * interval_;
  try {
    std::unique_lock lock(store_mutex_);
    if (listen()) return;
    store_->compareSet(kReport, "", text);
    listen();
    while (store_->add(kNumHeard, 0) < size_ && std::chrono::steady_clock::now() < deadline) {
      lock.unlock();
      std::this_thread::sleep_for(interval_ / 20);
      lock.lock();
    }
  } catch (const std::exception&) {  // the store is gone: nobody can be told
  }
}

std::vector<std::optional<uint64_t>> Arrivals::numbers() const {
  std::vector<std::optional<uint64_t>> others(static_cast<size_t>(size_));
  for (int64_t rank = 0; rank < size_; ++rank) {
    if (!store_->check({key_of(rank)})) continue;
    const auto text = store_->get(key_of(rank));
    others[static_cast<size_t>(rank)] = parse_int(std::string(text.begin(), text.end())).value_or(0);
  }
  return others;
}

std::string Arrivals::describe() const {
  const std::lock_guard lock(store_mutex_);
  std::string text;
  try {
    listen();
    text = describe_arrivals(sequence_(), rank_, numbers());
  } catch (const std::exception&) {
    text = "the ranks' store no longer answers, so rank 0 (or the launcher that serves it) is gone";
  }
  return heard_.empty() ? text : fmt::format("{}; reported before: {}", text, heard_);
}

bool Arrivals::has_heard() const {
  const std::lock_guard lock(store_mutex_);
  return !heard_.empty();
}

std::optional<std::string> Arrivals::describe_ahead() const {
  const std::lock_guard lock(store_mutex_);
  const auto own = sequence_();
  const auto others = numbers();
  for (size_t other = 0; other < others.size(); ++other) {
    if (others[other].value_or(0) <= own) continue;
    return fmt::format(
        "rank {} is at collective {} and this rank has entered {}: it has skipped some, or left its "
        "loop early",
        other, *others[other], own);
  }
  return std::nullopt;
}

std::string Arrivals::describe_absent(const std::vector<int64_t>& absent) const {
  const std::lock_guard lock(store_mutex_);
  try {
    return describe_absent_ranks(sequence_(), absent, numbers());
  } catch (const std::exception&) {
    return describe_absent_ranks(sequence_(), absent, {});
  }
}

std::string describe_arrivals(uint64_t own, int64_t rank, const std::vector<std::optional<uint64_t>>& others) {
  std::vector<int64_t> missing;
  std::optional<uint64_t> last;
  for (size_t other = 0; other < others.size(); ++other) {
    if (static_cast<int64_t>(other) == rank || others[other].value_or(0) >= own) continue;
    missing.push_back(static_cast<int64_t>(other));
    last = std::min(last.value_or(own), others[other].value_or(0));
  }
  if (missing.empty()) return "all ranks have arrived, so the network between them is stuck or a rank has just died";
  return fmt::format("{} {} not arrived ({} at collective {})", list_ranks(missing),
                     missing.size() == 1 ? "has" : "have", missing.size() == 1 ? "it is" : "the last is", *last);
}

std::string describe_absent_ranks(uint64_t own, const std::vector<int64_t>& absent,
                                  const std::vector<std::optional<uint64_t>>& others) {
  auto text = fmt::format("{} {} not come", list_ranks(absent), absent.size() == 1 ? "has" : "have");
  for (const int64_t rank : absent) {
    const auto index = static_cast<size_t>(rank);
    if (index >= others.size() || others[index].value_or(0) <= own) continue;
    return text + fmt::format("; rank {} is at collective {} and this rank has entered {}: it has skipped some", rank,
                              *others[index], own);
  }
  return text;
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
