// yoke/profile/trace_file.h -- finds and reads trace files, plain or gzipped.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <vector>

#include "yoke/profile/trace.h"

namespace yoke::profile {

/// Reads the file at `path`. The rank comes from distributedInfo, or else from a file name like rankN.json. `progress`
/// is called from time to time with the number of bytes that have been read from the file.
/// Errors  those of read_trace; as errno says; kDataLoss: the compressed data are damaged.
Trace read_trace_file(const std::filesystem::path& path, const std::function<void(int64_t)>& progress = {});

/// If `path` is a folder, returns all its files that end in .json or .json.gz, sorted by name; otherwise `path`.
/// Errors  as errno says; kNotFound: there is no such file.
std::vector<std::filesystem::path> find_traces(const std::filesystem::path& path);

}  // namespace yoke::profile
