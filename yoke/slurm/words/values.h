// yoke/slurm/words/values.h -- which values the options of sbatch, srun and salloc take. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace yoke::slurm::check {

/// What is wrong with the value of an option.
struct ValueProblem {
  std::string advice;
  bool is_refused = true;  ///< Otherwise the program takes the value, and ignores it or a part of it.
};

/// U+00A0 in UTF-8, which looks like a space, and which neither sbatch nor a shell takes for one.
constexpr std::string_view kNoBreakSpace = "\xc2\xa0";
/// With "<no-break space>" for each of them.
std::string with_named_spaces(std::string text);

/// nullopt: the programs take the value, or it is not known whether they do. A word that some version from 22.05 to
/// 26.05 knows is taken. `is_step`: of an srun within a job, which ignores some options.
/// REQUIRES: `value` is not empty; see takes_empty().
std::optional<ValueProblem> problem_of_value(std::string_view option, std::string_view value, bool is_step);

/// Whether the programs take the option with an empty value.
bool takes_empty(std::string_view option);

/// "tomorrow", "now+1hour", "16:00", "01/20/30", "2030-01-20T12:34". Source  Slurm src/common/parse_time.c.
bool is_time_value(std::string_view text);
bool is_dependency_value(std::string_view text);    ///< "afterok:12:13,afterany:14", "singleton"
bool is_host_list(std::string_view text);           ///< "n[1-3,7]"; the name of a file, too
bool is_distribution_value(std::string_view text);  ///< "block:cyclic,Pack", "plane=4"
bool is_cpu_freq_value(std::string_view text);      ///< "low-high:ondemand"
bool is_mem_bind_value(std::string_view text);      ///< "verbose,map_mem:0,1"
bool is_gpu_bind_value(std::string_view text);      ///< "closest", "map_gpu:0,1"

}  // namespace yoke::slurm::check
