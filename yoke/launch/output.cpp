#include "yoke/launch/output.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <span>

#include "yoke/base/error.h"

namespace yoke::launch {
namespace {

constexpr size_t kReadBytes = 1 << 16;  // a pipe's capacity
constexpr size_t kTailLines = 8;
constexpr size_t kTailLineBytes = 400;
constexpr int64_t kLinesInSight = 20;

std::string coloured(int64_t rank, const std::string& prefix) {
  if (prefix.empty()) return prefix;
  const auto text = prefix.substr(0, prefix.find_last_not_of(' ') + 1);
  return fmt::format("\x1b[{}m{}\x1b[0m{}", 31 + rank % 6, text, prefix.substr(text.size()));
}

}  // namespace

Output::Output(bool colour) : out_(std::make_unique<Sink>(STDOUT_FILENO)), colour_(colour), buffer_(kReadBytes, '\0') {
  if (out_->is_same_file_as(STDERR_FILENO)) {
    err_ = out_.get();
  } else {
    err_own_ = std::make_unique<Sink>(STDERR_FILENO);
    err_ = err_own_.get();
  }
}

void Output::add_rank(int64_t rank, const std::string& prefix, StreamSource out, StreamSource err) {
  tails_[rank] = {};
  add_stream(rank, prefix, std::move(out), *out_);
  add_stream(rank, prefix, std::move(err), *err_);
}

void Output::add_stream(int64_t rank, const std::string& prefix, StreamSource source, Sink& sink) {
  if (!source.pipe) return;
  fcntl(source.pipe.value(), F_SETFL, O_NONBLOCK);  // the read end's description is ours alone
  LineAssembler lines(colour_ && sink.is_terminal() ? coloured(rank, prefix) : prefix);
  streams_.push_back({rank, std::move(source), std::move(lines), prefix, &sink});
}

void Output::say(const std::string& line) {
  err_->lines().append(line).push_back('\n');
  err_->flush();
}

void Output::show_status(const std::string& text) {
  status_ = text;
  if (progress_rank_ == kNoRank) err_->show_progress(text);
}

void Output::add_polls(std::vector<pollfd>& polls) {
  polls.push_back({out_->is_waiting() ? out_->fd() : -1, POLLOUT, 0});
  polls.push_back({err_own_ && err_own_->is_waiting() ? err_own_->fd() : -1, POLLOUT, 0});
  for (const auto& stream : streams_) {
    // A reader that is slower than the ranks slows the ranks down, not our memory.
    polls.push_back({stream.sink->is_full() ? -1 : stream.source.pipe.value(), POLLIN, 0});
  }
}

void Output::read_and_write(const std::vector<pollfd>& polls, size_t first, bool writers_are_gone) {
  for (size_t i = 0; i < streams_.size(); ++i) {
    auto& stream = streams_[i];
    const bool is_ready = polls[first + 2 + i].revents != 0;
    if (is_ready || (writers_are_gone && !stream.sink->is_full())) read(stream, writers_are_gone);
  }
  flush();
  std::erase_if(streams_, [](const Stream& stream) { return !stream.source.pipe; });
}

void Output::read(Stream& stream, bool writers_are_gone) {
  auto& pipe = stream.source.pipe;
  if (!pipe) return;
  const ssize_t count = ::read(pipe.value(), buffer_.data(), buffer_.size());
  const int error_number = count < 0 ? errno : 0;
  const std::string_view bytes(buffer_.data(), static_cast<size_t>(std::max<ssize_t>(0, count)));
  copy(stream, bytes);  // first: what it may have to say empties the sink's lines
  auto& lines = stream.sink->lines();
  const auto before = lines.size();
  if (count > 0) {
    stream.lines.feed(bytes, lines);
  } else if (count == 0 || (error_number != EINTR && error_number != EAGAIN) ||
             (error_number == EAGAIN && writers_are_gone)) {
    stream.lines.finish(lines);
    pipe.reset();
  }
  note_lines(stream, std::string_view(lines).substr(before));
  if (stream.sink->is_terminal()) show_progress(stream);
}

void Output::copy(Stream& stream, std::string_view bytes) {
  auto& file = stream.source.copy;
  if (!file || bytes.empty()) return;
  try {
    write_all(file.value(), std::as_bytes(std::span(bytes)), fmt::format("the log of rank {}", stream.rank));
  } catch (const Error& error) {
    say(fmt::format("{}; its output goes on here alone", error.what()));
    file.reset();
  }
}

/// Whole lines that a stream has just added.
void Output::note_lines(const Stream& stream, std::string_view lines) {
  auto& tail = tails_[stream.rank];
  std::string complaint;
  while (!lines.empty()) {
    const auto end = lines.find('\n');
    const auto line = lines.substr(0, end).substr(stream.lines.prefix().size());
    lines.remove_prefix(end + 1);
    tail.last_number = ++num_lines_;
    if (tail.lines.size() == kTailLines) tail.lines.pop_front();
    tail.lines.emplace_back(line.substr(0, kTailLineBytes));
    auto* filter = stream.source.filter;
    if (filter == nullptr || !filter->file) continue;
    const auto is_wanted = [&](const std::string& text) { return line.find(text) != line.npos; };
    if (std::none_of(filter->texts.begin(), filter->texts.end(), is_wanted)) continue;
    const auto whole = fmt::format("{}{}\n", stream.plain_prefix, line);
    if (write(filter->file.value(), whole.data(), whole.size()) < 0) {
      complaint = system_error(errno, "writing the log of filtered lines").what();
      filter->file.reset();
    }
  }
  if (!complaint.empty()) say(complaint);  // now that `lines` is no longer needed
}

std::vector<std::string> Output::lost_lines(int64_t rank) const {
  const auto found = tails_.find(rank);
  if (found == tails_.end() || num_lines_ - found->second.last_number < kLinesInSight) return {};
  return {found->second.lines.begin(), found->second.lines.end()};
}

void Output::show_progress(const Stream& stream) {
  const auto text = stream.lines.progress();
  if (!text.empty() && stream.rank <= progress_rank_) {  // of several bars, the lowest rank's
    progress_rank_ = stream.rank;
    stream.sink->show_progress(stream.lines.prefix() + std::string(text));
  } else if (text.empty() && stream.rank == progress_rank_) {
    progress_rank_ = kNoRank;
    stream.sink->show_progress("");
    err_->show_progress(status_);
  }
}

void Output::flush() {
  out_->flush();
  if (err_own_) err_own_->flush();
}

bool Output::is_read() const {
  return std::none_of(streams_.begin(), streams_.end(), [](const Stream& stream) { return bool(stream.source.pipe); });
}

bool Output::can_read() const {
  return std::any_of(streams_.begin(), streams_.end(),
                     [](const Stream& stream) { return stream.source.pipe && !stream.sink->is_full(); });
}

bool Output::is_finished() const { return is_read() && !out_->is_waiting() && !(err_own_ && err_own_->is_waiting()); }

}  // namespace yoke::launch
