// yoke/profile/record_session.h -- what a recording needs, whoever started the programs: signals, folders, connections.
#pragma once

#include <chrono>
#include <filesystem>

#include "yoke/profile/record.h"
#include "yoke/profile/recorder.h"
#include "yoke/program/private_folder.h"
#include "yoke/program/watched_program.h"

namespace yoke::profile {

/// The folder in which traces stay. If it was made here and stays empty, it is removed at the end.
class OutFolder {
 public:
  /// `path`: "" for none.  Errors  kFailedPrecondition: there are traces in it already; as errno says: it cannot be
  /// made.
  explicit OutFolder(const std::string& path);
  OutFolder(const OutFolder&) = delete;
  OutFolder& operator=(const OutFolder&) = delete;
  ~OutFolder();

  /// Where the folder of the ranks is made: in this one if there is one, so that traces are moved and not copied.
  std::filesystem::path parent_of_traces(const Environment& environment) const;

 private:
  std::filesystem::path path_;
  bool is_new_ = false;
};

struct RecordSession {
  /// `num_asked`: of the programs that run already; 0: one is started.
  RecordSession(const RecordOptions& options, size_t num_asked);

  /// Waits until a rank says something or a signal arrives.
  void wait_for_news(std::chrono::milliseconds limit) const;
  /// The traces, which are first moved to where they stay.
  Traces take_traces() const;

  program::SignalMessages messages;  // before the folder, so that a signal cannot end this process without removing it
  const std::string out_path;
  const OutFolder out;
  const program::PrivateFolder folder;
  Recorder recorder;
};

}  // namespace yoke::profile
