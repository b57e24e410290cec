// The command `yoke`. It does not link libtorch, so it starts in a few milliseconds.
#include <fcntl.h>
#include <unistd.h>

#include <iostream>

#include "yoke/cli/command.h"
#include "yoke/cli/frame/attempt.h"
#include "yoke/cli/frame/output.h"

namespace {

/// Opens /dev/null in place of standard streams that are closed, as after `<&-` or `>&-`. Otherwise the next file that
/// the command opens would become standard input or output. /dev/null is opened only for reading, even as standard
/// output, because writing to a closed standard output must fail, as in other commands.
void open_standard_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(stream, F_GETFD) < 0) {
      [[maybe_unused]] const int fd = open("/dev/null", stream == STDERR_FILENO ? O_WRONLY : O_RDONLY);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  open_standard_streams();
  // Never destroyed, because the stream is flushed after main().
  static auto& output = *new yoke::cli::OutputBuffer(STDOUT_FILENO);
  std::cout.rdbuf(&output);
  yoke::cli::Context context{std::cout, yoke::Environment::of_process(), {}, {}};
  return yoke::cli::report_errors(context, [&] {
    context.installation = yoke::cli::find_installation();
    return yoke::cli::run_command_line(std::vector<std::string>(argv + 1, argv + argc), context);
  });
}
