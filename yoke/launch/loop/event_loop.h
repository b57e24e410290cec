// yoke/launch/loop/event_loop.h -- the one loop of a launcher: it waits for descriptors and times by poll(2).
//
// Before each wait, every source names what it waits for. So no registration can be left over, and a source that wants
// no more input (flow control) simply does not ask for it. The loop writes the result of each wait to a flag inside the
// source, so it stays correct when the source later moves or removes its elements.
#pragma once

#include <poll.h>

#include <chrono>
#include <optional>
#include <span>
#include <vector>

namespace yoke::launch {

using LoopTime = std::chrono::steady_clock::time_point;

/// The descriptors and times that a loop waits for in one turn.
class WaitSet {
 public:
  /// When the wait is over, `is_ready` says whether `fd` can be read (or written), was closed, or is in error. It is
  /// false for a negative `fd`. REQUIRES: `is_ready` is neither moved nor destroyed before that.
  void read(int fd, bool& is_ready) { add(fd, POLLIN, is_ready); }
  void write(int fd, bool& is_ready) { add(fd, POLLOUT, is_ready); }
  /// The wait ends at `time` at the latest; nullopt changes nothing.
  void until(const std::optional<LoopTime>& time);

  void clear();
  /// Waits from `now` on, for no longer than `limit`, and sets the flags.
  void wait(LoopTime now, std::chrono::milliseconds limit);

  const std::vector<pollfd>& polls() const { return polls_; }

 private:
  void add(int fd, short events, bool& is_ready);

  std::vector<pollfd> polls_;
  std::vector<bool*> flags_;  ///< One for each of polls_.
  std::optional<LoopTime> earliest_;
};

/// Something that has descriptors or times to wait for.
class EventSource {
 public:
  EventSource() = default;
  EventSource(const EventSource&) = delete;
  EventSource& operator=(const EventSource&) = delete;
  virtual ~EventSource() = default;

  virtual void add_to(WaitSet& waits) = 0;
  /// Called once in each turn, after the wait, whether something happened or not. `now`: the time at which the wait
  /// ended.
  virtual void handle(LoopTime now) = 0;
};

class EventLoop {
 public:
  /// One turn: waits until a source has something to do, for no longer than `limit`. Then calls handle() of all sources
  /// in the given order. REQUIRES: no source is destroyed before the turn is over.
  void turn(std::span<EventSource* const> sources, std::chrono::milliseconds limit);

  /// The time of this turn, which all decisions of the turn have in common.
  LoopTime now() const { return now_; }
  /// Brings now() up to date after something that took long, such as Ctrl-Z.
  void read_clock() { now_ = std::chrono::steady_clock::now(); }

 private:
  WaitSet waits_;
  LoopTime now_ = std::chrono::steady_clock::now();
};

}  // namespace yoke::launch
