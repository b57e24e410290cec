#include "yoke/program/child_error.h"

#include <filesystem>

namespace yoke::program {

Error as_error(const std::exception& exception) {
  if (const auto* error = dynamic_cast<const Error*>(&exception)) return *error;
  // as when the working folder was removed
  if (const auto* error = dynamic_cast<const std::filesystem::filesystem_error*>(&exception)) {
    return system_error(error->code().value(),
                        error->path1().empty() ? std::string("the working folder") : error->path1().string());
  }
  return {ErrorCode::kInternal, "internal error: {}", exception.what()};
}

std::string error_in_child(const std::function<void()>& work) {
  try {
    work();
    return "";
  } catch (const std::exception& exception) {
    const auto error = as_error(exception);
    return static_cast<char>('0' + static_cast<int>(error.code())) + std::string(error.what());
  }
}

void throw_child_error(std::string_view bytes) {
  if (bytes.empty()) throw Error(ErrorCode::kInternal, "internal error: a child has failed without a word");
  throw Error(static_cast<ErrorCode>(bytes[0] - '0'), std::string(bytes.substr(1)));
}

}  // namespace yoke::program
