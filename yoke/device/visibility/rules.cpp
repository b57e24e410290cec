#include "yoke/device/visibility/detail/rules.h"

#include <fmt/format.h>

#include <algorithm>

#include "yoke/base/text.h"

namespace yoke::device {

std::string_view name(Verdict verdict) {
  switch (verdict) {
    case Verdict::kVisible: return "visible";
    case Verdict::kDuplicate: return "duplicate";
    case Verdict::kInvalid: return "invalid";
    case Verdict::kOutOfRange: return "out of range";
    case Verdict::kAmbiguous: return "ambiguous";
    case Verdict::kUnusable: return "unusable";
    case Verdict::kIgnored: return "ignored";
    case Verdict::kCancelled: return "cancelled";
    case Verdict::kNotRead: return "not read";
    case Verdict::kUnknown: return "unknown";
  }
  return "unknown";
}

bool is_mig(const Device& gpu) { return gpu.readings.mig_enabled.value_or(false) || !gpu.instances.empty(); }

std::vector<std::string> split_list(std::string_view text, bool keep_last) {
  const auto tokens = keep_last ? split(text, ',') : split_terminated(text, ',');
  return {tokens.begin(), tokens.end()};
}

Entry refused(const std::string& token, Verdict verdict, std::string why) {
  return {token, verdict, std::nullopt, std::move(why), true};
}

std::string entry_number(size_t position) { return fmt::format("entry {}", position + 1); }

void ListReader::add(Entry entry) {
  auto& entries = selection.entries;
  const auto first = std::ranges::find_if(entries, [&](const Entry& earlier) {
    return earlier.verdict == Verdict::kVisible && earlier.unit == entry.unit;
  });
  bool hides_all = false;
  if (ended_) {
    entry.verdict = Verdict::kNotRead;
    entry.why = why_not_read_;
  } else if (entry.verdict != Verdict::kVisible) {
    ended_ = true;
    entry.why += "; this ends the list";
  } else if (first == entries.end()) {
    selection.units.push_back(*entry.unit);
  } else {
    hides_all = duplicates_ == Duplicates::kHideAll;
    ended_ = duplicates_ != Duplicates::kAreSkipped;
    entry.verdict = Verdict::kDuplicate;
    entry.why = fmt::format("the same as {}{}", entry_number(static_cast<size_t>(first - entries.begin())),
                            hides_all ? "; a duplicate hides every device"
                            : ended_  ? "; this ends the list"
                                      : ", and skipped");
  }
  entries.push_back(std::move(entry));
  if (hides_all) cancel(entries.size() - 1);
}

void ListReader::end(std::string why) {
  ended_ = true;
  why_not_read_ = std::move(why);
}

void ListReader::cancel(size_t cause) {
  selection.units.clear();
  for (auto& entry : selection.entries) {
    if (entry.verdict != Verdict::kVisible && entry.verdict != Verdict::kDuplicate) continue;
    if (&entry == &selection.entries[cause]) continue;
    entry.verdict = Verdict::kCancelled;
    entry.why = fmt::format("{} hides every device", entry_number(cause));
  }
}

}  // namespace yoke::device
