#include "yoke/cli/frame/input.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>

#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/text.h"

namespace yoke::cli {

std::string read_input(int fd, const std::string& name, std::string_view kind) {
  std::string text;
  std::array<char, 1 << 14> bytes;
  for (ssize_t size = 0; (size = read(fd, bytes.data(), bytes.size())) != 0;) {
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) throw system_error(errno, "reading " + name);
    text.append(bytes.data(), static_cast<size_t>(size));
    if (text.size() > kMaxInputBytes) {
      throw Error(ErrorCode::kInvalidArgument, "{} has over 4 MiB, so it is not {}", name, kind);
    }
  }
  return text;
}

std::string read_input(const std::string& file, std::string_view kind) {
  if (file == "-") return read_input(STDIN_FILENO, "standard input", kind);
  std::error_code error;
  if (std::filesystem::is_directory(file, error)) {
    throw Error(ErrorCode::kInvalidArgument, "{} is a folder; give {}", printable(file), kind);
  }
  const UniqueFd fd(open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY));
  if (!fd) throw system_error(errno, "reading " + printable(file));
  return read_input(fd.value(), printable(file), kind);
}

}  // namespace yoke::cli
