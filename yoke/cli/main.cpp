// The command `yoke`. Never linked to libtorch: it starts in a few milliseconds.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <exception>
#include <iostream>

#include "yoke/base/error.h"
#include "yoke/cli/command.h"

namespace {

/// Started with `<&-` or `>&-`, the next file opened would become standard input or output.
void open_standard_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(stream, F_GETFD) < 0) {
      [[maybe_unused]] const int fd = open("/dev/null", stream == STDIN_FILENO ? O_RDONLY : O_WRONLY);
    }
  }
}

int report(const std::string& message, int exit_status) {
  std::cout.flush();
  std::cerr << "yoke: " << message << std::endl;
  return exit_status;
}

}  // namespace

int main(int argc, char** argv) {
  open_standard_streams();
  try {
    yoke::cli::Context context{std::cout, yoke::Environment::of_process(), yoke::cli::find_installation(), {}};
    const int status = yoke::cli::run_command_line(std::vector<std::string>(argv + 1, argv + argc), context);
    std::cout.flush();
    return status;
  } catch (const yoke::Error& error) {
    return report(error.what(), yoke::exit_status(error.code()));
  } catch (const std::exception& error) {
    return report(fmt::format("internal error: {}", error.what()), yoke::exit_status(yoke::ErrorCode::kInternal));
  }
}
