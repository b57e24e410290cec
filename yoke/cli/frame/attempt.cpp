#include "yoke/cli/frame/attempt.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <iostream>
#include <vector>

#include "yoke/base/error.h"
#include "yoke/base/text.h"
#include "yoke/cli/frame/output.h"
#include "yoke/program/attempt.h"
#include "yoke/program/child_error.h"

namespace yoke::cli {
namespace {

int report(Context& context, const std::string& message, int status) {
  context.out.flush();
  context.out.clear();  // a failed write is reported here, and must not be reported again
  std::vector<std::string> lines;
  for (const auto line : split(message, '\n'))
    lines.push_back(printable(line));  // arguments may have control characters
  std::cerr << speaker(context) << fmt::format("{}", fmt::join(lines, "\n")) << std::endl;
  return status;
}

}  // namespace

std::string speaker(const Context& context) {
  return context.command.empty() ? "yoke: " : fmt::format("yoke {}: ", context.command);
}

int report_errors(Context& context, const std::function<int()>& work) {
  try {
    const int status = work();
    if (!context.out.flush()) throw system_error(error_of(context.out), "writing the output");
    return status;
  } catch (const std::exception& exception) {
    const auto error = program::as_error(exception);
    return report(context, error.what(), exit_status(error.code()));
  }
}

int attempt_in_child(Context& context, const std::function<int(const std::function<void(int)>& finish)>& work) {
  context.out.flush();
  return program::attempt_in_child([&](const std::function<void(int)>& finish) {
    const auto report_and_finish = [&](int status) { finish(report_errors(context, [&] { return status; })); };
    const int status = report_errors(context, [&] { return work(report_and_finish); });
    context.out.flush();
    return status;
  });
}

}  // namespace yoke::cli
