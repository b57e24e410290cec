// yoke/cli/output_buffer.h -- standard output as a stream that remembers why it could not be written.
#pragma once

#include <array>
#include <ostream>
#include <streambuf>

namespace yoke::cli {

/// Writes to a descriptor, 64 KiB at a time.
class OutputBuffer : public std::streambuf {
 public:
  explicit OutputBuffer(int fd) : fd_(fd) { setp(bytes_.data(), bytes_.data() + bytes_.size()); }
  int error_number() const { return error_number_; }  ///< Of the first write that failed; 0: none did.

 protected:
  int_type overflow(int_type character) override;
  int sync() override;

 private:
  int fd_;
  int error_number_ = 0;
  std::array<char, 1 << 16> bytes_;
};

/// The errno with which a stream began to fail; EIO where it has no OutputBuffer.
int error_of(const std::ostream& stream);

}  // namespace yoke::cli
