#include "yoke/launch/output.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace yoke::launch {
namespace {

constexpr size_t kReadBytes = 1 << 16;  // a pipe's capacity

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

void Output::add_rank(int64_t rank, const std::string& prefix, UniqueFd out, UniqueFd err) {
  add_stream(rank, prefix, std::move(out), *out_);
  add_stream(rank, prefix, std::move(err), *err_);
}

void Output::add_stream(int64_t rank, const std::string& prefix, UniqueFd fd, Sink& sink) {
  fcntl(fd.value(), F_SETFL, O_NONBLOCK);  // the read end's description is ours alone
  LineAssembler lines(colour_ && sink.is_terminal() ? coloured(rank, prefix) : prefix);
  streams_.push_back({rank, std::move(fd), std::move(lines), &sink});
}

void Output::say(const std::string& line) {
  err_->lines().append(line).push_back('\n');
  err_->flush();
}

void Output::add_polls(std::vector<pollfd>& polls) {
  polls.push_back({out_->is_waiting() ? out_->fd() : -1, POLLOUT, 0});
  polls.push_back({err_own_ && err_own_->is_waiting() ? err_own_->fd() : -1, POLLOUT, 0});
  for (const auto& stream : streams_) {
    // A reader that is slower than the ranks slows the ranks down, not our memory.
    polls.push_back({stream.sink->is_full() ? -1 : stream.fd.value(), POLLIN, 0});
  }
}

void Output::read_and_write(const std::vector<pollfd>& polls, size_t first, bool writers_are_gone) {
  for (size_t i = 0; i < streams_.size(); ++i) {
    auto& stream = streams_[i];
    const bool is_ready = polls[first + 2 + i].revents != 0;
    if (is_ready || (writers_are_gone && !stream.sink->is_full())) read(stream, writers_are_gone);
  }
  flush();
  std::erase_if(streams_, [](const Stream& stream) { return !stream.fd; });
}

void Output::read(Stream& stream, bool writers_are_gone) {
  if (!stream.fd) return;
  const ssize_t count = ::read(stream.fd.value(), buffer_.data(), buffer_.size());
  if (count > 0) {
    stream.lines.feed({buffer_.data(), static_cast<size_t>(count)}, stream.sink->lines());
  } else if (count == 0 || (errno != EINTR && errno != EAGAIN) || (errno == EAGAIN && writers_are_gone)) {
    stream.lines.finish(stream.sink->lines());
    stream.fd.reset();
  }
  if (stream.sink->is_terminal()) show_progress(stream);
}

void Output::show_progress(const Stream& stream) {
  const auto text = stream.lines.progress();
  if (!text.empty() && stream.rank <= progress_rank_) {  // of several bars, the lowest rank's
    progress_rank_ = stream.rank;
    stream.sink->show_progress(stream.lines.prefix() + std::string(text));
  } else if (text.empty() && stream.rank == progress_rank_) {
    progress_rank_ = kNoRank;
    stream.sink->show_progress("");
  }
}

void Output::flush() {
  out_->flush();
  if (err_own_) err_own_->flush();
}

bool Output::is_read() const {
  return std::none_of(streams_.begin(), streams_.end(), [](const Stream& stream) { return bool(stream.fd); });
}

bool Output::can_read() const {
  return std::any_of(streams_.begin(), streams_.end(),
                     [](const Stream& stream) { return stream.fd && !stream.sink->is_full(); });
}

bool Output::is_finished() const { return is_read() && !out_->is_waiting() && !(err_own_ && err_own_->is_waiting()); }

}  // namespace yoke::launch
