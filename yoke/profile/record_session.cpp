#include "yoke/profile/record_session.h"

#include <poll.h>

#include "yoke/base/text.h"

namespace yoke::profile {
namespace {

namespace fs = std::filesystem;

RecordingOptions recording_options(const RecordOptions& options, const std::string& folder, size_t num_asked) {
  const bool is_running = num_asked > 0;
  return {.folder = folder,
          .wait = options.wait.value_or(is_running ? 0 : 5),
          .warmup = is_running ? 1 : 2,
          .active = options.num_steps,
          .detail = options.detail,
          .num_asked = num_asked};
}

}  // namespace

OutFolder::OutFolder(const std::string& path) {
  if (path.empty()) return;
  path_ = fs::absolute(path);
  std::error_code error;
  is_new_ = fs::create_directories(path_, error);
  const auto entries = error ? fs::directory_iterator() : fs::directory_iterator(path_, error);
  if (error) throw system_error(error.value(), "--out " + printable(path));
  for (const auto& entry : entries) {
    const auto name = entry.path().filename().native();
    if (!name.ends_with(".json") && !name.ends_with(".json.gz")) continue;
    throw Error(ErrorCode::kFailedPrecondition,
                "--out {}: the folder has {} already; name another folder, so that two recordings do not mix",
                printable(path), printable(name));
  }
}

OutFolder::~OutFolder() {
  std::error_code ignored;
  if (is_new_) fs::remove(path_, ignored);
}

fs::path OutFolder::parent_of_traces(const Environment& environment) const {
  return path_.empty() ? fs::path(environment.value_or("TMPDIR", "/tmp")) : path_;
}

RecordSession::RecordSession(const RecordOptions& options, size_t num_asked)
    : out_path(options.out),
      out(options.out),
      folder(out.parent_of_traces(options.environment), "profile"),
      recorder(recording_options(options, folder.path().native(), num_asked)) {}

void RecordSession::wait_for_news(std::chrono::milliseconds limit) const {
  std::vector<pollfd> polls = {{messages.fd(), POLLIN, 0}};
  recorder.add_to(polls);
  poll(polls.data(), polls.size(), static_cast<int>(limit.count()));
}

Traces RecordSession::take_traces() const {
  Traces traces;
  for (const fs::path trace : recorder.recording().traces()) {
    traces.push_back(trace);
    if (out_path.empty()) continue;
    traces.back() = fs::path(out_path) / trace.filename();
    std::error_code error;
    fs::rename(trace, traces.back(), error);
    if (error) throw system_error(error.value(), "moving a trace to " + traces.back().native());
  }
  return traces;
}

}  // namespace yoke::profile
