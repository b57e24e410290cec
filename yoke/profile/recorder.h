// yoke/profile/recorder.h -- exchanges messages with the programs that record traces for `yoke profile`.
#pragma once

#include <poll.h>

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "yoke/base/file.h"
#include "yoke/base/line_connection.h"
#include "yoke/profile/recording.h"

namespace yoke::profile {

/// A process that runs, as /proc shows it before it is asked.
struct AskedProgram {
  int64_t pid = 0;
  int64_t start_ticks = 0;
};

class Recorder {
 public:
  explicit Recorder(const RecordingOptions& options) : recording_(options) {}

  /// Listens for new programs. Returns the value of YOKE_PROFILE that makes them connect. Errors  as errno says.
  std::string listen();
  /// Asks a running program to record. REQUIRES: according to the kernel, `program` is the peer of `connection`.
  void ask(LineConnection connection, const AskedProgram& program);

  /// Adds the file descriptors to wait for.
  void add_to(std::vector<pollfd>& polls) const;
  /// Reads and answers the messages that have arrived, without waiting.
  void handle();

  const Recording& recording() const { return recording_; }
  std::chrono::steady_clock::time_point last_news() const { return last_news_; }

 private:
  struct Program {
    LineConnection connection;
    std::optional<AskedProgram> asked;
    bool has_said_hello = false;
  };

  void accept_some();
  void read(int64_t number, Program& program);
  void on_hello(int64_t number, Program& program, const ProfileHello& hello);

  Recording recording_;
  UniqueFd listener_;
  std::map<int64_t, Program> programs_;  ///< The key is the program's number.
  int64_t num_programs_ = 0;
  std::chrono::steady_clock::time_point last_news_ = std::chrono::steady_clock::now();
};

}  // namespace yoke::profile
