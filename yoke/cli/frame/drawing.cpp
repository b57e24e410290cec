#include "yoke/cli/frame/drawing.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>

#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/text.h"
#include "yoke/cli/command.h"

namespace yoke::cli {
namespace {

namespace fs = std::filesystem;

/// Whether write_drawing() replaces `file` by a new file instead of writing into the existing one.
bool is_replaced(const std::string& file) {
  std::error_code ignored;
  const auto kind = fs::symlink_status(file, ignored).type();
  return kind == fs::file_type::regular || kind == fs::file_type::not_found;
}

void check_drawing(const std::string& file, Drawing kind) {
  if (is_replaced(file)) {
    const auto folder = fs::path(file).parent_path();
    if (access(folder.empty() ? "." : folder.c_str(), W_OK | X_OK) != 0) {
      throw system_error(errno, "writing " + printable(file));
    }
  }
  std::error_code ignored;
  if (fs::is_directory(file, ignored)) refuse("{} is a folder; name a file in it", printable(file));
  if (!fs::is_regular_file(file, ignored) || fs::file_size(file, ignored) == 0) return;
  std::string begin(8, '\0');
  std::ifstream(file, std::ios::binary).read(begin.data(), static_cast<std::streamsize>(begin.size()));
  const bool is_png = kind == Drawing::kPng;
  if (begin.starts_with(is_png ? "\x89PNG" : "<svg") || (!is_png && begin.starts_with("<?xml"))) return;
  throw Error(ErrorCode::kFailedPrecondition, "{} exists and is not {}; remove it, or give another name",
              printable(file), is_png ? "a PNG file" : "an SVG file");
}

}  // namespace

void check_drawings(const std::string& svg, const std::string& png) {
  if (!svg.empty() && svg == png) refuse("--svg and --png name one file; give two");
  if (svg == "-" || png == "-") refuse("--svg and --png need a file, because standard output has the table");
  if (!svg.empty()) check_drawing(svg, Drawing::kSvg);
  if (!png.empty()) check_drawing(png, Drawing::kPng);
}

void write_drawing(const std::string& file, const std::string& content, Drawing kind) {
  check_drawing(file, kind);
  const auto write = [&](int fd) { write_all(fd, content, file); };
  if (is_replaced(file)) return replace_file(file, write);
  const UniqueFd fd(open(file.c_str(), O_WRONLY | O_TRUNC | O_CLOEXEC));
  if (!fd) throw system_error(errno, "writing " + printable(file));
  write(fd.value());
}

}  // namespace yoke::cli
