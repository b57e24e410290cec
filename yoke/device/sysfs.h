// yoke/device/sysfs.h -- reading the kernel's small files, and what is written in them.
//
// A file that is not there, that this user may not read, or that its driver refuses, is nullopt. Nothing is thrown.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace yoke::device {

/// The first `limit_bytes`, without white space at the end.
std::optional<std::string> read_text(const std::filesystem::path& file, size_t limit_bytes = 65'536);

/// The same; empty where there is nothing to read.
std::string text_of(const std::filesystem::path& file);

/// The file as one number; see parse_number.
std::optional<int64_t> read_number(const std::filesystem::path& file);

/// False where it cannot be told, too.
bool is_there(const std::filesystem::path& path);

/// What is in `folder` with a name that is `prefix` and a whole number, in the order of these: node0, node2, node10.
std::vector<std::pair<int64_t, std::filesystem::path>> numbered(const std::filesystem::path& folder,
                                                                std::string_view prefix = "");

/// Why the file cannot be opened for use: EACCES, ENOENT...; 0 when this user may read and write it. Opens nothing.
int access_error(const std::filesystem::path& file);

// The parts without a machine.

/// "42", "-1", "0x1002"; nullopt when it is anything else or does not fit.
std::optional<int64_t> parse_number(std::string_view text);

/// Lines "name value" or "name: value unit" of whole numbers, as in KFD's properties, RAS counts, /proc/meminfo and
/// memory.stat. Numbers above INT64_MAX (KFD's unique_id) keep their bits. Lines of another form are left out.
std::map<std::string, int64_t, std::less<>> parse_properties(std::string_view text);

/// `part` of `whole` from 0 to 100; nullopt when there is no whole.
std::optional<int64_t> percent(int64_t part, int64_t whole);

}  // namespace yoke::device
