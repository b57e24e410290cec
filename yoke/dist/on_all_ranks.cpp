#include "yoke/dist/on_all_ranks.h"

#include <exception>

#include "yoke/base/error.h"
#include "yoke/base/text.h"
#include "yoke/dist/error_text.h"

namespace yoke::dist {

void on_all_ranks(Group& group, const std::string& what, const std::function<void()>& body, const char* file,
                  int line) {
  std::exception_ptr error;
  std::string report;  // a letter for the error code, then the message; empty on success
  try {
    body();
  } catch (const std::exception& failure) {
    error = std::current_exception();
    const auto* known = dynamic_cast<const Error*>(&failure);
    report = static_cast<char>('A' + static_cast<int>(known != nullptr ? known->code() : ErrorCode::kInternal));
    report += error_text(failure);
  } catch (...) {
    error = std::current_exception();
    report = static_cast<char>('A' + static_cast<int>(ErrorCode::kInternal));
    report += "an exception that is not a std::exception";
  }
  const auto place = fmt::format("{}:{}\n", base_name(file), line);
  const auto reports = group.all_gather_text(place + report);
  if (error) std::rethrow_exception(error);
  for (size_t rank = 0; rank < reports.size(); ++rank) {
    if (reports[rank].starts_with(place)) continue;
    group.fail(Error(ErrorCode::kFailedPrecondition,
                     "{}: rank {} has called something else at the same time: functions such as CheckpointFolder::save "
                     "are collective; call them on all ranks, in the same order, and not only on rank 0",
                     what, group.ranks()[rank]));
  }
  for (size_t rank = 0; rank < reports.size(); ++rank) {
    const auto text = reports[rank].substr(place.size());
    if (text.empty()) continue;
    throw Error(static_cast<ErrorCode>(text[0] - 'A'), "{}: rank {}: {}", what, group.ranks()[rank], text.substr(1));
  }
}

}  // namespace yoke::dist
