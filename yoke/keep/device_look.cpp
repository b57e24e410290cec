#include "yoke/keep/device_look.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "yoke/base/error.h"
#include "yoke/base/process.h"
#include "yoke/device/json.h"
#include "yoke/device/uses.h"
#include "yoke/program/attempt.h"
#include "yoke/program/child_error.h"

namespace yoke::keep {

using std::chrono::milliseconds;

std::function<std::unique_ptr<device::Source>()> opener(const DeviceLookOptions& options, bool with_cpu) {
  return [options, with_cpu] {
    device::SourceOptions source;
    source.deadline =
        std::chrono::duration_cast<milliseconds>(std::chrono::duration<double>(std::max(0.001, options.deadline_s)));
    source.with_cpu = with_cpu;
    source.selection = device::DeviceSelection::parse(options.chosen);
    return options.open(source);
  };
}

int next_interruption(program::SignalMessages& messages) {
  while (const auto message = messages.next()) {
    if (program::asks_to_end(message->signal)) return message->signal;
  }
  return 0;
}

DeviceLookOptions DeviceLook::now(const std::vector<std::string>& chosen) const {
  auto result = options_;
  result.chosen = chosen;
  result.deadline_s = deadline_s_.value_or(options_.deadline_s);
  return result;
}

std::optional<device::Snapshot> DeviceLook::read(const std::vector<std::string>& chosen) {
  if (waiting_) {
    if (auto snapshot = read_again(chosen)) return snapshot;
    if (status_ != 0) return std::nullopt;
  }
  auto snapshot = read_first(chosen);
  const bool lacks_some = snapshot && device::find_silent_backend(*snapshot) != nullptr;
  return lacks_some && grant_more_time(*snapshot) ? read_first(chosen) : std::move(snapshot);
}

/// nullopt: the child does not answer, or a signal came (`status_`).
std::optional<device::Snapshot> DeviceLook::read_again(const std::vector<std::string>& chosen) {
  constexpr std::chrono::minutes kMostAge(10);  // then devices that were added since are seen
  const bool is_old = Clock::now() - reader_begin_ > kMostAge || chosen != read_by_reader_;
  if (reader_ && is_old) reader_.reset();
  const auto options = now(chosen);
  if (!reader_) {
    reader_begin_ = Clock::now();
    read_by_reader_ = chosen;
    reader_ = std::make_unique<program::DeviceReader>(program::DeviceReader::Options{
        .open = opener(options, false),  // the CPU takes as long as some GPUs, and nobody waits for it
        .want = {.details = options.needs_details, .links = true},
        .at_end = waiting_->at_end});
  }
  reader_->request();
  const auto limit = std::chrono::duration<double>(options.deadline_s + 2);
  const auto until = Clock::now() + std::chrono::ceil<milliseconds>(limit);
  while (Clock::now() < until) {
    pollfd news[] = {{reader_->fd(), POLLIN, 0}, {waiting_->signals.fd(), POLLIN, 0}};
    poll(news, 2, static_cast<int>(std::chrono::ceil<milliseconds>(until - Clock::now()).count()));
    if (const int signal = next_interruption(waiting_->signals)) {
      status_ = 128 + signal;
      return std::nullopt;
    }
    if (news[0].revents == 0) continue;
    auto snapshot = reader_->take();
    if (!snapshot || !program::is_well(*snapshot)) reader_.reset();
    return snapshot;
  }
  reader_.reset();
  return std::nullopt;
}

std::optional<device::Snapshot> DeviceLook::read_first(const std::vector<std::string>& chosen) {
  const auto options = now(chosen);
  const auto file = to_descriptor("");
  constexpr int kFailed = 1;
  const auto read = [&](const std::function<void(int)>& finish) {
    std::unique_ptr<device::Source> source;
    std::string line;
    const auto error = program::error_in_child([&] {
      source = opener(options)();
      if (waiting_) waiting_->in_child();
      if (options.in_child) options.in_child();
      line = device::to_json(source->sample({.details = options.needs_details, .links = true})).dump();
    });
    write_all(file.value(), error.empty() ? line : error, "a file in memory");
    const int status = error.empty() ? 0 : kFailed;
    if (source && source->has_stuck_worker()) finish(status);
    return status;
  };
  status_ = program::attempt_in_child(read, program::ForwardedSignal::kRaised);
  if (status_ == kFailed) {
    status_ = 0;
    program::throw_child_error(text_of(file));
  }
  if (status_ != 0) return std::nullopt;
  return device::snapshot_from_json(text_of(file));
}

bool DeviceLook::grant_more_time(const device::Snapshot& snapshot) {
  constexpr double kWakingS = 10;
  const auto what = device::silent_devices(snapshot);
  if (what.empty() || options_.deadline_s != DeviceLookOptions().deadline_s) return false;
  if (deadline_s_) {
    deadline_s_ = options_.deadline_s;  // it does not sleep, and those who wait need not wait for it
    return false;
  }
  deadline_s_ = kWakingS;
  tell_(Told::kNews, fmt::format("{} did not answer within {} s; waiting for up to {} s, because a GPU that sleeps "
                                 "takes some seconds to wake (persistence mode keeps it awake)",
                                 what, options_.deadline_s, kWakingS));
  return true;
}

}  // namespace yoke::keep
