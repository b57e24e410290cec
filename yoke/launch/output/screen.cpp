#include "yoke/launch/output/screen.h"

#include <fmt/format.h>
#include <unistd.h>

#include "yoke/base/error.h"

namespace yoke::launch {
namespace {

constexpr size_t kTailLines = 8;
constexpr size_t kTailLineBytes = 400;
constexpr int64_t kLinesInSight = 20;
/// A line that stays unfinished for this long may be a prompt.
constexpr std::chrono::milliseconds kShowPromptAfter{100};
constexpr size_t kMaxPromptBytes = 1024;

}  // namespace

std::string colored_prefix(int64_t rank, const std::string& prefix) {
  if (prefix.empty()) return prefix;
  const auto text = prefix.substr(0, prefix.find_last_not_of(' ') + 1);
  return fmt::format("\x1b[{}m{}\x1b[0m{}", 31 + rank % 6, text, prefix.substr(text.size()));
}

Screen::Screen(std::string name, ColorMode color, const Environment& environment, int64_t keyboard_rank)
    : name_(std::move(name)),
      out_(std::make_unique<Sink>(STDOUT_FILENO, "standard output")),
      can_redraw_(can_redraw(environment)),
      is_in_notebook_(is_in_notebook(environment)),
      has_keyboard_(isatty(STDIN_FILENO) == 1),
      keyboard_rank_(keyboard_rank) {
  if (out_->is_same_file_as(STDERR_FILENO)) {
    err_ = out_.get();
  } else {
    err_own_ = std::make_unique<Sink>(STDERR_FILENO, "standard error");
    err_ = err_own_.get();
  }
  out_is_colored_ = wants_color(color, environment, out_->is_terminal());
  err_is_colored_ = wants_color(color, environment, err_->is_terminal());
}

void Screen::add_rank(int64_t rank, const std::string& prefix) {
  tails_[rank] = {};
  for (const bool is_err : {false, true}) {
    auto* const sink = is_err ? err_ : out_.get();
    const bool is_colored = is_err ? err_is_colored_ : out_is_colored_;
    if (const auto found = streams_.find({rank, is_err}); found != streams_.end() && &found->second == prompting_) {
      end_prompt();
    }
    LineAssembler lines(is_colored ? colored_prefix(rank, prefix) : prefix);
    streams_.insert_or_assign({rank, is_err},
                              Stream{std::move(lines), sink, is_err ? LineStream::kErr : LineStream::kOut});
  }
}

void Screen::add_bytes_of(int64_t rank) {
  add_rank(rank, "");
  for (const bool is_err : {false, true}) streams_.at({rank, is_err}).has_lines = false;
}

void Screen::show(int64_t rank, bool is_err, const std::optional<std::string_view>& bytes) {
  const auto found = streams_.find({rank, is_err});
  if (found == streams_.end()) return;
  auto& stream = found->second;
  auto& lines = stream.sink->lines();
  if (!stream.has_lines) {
    lines.append(bytes.value_or(""));
    return;
  }
  const auto before = lines.size();
  if (bytes) {
    stream.lines.feed(*bytes, lines);
    if (!may_paint(*stream.sink)) stream.lines.sample_progress(WriteTrouble::Clock::now(), lines);
  } else {
    stream.lines.finish(lines);
  }
  note_lines(rank, stream, std::string_view(lines).substr(before));
  if (&stream == prompting_ && lines.size() > before) {
    // The user's answer has ended the prompt's line on the terminal. Repeating the prompt would look like a second one.
    // So only the rest of the line is written, at the cursor.
    if (before == 0 && lines.starts_with(prompt_) && stream.sink->continue_prompt(prompt_)) {
      lines.erase(0, prompt_.size());
    }
    end_prompt();
  }
  if (may_paint(*stream.sink)) show_progress(rank, stream);
  await_prompt(rank, stream);
  if (prompting_ == nullptr) await_prompt(rank, streams_.at({rank, !is_err}));
}

void Screen::say(const std::string& line) {
  recent_.add(RecentLines::kLauncher, LineStream::kErr, line);
  err_->lines().append(line).push_back('\n');
  err_->flush();
}

/// A cell's command (`!yoke run`) has a terminal, and yoke.run() and `%%bash` read standard error by a pipe of its own.
/// If both streams are one pipe, as in `lines = !yoke run ...`, its reader wants the output of ranks alone.
StatusLine Screen::status_line() const {
  if (may_paint(*err_)) return StatusLine::kRedrawn;
  const bool is_shown = err_->is_terminal() || (err_own_ != nullptr && err_->has_reader());
  return is_in_notebook_ && is_shown ? StatusLine::kPrinted : StatusLine::kNone;
}

void Screen::show_status(const std::string& text) {
  const auto kind = status_line();
  if (kind == StatusLine::kPrinted && !text.empty()) err_->lines().append(text).push_back('\n');
  if (kind != StatusLine::kRedrawn) return;
  status_ = text;
  if (progress_rank_ == kNoRank && prompt_.empty()) err_->show_progress(text);
}

void Screen::add_to(WaitSet& waits) {
  waits.write(out_->is_waiting() ? out_->fd() : -1, out_is_ready_);
  waits.write(err_own_ && err_own_->is_waiting() ? err_own_->fd() : -1, err_is_ready_);
  waits.until(prompt_at_);
  for (const auto* sink : {out_.get(), err_}) waits.until(sink->next_time());
}

/// Records the whole lines that a stream has just added.
void Screen::note_lines(int64_t rank, const Stream& stream, std::string_view lines) {
  auto& tail = tails_[rank];
  while (!lines.empty()) {
    const auto end = lines.find('\n');
    const auto line = lines.substr(0, end).substr(stream.lines.prefix().size());
    lines.remove_prefix(end + 1);
    recent_.add(rank, stream.which, line);
    tail.last_number = ++num_lines_;
    if (tail.lines.size() == kTailLines) tail.lines.pop_front();
    tail.lines.emplace_back(line.substr(0, kTailLineBytes));
  }
}

std::vector<std::string> Screen::lost_lines(int64_t rank) const {
  const auto found = tails_.find(rank);
  if (found == tails_.end() || num_lines_ - found->second.last_number < kLinesInSight) return {};
  return {found->second.lines.begin(), found->second.lines.end()};
}

std::string Screen::last_line(int64_t rank) const {
  const auto found = tails_.find(rank);
  return found == tails_.end() || found->second.lines.empty() ? "" : found->second.lines.back();
}

void Screen::show_progress(int64_t rank, const Stream& stream) {
  const auto text = stream.lines.progress();
  // If several ranks have progress bars, only that of the lowest rank is shown.
  if (!text.empty() && rank <= progress_rank_) {
    progress_rank_ = rank;
    if (prompt_.empty() || rank == keyboard_rank_) {
      stream.sink->show_progress(stream.lines.prefix() + std::string(text));
    }
  } else if (text.empty() && rank == progress_rank_) {
    progress_rank_ = kNoRank;
    stream.sink->show_progress("");
    show_what_waits();
  }
}

/// Shows the prompt, or else the status line. Called if there is no progress bar.
void Screen::show_what_waits() const {
  if (!prompt_.empty()) {
    prompting_->sink->show_prompt(prompt_);
  } else if (!status_.empty()) {
    err_->show_progress(status_);
  }
}

/// Handles an unfinished line of `stream`: it may be a prompt, so it is shown if it stays unfinished for a while.
void Screen::await_prompt(int64_t rank, const Stream& stream) {
  const auto text = stream.lines.unfinished();
  if (!has_keyboard_ || rank != keyboard_rank_ || text.empty() || !may_paint(*stream.sink)) return;
  if (prompting_ != nullptr && prompting_ != &stream) end_prompt();
  prompting_ = &stream;
  if (!prompt_at_) prompt_at_ = WriteTrouble::Clock::now() + kShowPromptAfter;
}

void Screen::show_prompt() {
  if (!prompt_at_ || WriteTrouble::Clock::now() < *prompt_at_) return;
  prompt_at_.reset();
  const auto text = prompting_->lines.unfinished();
  if (text.empty() || text.size() > kMaxPromptBytes) return;
  prompt_ = prompting_->lines.prefix() + std::string(text);
  prompting_->sink->show_prompt(prompt_);
}

void Screen::end_prompt() {
  if (!prompt_.empty()) prompting_->sink->show_progress("");
  prompting_ = nullptr;
  prompt_at_.reset();
  prompt_.clear();
  if (progress_rank_ == kNoRank) show_what_waits();
}

/// Whether a line on the terminal may be rewritten in place. Such a line must be the terminal's last line. If the other
/// stream is a pipe, its reader (`tee`, `less`) may print to the terminal too, so no such line is shown.
bool Screen::may_paint(const Sink& sink) const {
  const bool has_neighbour = err_own_ != nullptr && (&sink == err_ ? out_.get() : err_)->has_reader();
  return sink.is_terminal() && can_redraw_ && !has_neighbour;
}

void Screen::hide_progress(bool hidden) {
  out_->hide_progress(hidden);
  err_->hide_progress(hidden);
  flush();
}

void Screen::flush() {
  show_prompt();
  out_->flush();
  tell_news(*out_);
  if (!err_own_) return;
  err_own_->flush();
  tell_news(*err_own_);
}

void Screen::tell_news(Sink& sink) {
  for (const auto& line : sink.take_news()) say(fmt::format("{}: {}", name_, line));
}

void Screen::settle() {
  out_->settle();
  tell_news(*out_);
  if (!err_own_) return;
  err_own_->settle();
  tell_news(*err_own_);
}

int Screen::exit_code(int of_ranks) const {
  const bool has_lost = has_lost_ || out_->has_lost() || (err_own_ && err_own_->has_lost());
  return of_ranks == 0 && has_lost ? exit_status(ErrorCode::kUnavailable) : of_ranks;
}

}  // namespace yoke::launch
