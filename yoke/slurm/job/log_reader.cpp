#include "yoke/slurm/job/log_reader.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "yoke/base/error.h"
#include "yoke/base/file.h"

namespace yoke::slurm {
namespace {

constexpr size_t kReadBytes = 1 << 16;

/// Where the last `count` lines begin.
off_t begin_of_lines(int fd, int64_t count) {
  const off_t size = lseek(fd, 0, SEEK_END);
  char buffer[kReadBytes];
  for (off_t end = size; end > 0 && count > 0;) {
    const auto begin = std::max<off_t>(0, end - static_cast<off_t>(sizeof buffer));
    const ssize_t num_read = pread(fd, buffer, static_cast<size_t>(end - begin), begin);
    if (num_read <= 0) break;
    for (ssize_t i = num_read - 1; i >= 0; --i) {
      if (buffer[i] == '\n' && begin + i + 1 < size && --count == 0) return begin + i + 1;
    }
    end = begin;
  }
  return count == 0 ? size : 0;
}

}  // namespace

void LogReader::print_new(std::optional<int64_t> num_lines, const Print& print) {
  char buffer[kReadBytes];
  const auto fd = open_regular_file(path_);
  struct stat now = {};
  if (fstat(fd.value(), &now) != 0) throw system_error(errno, "reading " + path_);
  if (!std::exchange(has_begun_, true)) {
    at_ = num_lines ? begin_of_lines(fd.value(), *num_lines) : 0;
  } else if (now.st_size < at_ || now.st_ino != file_) {  // written anew
    finish(print);
    at_ = 0;
  }
  file_ = now.st_ino;
  for (ssize_t count; (count = pread(fd.value(), buffer, sizeof buffer, at_)) > 0; at_ += count) {
    rest_.append(buffer, static_cast<size_t>(count));
    size_t begin = 0;
    for (auto end = rest_.find('\n'); end != rest_.npos; begin = end + 1, end = rest_.find('\n', begin)) {
      print(std::string_view(rest_).substr(begin, end - begin));
    }
    rest_.erase(0, begin);
    if (rest_.size() > sizeof buffer) finish(print);  // a line without an end
  }
}

void LogReader::finish(const Print& print) {
  if (!rest_.empty()) print(std::exchange(rest_, ""));
}

}  // namespace yoke::slurm
