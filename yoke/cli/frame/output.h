// yoke/cli/frame/output.h -- a stream for standard output that remembers the error of a write; the width of the output.
#pragma once

#include <array>
#include <ostream>
#include <streambuf>

#include "yoke/cli/command.h"

namespace yoke::cli {

/// Writes to a descriptor, 64 KiB at a time.
class OutputBuffer : public std::streambuf {
 public:
  explicit OutputBuffer(int fd) : fd_(fd) { setp(bytes_.data(), bytes_.data() + bytes_.size()); }
  int error_number() const { return error_number_; }  ///< The errno of the first write that failed, or 0.

 protected:
  int_type overflow(int_type character) override;
  int sync() override;

 private:
  int fd_;
  int error_number_ = 0;
  std::array<char, 1 << 16> bytes_;
};

/// The errno of the first write that failed on a stream; EIO if the stream has no OutputBuffer.
int error_of(const std::ostream& stream);

/// The width of the terminal at standard output; if there is no terminal, the value of COLUMNS; otherwise 80.
int64_t output_width(const Context& context);

/// The same for a table of which a program may read each word: without a terminal and without COLUMNS, nothing is cut.
int64_t table_width(const Context& context);

/// The height of the terminal at standard output, in rows; 0 if there is none.
int64_t output_height();

}  // namespace yoke::cli
