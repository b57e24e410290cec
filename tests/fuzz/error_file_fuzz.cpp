// Reads any bytes as a rank's error file, and checks properties that every result must have.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "yoke/contract/error_file.h"

namespace {

void check(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "does not hold: %s\n", what);
  std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto report = yoke::parse_error_report(text);
  if (!report) return 0;
  check(!report->message.empty(), "there is something to show");
  check(report->content == text, "it is handed on as it was");
  check(report->time.time_since_epoch().count() >= 0, "no time before 1970");
  return 0;
}
