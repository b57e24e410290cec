#include "yoke/environment/step.h"

#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "yoke/base/command_output.h"
#include "yoke/base/error.h"
#include "yoke/base/held_signals.h"
#include "yoke/base/process.h"
#include "yoke/base/signal_name.h"
#include "yoke/base/text.h"

namespace yoke::environment {

PipFacts ask_python(const PythonToAsk& asked, std::vector<std::string> words) {
  words.insert(words.begin(), {asked.python, "-I", asked.script.string()});
  const auto answer = run_quietly(words, asked.environment);
  if (answer.status == 0) return parse_pip_facts(answer.out);
  const auto lines = lines_of(answer.err);
  throw Error(ErrorCode::kFailedPrecondition, "{} does not say what it has: {}", printable(asked.python),
              lines.empty() ? describe_end(answer.status) : std::string(lines.back()));
}

void run_step(const Step& step, const std::string& what, const Environment& variables, int copy_to) {
  constexpr size_t kMaxKept = 65'536;
  const bool is_venv = step.kind == Step::Kind::kVenv;
  HeldSignals signals;
  auto pipe = make_pipe();
  // pip writes its progress to standard output and errors to standard error; venv writes both to standard output.
  const pid_t child = spawn({.argv = step.argv,
                             .environment = variables.to_strings(),
                             .in = kNullStream,
                             .out = is_venv ? pipe.write_end.value() : copy_to,
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
    [[maybe_unused]] const auto written = write(copy_to, buffer, static_cast<size_t>(count));
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
              describe_end(status), advice_for(step.kind, output));
}

}  // namespace yoke::environment
