#include "yoke/base/program.h"

#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <string>

#include "yoke/base/error.h"
#include "yoke/base/error_file.h"

namespace yoke {

int run_program(std::string_view name, const std::function<void()>& body) {
  try {
    body();
    return 0;
  } catch (const Error& error) {
    fmt::print(stderr, "{}: {}\n", name, error.what());
    record_failure(error);
    return exit_status(error.code());
  } catch (const std::exception& error) {
    // In libtorch's errors C++ stack frames follow the first line. Only the report to the launcher contains them.
    const std::string text = error.what();
    fmt::print(stderr, "{}: {}\n", name, text.substr(0, text.find('\n')));
    record_failure(error);
    return exit_status(ErrorCode::kInternal);
  } catch (...) {
    const std::string text = "an exception that is not a std::exception";
    fmt::print(stderr, "{}: {}\n", name, text);
    record_failure("", text);
    return exit_status(ErrorCode::kInternal);
  }
}

}  // namespace yoke
