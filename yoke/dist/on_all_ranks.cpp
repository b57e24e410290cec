#include "yoke/dist/on_all_ranks.h"

#include <exception>

#include "yoke/base/error.h"
#include "yoke/base/text.h"
#include "yoke/contract/shared_failure.h"
#include "yoke/dist/error_text.h"
#include "yoke/dist/odd_ranks.h"

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
  std::vector<int64_t> failed;
  for (size_t rank = 0; rank < reports.size(); ++rank) {
    if (reports[rank].starts_with(place) && reports[rank].size() > place.size()) failed.push_back(group.ranks()[rank]);
  }
  const auto* const how = failed.size() == 1 ? "failed first" : "failed together";
  if (error) {
    if (failed.size() > 1) note_shared_failure(report.substr(1), failed, how);
    std::rethrow_exception(error);
  }
  for (size_t rank = 0; rank < reports.size(); ++rank) {
    if (reports[rank].starts_with(place)) continue;
    std::vector<std::string> places;
    for (const auto& text : reports) places.push_back(text.substr(0, text.find('\n')));
    note_odd_ranks(fmt::format("{}: rank {} has called something else", what, group.ranks()[rank]), places,
                   group.ranks(), "the calls that they make");
    group.fail(Error(ErrorCode::kFailedPrecondition,
                     "{}: rank {} has called something else at the same time: functions such as CheckpointFolder::save "
                     "are collective; call them on all ranks, in the same order, and not only on rank 0",
                     what, group.ranks()[rank]));
  }
  for (size_t rank = 0; rank < reports.size(); ++rank) {
    const auto text = reports[rank].substr(place.size());
    if (text.empty()) continue;
    const auto message = fmt::format("{}: rank {}: {}", what, group.ranks()[rank], text.substr(1));
    note_shared_failure(message, failed, how);
    throw Error(static_cast<ErrorCode>(text[0] - 'A'), "{}", message);
  }
}

}  // namespace yoke::dist
