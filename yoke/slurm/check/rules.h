// yoke/slurm/check/rules.h -- the table of rules of `yoke slurm check`, and what a rule sees and says.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "yoke/base/format.h"
#include "yoke/slurm/check/facts.h"
#include "yoke/slurm/check/script.h"
#include "yoke/slurm/words/version.h"

namespace yoke::slurm::check {

enum class Severity {
  kNote,     ///< Worth knowing; nothing may be wrong.
  kWarning,  ///< It runs, but not as its author seems to mean it.
  kError,    ///< Slurm or the shell refuses it.
};
std::string_view name(Severity severity);

/// A change that mends a script without a change of meaning.
struct Edit {
  enum class Kind { kReplaceLine, kInsertBefore, kDeleteLine } kind = Kind::kReplaceLine;
  int64_t line = 1;
  std::string text;
};

struct Finding {
  int64_t line = 1;
  std::string rule;
  Severity severity = Severity::kNote;
  std::string message;
  std::string fix;
  std::string source;
  std::string slurm;  ///< The versions for which it holds: "22.05 to 26.05".
  std::vector<Edit> edits;
};

/// What is checked.
struct Subject {
  const Script& script;
  std::optional<Version> version;  ///< Of the cluster; nullopt: all versions from 22.05 to 26.05 are possible.
  const SiteFacts* site = nullptr;
  /// kSrun or kSalloc for a command line of these programs; kSbatch for a script too.
  Program program = kSbatch;
  bool is_command_line = false;    ///< There is no script.
  bool is_script_missing = false;  ///< The command line of sbatch names a script that does not exist.
  /// Tells whether the folder of an output is missing where sbatch would be called, as missing_output_folder() does.
  /// Empty: nobody has looked.
  std::function<std::optional<std::string>(const std::string& pattern, const std::string& chdir)> missing_folder = {};
};

/// Since this version, batch scripts have SLURM_TRES_PER_TASK in place of SLURM_GPUS_PER_TASK.
constexpr Version kNoGpusPerTaskVariable{23, 11, 0};

/// Collects what one rule finds.
class Finder {
 public:
  struct Hit {
    int64_t line;
    std::string message, fix;
    std::vector<Edit> edits;
    std::optional<Severity> severity;
  };
  void add(int64_t line, std::string message, std::string fix = {}, std::vector<Edit> edits = {}) {
    hits_.push_back({line, std::move(message), std::move(fix), std::move(edits), std::nullopt});
  }
  /// With another severity than that of the rule.
  void add_as(Severity severity, int64_t line, std::string message, std::string fix = {}) {
    hits_.push_back({line, std::move(message), std::move(fix), {}, severity});
  }
  const std::vector<Hit>& hits() const { return hits_; }

 private:
  std::vector<Hit> hits_;
};

/// The source of most rules.
constexpr const char* kTried = "sbatch and srun 22.05.8 (tests/slurm/check_test.cpp)";

struct Rule {
  const char* id;
  Severity severity;
  const char* since;  ///< The first release for which it holds; empty: 22.05.
  const char* until;  ///< The last release; empty: 26.05, the newest that was looked at.
  const char* summary;
  const char* why;
  const char* fix;
  const char* source;
  void (*check)(const Subject& subject, Finder& finder);  ///< Null: find_exclusions() is the whole rule.
};

std::span<const Rule> text_rules();
std::span<const Rule> directive_rules();
std::span<const Rule> value_rules();
std::span<const Rule> request_rules();
std::span<const Rule> gpu_request_rules();
std::span<const Rule> conflict_rules();
std::span<const Rule> gpu_rules();
std::span<const Rule> step_rules();
std::span<const Rule> signal_rules();
std::span<const Rule> launch_rules();
std::span<const Rule> rendezvous_rules();
std::span<const Rule> file_rules();
std::span<const Rule> binding_rules();
std::span<const Rule> environment_rules();
std::span<const Rule> limit_rules();

/// All rules, in this order.
std::vector<Rule> all_rules();
/// Null if there is none. The result lives as long as the program.
const Rule* find_rule(std::string_view id);
/// "22.05 to 26.05", "26.05", "22.05 to 24.08"
std::string versions_of(const Rule& rule);

/// Checks everything, in the order of lines. Rules of versions that are surely not the cluster's are left out; where
/// the version is not known, a rule that holds for some versions alone counts one grade less.
std::vector<Finding> check(const Subject& subject);

// ---- What rules share

/// Finds the pairs of options that exclude each other for this rule, in one request.
void find_exclusions(std::string_view rule, const Subject& subject, Finder& finder);

/// Calls `visit` for the request of the job (each component) and of each srun.
void for_each_request(const Subject& subject,
                      const std::function<void(const Request& request, Program program, bool is_step)>& visit);

/// A step: srun in a script, with what it inherits. For the command line of srun it is the job too.
struct Step {
  const Command* command;
  Request request;
  Layout layout;
  bool is_background = false, is_in_loop = false;

  int64_t line() const { return command->words.front().line; }
};
/// Empty for a heterogeneous job and for steps of such jobs.
std::vector<Step> steps_of(const Subject& subject);
/// Finds GPUs and CPUs that a step asks for and its job does not have. `whole`: the layout of the job.
void find_missing_resources(const Subject& subject, const Step& step, const Layout& whole, Finder& finder);
/// Finds --exclude and --relative that leave too few nodes. `hosts`: all of the job, or empty if they are not known.
void find_missing_nodes(const Subject& subject, const Step& step, const std::vector<std::string>& hosts,
                        Finder& finder);
/// Finds components of a heterogeneous job that do not exist.
void find_missing_components(const Subject& subject, Finder& finder);

/// The words of the program that a step starts, and of other commands all words.
std::vector<OptionWord> program_words(const Command& command);
/// The value of an option of a program: "--nproc_per_node=4", "--nproc-per-node 4". Names have no dashes in front and
/// any of - and _ inside.
std::optional<OptionWord> program_option(const std::vector<OptionWord>& words, std::string_view name);
/// "torchrun", "python -m torch.distributed.run", "accelerate", "deepspeed", "yoke", or empty.
std::string launcher_of(const std::vector<OptionWord>& words);
/// Whether a program needs no more than one CPU: it cleans up, copies or asks.
bool is_small_program(const std::vector<OptionWord>& words);
/// The hosts of a list; empty if it cannot be read or is the name of a file.
std::vector<std::string> hosts_in(const std::string& list);
/// What is known about the partition of a job; nulls if nothing is.
struct KnownPartition {
  const SiteFacts* site = nullptr;
  const PartitionFacts* partition = nullptr;
  std::string name;
};
KnownPartition partition_of(const Subject& subject, const Request& job);
/// Whether a job gets its nodes as a whole, with all of their CPUs and GPUs: by --exclusive, or by its partition.
bool gets_whole_nodes(const Subject& subject, const Request& job);
/// Whether the shell of the script itself replaces $NAME or ${NAME...} in `word`.
bool mentions_variable(const OptionWord& word, std::string_view name);
/// Whether a command is the work of a job, and no preparation: a training, a launcher, a program in a folder.
bool is_work(const Command& command);
/// What the commands of the script assign, also where they declare or export it.
std::vector<Assignment> assignments_of(const Script& script);
/// Whether the script exports `name` or assigns it anywhere.
bool assigns(const Script& script, std::string_view name);

}  // namespace yoke::slurm::check
