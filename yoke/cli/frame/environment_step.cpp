#include "yoke/cli/frame/environment_step.h"

#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <filesystem>
#include <iostream>

#include "yoke/base/command_output.h"
#include "yoke/base/error.h"
#include "yoke/base/held_signals.h"
#include "yoke/base/process.h"
#include "yoke/base/signal_name.h"
#include "yoke/base/text.h"

namespace yoke::cli {

environment::PipFacts ask_python(const std::string& python, std::vector<std::string> words, const Context& context) {
  const auto script = context.installation.share / "python" / "yoke_environment.py";
  words.insert(words.begin(), {python, "-I", script.string()});
  const auto answer = run_quietly(words, context.environment);
  if (answer.status == 0) return environment::parse_pip_facts(answer.out);
  const auto lines = lines_of(answer.err);
  throw Error(ErrorCode::kFailedPrecondition, "{} does not say what it has: {}", printable(python),
              lines.empty() ? describe_end(answer.status) : std::string(lines.back()));
}

void run_environment_step(const environment::Step& step, const std::string& what, const Environment& variables) {
  constexpr size_t kMaxKept = 65'536;
  const bool is_venv = step.kind == environment::Step::Kind::kVenv;
  HeldSignals signals;
  auto pipe = make_pipe();
  // pip writes its progress to standard output and errors to standard error; venv writes both to standard output.
  const pid_t child = spawn({.argv = step.argv,
                             .environment = variables.to_strings(),
                             .in = kNullStream,
                             .out = is_venv ? pipe.write_end.value() : STDERR_FILENO,
                             .err = pipe.write_end.value(),
                             .death_signal = SIGTERM,
                             .blocked_signals = BlockedSignals::kNone});
  if (child < 0) throw system_error(errno, "starting " + step.argv[0]);
  pipe.write_end.reset();
  std::string output;
  char buffer[4096];
  for (;;) {
    signals.wait_readable(pipe.read_end.value(), child);
    const auto count = read(pipe.read_end.value(), buffer, sizeof buffer);
    if (count == 0) break;
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) break;
    output.append(buffer, static_cast<size_t>(count));
    if (output.size() > 2 * kMaxKept) output.erase(0, output.size() - kMaxKept);
    std::cerr.write(buffer, count).flush();
  }
  const int status = wait_for_child(child);
  if (status == 0) return;
  constexpr uintmax_t kFull = 16 << 20;
  std::error_code error;
  const auto space = std::filesystem::space(what, error);
  // venv hides what the installer of pip says.
  if (is_venv && !error && space.available < kFull) output += "No space left on device";
  constexpr const char* kNames[] = {"venv", "pip", "compiling"};
  throw Error(ErrorCode::kFailedPrecondition, "{}: {}: {}; {}", what, kNames[static_cast<int>(step.kind)],
              describe_end(status), environment::advice_for(step.kind, output));
}

}  // namespace yoke::cli
