// `yoke slurm check`: look for mistakes in batch scripts and in command lines of sbatch, srun and salloc.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/format.h"
#include "yoke/base/process.h"
#include "yoke/base/table.h"
#include "yoke/base/text.h"
#include "yoke/base/utf8.h"
#include "yoke/cli/cluster/slurm.h"
#include "yoke/cli/frame/input.h"
#include "yoke/cli/frame/output.h"
#include "yoke/cli/frame/teller.h"
#include "yoke/cli/options/value.h"
#include "yoke/slurm/check/report.h"
#include "yoke/slurm/job/outputs.h"

namespace yoke::cli {
namespace {

namespace rules = slurm::check;

constexpr int kExitProblems = 1;
constexpr std::string_view kScriptKind = "a batch script";
constexpr slurm::Version kFirstRelease{22, 5, 0}, kLastRelease{26, 5, 0};

struct SlurmCheckArgs {
  std::vector<std::string> words;  ///< Files, or a command line after --.
  std::string version, explained;
  bool json = false, sarif = false, fixes = false, lists = false, has_no_cluster = false;
};

/// What a rule asks about the folder of an output, if sbatch is called in the working folder.
std::optional<std::string> missing_folder(const std::string& pattern, const std::string& chdir) {
  std::error_code error;
  auto folder = std::filesystem::current_path(error) / chdir;
  if (!std::filesystem::is_directory(folder, error)) return std::nullopt;
  const auto missing = slurm::missing_output_folder(pattern, folder);
  return missing ? std::optional(missing->string()) : std::nullopt;
}

using FolderCheck = decltype(rules::Subject::missing_folder);

/// Facts that hold for all files of one call.
struct CheckContext {
  std::optional<slurm::Version> version;
  std::optional<rules::SiteFacts> site;

  /// A script, or a command line of `program`. Where no cluster is, its folders are not either.
  rules::Subject subject(const rules::Script& script, rules::Program program = rules::kSbatch) const {
    const bool looks_for_folders = site && program == rules::kSbatch;
    return {.script = script,
            .version = version,
            .site = site ? &*site : nullptr,
            .program = program,
            .missing_folder = looks_for_folders ? FolderCheck(missing_folder) : FolderCheck()};
  }
};

CheckContext context_of(const SlurmCheckArgs& args, const Context& context) {
  CheckContext result;
  if (!args.version.empty()) {
    result.version = slurm::parse_version(args.version);
    if (!result.version) {
      throw Error(ErrorCode::kInvalidArgument, "--slurm {}: give a version of Slurm, such as 22.05 or 25.05.2",
                  printable(args.version));
    }
    const auto release = slurm::Version{result.version->year, result.version->month, 0};
    if (release < kFirstRelease || release > kLastRelease) {
      throw Error(ErrorCode::kInvalidArgument, "--slurm {}: the rules know Slurm {} to {}; give one of these versions",
                  printable(args.version), slurm::to_text(kFirstRelease), slurm::to_text(kLastRelease));
    }
  }
  if (!args.has_no_cluster) result.site = rules::read_facts(context.environment);
  if (!result.version && result.site) result.version = result.site->version;
  return result;
}

bool is_program_of_slurm(const std::string& word) {
  const auto base = base_name(word);
  return base == "sbatch" || base == "srun" || base == "salloc";
}

/// The words after "env A=1", "sudo -u me", "time" and the like, if a program of Slurm comes then; otherwise all words.
std::vector<std::string> without_wrappers(const std::vector<std::string>& words) {
  const auto first = rules::num_wrapper_words(rules::option_words(words));
  if (!is_program_of_slurm(words[first])) return words;
  return {words.begin() + static_cast<std::ptrdiff_t>(first), words.end()};
}

/// A command line: "sbatch -N2 job.sh" checks the script with these options too.
rules::FileFindings check_command(const std::vector<std::string>& words, const CheckContext& facts,
                                  const Context& context) {
  const auto script = rules::read_command_line(words);
  const auto base = base_name(words[0]);
  auto line = facts.subject(script, base == "sbatch" ? rules::kSbatch : base == "srun" ? rules::kSrun : rules::kSalloc);
  line.is_command_line = true;
  if (line.program != rules::kSbatch) return {"", rules::check(line)};
  const auto& command = script.commands.front();
  const auto rest = rules::program_words(command);
  std::error_code error;
  const bool wraps = std::ranges::any_of(command.options.given, [](const rules::GivenOption& given) {
    return std::string_view(given.spec->name) == "wrap";
  });
  const bool exists = !rest.empty() && std::filesystem::exists(rest.front().text, error);
  line.is_script_missing =
      !rest.empty() && !exists && !wraps && !command.options.has_unknown &&
      (rest.front().text.find('/') != std::string::npos || !find_program(rest.front().text, context.environment));
  auto of_line = rules::check(line);
  if (rest.empty() || !std::filesystem::is_regular_file(rest.front().text, error)) return {"", std::move(of_line)};
  std::vector<rules::OptionWord> options(command.words.begin() + 1,
                                         command.words.begin() + static_cast<std::ptrdiff_t>(command.program_at));
  for (auto& option : options) option.line = 0;
  const auto file = rest.front().text;
  const auto batch = rules::read_script(file, read_input(file, kScriptKind), options);
  auto findings = rules::check(facts.subject(batch));
  for (auto& finding : of_line) {  // what is not said about the script with these options
    if (finding.rule != "option-after-script" && finding.rule != "wrap-with-script") continue;
    finding.line = 0;
    findings.insert(findings.begin(), std::move(finding));
  }
  return {file, std::move(findings)};
}

/// A file as it was when it was read.
struct OriginalFile {
  std::filesystem::path path;  ///< Without symbolic links.
  struct stat status {};
  std::string text;
};

bool is_unchanged(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino && a.st_size == b.st_size &&
         a.st_mtim.tv_sec == b.st_mtim.tv_sec && a.st_mtim.tv_nsec == b.st_mtim.tv_nsec;
}

/// Errors  as errno says, with the name; kInvalidArgument: it is a folder, or too long.
OriginalFile read_to_fix(const std::string& file) {
  if (std::filesystem::is_directory(file)) {
    throw Error(ErrorCode::kInvalidArgument, "{} is a folder; give {}", printable(file), kScriptKind);
  }
  OriginalFile original;
  const UniqueFd fd(open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY));
  if (!fd || fstat(fd.value(), &original.status) != 0) throw system_error(errno, "reading " + printable(file));
  original.text = read_input(fd.value(), printable(file), kScriptKind);
  if (S_ISREG(original.status.st_mode)) original.path = std::filesystem::canonical(file);
  return original;
}

/// Why the file must not be changed, as a clause; empty: it may be.
std::string why_not_fix(const OriginalFile& original) {
  const auto& status = original.status;
  if (!S_ISREG(status.st_mode)) return "it is not a regular file";
  if (original.text.find('\0') != std::string::npos || !is_utf8(original.text)) return "it is not UTF-8 text";
  if ((status.st_mode & 0222) == 0 || access(original.path.c_str(), W_OK) != 0) return "it is not writable";
  if (status.st_nlink > 1) {
    return fmt::format("it has {} hard links, and the others would keep the old text", status.st_nlink);
  }
  return "";
}

/// Replaces the file atomically; mode and owner stay (replace_file() gives it the mode of a new one). Returns why it
/// was left as it is, as a clause; empty: it was replaced. Errors  as errno says; kFailedPrecondition: it has changed
/// since it was read.
std::string replace_fixed(const OriginalFile& original, const std::string& text) {
  const auto name = printable(original.path.string());
  auto temporary = (original.path.parent_path() / ("." + original.path.filename().string() + ".XXXXXX.tmp")).string();
  UniqueFd fd(mkostemps(temporary.data(), 4, O_CLOEXEC));
  if (!fd) throw system_error(errno, "writing " + name);
  try {
    write_all(fd.value(), text, name);
    struct stat now {};
    if (fstat(fd.value(), &now) != 0) throw system_error(errno, "writing " + name);
    const bool has_other_owner = now.st_uid != original.status.st_uid || now.st_gid != original.status.st_gid;
    if (has_other_owner && fchown(fd.value(), original.status.st_uid, original.status.st_gid) != 0) {
      if (errno != EPERM) throw system_error(errno, "writing " + name + " with its owner");
      unlink(temporary.c_str());
      return "it belongs to another user or group, which the new file could not keep";
    }
    // The mode comes second, because a change of the owner clears the set-user-ID bit.
    if (fchmod(fd.value(), original.status.st_mode & 07777) != 0 || fsync(fd.value()) != 0 ||
        close(fd.release()) != 0) {
      throw system_error(errno, "writing " + name + " with its mode");
    }
    if (lstat(original.path.c_str(), &now) != 0 || !is_unchanged(now, original.status)) {
      throw Error(ErrorCode::kFailedPrecondition, "{} has changed since it was read, so it was not fixed; try again",
                  name);
    }
    if (rename(temporary.c_str(), original.path.c_str()) != 0) throw system_error(errno, "writing " + name);
    return "";
  } catch (...) {
    unlink(temporary.c_str());
    throw;
  }
}

rules::FileFindings check_file(const std::string& file, const SlurmCheckArgs& args, const CheckContext& facts,
                               const Tell& tell) {
  const auto judge = [&](const std::string& text) {
    const auto script = rules::read_script(file, text);
    return rules::check(facts.subject(script));
  };
  if (!args.fixes) return {file, judge(read_input(file, kScriptKind))};
  const auto original = read_to_fix(file);
  auto text = original.text;
  auto findings = judge(text);
  int64_t num_fixed = 0;
  for (int round = 0; round < 4; ++round) {  // a mended line may show the next mistake
    const auto mended = rules::with_fixes(text, findings);
    if (mended == text) break;
    for (const auto& finding : findings) num_fixed += finding.edits.empty() ? 0 : 1;
    text = mended;
    findings = judge(text);
  }
  if (num_fixed == 0) return {file, std::move(findings)};
  auto reason = why_not_fix(original);
  if (reason.empty()) reason = replace_fixed(original, text);
  if (!reason.empty()) {
    tell(Told::kNews, fmt::format("{}: nothing was fixed, because {}", printable(file), reason));
    return {file, judge(original.text)};
  }
  tell(Told::kNews, fmt::format("{}: fixed {}", printable(file), counted(num_fixed, "finding")));
  return {file, std::move(findings)};
}

int list_rules(const SlurmCheckArgs& args, Context& context) {
  if (args.json) {
    print_json(rules::rules_as_json(), context);
    return kExitOk;
  }
  Table table{.columns = {{"rule"}, {"severity"}, {"Slurm"}, {"finds", Align::kLeft, 20}}};
  for (const auto& rule : rules::all_rules()) {
    table.rows.push_back({rule.id, std::string(rules::name(rule.severity)), rules::versions_of(rule), rule.summary});
  }
  context.out << to_text(table, table_width(context));
  return kExitOk;
}

int run_slurm_check(const SlurmCheckArgs& args, Context& context) {
  if (args.lists) return list_rules(args, context);
  if (!args.explained.empty()) {
    const auto* rule = rules::find_rule(args.explained);
    if (rule == nullptr) {
      throw Error(ErrorCode::kNotFound, "there is no rule {}; see `yoke slurm check --list-rules`",
                  printable(args.explained));
    }
    context.out << rules::explain(*rule);
    return kExitOk;
  }
  if (args.words.empty() && context.rest.empty()) {
    throw Error(ErrorCode::kInvalidArgument, "give a batch script, - for standard input, or a command line after --");
  }
  if (args.json && args.sarif) {
    throw Error(ErrorCode::kInvalidArgument, "--json and --sarif exclude each other; give one of them");
  }
  const auto& given = context.rest.empty() ? args.words : context.rest;
  // After --, the name of a program begins a command line even if it is a file, such as /usr/bin/srun.
  const bool has_dashes = std::ranges::find(context.words, "--") != context.words.end();
  const auto words = has_dashes ? without_wrappers(given) : given;
  const bool is_command = is_program_of_slurm(words.front()) && (has_dashes || !std::filesystem::exists(words.front()));
  if (args.fixes && (is_command || std::ranges::find(words, "-") != words.end())) {
    throw Error(ErrorCode::kInvalidArgument,
                "--fix changes files, so it cannot be used with {}; leave it out, or give the file",
                is_command ? "a command line" : "standard input");
  }
  const auto facts = context_of(args, context);
  const auto tell = teller(context);
  std::vector<rules::FileFindings> files;
  int failure = kExitOk;
  if (is_command) {
    files.push_back(check_command(words, facts, context));
  } else {
    for (const auto& file : words) {
      try {
        files.push_back(check_file(file, args, facts, tell));
      } catch (const Error& error) {  // the others are checked all the same
        if (words.size() == 1) throw;
        tell(Told::kNews, error.what());
        if (failure == kExitOk) failure = exit_status(error.code());
      }
    }
  }
  if (args.json) {
    print_json(rules::to_json(files), context);
  } else if (args.sarif) {
    print_json(rules::to_sarif(files, YOKE_VERSION), context);
  } else {
    context.out << rules::to_text(files);
  }
  if (failure != kExitOk) return failure;
  return rules::has_problems(files) ? kExitProblems : kExitOk;
}

}  // namespace

void add_slurm_check(CLI::App& cmd, Context& context) {
  auto& args = add_args<SlurmCheckArgs>(cmd, context, run_slurm_check);
  add_value(cmd, "FILE", args.words, "FILE...",
            "Batch scripts, - for standard input, or after -- a command line of sbatch, srun or salloc");
  add_value(cmd, "--slurm", args.version, "VERSION",
            "The version of Slurm that will run it; unless given, that of this cluster");
  cmd.add_flag("--no-cluster", args.has_no_cluster, "Do not ask the Slurm of this host for its partitions and version");
  cmd.add_flag("--fix", args.fixes, "Change the files where a fix keeps what is meant; print what is left");
  cmd.add_flag("--json", args.json, "Print JSON");
  cmd.add_flag("--sarif", args.sarif, "Print SARIF 2.1.0, which editors and code hosts read");
  cmd.add_flag("--list-rules", args.lists, "List all rules; with --json, everything about them");
  add_value(cmd, "--explain", args.explained, "RULE", "Print what a rule finds, why, and its source");
  cmd.footer(
      examples("  yoke slurm check job.sh\n"
               "  yoke slurm check --slurm 25.05 job.sh other.sh\n"
               "  yoke slurm check -- sbatch -N2 -n8 --ntasks-per-node=2 job.sh\n"
               "  yoke slurm check -- srun -n4 --cpu-bind=rank ./train\n"
               "  yoke slurm check --fix job.sh            #!, line ends, late directives, long dashes\n"
               "  yoke slurm check --sarif *.sh >check.sarif\n"
               "  yoke slurm check --explain gpus-per-task-isolates\n"
               "\n"
               "Exit status: 0 without errors and warnings, 1 with; or that of an error as `yoke --help` lists them."));
}

}  // namespace yoke::cli
