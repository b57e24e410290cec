#include "yoke/cli/frame/input.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/sysfs.h"
#include "yoke/base/text.h"
#include "yoke/cli/command.h"

namespace yoke::cli {

std::string read_input(int fd, const std::string& name, std::string_view kind) {
  auto text = read_beginning(fd, kMaxInputBytes + 1);
  if (!text) throw system_error(errno, "reading " + name);
  if (text->size() <= kMaxInputBytes) return *std::move(text);
  refuse("{} has over 4 MiB, so it is not {}", name, kind);
}

std::string read_input(const std::string& file, std::string_view kind) {
  if (file == "-") return read_input(STDIN_FILENO, "standard input", kind);
  std::error_code error;
  if (std::filesystem::is_directory(file, error)) refuse("{} is a folder; give {}", printable(file), kind);
  const UniqueFd fd(open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY));
  if (!fd) throw system_error(errno, "reading " + printable(file));
  return read_input(fd.value(), printable(file), kind);
}

}  // namespace yoke::cli
