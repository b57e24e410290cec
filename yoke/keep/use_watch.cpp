#include "yoke/keep/use_watch.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>

#include "yoke/base/format.h"
#include "yoke/base/text.h"
#include "yoke/claim/config.h"

namespace yoke::keep {
namespace {

using std::chrono::milliseconds;

}  // namespace

UseWatch::UseWatch(claim::Claim& claim, UseWatchOptions options)
    : claim_(claim),
      options_(std::move(options)),
      watch_(options_.limits, Clock::now()),
      next_(Clock::now() + claim::look_interval(options_.limits)) {
  if (!options_.open) {
    next_ = Clock::time_point::max();
    return;
  }
  // From now on it is known for how long the devices have been idle.
  constexpr std::chrono::seconds kLimit(2);
  claim.change(
      [](claim::Note& note) {
        note.activity = claim::Activity{.looked_at = note.since, .used_at = std::vector(note.keys.size(), note.since)};
      },
      kLimit);
}

int UseWatch::milliseconds_left() const {
  if (next_ == Clock::time_point::max()) return -1;
  return static_cast<int>(std::max<int64_t>(0, std::chrono::ceil<milliseconds>(next_ - Clock::now()).count()));
}

void UseWatch::record(const std::vector<std::optional<bool>>& used) {
  const bool is_idle = std::ranges::all_of(used, [](const auto& one) { return one == false; });
  if (!is_idle) watch_.note_use(Clock::now());
  claim_.record_use(used, std::chrono::system_clock::now());
}

claim::IdleStep UseWatch::look() {
  if (!options_.open) return claim::IdleStep::kNone;
  if (reader_ && is_readable(reader_->fd())) {
    if (const auto snapshot = reader_->take()) {
      record(claim::uses_by_id(*snapshot, options_.ids));
      if (!program::is_well(*snapshot)) reader_.reset();
    } else {
      reader_.reset();
    }
  }
  if (Clock::now() < next_) return claim::IdleStep::kNone;
  next_ = Clock::now() + claim::look_interval(options_.limits);
  if (reader_ && reader_->is_asked()) {
    watch_.note_use(Clock::now());  // a driver that hangs must not end a claim
  } else {
    if (!reader_)
      reader_ = std::make_unique<program::DeviceReader>(program::DeviceReader::Options{.open = options_.open});
    reader_->request();
  }
  return watch_.step(Clock::now());
}

std::string UseWatch::devices() const {
  return fmt::format("{} {}", options_.ids.size() == 1 ? "device" : "devices", fmt::join(options_.ids, ", "));
}

std::string UseWatch::beginning() const {
  const auto& purpose = claim_.note().purpose;
  return fmt::format("{} {} not been used for {}{}", devices(), options_.ids.size() == 1 ? "has" : "have",
                     format_rough_duration(watch_.idle_for(Clock::now())),
                     purpose.empty() ? "" : fmt::format(" ({})", printable(purpose)));
}

std::string UseWatch::warning() const {
  const auto& end = options_.limits.end;
  const auto what = fmt::format("`yoke release {}{}` gives {} to others", getpid(),
                                claim_.note().is_holder ? "" : " --force", options_.ids.size() == 1 ? "it" : "them");
  if (!end) return fmt::format("{}; {}", beginning(), what);
  const auto left = *end - watch_.idle_for(Clock::now());
  return fmt::format("{}; {} ends the claim in {} unless they are used; {}", beginning(),
                     claim::limiter(options_.is_own_end), format_rough_duration(left), what);
}

std::string UseWatch::farewell() const {
  return fmt::format("{}, so {} ends the claim", beginning(), claim::limiter(options_.is_own_end));
}

}  // namespace yoke::keep
