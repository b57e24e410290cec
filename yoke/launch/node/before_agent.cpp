#include "yoke/launch/node/before_agent.h"

#include <fmt/format.h>

#include <algorithm>

#include "yoke/base/text.h"

namespace yoke::launch {
namespace {

/// The first line that contains `part`, without spaces around it; empty: there is none.
std::string line_with(const std::vector<std::string>& lines, std::string_view part) {
  const auto has_part = [&](const std::string& line) { return line.find(part) != line.npos; };
  const auto found = std::find_if(lines.begin(), lines.end(), has_part);
  if (found == lines.end()) return "";
  return found->substr(std::min(found->find_first_not_of(' '), found->size()));
}

/// The last line with a word in it.
std::string last_of(std::vector<std::string> lines) {
  while (!lines.empty() && words_of(lines.back()).empty()) lines.pop_back();
  return lines.empty() ? "" : printable(lines.back());
}

/// ssh says so after whatever was the reason.
bool is_farewell(std::string_view line) {
  return line.starts_with("Connection closed by ") || line.starts_with("Connection to ") ||
         line.starts_with("Connection reset by ");
}

}  // namespace

std::string why_no_agent(const BeforeAgent& before) {
  const auto& errors = before.errors;
  // Source: check_host_key() and warn_changed_key() in sshconnect.c of OpenSSH. Only Debian's prints the command.
  if (!line_with(errors, "REMOTE HOST IDENTIFICATION HAS CHANGED").empty()) {
    const auto command = line_with(errors, "ssh-keygen -f ");
    return printable(
        fmt::format("its host key has changed ({}), because the host was installed anew, or because somebody is "
                    "between you and it; "
                    "ask its administrator, and then remove the old key: {}",
                    line_with(errors, "Offending "), command.empty() ? "`ssh-keygen -R HOST`" : "`" + command + "`"));
  }
  if (const auto unknown = line_with(errors, " host key is known for "); !unknown.empty()) {
    return printable(unknown) + "; `ssh` to it once shows the key and keeps it";
  }
  std::vector<std::string> printed;
  for (const auto line : lines_of(before.out)) printed.emplace_back(line);
  auto said = last_of(errors);
  const auto shown = last_of(printed);
  if (before.was_silent) {
    const auto& last = shown.empty() ? said : shown;
    if (last.empty()) return before.end;
    return fmt::format(
        "{} after it had printed \"{}\"; if its shell waits for an answer there, let it ask only in a terminal "
        "(`[ -t 0 ]`)",
        before.end, last);
  }
  if (is_farewell(said)) {
    auto earlier = errors;
    while (!earlier.empty() && (words_of(earlier.back()).empty() || is_farewell(earlier.back()))) earlier.pop_back();
    const auto reason = earlier.empty() ? shown : last_of(earlier);
    if (!reason.empty()) said = fmt::format("{} ({})", reason, said);
  }
  if (!said.empty()) return said;
  return shown.empty() ? before.end : fmt::format("{} after its shell had printed \"{}\"", before.end, shown);
}

}  // namespace yoke::launch
