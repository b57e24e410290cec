#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "yoke/base/text.h"
#include "yoke/cli/help/description.h"

namespace yoke::cli {
namespace {

/// Escapes `text` for roff: dashes stay dashes when copied, and no line is taken for a roff request.
std::string roff(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if ((c == '.' || c == '\'') && (result.empty() || result.back() == '\n')) result += "\\&";
    if (c == '-') {
      result += "\\-";
    } else if (c == '\\') {
      result += "\\e";
    } else if (c == '`') {
      result += "\\(ga";
    } else {
      result += c;
    }
  }
  return result;
}

/// "yoke", "yoke-run", or "yoke-env-create".
std::string page_name(const CommandDescription& root, const CommandDescription& command) {
  auto name = command.path.empty() ? root.name : root.name + "-" + command.path;
  std::replace(name.begin(), name.end(), ' ', '-');
  return name;
}

std::string synopsis(const CommandDescription& root, const CommandDescription& command) {
  const bool is_root = &root == &command;
  std::string line = is_root ? ".B yoke\n[\\fIOPTION\\fR...]\n"
                             : fmt::format(".B yoke {}{}\n[\\fIOPTION\\fR...]\n", roff(command.path),
                                           command.object.empty() ? "" : " " + roff(command.object));
  if (!command.commands.empty()) line += "\\fICOMMAND\\fR [\\fIARG\\fR...]\n";
  for (const auto& option : command.options) {
    if (!option.is_positional) continue;
    line += fmt::format("\\fI{}\\fR", roff(option.names.front()));
    if (option.value.starts_with("[")) line += " " + roff(option.value);
    line += '\n';
  }
  return line;
}

std::string option_entry(const OptionDescription& option) {
  std::vector<std::string> names;
  for (const auto& name : option.names) {
    names.push_back(option.is_positional ? fmt::format("\\fI{}\\fR", roff(name))
                                         : fmt::format("\\fB{}\\fR", roff(name)));
  }
  auto entry = fmt::format(".TP\n{}", fmt::join(names, ", "));
  if (!option.value.empty()) entry += fmt::format(" \\fI{}\\fR", roff(option.value));
  entry += '\n' + roff(option.text);
  if (!option.default_value.empty()) entry += fmt::format(" (default: {})", roff(option.default_value));
  return entry + ".\n";
}

/// Returns the examples as a section whose lines stay as they are, and the paragraphs after them as further sections.
std::string footer_sections(const std::string& footer) {
  constexpr std::string_view kTitle = "Examples:\n";
  if (!footer.starts_with(kTitle)) return "";
  auto end = std::min(footer.find("\n\n"), footer.size());
  auto page = fmt::format(".SH EXAMPLES\n.nf\n{}\n.fi\n", roff(footer.substr(kTitle.size(), end - kTitle.size())));
  std::string notes, exit_status;
  while (end < footer.size()) {
    const auto begin = end + 2;
    end = std::min(footer.find("\n\n", begin), footer.size());
    const auto paragraph = footer.substr(begin, end - begin);
    const bool is_status = paragraph.starts_with("Exit status") || paragraph.starts_with("The exit status");
    (is_status ? exit_status : notes) += fmt::format(".PP\n{}\n", roff(paragraph));
  }
  if (!notes.empty()) page += ".SH NOTES\n" + notes;
  if (!exit_status.empty()) page += ".SH EXIT STATUS\n" + exit_status;
  return page;
}

}  // namespace

std::string man_page(const CommandDescription& root, const CommandDescription& command, const std::string& version) {
  const bool is_root = &root == &command;
  const auto name = page_name(root, command);
  auto text = command.text;
  if (!text.empty()) text[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(text[0])));
  auto page = fmt::format(".TH {} 1 \"\" \"yoke {}\" \"yoke\"\n.SH NAME\n{} \\- {}\n.SH SYNOPSIS\n{}",
                          upper_case(roff(name)), version, roff(name), roff(text), synopsis(root, command));
  if (!command.commands.empty()) {
    page += ".SH COMMANDS\n";
    for (const auto& one : command.commands)
      page += fmt::format(".TP\n\\fB{}\\fR\n{}.\n", roff(one.name), roff(one.text));
  }
  page += ".SH OPTIONS\n";
  for (const auto& option : command.options) {
    if (!option.is_hidden) page += option_entry(option);
  }
  page += footer_sections(command.footer);
  page += ".SH SEE ALSO\n";
  std::vector<std::string> others;
  if (!is_root) others.push_back(".BR yoke (1)");
  const auto add = [&](const CommandDescription& one) {
    if (one.path != command.path) others.push_back(fmt::format(".BR {} (1)", roff(page_name(root, one))));
  };
  for (const auto& one : root.commands) {
    add(one);
    const bool is_near = command.path == one.path || command.path.starts_with(one.path + " ");
    if (is_near) std::for_each(one.commands.begin(), one.commands.end(), add);
  }
  return page + fmt::format("{}\n", fmt::join(others, ",\n"));
}

}  // namespace yoke::cli
