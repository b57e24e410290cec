// yoke/launch/process/elf_libraries.h -- reads from a program's file which shared libraries it needs.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace yoke::launch {

/// Returns the DT_NEEDED entries of a dynamically linked ELF program for this machine, without those of its libraries.
/// Returns nullopt if the file is not such a program, or is damaged.
/// Errors  as errno says, with the path.
std::optional<std::vector<std::string>> needed_libraries(const std::filesystem::path& program);

}  // namespace yoke::launch
