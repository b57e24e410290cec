// Reads any bytes as a trace, in pieces of different sizes: it is refused with an Error, or judged with shares from 0
// to 100 % and shown without escape sequences. Traces may come from untrusted sources, or from killed runs.
#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "yoke/base/error.h"
#include "yoke/base/text.h"
#include "yoke/profile/judge.h"
#include "yoke/profile/report.h"
#include "yoke/profile/trace_reader.h"

namespace {

yoke::profile::Trace read(std::string_view text, size_t piece) {
  return yoke::profile::read_trace(
      [&](std::span<char> buffer) {
        const auto count = std::min({buffer.size(), piece, text.size()});
        std::copy_n(text.begin(), count, buffer.begin());
        text.remove_prefix(count);
        return count;
      },
      "rank0.json");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, size_t size) {
  using namespace yoke::profile;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const auto trace = read(text, size + 1), in_pieces = read(text, 61);
    if (trace.events.size() != in_pieces.events.size()) std::abort();
    auto account = account_for(trace);
    for (const auto& step : account.steps) {
      for (const auto lost : step.lost_ns) {
        if (lost < 0 || lost > step.length_ns) std::abort();
      }
    }
    auto other = account;
    other.rank = account.rank == 0 ? 1 : 0;
    const auto report = judge({std::move(account), std::move(other)});
    for (const auto& finding : report.findings) {
      if (!(finding.ceiling_percent >= 0 && finding.ceiling_percent <= 100.001)) std::abort();
    }
    const auto shown = to_text(report, 100);
    if (shown.find('\x1b') != shown.npos) std::abort();
    (void)to_json(report).dump();
  } catch (const yoke::Error&) {
  }
  return 0;
}
