#include "yoke/launch/plan/streams.h"

#include <algorithm>

#include "yoke/base/environment.h"
#include "yoke/base/error.h"

namespace yoke::launch {
namespace {

Streams to_streams(std::string_view text, std::string_view whole) {
  const auto number = parse_int(text);
  if (!number || *number < 0 || *number > 3) {
    throw Error(
        ErrorCode::kInvalidArgument,
        "'{}' is not a choice of streams: use 0 for none, 1 for standard output, 2 for standard error, 3 for both, or "
        "RANK:NUMBER,... for some local ranks",
        whole);
  }
  return {.out = (*number & 1) != 0, .err = (*number & 2) != 0};
}

}  // namespace

StreamChoice::StreamChoice(std::string_view text) {
  if (text.find(':') == text.npos) {
    all_ = to_streams(text, text);
    return;
  }
  for (auto rest = text;;) {
    const auto item = rest.substr(0, rest.find(','));
    const auto colon = item.find(':');
    const auto rank = colon == item.npos ? std::nullopt : parse_int(item.substr(0, colon));
    // Without a valid rank, to_streams() gets ":", which it refuses.
    by_local_rank_[rank.value_or(0)] = to_streams(rank && *rank >= 0 ? item.substr(colon + 1) : ":", text);
    if (item.size() == rest.size()) return;
    rest.remove_prefix(item.size() + 1);
  }
}

Streams StreamChoice::of(int64_t local_rank) const {
  const auto found = by_local_rank_.find(local_rank);
  return found == by_local_rank_.end() ? all_ : found->second;
}

bool StreamChoice::is_empty() const {
  return all_ == Streams{} &&
         std::ranges::all_of(by_local_rank_, [](const auto& entry) { return entry.second == Streams{}; });
}

}  // namespace yoke::launch
