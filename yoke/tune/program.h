// yoke/tune/program.h -- how a program gets its batch size, and what its end says. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace yoke::tune {

/// How the batch size reaches the program. A word of its command line that contains "{}" has it in any case.
struct Handover {
  std::string variable;  ///< The environment variable that gets the batch size; empty: none.
  std::string option;    ///< "--batch-size"; empty: none.
};

/// The command line with the batch size: in place of each "{}"; as the value of the option, whose value is replaced if
/// the option is there, or else added at the end.
std::vector<std::string> with_batch(std::vector<std::string> argv, const Handover& handover, int64_t batch);

/// Whether a word contains "{}".
bool has_placeholder(const std::vector<std::string>& argv);

/// Whether memory has run out: by the words of torch's, Python's and C++'s errors in the last part of its output, or
/// because the program was killed by SIGKILL (`status` is 128 plus the signal's number), as the kernel does when memory
/// is out. REQUIRES: nobody else, such as `yoke tune` itself, killed it.
bool is_out_of_memory(int status, std::string_view output);

/// The last `num_lines` lines, each printable and indented.
std::string last_lines(std::string_view output, int64_t num_lines);

/// The end of a message about the program: "; the last lines of train.py:" with ten lines, or "; it printed nothing".
std::string end_of_output(const std::string& program, std::string_view output);

}  // namespace yoke::tune
