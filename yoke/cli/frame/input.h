// yoke/cli/frame/input.h -- reads what a user names as input: files, pipes and standard input, up to a limit.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace yoke::cli {

constexpr size_t kMaxInputBytes = size_t{4} << 20;  ///< That of Slurm's largest scripts by default.

/// Reads `file`, or standard input for "-", to its end. `kind` is what it should be: "a batch script".
/// Errors  as errno says, with the name; kInvalidArgument: it is a folder or has over kMaxInputBytes.
std::string read_input(const std::string& file, std::string_view kind);

/// The same from a descriptor; `name` is for errors.
std::string read_input(int fd, const std::string& name, std::string_view kind);

}  // namespace yoke::cli
