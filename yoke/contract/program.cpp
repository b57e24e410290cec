#include "yoke/contract/program.h"

#include <fmt/format.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <exception>
#include <string>

#include "yoke/base/error.h"
#include "yoke/contract/error_file.h"
#include "yoke/contract/failure_place.h"
#include "yoke/contract/rank_env.h"

namespace yoke {
namespace {

constinit std::atomic<bool> is_interrupted = false;  // lock-free, as a handler needs

/// Whether a launcher judges the job by the statuses of several ranks. A signal may have reached only this one.
bool is_one_of_several_ranks() {
  try {
    return read_rank_env(Environment::of_process()).world_size > 1;
  } catch (const Error&) {  // code that needs the ranks reports this error
    return false;
  }
}

}  // namespace

void note_interrupt() noexcept { is_interrupted.store(true, std::memory_order_relaxed); }

int run_program(std::string_view name, const std::function<void()>& body) {
  try {
    body();
    return is_interrupted.load(std::memory_order_relaxed) && !is_one_of_several_ranks() ? 128 + SIGINT : 0;
  } catch (const Error& error) {
    fmt::print(stderr, "{}: {}{}\n", name, error.what(), failure_place(true));
    record_failure(error);
    return exit_status(error.code());
  } catch (const std::exception& error) {
    // In libtorch's errors C++ stack frames follow the first line. Only the report to the launcher contains them.
    const std::string text = error.what();
    fmt::print(stderr, "{}: {}{}\n", name, text.substr(0, text.find('\n')), failure_place(false));
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
