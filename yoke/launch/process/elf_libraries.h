// yoke/launch/process/elf_libraries.h -- which shared libraries a program names, without running it.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace yoke::launch {

/// The DT_NEEDED entries of a dynamically linked ELF program of this machine's kind; nullopt: it is none, or is torn.
/// Not those that its libraries name in turn.
/// Errors  as errno says, with the path, when it cannot be read.
std::optional<std::vector<std::string>> needed_libraries(const std::filesystem::path& program);

}  // namespace yoke::launch
