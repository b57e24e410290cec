// yoke/launch/output/screen.h -- what ranks print, line by line, on the launcher's standard output and error.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "yoke/base/environment.h"
#include "yoke/base/terminal.h"
#include "yoke/launch/loop/event_loop.h"
#include "yoke/launch/output/line_assembler.h"
#include "yoke/launch/output/recent_lines.h"
#include "yoke/launch/output/sink.h"

namespace yoke::launch {

/// `prefix` in the rank's colour.
std::string colored_prefix(int64_t rank, const std::string& prefix);

class Screen : public EventSource {
 public:
  /// `name`: begins messages about the printing. `color`: of prefixes.
  Screen(std::string name, ColorMode color, const Environment& environment);

  /// Forgets what a rank of this number printed before.
  void add_rank(int64_t rank, const std::string& prefix);
  /// `bytes`: nothing at the end of the stream, when a last line without its end gets one.
  void show(int64_t rank, bool is_err, const std::optional<std::string_view>& bytes);
  bool has_room(bool is_err) const { return !(is_err ? err_ : out_.get())->is_full(); }

  /// A line of the launcher itself, on standard error.
  void say(const std::string& line);

  /// The last line of a terminal while no progress bar and no prompt of a rank is there; empty: none. REQUIRES:
  /// has_status_line().
  void show_status(const std::string& text);
  bool has_status_line() const { return may_paint(*err_); }
  /// Before and after this process is stopped: what is painted is taken away, and painted again.
  void hide_progress(bool hidden);

  void add_to(WaitSet& waits) override;
  void handle(LoopTime) override { flush(); }
  void flush();
  /// Tries once more to write what could not be written, and says what is missing.
  void settle();
  /// Output is missing from a log of a node, which the user has been told.
  void note_loss() { has_lost_ = true; }
  /// Of the job: one whose ranks succeeded fails if some of their output is missing.
  int exit_code(int of_ranks) const;
  bool is_waiting() const { return out_->is_waiting() || (err_own_ && err_own_->is_waiting()); }

  /// The last lines that a rank printed, if so much was printed after them that they are out of sight.
  std::vector<std::string> lost_lines(int64_t rank) const;
  const RecentLines& recent_lines() const { return recent_; }

 private:
  struct Stream {
    LineAssembler lines;
    Sink* sink;
    LineStream which;
  };
  /// What a rank printed last.
  struct Tail {
    std::deque<std::string> lines;
    int64_t last_number = 0;  ///< Of its last line among all lines.
  };
  void note_lines(int64_t rank, const Stream& stream, std::string_view lines);
  void show_progress(int64_t rank, const Stream& stream);
  void show_what_waits() const;
  void end_prompt();
  void await_prompt(int64_t rank, const Stream& stream);
  void show_prompt();
  void tell_news(Sink& sink);
  bool may_paint(const Sink& sink) const;

  const std::string name_;
  bool has_lost_ = false;  ///< Lines of a log.
  std::unique_ptr<Sink> out_, err_own_;
  bool out_is_ready_ = false, err_is_ready_ = false;  ///< flush() tries both anyway.
  Sink* err_;                                         ///< out_ when both are one file.
  bool out_is_colored_, err_is_colored_;
  bool has_escape_sequences_;
  std::map<std::pair<int64_t, bool>, Stream> streams_;
  std::map<int64_t, Tail> tails_;
  int64_t num_lines_ = 0;
  RecentLines recent_;
  static constexpr int64_t kNoRank = INT64_MAX;
  int64_t progress_rank_ = kNoRank;
  std::string status_;
  const bool has_keyboard_;                      ///< Rank 0, for all that is known here: standard input is a terminal.
  const Stream* prompting_ = nullptr;            ///< Whose unfinished line may be a prompt.
  std::optional<WriteTrouble::Time> prompt_at_;  ///< When it is shown, or more of it.
  std::string prompt_;                           ///< What is shown of it, with its prefix; empty: nothing.
};

}  // namespace yoke::launch
