#include "yoke/claim/share.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <tuple>

#include "yoke/base/format.h"
#include "yoke/claim/allocate.h"

namespace yoke::claim {
namespace {

std::string sharers_phrase(const Candidate& candidate) {
  if (candidate.num_sharers == 0) return "no device that is shared already fits as well";
  return fmt::format("{} it already", candidate.num_sharers == 1
                                          ? "one claim shares"
                                          : fmt::format("{} claims share", candidate.num_sharers));
}

std::string unclaimed_use(const Candidate& candidate) {
  return candidate.used_by.empty() ? "holding memory of no process that can be seen" : candidate.used_by;
}

}  // namespace

int64_t room_for_share(const Candidate& candidate, const std::map<int64_t, int64_t>& bytes_by_uid) {
  if (!candidate.memory_bytes) return 0;
  int64_t room = *candidate.memory_bytes;
  // Subtracts without overflow, since anybody may write any number into a note of his own.
  const auto take = [&room](int64_t bytes) { room = bytes >= room ? 0 : room - std::max<int64_t>(bytes, 0); };
  for (const auto& [uid, bytes] : bytes_by_uid) {
    const auto used = candidate.used_by_uid.find(uid);
    take(used == candidate.used_by_uid.end() ? bytes : std::max(bytes, used->second));
  }
  for (const auto& [uid, bytes] : candidate.used_by_uid) {
    if (!bytes_by_uid.contains(uid)) take(bytes);
  }
  return room;
}

bool is_shared_by_all(const std::vector<const Holding*>& holdings) {
  return std::ranges::all_of(holdings, [](const Holding* holding) { return holding->share_bytes.has_value(); });
}

std::string sharers_text(const std::vector<const Holding*>& holdings) {
  constexpr size_t kMost = 4;
  std::vector<std::string> texts;
  for (const auto* holding : holdings) {
    texts.push_back(fmt::format("{} with {}", holder_text(*holding), format_bytes(holding->share_bytes.value_or(0))));
  }
  const auto num_more = texts.size() > kMost ? texts.size() - kMost : 0;
  texts.resize(texts.size() - num_more);
  if (num_more > 0) texts.push_back(fmt::format("{} more", num_more));
  return fmt::format("shared by {}", fmt::join(texts, ", "));
}

void mark_full(std::vector<Candidate>& candidates, const Survey& survey, const Wish& wish) {
  const auto wanted = wish.memory_bytes.value_or(0);
  for (auto& candidate : candidates) {
    const auto holdings = survey.find_all(candidate.key);
    if (candidate.standing != Standing::kFree || !is_shared_by_all(holdings)) continue;
    if (!candidate.memory_bytes) {
      candidate.mark(Standing::kUnusable, "not to be shared, because its driver does not tell its memory");
      continue;
    }
    std::map<int64_t, int64_t> bytes_by_uid;
    constexpr int64_t kNobodyKnown = -2;  // another number than that of processes whose user is not known
    for (const auto* holding : holdings) {
      auto& sum = bytes_by_uid[holding->uid.value_or(kNobodyKnown)];
      if (__builtin_add_overflow(sum, *holding->share_bytes, &sum)) sum = INT64_MAX;
    }
    // Those who share the device compute on it with a claim.
    constexpr int64_t kDriversOwn = int64_t{1} << 30;
    candidate.is_used = candidate.is_used && std::ranges::any_of(candidate.used_by_uid, [&](const auto& use) {
                          if (use.first == kRestOfMachine) return false;
                          const auto least = use.first == kUnknownUser ? kDriversOwn : 0;
                          return !bytes_by_uid.contains(use.first) && use.second > least;
                        });
    // Of unified memory, what those use who share it may be part of what the rest of the machine uses.
    if (const auto rest = candidate.used_by_uid.find(kRestOfMachine); rest != candidate.used_by_uid.end()) {
      for (const auto& [uid, bytes] : bytes_by_uid) {
        const auto own = candidate.used_by_uid.find(uid);
        const auto unseen = bytes - (own == candidate.used_by_uid.end() ? 0 : own->second);
        rest->second -= std::clamp<int64_t>(unseen, 0, rest->second);
      }
    }
    candidate.num_sharers = static_cast<int64_t>(holdings.size());
    candidate.room_bytes = room_for_share(candidate, bytes_by_uid);
    if (candidate.room_bytes >= wanted) continue;
    const auto why = holdings.empty() ? unclaimed_use(candidate) : sharers_text(holdings);
    candidate.mark(holdings.empty() ? Standing::kInUse : Standing::kClaimed,
                   fmt::format("{}, which leaves {}", why, format_bytes(candidate.room_bytes)));
  }
}

Pick pick_shares(const std::vector<Candidate>& candidates, const Wish& wish) {
  Pick result;
  const auto wanted = static_cast<size_t>(wish.num_devices);
  auto fitting = preferred(candidates, free_among(candidates, result.sentences), wanted);
  if (wanted == 0 || fitting.size() < wanted) {
    result.sentences.push_back(fmt::format("{} of {} devices {} room, and {} {} wanted", fitting.size(),
                                           candidates.size(), fitting.size() == 1 ? "has" : "have", wanted,
                                           wanted == 1 ? "is" : "are"));
    return result;
  }
  const auto rank = [&](size_t i) {
    const auto& candidate = candidates[i];
    return std::tuple(is_last(candidate), candidate.is_used, candidate.num_sharers == 0, candidate.room_bytes,
                      candidate.temperature_celsius.value_or(40), i);
  };
  std::ranges::sort(fitting, [&](size_t a, size_t b) { return rank(a) < rank(b); });
  fitting.resize(wanted);
  std::ranges::sort(fitting);
  result.chosen = fitting;
  for (const auto i : result.chosen) {
    const auto& candidate = candidates[i];
    result.sentences.push_back(
        fmt::format("a part of device {} is given: {}, and {} of its memory are left before this share", candidate.id,
                    sharers_phrase(candidate), format_bytes(candidate.room_bytes)));
  }
  return result;
}

}  // namespace yoke::claim
