#include "yoke/view/findings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "yoke/base/text.h"

namespace yoke::view {

std::string findings_text(const std::vector<device::Finding>& findings, bool is_colored) {
  size_t width = 0;
  for (const auto& finding : findings) width = std::max(width, finding.id.size());
  std::string text;
  for (const auto& finding : findings) {
    const auto status = pad(device::name(finding.status), 4);
    const auto* colour = finding.status == device::Status::kOk     ? "32"
                         : finding.status == device::Status::kWarn ? "33"
                         : finding.status == device::Status::kFail ? "31"
                                                                   : "2";
    text += is_colored ? fmt::format("\x1b[{}m{}\x1b[0m", colour, status) : status;
    text += fmt::format("  {}  ", pad(finding.id, static_cast<int64_t>(width)));
    if (!finding.devices.empty()) text += fmt::format("device {}: ", fmt::join(finding.devices, ", "));
    text += printable(finding.found);
    if (!finding.advice.empty()) text += " -- " + printable(finding.advice);
    text += '\n';
  }
  return text;
}

}  // namespace yoke::view
