#include "yoke/slurm/job/submission_check.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "yoke/base/error.h"
#include "yoke/base/shell.h"
#include "yoke/base/text.h"
#include "yoke/slurm/job/outputs.h"
#include "yoke/slurm/job/query.h"
#include "yoke/slurm/words/request.h"

namespace yoke::slurm {
namespace {

namespace fs = std::filesystem;

/// Slurm makes folders from 23.02 on (commit ecc671a141).
void check_output(const ScriptPlan& plan, const char* option, const std::optional<Version>& version) {
  const auto pattern = directive_of(plan, option), name = directive_of(plan, "--job-name");
  if (pattern.empty()) return;
  const auto refuse = [](const std::string& why) { throw Error(ErrorCode::kInvalidArgument, "{}", why); };
  if (pattern.find('$') != pattern.npos || pattern.starts_with('~')) {
    refuse(
        fmt::format("{} {}: Slurm replaces no $NAME and no ~ there; write the whole path", option, printable(pattern)));
  }
  if (pattern.find('\\') != pattern.npos) {
    refuse(fmt::format("{} {}: Slurm drops backslashes, and then replaces nothing in the path; write it without",
                       option, printable(pattern)));
  }
  if (name.find('/') != name.npos && pattern.find("%x") != pattern.npos) {
    refuse(fmt::format("--job-name {}: %x in the output would name a file in a folder; use a name without /",
                       printable(name)));
  }
  std::error_code error;
  const auto here = fs::current_path(error).string();
  require_plain_folder(here, "submit from another one");
  if (pattern.find('%') == pattern.npos && fs::exists(pattern, error)) {  // a file that is there, or /dev/null
    if (fs::is_directory(pattern, error)) {
      refuse(fmt::format("{} {}: it is a folder; name a file in it, such as {}/slurm-%j.out", option,
                         printable(pattern), printable(pattern)));
    }
    if (access(pattern.c_str(), W_OK) == 0) return;
    throw system_error(errno, fmt::format("the output of the job, {}", printable(pattern)));
  }
  const auto folder = fs::path(pattern).parent_path();
  if (folder.string().find('%') != std::string::npos) return;
  const auto shown = folder.empty() ? here : folder.string();
  if (const auto missing = missing_output_folder(pattern, here)) {
    const bool makes_folders = version && *version >= Version{23, 2, 0};
    if (makes_folders) return;
    refuse(fmt::format(
        "{} {}: there is no folder {}, and Slurm before 23.02 does not make it; make it first: "
        "mkdir -p {}",
        option, printable(pattern), printable(missing->string()), shell_word(printable(missing->string()))));
  }
  if (fs::is_directory(folder.empty() ? fs::path(".") : folder, error) && access(shown.c_str(), W_OK) != 0) {
    throw system_error(errno, fmt::format("the output of the job in {}", printable(shown)));
  }
}

}  // namespace

std::string directive_of(const ScriptPlan& plan, std::string_view name) {
  for (const auto& [option, why] : plan.directives) {
    if (option.starts_with(name) && option.size() > name.size() && option[name.size()] == '=') {
      return option.substr(name.size() + 1);
    }
  }
  return "";
}

void check_outputs(const ScriptPlan& plan, const std::optional<Version>& version) {
  for (const auto* option : {"--output", "--error"}) check_output(plan, option, version);
}

void check_array_size(const std::string& array, const Environment& environment) {
  const auto largest = check::largest_index(array);
  std::optional<int64_t> size;
  try {
    if (largest) size = max_array_size(environment);
  } catch (const Error&) {  // there is no Slurm here, or it does not answer: sbatch says so
  }
  if (!size || *largest < *size) return;
  throw Error(ErrorCode::kInvalidArgument,
              "--array {}: the largest index is {}, and those of this cluster are at most {} (MaxArraySize={}); submit "
              "several arrays, or let each task do the work of several",
              printable(array), *largest, *size - 1, *size);
}

}  // namespace yoke::slurm
