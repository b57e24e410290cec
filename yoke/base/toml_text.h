// yoke/base/toml_text.h -- mistakes in files of TOML, with their line.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "yoke/base/error.h"

namespace yoke {

/// An error that one line of a file causes: "FILE:LINE: WHY".
class LineError : public Error {
 public:
  LineError(ErrorCode code, std::string file, size_t line, const std::string& why)
      : Error(code, "{}:{}: {}", file, line, why), file_(std::move(file)), line_(line) {}

  const std::string& file() const { return file_; }
  size_t line() const { return line_; }  ///< Counted from 1.

 private:
  std::string file_;
  size_t line_;
};

/// toml++ recurses into each part of a key with dots, so a line with very many of them would exhaust the stack. `name`
/// is the file's. Errors  LineError{kDataLoss}: a line has more than 4,096 bytes.
void check_toml_text(std::string_view text, const std::string& name);

}  // namespace yoke
