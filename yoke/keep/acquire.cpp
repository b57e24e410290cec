#include "yoke/keep/acquire.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>

#include "yoke/base/clock.h"
#include "yoke/base/format.h"
#include "yoke/base/held_signals.h"
#include "yoke/base/text.h"
#include "yoke/claim/inherit.h"
#include "yoke/claim/reservation.h"
#include "yoke/contract/variables.h"
#include "yoke/device/selection.h"
#include "yoke/keep/choice.h"
#include "yoke/keep/waiting.h"
#include "yoke/program/device_reader.h"
#include "yoke/program/watched_program.h"
#include "yoke/view/labels.h"

namespace yoke::keep {
namespace {

using std::chrono::milliseconds;

class Acquirer {
 public:
  Acquirer(const AcquireOptions& options, const ClaimSite& site, const Environment& environment, const Tell& tell)
      : options_(options),
        request_(options.request),
        site_(site),
        environment_(environment),
        tell_(tell),
        look_(options.device, tell) {}

  Acquired acquire() {
    auto outer = options_.inherits ? site_.ledger.inherited() : std::nullopt;
    for (;;) {
      Acquired result;
      if (!read_devices(result, outer.has_value())) return result;
      if (outer) {
        const auto share_bytes = outer->note().share_bytes;
        inherit(std::move(*outer), result);
        return completed(std::move(result), share_bytes);
      }
      if (options_.adopted_pid) {
        choose_used(result.snapshot, *options_.adopted_pid, request_);
      } else {
        choose_named(result.snapshot, options_.device.chosen, request_);
      }
      result.allocation = attempt(result.snapshot);
      const auto& allocation = result.allocation;
      request_.lock_wait = stale_attempts_.after(allocation, options_.waits);
      if (allocation.is_stale) continue;
      if (!allocation.refusal) return taken(std::move(result));
      if (!allocation.turn.excess && look_.grant_more_time(result.snapshot)) continue;
      if (!options_.waits || allocation.is_hopeless) {
        for (const auto& sentence : allocation.sentences) tell_(Told::kReason, sentence);
        throw Refused(allocation.is_hopeless ? ErrorCode::kFailedPrecondition : ErrorCode::kUnavailable,
                      *allocation.refusal);
      }
      keys_ = keys_of(result.snapshot, request_);
      why_ = allocation.refusal->why;
      if (!place_) {
        join();
      } else if (const int status = wait()) {
        return {.status = status};
      }
    }
  }

 private:
  /// Returns false if a signal came (Acquired::status).
  bool read_devices(Acquired& result, bool is_inside) {
    // What is reserved depends on all devices, also on those that were not named.
    const bool needs_all = is_inside || !read_reservations(site_.ledger.records()).empty();
    auto snapshot = look_.read(needs_all ? std::vector<std::string>() : options_.device.chosen);
    result.status = look_.status();
    if (!snapshot) return false;
    result.snapshot = *std::move(snapshot);
    request_.read_at = Clock::now();
    if (!options_.device.chosen.empty() && !has_chosen(result.snapshot, needs_all)) {
      throw Error(ErrorCode::kNotFound, "this machine has no device {}; `yoke devices` lists those that it has",
                  printable(fmt::format("{}", fmt::join(options_.device.chosen, ", "))));
    }
    if (const auto missing = view::find_missing_gpu(result.snapshot)) {
      throw Error(missing->is_certain ? ErrorCode::kNotFound : ErrorCode::kUnavailable, "{}; there is nothing to claim",
                  missing->text());
    }
    return true;
  }

  /// Whether this machine has a device that was named. `is_all`: the snapshot also has devices that were not.
  bool has_chosen(const device::Snapshot& snapshot, bool is_all) const {
    if (!is_all || snapshot.devices.empty()) return !snapshot.devices.empty();
    try {
      return !device::DeviceSelection::parse(options_.device.chosen).resolve(snapshot).empty();
    } catch (const Error&) {
      return false;
    }
  }

  /// Takes devices of the claim under which this process runs: of those that the machine shows.
  void inherit(claim::Claim outer, Acquired& result) const {
    const auto note = outer.note();
    const auto candidates = claim::candidates_of(result.snapshot, {});
    for (const auto& key : note.keys) {
      const auto found = std::ranges::find_if(candidates, [&](const auto& one) { return one.key == key; });
      if (found == candidates.end()) {
        throw Error(ErrorCode::kFailedPrecondition,
                    "the claim under which this runs (process {}) has the device {}, which this machine does not show",
                    note.pid, printable(key));
      }
      result.held.push_back(found->id);
    }
    claim::InheritRequest request{.held = result.held, .holder = note.pid};
    const auto& wanted = options_.request.wish.num_devices;
    if (wanted > 0) request.num_devices = wanted;
    const auto& chosen = options_.device.chosen;
    if (!chosen.empty() && std::ranges::find(chosen, "all") == chosen.end()) {
      request.only.emplace();
      for (const auto& choice : device::DeviceSelection::parse(chosen).resolve(result.snapshot)) {
        request.only->push_back(choice.id());
      }
    }
    const auto choose = [&](const std::vector<claim::Heir>& heirs) {
      request.heirs = heirs;
      return claim::choose_inherited(request);
    };
    const bool is_dry = options_.request.is_dry;
    const auto positions = is_dry ? std::optional(choose(outer.living_heirs())) : site_.ledger.share(outer, choose);
    if (!positions) {
      throw Error(ErrorCode::kFailedPrecondition, "the claim under which this was started has just ended");
    }
    for (const auto position : *positions) result.allocation.ids.push_back(result.held[static_cast<size_t>(position)]);
    if (!is_dry) result.allocation.claim = std::move(outer);
  }

  /// allocate(), for no longer than the limit of the wait.
  claim::Allocation attempt(const device::Snapshot& snapshot) {
    const auto left = time_left();
    if (left) request_.lock_wait.limit = std::clamp(*left, milliseconds(0), milliseconds(10'000));
    try {
      return allocate(site_.ledger, snapshot, request_, site_.config, place_ ? &*place_ : nullptr);
    } catch (const Error& error) {
      const bool is_late = left && error.code() == ErrorCode::kUnavailable && time_left()->count() <= 0;
      if (!is_late) throw;
      throw timeout(error.what());
    }
  }

  std::optional<milliseconds> time_left() const {
    if (!options_.wait_limit) return std::nullopt;
    return std::chrono::ceil<milliseconds>(begin_ + *options_.wait_limit - Clock::now());
  }

  Error timeout(const std::string& why) const {
    return {ErrorCode::kTimeout, "waited for {} without success: {}", format_rough_duration(*options_.wait_limit), why};
  }

  Acquired taken(Acquired result) {
    if (signals_) {
      const HeldSignals held;  // one that comes now acts when nothing catches it any more
      if (const int status = interruption()) return {.status = status};
      signals_.reset();
    }
    const auto& allocation = result.allocation;
    if (allocation.claim && !allocation.claim->is_recorded()) {
      const auto& records = site_.ledger.records();
      tell_(Told::kWarning, fmt::format("the claim could not be written to the history in {}; if it is full, {}",
                                        records.path().string(), records.fullest()));
    }
    for (const auto& sentence : allocation.sentences) tell_(Told::kReason, sentence);
    for (const auto& warning : allocation.warnings) {
      if (!request_.is_dry) tell_(Told::kWarning, warning);
    }
    result.ended_reader = look_.end();
    result.wakeup = std::move(wakeup_);
    const auto& wish = request_.wish;
    return completed(std::move(result), wish.is_share ? std::optional(wish.memory_bytes.value_or(0)) : std::nullopt);
  }

  /// Fills in what follows from the devices that were chosen. `share_bytes`: what the claim may use of each.
  Acquired completed(Acquired result, const std::optional<int64_t>& share_bytes) const {
    const auto& ids = result.allocation.ids;
    result.assignments =
        assignments_for(fmt::format("{}", fmt::join(ids, ",")), device::IdFormat::kUuid, environment_, result.snapshot);
    // A program that has its devices for itself must not keep to the limit of a program that started it.
    if (share_bytes) {
      result.assignments.push_back({variable::kDeviceMemory, std::to_string(*share_bytes)});
    } else if (environment_.find(variable::kDeviceMemory)) {
      result.assignments.push_back({variable::kDeviceMemory, std::nullopt});
    }
    auto device = options_.device;
    device.chosen = result.held.empty() ? ids : result.held;
    result.watch = {.ids = device.chosen,
                    .limits = site_.config.idle,
                    .is_own_end = site_.config.is_own_idle_end,
                    .open = opener(device)};
    return result;
  }

  /// 128 plus the number of a signal that ends the wait; 0: none has come.
  int interruption() {
    const int signal = next_interruption(*signals_);
    return signal == 0 ? 0 : 128 + signal;
  }

  void join() {
    signals_.emplace();
    wakeup_.emplace(site_.ledger.folder());  // before the next attempt, so that no release is missed
    place_.emplace(site_.ledger.open(claim::Ledger::Access::kTake)
                       .join({.num_devices = request_.wish.num_devices,
                              .purpose = request_.note.purpose,
                              .length = request_.length,
                              .share_bytes = request_.wish.is_share ? request_.wish.memory_bytes : std::nullopt,
                              .keys = request_.only.empty() ? std::vector<std::string>() : keys_}));
    look_.begin_to_wait(
        {.signals = *signals_,
         .in_child = [this] { place_->forget(); },
         // If this process is killed, the ticket would stay until its user's next claim.
         .at_end = [ticket = site_.ledger.folder().path_of(place_->name())] { unlink(ticket.c_str()); }});
    tell_(Told::kNews, "waiting: " + why_);
  }

  /// Waits until it pays to look at the drivers. Returns 0, or if a signal ends the wait, 128 plus its number.
  /// Errors  kTimeout.
  int wait() {
    for (;;) {
      auto pause = claim::pause_before(num_looks_++);
      if (const auto left = time_left()) {
        if (left->count() <= 0) throw timeout(why_);
        pause = std::min(pause, *left);
      }
      pollfd news[] = {{wakeup_->fd(), POLLIN, 0}, {signals_->fd(), POLLIN, 0}};
      poll(news, 2, static_cast<int>(pause.count()));
      if (const int status = interruption()) return status;
      if (wakeup_->drain()) num_looks_ = 0;
      if (claim::is_worthwhile(site_.ledger, keys_, request_, site_.config, *place_)) return 0;
      // The others follow 10 ms after a wakeup, but not never.
      constexpr int64_t kQuickLooks = 6, kMostQuickLooks = 100;
      if (num_looks_ < kQuickLooks && ++num_quick_looks_ < kMostQuickLooks) continue;
      num_quick_looks_ = 0;
      const auto outlook = claim::outlook(site_.ledger, keys_, request_, site_.config, *place_);
      if (outlook.is_worthwhile) return 0;
      if (const auto text = news_.next(outlook, Clock::now())) {
        why_ = *text;
        tell_(Told::kNews, why_);
      }
    }
  }

  const AcquireOptions& options_;
  claim::AllocationRequest request_;
  const ClaimSite& site_;
  const Environment& environment_;
  const Tell& tell_;
  const Clock::time_point begin_ = Clock::now();
  std::optional<program::SignalMessages> signals_;  ///< This and the next two: since it waits.
  std::optional<claim::Wakeup> wakeup_;
  std::optional<claim::Place> place_;
  DeviceLook look_;
  StaleAttempts stale_attempts_;
  QueueNews news_;
  std::vector<std::string> keys_;
  std::string why_;  ///< Why it has no devices, as its user was told.
  int64_t num_looks_ = 0, num_quick_looks_ = 0;
};

}  // namespace

void Acquired::end_wait() {
  program::DeviceReader::reap(std::exchange(ended_reader, -1));
  wakeup.reset();
}

Acquired acquire(const AcquireOptions& options, const ClaimSite& site, const Environment& environment,
                 const Tell& tell) {
  return Acquirer(options, site, environment, tell).acquire();
}

}  // namespace yoke::keep
