#include "yoke/cli/options/claim.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <iostream>
#include <nlohmann/json.hpp>
#include <span>

#include "yoke/base/device_memory.h"
#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/format.h"
#include "yoke/base/process.h"
#include "yoke/base/quantity.h"
#include "yoke/base/text.h"
#include "yoke/claim/history.h"
#include "yoke/claim/inherit.h"
#include "yoke/claim/reservation.h"
#include "yoke/cli/frame/attempt.h"
#include "yoke/device/json.h"
#include "yoke/device/unanswered.h"
#include "yoke/keep/claim_keeper.h"
#include "yoke/program/device_reader.h"
#include "yoke/program/watched_program.h"
#include "yoke/view/labels.h"

namespace yoke::cli {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

class Acquirer {
 public:
  Acquirer(const AcquireOptions& options, const ClaimSite& site, Context& context)
      : options_(options), request_(options.request), site_(site), context_(context), begin_(Clock::now()) {}

  std::optional<Acquired> acquire(int& status) {
    if (options_.inherits) inherited_ = site_.ledger.inherited();
    for (;;) {
      Acquired result;
      if (!read_devices(result.snapshot, status)) return std::nullopt;
      if (inherited_) return share(std::move(result));
      choose_devices(result.snapshot);
      result.allocation = attempt(result.snapshot);
      note_attempt(result.allocation);
      if (result.allocation.is_stale) continue;
      if (result.allocation.refusal.empty()) {
        if (interruption(status)) return std::nullopt;
        if (result.allocation.claim && !result.allocation.claim->is_recorded()) {
          const auto& records = site_.ledger.records();
          std::cerr << speaker(context_) << "warning: the claim could not be written to the history in "
                    << records.path().string() << "; if it is full, " << records.fullest() << std::endl;
        }
        explain(result.allocation);
        for (const auto& warning : result.allocation.warnings) {
          if (!request_.is_dry) std::cerr << speaker(context_) << "warning: " << warning << std::endl;
        }
        if (reader_) result.ended_reader = reader_->end();
        result.wakeup = std::move(wakeup_);
        return with_assignments(std::move(result));
      }
      if (!result.allocation.turn.excess && grant_more_time(result.snapshot)) continue;
      if (!options_.waits || result.allocation.is_hopeless) {
        explain(result.allocation);
        throw Error(result.allocation.is_hopeless ? ErrorCode::kFailedPrecondition : ErrorCode::kUnavailable, "{}",
                    result.allocation.refusal);
      }
      keys_ = keys_of(result.snapshot);
      refusal_ = result.allocation.refusal;
      if (!place_) {
        join();
      } else if (!wait(status)) {
        return std::nullopt;
      }
    }
  }

 private:
  Acquired with_assignments(Acquired result) const {
    const auto ids = fmt::format("{}", fmt::join(result.allocation.ids, ","));
    result.assignments = assignments_for(ids, device::IdFormat::kUuid, context_.environment, result.snapshot);
    add_memory_limit(result.assignments);
    return result;
  }

  /// Takes of the devices of the claim under which this runs.
  Acquired share(Acquired result) {
    inherited_note_ = inherited_->note();
    const auto& note = *inherited_note_;
    for (const auto& key : note.keys) {
      const auto candidates = claim::candidates_of(result.snapshot, {});
      const auto found =
          std::find_if(candidates.begin(), candidates.end(), [&](const auto& one) { return one.key == key; });
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
    if (!chosen.empty() && std::find(chosen.begin(), chosen.end(), "all") == chosen.end()) {
      request.only.emplace();
      for (const auto& choice : options_.device.selection().resolve(result.snapshot))
        request.only->push_back(choice.id());
    }
    const auto choose = [&](const std::vector<claim::Heir>& heirs) {
      request.heirs = heirs;
      return claim::choose_inherited(request);
    };
    const auto positions = options_.request.is_dry ? std::optional(choose(inherited_->living_heirs()))
                                                   : site_.ledger.share(*inherited_, choose);
    if (!positions) {
      throw Error(ErrorCode::kFailedPrecondition, "the claim under which this was started has just ended");
    }
    for (const auto position : *positions) {
      result.allocation.ids.push_back(result.held[static_cast<size_t>(position)]);
    }
    if (!options_.request.is_dry) result.allocation.claim = std::move(inherited_);
    return with_assignments(std::move(result));
  }

  /// Decides how the next attempt waits for the lock that all share.
  /// Errors  kUnavailable: too many were in vain, and the request does not wait.
  void note_attempt(const claim::Allocation& allocation) {
    auto& wait = request_.lock_wait;
    wait.patience = wait.term = claim::kLockPatience;
    num_stale_ = allocation.is_stale ? num_stale_ + 1 : 0;
    if (num_stale_ == 0) return;
    constexpr int kMost = 20, kLongestTerm = 10;
    if (num_stale_ >= kMost && !options_.waits) {
      throw Error(ErrorCode::kUnavailable,
                  "{} times, looking at the claims took too long, or others claimed at the same moment, so nothing was "
                  "taken; try again",
                  num_stale_);
    }
    // Who has waited for the lock need not wait again, or the devices that are read now would be old, too.
    if (allocation.has_passed_by) wait.patience = milliseconds(0);
    wait.term *= std::min(num_stale_, kLongestTerm);
  }

  /// allocate(), for no longer than the limit of --wait.
  claim::Allocation attempt(const device::Snapshot& snapshot) {
    const auto left = [&] { return std::chrono::ceil<milliseconds>(begin_ + *options_.wait_limit - Clock::now()); };
    if (options_.wait_limit) request_.lock_wait.limit = std::clamp(left(), milliseconds(0), milliseconds(10'000));
    try {
      return allocate(site_.ledger, snapshot, request_, site_.config, place_ ? &*place_ : nullptr);
    } catch (const Error& error) {
      const bool is_late = options_.wait_limit && error.code() == ErrorCode::kUnavailable && left().count() <= 0;
      if (!is_late) throw;
      throw Error(ErrorCode::kTimeout, "waited for {} without success: {}", format_rough_duration(*options_.wait_limit),
                  error.what());
    }
  }

  /// Returns false if that failed or a signal came; `status` then says what this command returns.
  bool read_devices(device::Snapshot& snapshot, int& status) {
    auto warm = place_ ? read_again(status) : std::nullopt;
    if (!warm && status != kExitOk) return false;
    if (warm) {
      snapshot = *std::move(warm);
    } else {
      if (!read_first(snapshot, status)) return false;
      const bool has_all = device::find_silent_backend(snapshot) == nullptr;
      if (!has_all && grant_more_time(snapshot) && !read_first(snapshot, status)) return false;
    }
    request_.read_at = Clock::now();
    if (!options_.device.chosen.empty() && !has_chosen(snapshot, devices_to_read().chosen.empty())) {
      throw Error(ErrorCode::kNotFound, "this machine has no device {}; `yoke devices` lists those that it has",
                  printable(fmt::format("{}", fmt::join(options_.device.chosen, ", "))));
    }
    if (const auto missing = view::find_missing_gpu(snapshot)) {
      throw Error(missing->is_certain ? ErrorCode::kNotFound : ErrorCode::kUnavailable, "{}; there is nothing to claim",
                  missing->text());
    }
    return true;
  }

  /// While this command waits, a process keeps the drivers open, because opening them takes longer than anything else
  /// between the release and the start. nullopt: it does not answer, or a signal came (`status`).
  std::optional<device::Snapshot> read_again(int& status) {
    constexpr std::chrono::minutes kMostAge(10);  // then devices that were added since are seen
    const bool is_old = Clock::now() - reader_begin_ > kMostAge || devices_to_read().chosen != read_by_reader_;
    if (reader_ && is_old) reader_.reset();
    if (!reader_) start_reader();
    reader_->request();
    const auto limit = std::chrono::duration<double>(devices_to_read().deadline_s + 2);
    const auto until = Clock::now() + std::chrono::ceil<milliseconds>(limit);
    while (Clock::now() < until) {
      pollfd news[] = {{reader_->fd(), POLLIN, 0}, {signals_->fd(), POLLIN, 0}};
      poll(news, 2, static_cast<int>(std::chrono::ceil<milliseconds>(until - Clock::now()).count()));
      if (interruption(status)) return std::nullopt;
      if (news[0].revents == 0) continue;
      auto snapshot = reader_->take();
      if (!snapshot || !program::is_well(*snapshot)) reader_.reset();
      return snapshot;
    }
    reader_.reset();
    return std::nullopt;
  }

  /// Lets drivers take longer from now on, and says so, if one has not answered in the usual time: without persistence
  /// mode, the first program to open a GPU waits for seconds. Those whose own --deadline has passed have chosen.
  bool grant_more_time(const device::Snapshot& snapshot) {
    constexpr double kWakingS = 10;
    const auto what = device::silent_devices(snapshot);
    if (what.empty() || options_.device.deadline_s != DeviceOptions().deadline_s) return false;
    if (deadline_s_) {
      deadline_s_ = options_.device.deadline_s;  // it does not sleep, and those who wait need not wait for it
      return false;
    }
    deadline_s_ = kWakingS;
    std::cerr << speaker(context_) << what << " did not answer within " << options_.device.deadline_s
              << " s; waiting for up to " << kWakingS
              << " s, because a GPU that sleeps takes some seconds to wake (persistence mode keeps it awake)"
              << std::endl;
    return true;
  }

  DeviceOptions devices_to_read() const {
    auto result = options_.device;
    result.deadline_s = deadline_s_.value_or(result.deadline_s);
    // What is reserved depends on all devices, also on those that were not named.
    if (inherited_ || !read_reservations(site_.ledger.records()).empty()) result.chosen.clear();
    return result;
  }

  void start_reader() {
    reader_begin_ = Clock::now();
    auto device = devices_to_read();
    read_by_reader_ = device.chosen;
    device.is_without_cpu = true;  // it takes as long as some GPUs, and nobody waits for it
    reader_ = std::make_unique<program::DeviceReader>(program::DeviceReader::Options{
        .open = [device] { return open_source(device); },
        .want = {.details = options_.needs_details, .links = true},
        // If this process is killed, the ticket would stay until its user's next claim.
        .at_end = [ticket = site_.ledger.folder().path_of(place_->name())] { unlink(ticket.c_str()); }});
  }

  /// A child reads the devices, so this process loads no driver, and a driver that hangs keeps no lock.
  bool read_first(device::Snapshot& snapshot, int& status) {
    const UniqueFd text(memfd_create("yoke-claim", MFD_CLOEXEC));
    if (!text) throw system_error(errno, "making a file in memory");
    status = with_source(devices_to_read(), context_, [&](device::Source& source) {
      if (place_) place_->forget();
      if (options_.in_reader) options_.in_reader();
      const auto line = device::to_json(source.sample({.details = options_.needs_details, .links = true})).dump();
      write_all(text.value(), std::as_bytes(std::span(line)), "a file in memory");
      return kExitOk;
    });
    if (status != kExitOk) return false;
    snapshot = device::snapshot_from_json(text_of(text));
    return true;
  }

  /// Whether this machine has a device that was named. `is_all`: the snapshot also has devices that were not.
  bool has_chosen(const device::Snapshot& snapshot, bool is_all) const {
    if (!is_all || snapshot.devices.empty()) return !snapshot.devices.empty();
    try {
      return !options_.device.selection().resolve(snapshot).empty();
    } catch (const Error&) {
      return false;
    }
  }

  /// Fills in the devices that may be given.
  void choose_devices(const device::Snapshot& snapshot) {
    request_.only.clear();
    if (options_.adopted_pid) return choose_used(snapshot, *options_.adopted_pid);
    if (options_.device.chosen.empty()) return;
    const auto add = [&](const std::string& id) {
      if (std::find(request_.only.begin(), request_.only.end(), id) == request_.only.end()) request_.only.push_back(id);
    };
    const auto& chosen = options_.device.chosen;
    const bool is_all = std::find(chosen.begin(), chosen.end(), "all") != chosen.end();
    for (const auto& choice : options_.device.selection().resolve(snapshot)) {
      if (is_all && choice.device->vendor == device::Vendor::kCpu) continue;  // it cannot be claimed
      if (choice.device->instances.empty()) add(choice.id());
      for (const auto& instance : choice.device->instances) add(device::Choice{&instance, choice.device, ""}.id());
    }
    if (request_.wish.num_devices == 0) request_.wish.num_devices = static_cast<int64_t>(request_.only.size());
  }

  void choose_used(const device::Snapshot& snapshot, int64_t pid) {
    const auto look_at = [&](const device::Device& device, const std::string& id) {
      const auto is_it = [&](const device::DeviceProcess& process) { return process.pid == pid; };
      if (std::none_of(device.processes.begin(), device.processes.end(), is_it)) return;
      for (const auto& process : device.processes) {
        if (process.type == "graphics" || process.info.uid == adopted_uid(device, pid)) continue;
        throw Error(ErrorCode::kFailedPrecondition,
                    "device {} is also used by {} (pid {}), so it cannot be claimed for process {}", id,
                    process.info.user.empty() ? "somebody" : printable(process.info.user), process.pid, pid);
      }
      request_.only.push_back(id);
    };
    for (const auto& device : snapshot.devices) {
      if (device.instances.empty()) look_at(device, id_of(device));
      for (const auto& instance : device.instances) {
        look_at(instance, fmt::format("{}:{}", device.index, instance.index));
      }
    }
    if (request_.only.empty()) {
      throw Error(ErrorCode::kNotFound, "process {} computes on no device; `yoke ps` lists those that do", pid);
    }
    request_.wish.num_devices = static_cast<int64_t>(request_.only.size());
  }

  static std::optional<int64_t> adopted_uid(const device::Device& device, int64_t pid) {
    for (const auto& process : device.processes) {
      if (process.pid == pid) return process.info.uid;
    }
    return std::nullopt;
  }

  std::vector<std::string> keys_of(const device::Snapshot& snapshot) const {
    std::vector<std::string> keys;
    for (const auto& candidate : candidates_of(snapshot, request_.wish)) {
      using claim::Standing;
      const auto standing = candidate.standing;
      const bool is_chosen = request_.only.empty() ||
                             std::find(request_.only.begin(), request_.only.end(), candidate.id) != request_.only.end();
      if (is_chosen && standing != Standing::kUnusable && standing != Standing::kTooSmall) {
        keys.push_back(candidate.key);
      }
    }
    return keys;
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
    std::cerr << speaker(context_) << "waiting: " << refusal_.substr(0, refusal_.find("; use --wait")) << std::endl;
  }

  /// Says where in the queue the request is, when it can expect to start, and who has the devices, whenever one of that
  /// has changed, though not again and again where claims are short.
  void tell(const claim::Outlook& outlook) {
    constexpr std::chrono::seconds kPause(10), kSmall(60);
    const auto& turn = outlook.turn;
    const auto now = Clock::now();
    const auto start = turn.expected_wait ? std::optional(now + *turn.expected_wait) : std::nullopt;
    const bool is_start_new =
        start.has_value() != told_start_.has_value() || (start && std::chrono::abs(*start - *told_start_) > kSmall);
    if (turn.position == 0) return;
    if (turn.position == position_ && (now < told_at_ + kPause || (outlook.holders == holders_ && !is_start_new)))
      return;
    position_ = turn.position;
    holders_ = outlook.holders;
    told_start_ = start;
    told_at_ = now;
    refusal_ = fmt::format("position {} in the queue", position_);
    if (turn.expected_wait) {
      const auto wait = turn.expected_wait->count();
      refusal_ += wait == 0 ? ", next" : ", expected in " + format_duration(*turn.expected_wait);
    }
    if (turn.excess) {
      refusal_ += "; held back by a limit";
    } else if (!holders_.empty()) {
      refusal_ += fmt::format("; claimed by {}", holders_);
    }
    std::cerr << speaker(context_) << refusal_ << std::endl;
  }

  /// Whether a signal has come that ends the wait.
  bool interruption(int& status) {
    while (const auto message = signals_ ? signals_->next() : std::nullopt) {
      if (message->signal == SIGCHLD || message->signal == SIGUSR1 || message->signal == SIGUSR2) continue;
      status = 128 + message->signal;
      return true;
    }
    return false;
  }

  /// Waits until it pays to look at the drivers. Returns false if a signal ends the wait.
  bool wait(int& status) {
    for (;;) {
      auto pause = claim::pause_before(look_++);
      if (options_.wait_limit) {
        const auto left = std::chrono::ceil<milliseconds>(begin_ + *options_.wait_limit - Clock::now());
        if (left.count() <= 0) {
          throw Error(ErrorCode::kTimeout, "waited for {} without success: {}",
                      format_rough_duration(*options_.wait_limit), refusal_.substr(0, refusal_.find("; use --wait")));
        }
        pause = std::min(pause, left);
      }
      pollfd news[] = {{wakeup_->fd(), POLLIN, 0}, {signals_->fd(), POLLIN, 0}};
      poll(news, 2, static_cast<int>(pause.count()));
      if (interruption(status)) return false;
      if (wakeup_->drain()) look_ = 0;
      if (claim::is_worthwhile(site_.ledger, keys_, request_, site_.config, *place_)) return true;
      // The others follow 10 ms after a wakeup, but not never.
      constexpr int64_t kQuickLooks = 6, kMostQuickLooks = 100;
      if (look_ < kQuickLooks && ++num_quick_looks_ < kMostQuickLooks) continue;
      num_quick_looks_ = 0;
      const auto outlook = claim::outlook(site_.ledger, keys_, request_, site_.config, *place_);
      if (outlook.is_worthwhile) return true;
      tell(outlook);
    }
  }

  /// A program that has its devices for itself must not keep to the limit of a program that started it.
  void add_memory_limit(std::vector<device::Assignment>& assignments) const {
    const auto& wish = request_.wish;
    auto limit = wish.is_share ? std::optional(wish.memory_bytes.value_or(0)) : std::nullopt;
    if (inherited_note_) limit = inherited_note_->share_bytes;
    if (limit) {
      assignments.push_back({kDeviceMemoryVariable, std::to_string(*limit)});
    } else if (context_.environment.find(kDeviceMemoryVariable)) {
      assignments.push_back({kDeviceMemoryVariable, std::nullopt});
    }
  }

  void explain(const claim::Allocation& allocation) const {
    if (!options_.explains) return;
    auto& stream = request_.is_dry ? context_.out : std::cerr;
    for (const auto& sentence : allocation.sentences) stream << sentence << '\n';
    stream.flush();
  }

  const AcquireOptions& options_;
  claim::AllocationRequest request_;
  const ClaimSite& site_;
  Context& context_;
  Clock::time_point begin_;
  std::optional<double> deadline_s_;                ///< In place of that of the options, once drivers were slow.
  std::optional<program::SignalMessages> signals_;  ///< Since it waits.
  std::optional<claim::Wakeup> wakeup_;
  std::optional<claim::Place> place_;
  std::unique_ptr<program::DeviceReader> reader_;  ///< Since it waits.
  Clock::time_point reader_begin_;
  std::vector<std::string> read_by_reader_;  ///< DeviceOptions::chosen.
  std::vector<std::string> keys_;
  std::optional<claim::Claim> inherited_;  ///< The claim under which this runs.
  std::optional<claim::Note> inherited_note_;
  std::string refusal_;
  int64_t look_ = 0, position_ = 0, num_quick_looks_ = 0;
  std::string holders_;  ///< As was told at `told_at_`.
  std::optional<Clock::time_point> told_start_;
  Clock::time_point told_at_;
  int num_stale_ = 0;  ///< Attempts in sequence that decided nothing.
};

}  // namespace

std::chrono::seconds length_of(const std::string& option, const std::string& text) {
  if (const auto length = parse_length(text)) return *length;
  throw Error(ErrorCode::kInvalidArgument, "{} {}: give a length of time, such as 90s, 30m, 4h or 1d12h", option,
              printable(text));
}

std::optional<Acquired> acquire(const AcquireOptions& options, const ClaimSite& site, Context& context, int& status) {
  return Acquirer(options, site, context).acquire(status);
}

std::optional<std::chrono::seconds> length_of_claim(const std::string& text, const claim::SiteConfig& config) {
  const auto length = text.empty() ? std::nullopt : std::optional(length_of("--for", text));
  if (geteuid() == 0 || !config.longest || (length && *length <= *config.longest)) return length;
  throw Error(ErrorCode::kInvalidArgument, "{} limits claims to {}; give --for with at most that",
              claim::limiter(config.is_own_longest), format_rough_duration(*config.longest));
}

std::string purpose_of(const std::vector<std::string>& command) {
  const auto end = std::find_if(command.begin(), command.end(), [](const auto& word) { return word.starts_with('-'); });
  return fmt::format("{}", fmt::join(command.begin(), end, " "));
}

keep::UseWatchOptions watch_options(const AcquireOptions& options, const ClaimSite& site,
                                    const std::vector<std::string>& ids) {
  auto device = options.device;
  device.chosen = ids;
  return {.ids = ids, .limits = site.config.idle, .is_own_end = site.config.is_own_idle_end, .open = [device] {
            return open_source(device);
          }};
}

int keep_for_program(Acquired& acquired, const AcquireOptions& options, const ClaimSite& site, Context& context) {
  auto environment = context.environment;
  assign(acquired.assignments, environment);
  auto& claim = *acquired.allocation.claim;
  keep::UseWatch watch(claim, watch_options(options, site, acquired.allocation.ids));
  return keep::keep_for_program(claim, context.rest, environment, speaker(context), watch, [&] {
    program::DeviceReader::reap(acquired.ended_reader);
    acquired.wakeup.reset();
  });
}

}  // namespace yoke::cli
