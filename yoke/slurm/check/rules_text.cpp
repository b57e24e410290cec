// Rules about the file itself: what sbatch refuses before it reads options, and secrets.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <set>

#include "yoke/base/text.h"
#include "yoke/slurm/check/rules.h"

namespace yoke::slurm::check {
namespace {

constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

void check_empty(const Subject& subject, Finder& finder) {
  const auto& text = subject.script.text;
  if (subject.is_command_line || text.find_first_not_of(" \t\r\n\v\f") != text.npos) return;
  finder.add(1, "the script is empty, and sbatch refuses it: Batch script is empty!");
}

void check_nul(const Subject& subject, Finder& finder) {
  const auto at = subject.script.text.find('\0');
  if (at == std::string::npos) return;
  const auto line =
      1 + std::count(subject.script.text.begin(), subject.script.text.begin() + static_cast<std::ptrdiff_t>(at), '\n');
  finder.add(line, "the script contains a NUL byte; sbatch refuses it (is it encoded as UTF-16, or a binary file?)");
}

void check_mark(const Subject& subject, Finder& finder) {
  if (!subject.script.text.starts_with(kByteOrderMark)) return;
  const auto& first = subject.script.lines.front();
  finder.add(1, "the file begins with a byte order mark, so its first bytes are not #! and sbatch refuses it", {},
             {{Edit::Kind::kReplaceLine, 1, first.substr(kByteOrderMark.size())}});
}

void check_shebang(const Subject& subject, Finder& finder) {
  const auto& text = subject.script.text;
  if (subject.is_command_line || text.starts_with("#!") || text.starts_with(kByteOrderMark)) return;
  if (text.find_first_not_of(" \t\r\n\v\f") == text.npos) return;
  const auto& lines = subject.script.lines;
  for (size_t i = 0; i < lines.size(); ++i) {
    const auto begin = lines[i].find_first_not_of(" \t");
    if (begin == std::string::npos) continue;
    if (!std::string_view(lines[i]).substr(begin).starts_with("#!") && !lines[i].starts_with("# !/")) {
      if (lines[i][begin] == '#') continue;  // comments before it
      break;
    }
    std::vector<Edit> edits;
    auto fixed = lines[i].substr(begin);
    if (fixed.starts_with("# !")) fixed.erase(1, 1);
    if (i == 0) {
      edits.push_back({Edit::Kind::kReplaceLine, 1, fixed});
    } else {
      edits.push_back({Edit::Kind::kInsertBefore, 1, fixed});
      edits.push_back({Edit::Kind::kDeleteLine, static_cast<int64_t>(i) + 1, ""});
      for (size_t j = 0; j < i && lines[j].find_first_not_of(" \t") == std::string::npos; ++j) {
        edits.push_back({Edit::Kind::kDeleteLine, static_cast<int64_t>(j) + 1, ""});
      }
    }
    finder.add(
        1,
        fmt::format(
            "the first two bytes of the file are not #!, because that is on line {}{}; sbatch refuses the script",
            i + 1, begin > 0 || lines[i].starts_with("# !") ? ", with a space" : ""),
        "Move the line with #! to the very beginning of the file.", edits);
    return;
  }
  // Without a directive it may be no script of a shell.
  std::vector<Edit> edits;
  if (!subject.script.directives.empty()) edits.push_back({Edit::Kind::kInsertBefore, 1, "#!/bin/bash"});
  finder.add(1, "the first line does not name an interpreter; sbatch says: This does not look like a batch script", {},
             std::move(edits));
}

void check_crlf(const Subject& subject, Finder& finder) {
  const auto& text = subject.script.text;
  const auto at = text.find("\r\n");
  if (at == text.npos) {
    const auto& first = subject.script.lines.empty() ? text : subject.script.lines.front();
    const auto end = text.find('\r');
    if (!text.starts_with("#!") || end == text.npos || end >= first.size()) return;
    std::string mended = first;
    std::ranges::replace(mended, '\r', '\n');
    finder.add(1,
               fmt::format("lines end with \\r alone, so the interpreter is everything up to the first line feed; the "
                           "job fails with: bad interpreter({}\\r...)",
                           text.substr(0, end)),
               {}, {{Edit::Kind::kReplaceLine, 1, mended}});
    return;
  }
  std::vector<Edit> edits;
  for (size_t i = 0; i < subject.script.lines.size(); ++i) {
    edits.push_back({Edit::Kind::kReplaceLine, static_cast<int64_t>(i) + 1, subject.script.lines[i]});
  }
  const auto line = 1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n');
  finder.add(line, "lines end with \\r\\n, as on Windows; sbatch says: Batch script contains DOS line breaks", {},
             edits);
}

bool is_placeholder(std::string_view text) {
  const auto value = lower_case(text);
  if (value.size() < 6 || contains_any(value, {"$", "`", "<", "...", "*"})) return true;
  for (const auto* word : {"your", "xxxx", "changeme", "change_me", "placeholder", "example", "secret_here", "insert",
                           "replace", "todo", "dummy", "none", "null", "true", "false", "offline", "disabled"}) {
    if (value.find(word) != value.npos) return true;
  }
  return value.find('/') != value.npos && value.find(':') == value.npos && value[0] == '/';  // a path to a key
}

bool is_secret_name(std::string_view text) {
  const auto name = upper_case(text);
  for (const auto* kind :
       {"BOS_TOKEN", "EOS_TOKEN", "PAD_TOKEN", "MASK_TOKEN", "UNK_TOKEN", "SEP_TOKEN", "CLS_TOKEN"}) {
    if (name.ends_with(kind)) return false;  // of a tokenizer
  }
  for (const auto* end : {"_API_KEY", "_TOKEN", "_SECRET", "_PASSWORD", "_PASSWD", "_SECRET_KEY", "_SECRET_ACCESS_KEY",
                          "_ACCESS_TOKEN", "_PRIVATE_KEY", "_APIKEY"}) {
    if (name.ends_with(end)) return true;
  }
  return has_word("PASSWORD PASSWD TOKEN API_KEY SECRET APIKEY PGPASSWORD", name);
}

/// Tokens that show what they are: GitHub, Hugging Face, OpenAI, AWS, GitLab, Slack.
bool is_known_token(std::string_view text) {
  static constexpr std::pair<std::string_view, size_t> kPrefixes[] = {
      {"ghp_", 36}, {"github_pat_", 30}, {"hf_", 24}, {"sk-", 32}, {"AKIA", 20}, {"glpat-", 20}, {"xoxb-", 20}};
  for (const auto& [prefix, length] : kPrefixes) {
    for (auto at = text.find(prefix); at != text.npos; at = text.find(prefix, at + 1)) {
      if (at > 0 && std::isalnum(static_cast<unsigned char>(text[at - 1])) != 0) continue;
      size_t end = at + prefix.size(), run = 0, longest = 0;
      bool has_digit = false;
      while (end < text.size() &&
             (std::isalnum(static_cast<unsigned char>(text[end])) != 0 || text[end] == '_' || text[end] == '-')) {
        const bool is_letter = text[end] != '_' && text[end] != '-';
        longest = std::max(longest, run = is_letter ? run + 1 : 0);
        has_digit |= std::isdigit(static_cast<unsigned char>(text[end])) != 0;
        ++end;
      }
      // Names in a program have shorter parts between _ and -.
      if (end - at >= length && (longest >= 24 || (has_digit && longest >= 12))) return true;
    }
  }
  return false;
}

/// NAME=VALUE anywhere in a line, as in `bash -c '...'`, --export=ALL,NAME=VALUE and --env NAME=VALUE.
std::string secret_assignment(std::string_view line) {
  const auto is_name = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; };
  for (auto at = line.find('='); at != line.npos; at = line.find('=', at + 1)) {
    size_t begin = at;
    while (begin > 0 && is_name(line[begin - 1])) --begin;
    auto from = at + 1;
    while (from < line.size() && (line[from] == '"' || line[from] == '\'' || line[from] == '\\')) ++from;
    const auto value = line.substr(from, line.find_first_of(" \t,;\"'&|)", from) - from);
    const std::string name(line.substr(begin, at - begin));
    const bool is_variable = std::ranges::none_of(name, [](char c) { return c >= 'a' && c <= 'z'; });
    if (is_variable && is_secret_name(name) && value.size() >= 8 && !is_placeholder(std::string(value))) return name;
  }
  return "";
}

/// A password among the options of a program: mysql -pSECRET, sshpass -p SECRET.
bool has_password_option(const ShellCommand& command) {
  const auto name = command.name();
  const auto is_plain = [](std::string_view text) {
    return !text.empty() && text[0] != '-' && text.find_first_of("$`<*") == text.npos;
  };
  for (size_t i = 1; i < command.words.size(); ++i) {
    const std::string_view text = command.words[i].text;
    if (name == "sshpass" && (text == "ssh" || text == "scp" || text == "sftp" || text == "rsync")) return false;
    if (!text.starts_with("-p")) continue;
    const bool is_mysql = name.starts_with("mysql") || name.starts_with("mariadb");
    if ((is_mysql || name == "sshpass") && text.size() > 2 && is_plain(text.substr(2))) return true;
    if (name == "sshpass" && text == "-p" && i + 1 < command.words.size() && is_plain(command.words[i + 1].text)) {
      return true;
    }
  }
  return false;
}

/// "Authorization: Bearer abc..."
bool has_bearer(std::string_view line) {
  const auto at = line.find("Bearer ");
  if (at == line.npos) return false;
  const auto token = line.substr(at + 7, line.find_first_of(" \t\"'", at + 7) - at - 7);
  return token.size() >= 12 && !is_placeholder(std::string(token));
}

void check_secrets(const Subject& subject, Finder& finder) {
  std::set<int64_t> told;
  const auto once = [&](int64_t line, const std::string& what) {
    if (!told.insert(line).second) return;
    finder.add(line, fmt::format("{} is written in the script, which Slurm stores, and which administrators and "
                                 "coordinators of the account can read (scontrol write batch_script, sacct -B)",
                                 what));
  };
  for (const auto& command : subject.script.shell.commands) {
    for (const auto& assignment : command.assignments) {
      if (is_secret_name(assignment.name) && !is_placeholder(assignment.value.text)) {
        once(assignment.line, assignment.name);
      }
    }
    for (size_t i = 0; i + 1 < command.words.size(); ++i) {
      const bool is_login =
          command.words[i].text == "login" && (command.name() == "wandb" || command.name() == "huggingface-cli");
      const auto& next = command.words[i + 1];
      if (is_login && !next.text.starts_with("-") && next.text.size() >= 20 && !is_placeholder(next.text)) {
        once(next.line, "a key for " + command.name());
      }
    }
    for (const auto& word : command.words) {
      const auto equals = word.text.find('=');
      if (!word.text.starts_with("--") || equals == std::string::npos) continue;
      auto option = word.text.substr(1, equals - 1);
      std::ranges::replace(option, '-', '_');
      if (is_secret_name(option) && !is_placeholder(word.text.substr(equals + 1))) {
        once(word.line, "the value of " + word.text.substr(0, equals));
      }
    }
  }
  for (const auto& command : subject.script.shell.commands) {
    if (has_password_option(command)) once(command.line, "a password for " + command.name());
  }
  for (size_t i = 0; i < subject.script.lines.size(); ++i) {
    const std::string_view line = subject.script.lines[i];
    const auto number = static_cast<int64_t>(i) + 1;
    if (is_known_token(line) || has_bearer(line)) once(number, "an access token");
    const auto begin = line.find_first_not_of(" \t");
    if (begin == line.npos || (line[begin] == '#' && !line.starts_with("#SBATCH"))) continue;
    if (const auto name = secret_assignment(line); !name.empty()) once(number, name);
  }
}

constexpr Rule kTextRules[] = {
    {"empty-script", Severity::kError, "", "", "The script is empty", "sbatch has nothing to submit.",
     "Write a script, or give the right file.", "Slurm src/sbatch/sbatch.c, _get_script_buffer", check_empty},
    {"nul-byte", Severity::kError, "", "", "The script contains a NUL byte",
     "The controller does not accept such scripts; they are often UTF-16.", "Save the file as UTF-8.",
     "Slurm src/sbatch/sbatch.c, contains_null_char", check_nul},
    {"byte-order-mark", Severity::kError, "", "", "The script begins with a byte order mark",
     "Editors of Windows add it. The first bytes of a script must be #!.", "Save the file as UTF-8 without a mark.",
     "Slurm src/sbatch/sbatch.c, has_shebang", check_mark},
    {"no-shebang", Severity::kError, "", "", "The first line is not #!",
     "sbatch refuses a script whose first line does not name an interpreter.", "Begin the script with #!/bin/bash.",
     "Slurm src/sbatch/sbatch.c, has_shebang", check_shebang},
    {"crlf", Severity::kError, "", "", "Lines end with carriage returns",
     "The script comes from Windows; sbatch refuses it.", "Convert the file: `dos2unix FILE`, or `--fix`.",
     "Slurm src/sbatch/sbatch.c, contains_dos_linebreak", check_crlf},
    {"secret-in-clear", Severity::kWarning, "", "", "A password, key or token is in the script",
     "Slurm stores scripts, prints them to administrators, and sites keep them in accounting.",
     "Read it from a file that only you can read: export NAME=$(cat ~/.secrets/name).",
     "Slurm src/slurmctld/proc_req.c, _slurm_rpc_dump_batch_script (operators); "
     "src/plugins/accounting_storage/mysql/as_mysql_jobacct_process.c, JOBCOND_FLAG_SCRIPT (coordinators); 22.05.8 to "
     "26.05.3",
     check_secrets},
};

}  // namespace

std::span<const Rule> text_rules() { return kTextRules; }

}  // namespace yoke::slurm::check
