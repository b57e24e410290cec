#include "yoke/dist/on_all_ranks.h"

#include <exception>

#include "yoke/base/error.h"

namespace yoke::dist {

void on_all_ranks(Group& group, const std::string& what, const std::function<void()>& body) {
  std::exception_ptr error;
  std::string report;  // a letter for the error code, then the message; empty on success
  try {
    body();
  } catch (const std::exception& failure) {
    error = std::current_exception();
    const auto* known = dynamic_cast<const Error*>(&failure);
    report = static_cast<char>('A' + static_cast<int>(known != nullptr ? known->code() : ErrorCode::kInternal));
    report += failure.what();
  } catch (...) {
    error = std::current_exception();
    report = static_cast<char>('A' + static_cast<int>(ErrorCode::kInternal));
    report += "an exception that is not a std::exception";
  }
  const auto reports = group.all_gather_text(report);
  if (error) std::rethrow_exception(error);
  for (size_t rank = 0; rank < reports.size(); ++rank) {
    if (reports[rank].empty()) continue;
    throw Error(static_cast<ErrorCode>(reports[rank][0] - 'A'), "{}: rank {}: {}", what, group.ranks()[rank],
                reports[rank].substr(1));
  }
}

}  // namespace yoke::dist
