#include "yoke/launch/output/rank_reader.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace yoke::launch {
namespace {

constexpr size_t kPipeBytes = 1 << 16;  // the capacity of a pipe

}  // namespace

RankReader::RankReader(OutputTaker taker) : taker_(std::move(taker)), buffer_(kPipeBytes, '\0') {}

Sink& RankReader::add_log(const std::string& path, LogStart start) {
  return *logs_.emplace_back(std::make_unique<Sink>(open_log(path, start), fmt::format("the log {}", path)));
}

std::vector<std::string> RankReader::settle_logs() {
  std::vector<std::string> lines;
  for (auto& log : logs_) {
    log->settle();
    for (auto& line : log->take_news()) {
      if (log->has_lost()) {
        lines.push_back(std::move(line));
      } else {
        taker_.complain(line);
      }
    }
  }
  logs_.clear();
  return lines;
}

void RankReader::add(int64_t rank, bool is_err, StreamSource source) {
  if (!source.pipe) return;
  fcntl(source.pipe.value(), F_SETFL, O_NONBLOCK);  // no other process has this end of the pipe
  streams_.push_back({.rank = rank, .is_err = is_err, .source = std::move(source)});
}

void RankReader::add_to(WaitSet& waits) {
  for (auto& stream : streams_) {
    // If the reader of the output is slow, the ranks must wait, because the launcher does not collect their output in
    // memory.
    waits.read(taker_.has_room(stream.is_err) ? stream.source.pipe.value() : -1, stream.is_ready);
  }
  for (const auto& log : logs_) waits.until(log->next_time());
}

void RankReader::read(bool writers_are_gone) {
  for (auto& log : logs_) {
    if (log->next_time()) write_log(*log, "");
  }
  for (auto& stream : streams_) {
    if (stream.is_ready || (writers_are_gone && taker_.has_room(stream.is_err))) read(stream, writers_are_gone);
  }
  std::erase_if(streams_, [](const Stream& stream) { return !stream.source.pipe; });
}

void RankReader::read(Stream& stream, bool writers_are_gone) {
  auto& pipe = stream.source.pipe;
  const ssize_t count = ::read(pipe.value(), buffer_.data(), buffer_.size());
  const int error_number = count < 0 ? errno : 0;
  if (count > 0) {
    const std::string_view bytes(buffer_.data(), static_cast<size_t>(count));
    if (stream.source.copy != nullptr) write_log(*stream.source.copy, bytes);
    filter(stream, bytes);
    taker_.take(stream.rank, stream.is_err, bytes);
  } else if (count == 0 || (error_number != EINTR && error_number != EAGAIN) ||
             (error_number == EAGAIN && writers_are_gone)) {
    filter(stream, std::nullopt);
    pipe.reset();
    taker_.take(stream.rank, stream.is_err, std::nullopt);
  }
}

void RankReader::write_log(Sink& log, std::string_view bytes) {
  log.lines().append(bytes);
  log.flush();
  for (const auto& line : log.take_news()) taker_.complain(line);
}

/// `bytes` is nullopt at the end of the stream.
void RankReader::filter(Stream& stream, const std::optional<std::string_view>& bytes) {
  auto* filter = stream.source.filter;
  if (filter == nullptr || filter->file == nullptr) return;
  std::string lines;
  if (bytes) {
    stream.lines.feed(*bytes, lines);
  } else {
    stream.lines.finish(lines);
  }
  for (std::string_view rest = lines; !rest.empty();) {
    const auto line = rest.substr(0, rest.find('\n') + 1);
    rest.remove_prefix(line.size());
    const auto is_wanted = [&](const std::string& text) { return line.find(text) != line.npos; };
    if (std::ranges::none_of(filter->texts, is_wanted)) continue;
    write_log(*filter->file, fmt::format("{}{}", stream.source.filter_prefix, line));
  }
}

bool RankReader::can_read() const {
  return std::ranges::any_of(streams_, [&](const Stream& stream) { return taker_.has_room(stream.is_err); });
}

}  // namespace yoke::launch
