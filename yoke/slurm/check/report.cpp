#include "yoke/slurm/check/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "yoke/base/json.h"
#include "yoke/base/text.h"

namespace yoke::slurm::check {
namespace {

std::string place(const std::string& file, int64_t line) {
  if (file.empty() || line <= 0) return "command line";
  return fmt::format("{}:{}", printable(file), line);
}

/// A relative reference of RFC 3986: other bytes than letters, digits and /-._~ are written as %XX.
std::string as_uri(std::string_view path) {
  std::string uri;
  for (const char c : path) {
    const bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    const bool is_plain = is_letter || std::string_view("/-._~").find(c) != std::string_view::npos;
    uri += is_plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return uri;
}

}  // namespace

std::string to_text(const std::vector<FileFindings>& files) {
  std::string text;
  for (const auto& [file, findings] : files) {
    for (const auto& finding : findings) {
      text += fmt::format("{}: {}: {} [{}]\n", place(file, finding.line), name(finding.severity),
                          printable(finding.message), finding.rule);
      if (!finding.fix.empty()) text += fmt::format("    {}\n", printable(finding.fix));
    }
  }
  return text;
}

nlohmann::ordered_json to_json(const std::vector<FileFindings>& files) {
  Json list = Json::array();
  for (const auto& [file, findings] : files) {
    for (const auto& finding : findings) {
      list.push_back({{"file", file},
                      {"line", finding.line},
                      {"rule", finding.rule},
                      {"severity", name(finding.severity)},
                      {"message", finding.message},
                      {"fix", finding.fix},
                      {"source", finding.source},
                      {"slurm", finding.slurm},
                      {"fixable", !finding.edits.empty()}});
    }
  }
  return Json{{"findings", list}};
}

nlohmann::ordered_json to_sarif(const std::vector<FileFindings>& files, std::string_view version) {
  Json rules = Json::array(), results = Json::array();
  std::set<std::string> used;
  for (const auto& one : files) {
    for (const auto& finding : one.findings) used.insert(finding.rule);
  }
  std::map<std::string, size_t> index;
  for (const auto& rule : all_rules()) {
    if (!used.contains(rule.id)) continue;
    index[rule.id] = rules.size();
    rules.push_back({{"id", rule.id},
                     {"shortDescription", {{"text", rule.summary}}},
                     {"fullDescription", {{"text", fmt::format("{} Source: {}", rule.why, rule.source)}}},
                     {"help", {{"text", rule.fix}}},
                     {"properties", {{"slurm", versions_of(rule)}}}});
  }
  for (const auto& [file, findings] : files) {
    for (const auto& finding : findings) {
      const auto uri = file.empty() ? "command-line" : file == "-" ? "stdin" : as_uri(file);
      results.push_back(
          {{"ruleId", finding.rule},
           {"ruleIndex", index[finding.rule]},
           {"level", name(finding.severity)},
           {"message", {{"text", finding.fix.empty() ? finding.message : finding.message + ". " + finding.fix}}},
           {"locations", Json::array({{{"physicalLocation",
                                        {{"artifactLocation", {{"uri", uri}}},
                                         {"region", {{"startLine", std::max<int64_t>(1, finding.line)}}}}}}})}});
    }
  }
  return Json{
      {"$schema", "https://json.schemastore.org/sarif-2.1.0.json"},
      {"version", "2.1.0"},
      {"runs",
       Json::array({{{"tool", {{"driver", {{"name", "yoke slurm check"}, {"version", version}, {"rules", rules}}}}},
                     {"results", results}}})}};
}

bool has_problems(const std::vector<FileFindings>& files) {
  return std::ranges::any_of(files, [](const FileFindings& one) {
    return std::ranges::any_of(one.findings, [](const Finding& f) { return f.severity != Severity::kNote; });
  });
}

std::string with_fixes(std::string_view text, const std::vector<Finding>& findings) {
  std::map<int64_t, std::vector<std::string>> before;
  std::map<int64_t, std::string> replaced;
  std::set<int64_t> deleted;
  bool changes_line_ends = false;
  // Line ends first, so that a finer change of the same line wins.
  for (const bool is_first : {true, false}) {
    for (const auto& finding : findings) {
      const bool is_crlf = finding.rule == "crlf";
      if (is_crlf != is_first) continue;
      changes_line_ends |= is_crlf;
      for (const auto& edit : finding.edits) {
        if (edit.kind == Edit::Kind::kReplaceLine) replaced[edit.line] = edit.text;
        if (edit.kind == Edit::Kind::kInsertBefore) before[edit.line].push_back(edit.text);
        if (edit.kind == Edit::Kind::kDeleteLine) deleted.insert(edit.line);
      }
    }
  }
  std::string result;
  int64_t number = 0;
  for (const auto line : lines_of(text)) {
    ++number;
    const bool has_return = line.ends_with('\r') && !changes_line_ends;
    for (const auto& inserted : before[number]) result += inserted + (has_return ? "\r\n" : "\n");
    if (deleted.contains(number)) continue;
    const auto found = replaced.find(number);
    if (found != replaced.end()) {
      result += found->second;
      if (has_return) result += '\r';
    } else {
      result += line;
    }
    result += '\n';
  }
  if (!text.empty() && text.back() != '\n' && result.ends_with('\n')) result.pop_back();
  return result;
}

nlohmann::ordered_json rules_as_json() {
  Json list = Json::array();
  for (const auto& rule : all_rules()) {
    list.push_back({{"rule", rule.id},
                    {"severity", name(rule.severity)},
                    {"slurm", versions_of(rule)},
                    {"summary", rule.summary},
                    {"why", rule.why},
                    {"fix", rule.fix},
                    {"source", rule.source}});
  }
  return Json{{"rules", list}};
}

std::string explain(const Rule& rule) {
  return fmt::format("{} ({}; Slurm {})\n  {}.\n\n  Why     {}\n  Fix     {}\n  Source  {}\n", rule.id,
                     name(rule.severity), versions_of(rule), rule.summary, rule.why, rule.fix, rule.source);
}

}  // namespace yoke::slurm::check
