#include "yoke/cli/output_buffer.h"

#include <unistd.h>

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
  setp(bytes_.data(), bytes_.data() + bytes_.size());  // what could not be written is said once
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

}  // namespace yoke::cli
