#include "yoke/train/watch/detail/event_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <span>

#include "yoke/base/error.h"
#include "yoke/train/watch/detail/event_encoder.h"

namespace yoke::train::detail {
namespace {

std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "localhost";
}

}  // namespace

double wall_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

EventFile::EventFile(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw system_error(error.value(), fmt::format("making the folder {}", folder.string()));
  const auto now = wall_time();
  // TensorBoard reads the files of a folder in the order of their names, so the time comes first.
  for (int number = 0;; ++number) {
    path_ = folder / fmt::format("events.out.tfevents.{:010}.{}.{}.{}", static_cast<int64_t>(now), host_name(),
                                 getpid(), number);
    fd_ = UniqueFd(open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (fd_.value() >= 0) break;
    if (errno != EEXIST) throw system_error(errno, fmt::format("making {}", path_.string()));
  }
  add(encode_version_event(now));
}

void EventFile::add(std::string_view event) { pending_ += encode_record(event); }

void EventFile::flush() {
  if (pending_.empty()) return;
  try {
    write_all(fd_.value(), std::as_bytes(std::span(pending_)), path_.string());
  } catch (...) {
    // A part of a record in the middle of the file would end it for readers.
    if (ftruncate(fd_.value(), written_bytes_) == 0) lseek(fd_.value(), written_bytes_, SEEK_SET);
    throw;
  }
  written_bytes_ += std::ssize(pending_);
  pending_.clear();
}

}  // namespace yoke::train::detail
