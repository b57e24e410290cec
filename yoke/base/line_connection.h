// yoke/base/line_connection.h -- lines of text over a socket to another process, without waiting for that process.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "yoke/base/file.h"

namespace yoke {

class LineConnection {
 public:
  /// REQUIRES: `fd` is a connected stream socket, and the caller trusts its peer.
  explicit LineConnection(UniqueFd fd) : fd_(std::move(fd)) {}

  /// Sends `line` and a line feed. Closes the connection if the socket's buffer cannot take all of it now.
  void send(std::string_view line);

  /// Returns the next line. Waits for it for at most `patience`. Closes the connection if the peer sends more than 64
  /// KiB without a line feed.
  std::optional<std::string> next(std::chrono::milliseconds patience = {});

  bool is_closed() const { return !fd_; }  ///< By either side. next() still returns lines that arrived before.
  void close() { fd_.reset(); }
  int fd() const { return fd_.value(); }

 private:
  std::optional<std::string> take();

  UniqueFd fd_;
  std::string received_;
};

}  // namespace yoke
