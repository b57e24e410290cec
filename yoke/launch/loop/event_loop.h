// yoke/launch/loop/event_loop.h -- the event loop of a launcher, which waits for descriptors and times by poll(2).
//
// Before each wait, every source names what it waits for. So a registration cannot outlive its source, and a source
// that wants no more input (flow control) does not ask for any. The loop writes the result of each wait into a flag
// inside the source, so the result stays correct if the source later moves or removes its elements.
#pragma once

#include <poll.h>

#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace yoke::launch {

using LoopTime = std::chrono::steady_clock::time_point;

/// The descriptors and times that a loop waits for in one turn.
class WaitSet {
 public:
  /// After the wait, `is_ready` says whether `fd` can be read (or written), was closed, or is in error. For a negative
  /// `fd` it is false. REQUIRES: `is_ready` is not moved or destroyed before the wait has ended.
  void read(int fd, bool& is_ready) { add(fd, POLLIN, is_ready); }
  void write(int fd, bool& is_ready) { add(fd, POLLOUT, is_ready); }
  /// Ends the wait at `time` at the latest. nullopt has no effect.
  void until(const std::optional<LoopTime>& time);

  void clear();
  /// Waits for at most `limit`, counted from `now`, and sets the flags.
  void wait(LoopTime now, std::chrono::milliseconds limit);

  const std::vector<pollfd>& polls() const { return polls_; }

 private:
  void add(int fd, short events, bool& is_ready);

  std::vector<pollfd> polls_;
  std::vector<bool*> flags_;  ///< The flag of each element of polls_.
  std::optional<LoopTime> earliest_;
};

/// An object that has descriptors or times to wait for.
class EventSource {
 public:
  EventSource() = default;
  EventSource(const EventSource&) = delete;
  EventSource& operator=(const EventSource&) = delete;
  virtual ~EventSource() = default;

  virtual void add_to(WaitSet& waits) = 0;
  /// Called once in each turn after the wait, even if nothing happened. `now`: the time at which the wait ended.
  virtual void handle(LoopTime now) = 0;
};

/// A time in which this process did not run its loop, though it had something to do.
struct Stall {
  enum class Where {
    kWait,    ///< While it waited for events: it was stopped, or got no processor.
    kTurn,    ///< While it handled them: the same, or a file system did not answer.
    kAsleep,  ///< The machine was suspended.
  };
  std::chrono::milliseconds length{0};
  Where where = Where::kWait;
  LoopTime end;
};

/// Returns "was stopped, or got no processor, for 7.2 s".
std::string describe(const Stall& stall);

class EventLoop {
 public:
  /// Shorter stalls are not noted.
  static constexpr std::chrono::seconds kShortestStall{1};

  /// Runs one turn: waits until a source has something to do, for at most `limit`. Then calls handle() of all sources
  /// in the given order. REQUIRES: no source is destroyed before the turn is over.
  void turn(std::span<EventSource* const> sources, std::chrono::milliseconds limit);

  /// The time of this turn. All decisions in the turn use it.
  LoopTime now() const { return now_; }
  /// Updates now() after something that took long, such as Ctrl-Z.
  void read_clock() { now_ = std::chrono::steady_clock::now(); }

  /// The last stall; nullopt if there was none.
  const std::optional<Stall>& stall() const { return stall_; }
  /// Whether it has been noted in this turn.
  bool has_stalled() const { return has_stalled_; }

 private:
  void note_stall(Stall::Where where, std::chrono::milliseconds expected);

  WaitSet waits_;
  std::optional<Stall> stall_;
  bool has_stalled_ = false;
  std::chrono::nanoseconds last_up_{0};  ///< The machine's time, with that in which it was suspended; 0 at first.
  LoopTime last_;                        ///< The same moment by steady_clock, without it.
  LoopTime now_ = std::chrono::steady_clock::now();
};

}  // namespace yoke::launch
