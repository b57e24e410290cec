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

/// The file in which a train::Run writes the times of its steps. It is no trace.
inline constexpr const char* kRunReport = "profile.json";

/// Returns all files of a folder that end in .json or .json.gz, but for kRunReport, sorted by name.
/// Errors  as errno says.
std::vector<std::filesystem::path> traces_in(const std::filesystem::path& folder);

/// If `path` is a folder, returns traces_in(path); otherwise `path`. Errors  those of traces_in; kNotFound: there is
/// none.
std::vector<std::filesystem::path> find_traces(const std::filesystem::path& path);

}  // namespace yoke::profile
