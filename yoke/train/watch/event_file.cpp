#include "yoke/train/watch/detail/event_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>

#include "yoke/base/error.h"
#include "yoke/base/host.h"
#include "yoke/train/watch/detail/event_encoder.h"

namespace yoke::train::detail {
namespace {

/// Makes `folder` and an empty file in it.
GrowingFile make_event_file(const std::filesystem::path& folder, double now) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw system_error(error.value(), fmt::format("making the folder {}", folder.string()));
  // TensorBoard reads the files of a folder in the order of their names, so the name begins with the time.
  for (int number = 0;; ++number) {
    auto path = folder / fmt::format("events.out.tfevents.{:010}.{}.{}.{}", static_cast<int64_t>(now), host_name(),
                                     getpid(), number);
    UniqueFd fd(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (fd) return {std::move(path), std::move(fd), 0};
    if (errno != EEXIST) throw system_error(errno, fmt::format("making {}", path.string()));
  }
}

}  // namespace

double wall_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

EventFile::EventFile(const std::filesystem::path& folder) : file_(make_event_file(folder, wall_time())) {
  add(encode_version_event(wall_time()));
}

void EventFile::add(std::string_view event) { file_.add(encode_record(event)); }

}  // namespace yoke::train::detail
