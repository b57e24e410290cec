#include "yoke/dist/detail/mismatch.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <string_view>
#include <utility>

#include "yoke/base/error.h"
#include "yoke/contract/error_file.h"

namespace yoke::dist {
namespace {

std::mutex teller_mutex;
std::function<std::string(const std::string&)> tell_others;  // guarded by the mutex
std::terminate_handler previous_handler = nullptr;

bool is_mismatch(const std::exception& error) {
  const std::string_view text = error.what();
  return text.find("enforce fail") != text.npos && text.find("gloo/transport/") != text.npos;
}

void on_terminate() {
  try {
    if (const auto error = std::current_exception()) std::rethrow_exception(error);
  } catch (const std::exception& error) {
    const std::unique_lock lock(teller_mutex, std::try_to_lock);
    if (is_mismatch(error) && lock && tell_others) {
      const Error known(ErrorCode::kFailedPrecondition, "{}",
                        tell_others("its collective met one of a different size: the ranks call different "
                                    "collectives, or pass tensors of different sizes"));
      std::fprintf(stderr, "%s\n", known.what());
      record_failure(known);
      _exit(exit_status(known.code()));
    }
  } catch (...) {
  }
  if (previous_handler != nullptr) previous_handler();
  std::abort();
}

}  // namespace

void explain_mismatches(std::function<std::string(const std::string& text)> report) {
  const std::lock_guard lock(teller_mutex);
  tell_others = std::move(report);
  if (std::get_terminate() != on_terminate) previous_handler = std::set_terminate(on_terminate);
}

}  // namespace yoke::dist
