// yoke/base/sysfs.h -- reads and parses the kernel's small files.
//
// The functions return nullopt if the file is missing, this user may not read it, or its driver refuses. They do not
// throw.
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

namespace yoke {

/// Returns what `fd` has, up to `limit_bytes`.
std::optional<std::string> read_beginning(int fd, size_t limit_bytes);

/// Returns the first `limit_bytes` of the file, without white space at the end.
std::optional<std::string> read_text(const std::filesystem::path& file, size_t limit_bytes = 65'536);

/// Like read_text(), but returns an empty string instead of nullopt.
std::string text_of(const std::filesystem::path& file);

/// Reads the file as one number (parse_number()).
std::optional<int64_t> read_number(const std::filesystem::path& file);

/// Whether `path` exists. Returns false also if this cannot be determined.
bool is_there(const std::filesystem::path& path);

/// Returns the entries of `folder`, sorted by name; none if it cannot be read.
std::vector<std::filesystem::path> entries_of(const std::filesystem::path& folder);

/// Returns the entries of `folder` whose name is `prefix` and a whole number, sorted by number: node0, node2, node10.
std::vector<std::pair<int64_t, std::filesystem::path>> numbered(const std::filesystem::path& folder,
                                                                std::string_view prefix = "");

/// Returns the errno with which opening the file for reading and writing would fail: EACCES, ENOENT...; 0 if this user
/// may do both. Does not open the file.
int access_error(const std::filesystem::path& file);

// The functions below are pure.

/// Parses "42", "-1" or "0x1002". Returns nullopt for any other text, and if the number does not fit.
std::optional<int64_t> parse_number(std::string_view text);

/// Parses lines "name value" or "name: value unit" with whole numbers, as in KFD's properties, RAS counts,
/// /proc/meminfo and memory.stat. Numbers above INT64_MAX (KFD's unique_id) keep their bits. Other lines are left out.
std::map<std::string, int64_t, std::less<>> parse_properties(std::string_view text);

/// Returns `part` of `whole` as a percentage from 0 to 100, or nullopt if `whole` is not positive.
std::optional<int64_t> percent(int64_t part, int64_t whole);

}  // namespace yoke
