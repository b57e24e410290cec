// yoke/launch/output/screen.h -- prints the output of ranks, line by line, on the launcher's standard output and error.
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

/// Returns `prefix` in the colour of the rank.
std::string colored_prefix(int64_t rank, const std::string& prefix);

/// What becomes of the status line: in a notebook, each change of it is a line of its own.
enum class StatusLine { kNone, kRedrawn, kPrinted };

class Screen : public EventSource {
 public:
  /// `name` is the beginning of messages about the output. `color` is for the prefixes of lines. `keyboard_rank` reads
  /// standard input, so its unfinished lines may be prompts.
  Screen(std::string name, ColorMode color, const Environment& environment, int64_t keyboard_rank = 0);

  /// Adds a rank for an attempt. Its output of an earlier attempt is forgotten.
  void add_rank(int64_t rank, const std::string& prefix);
  /// Adds a single rank whose output is printed byte by byte, as it is.
  void add_bytes_of(int64_t rank);
  /// Prints output of a rank. nullopt is the end of the stream, and also ends an unfinished last line.
  void show(int64_t rank, bool is_err, const std::optional<std::string_view>& bytes);
  bool has_room(bool is_err) const { return !(is_err ? err_ : out_.get())->is_full(); }
  /// Whether the reader of the output has closed its end.
  bool is_closed(bool is_err) const { return (is_err ? err_ : out_.get())->is_closed(); }

  /// Prints a line of the launcher itself on standard error.
  void say(const std::string& line);

  StatusLine status_line() const;
  /// kRedrawn: sets the status line, which is the terminal's last line while no rank has a progress bar or a prompt
  /// there. An empty text removes it. kPrinted: prints it. kNone: does nothing.
  void show_status(const std::string& text);
  /// With true, erases the progress bar or status line before Ctrl-Z stops this process. With false, shows it again.
  void hide_progress(bool hidden);

  void add_to(WaitSet& waits) override;
  void handle(LoopTime) override { flush(); }
  void flush();
  /// Tries once more to write the buffered output, and tells the user what is missing.
  void settle();
  /// Notes that output is missing in a log of a node, which the user already knows.
  void note_loss() { has_lost_ = true; }
  /// Returns the job's exit status. If the ranks succeeded but some of their output is missing, the job has failed.
  int exit_code(int of_ranks) const;
  bool is_waiting() const { return out_->is_waiting() || (err_own_ && err_own_->is_waiting()); }

  /// Returns a rank's last lines if they have scrolled off the screen, otherwise nothing.
  std::vector<std::string> lost_lines(int64_t rank) const;
  /// Returns a rank's last line; empty if it printed none, or writes to the screen itself.
  std::string last_line(int64_t rank) const;
  const RecentLines& recent_lines() const { return recent_; }

 private:
  struct Stream {
    LineAssembler lines;
    Sink* sink;
    LineStream which;
    bool has_lines = true;  ///< Otherwise bytes are printed as they are.
  };
  /// The last lines of a rank.
  struct Tail {
    std::deque<std::string> lines;
    int64_t last_number = 0;  ///< The number of the rank's last line. All ranks' lines are numbered together.
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
  bool has_lost_ = false;  ///< Whether lines are missing in a log.
  std::unique_ptr<Sink> out_, err_own_;
  bool out_is_ready_ = false, err_is_ready_ = false;  ///< Whether poll() found room. flush() tries both in any case.
  Sink* err_;                                         ///< Equal to out_ if standard output and error are one file.
  bool out_is_colored_, err_is_colored_;
  const bool can_redraw_, is_in_notebook_;
  std::map<std::pair<int64_t, bool>, Stream> streams_;
  std::map<int64_t, Tail> tails_;
  int64_t num_lines_ = 0;
  RecentLines recent_;
  static constexpr int64_t kNoRank = INT64_MAX;
  int64_t progress_rank_ = kNoRank;
  std::string status_;
  const bool has_keyboard_;  ///< Standard input is a terminal, so presumably keyboard_rank_ reads it.
  const int64_t keyboard_rank_;
  const Stream* prompting_ = nullptr;  ///< The stream whose unfinished line may be a prompt; null if there is none.
  std::optional<WriteTrouble::Time> prompt_at_;  ///< When to show the prompt, or more of it.
  std::string prompt_;                           ///< The part of the prompt that is shown, with the rank's prefix.
};

}  // namespace yoke::launch
