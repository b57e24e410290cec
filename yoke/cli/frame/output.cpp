#include "yoke/cli/frame/output.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace yoke::cli {

int OutputBuffer::sync() {
  const char* from = pbase();
  while (from < pptr() && error_number_ == 0) {
    const ssize_t count = write(fd_, from, static_cast<size_t>(pptr() - from));
    if (count >= 0) {
      from += count;
    } else if (errno != EINTR) {
      error_number_ = errno;
    }
  }
  const bool is_written = from == pptr();
  setp(bytes_.data(), bytes_.data() + bytes_.size());  // this drops the text of a failed write
  return is_written ? 0 : -1;
}

OutputBuffer::int_type OutputBuffer::overflow(int_type character) {
  if (sync() != 0) return traits_type::eof();
  if (!traits_type::eq_int_type(character, traits_type::eof())) sputc(traits_type::to_char_type(character));
  return traits_type::not_eof(character);
}

int error_of(const std::ostream& stream) {
  const auto* const buffer = dynamic_cast<const OutputBuffer*>(stream.rdbuf());
  return buffer != nullptr && buffer->error_number() != 0 ? buffer->error_number() : EIO;
}

int64_t output_width(const Context& context) {
  winsize size = {};
  if (isatty(STDOUT_FILENO) != 0 && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  const auto columns = parse_int(context.environment.value_or("COLUMNS", ""));
  constexpr int64_t kMaxColumns = 10'000;  // limits the memory of `yoke top --once`, which needs a cell per column
  return columns && *columns > 0 ? std::min(*columns, kMaxColumns) : 80;
}

int64_t table_width(const Context& context) {
  constexpr int64_t kUncut = 10'000;
  const bool is_limited = isatty(STDOUT_FILENO) != 0 || context.environment.find("COLUMNS");
  return is_limited ? output_width(context) : kUncut;
}

int64_t output_height() {
  winsize size = {};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_row : 0;
}

}  // namespace yoke::cli
