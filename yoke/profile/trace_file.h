// yoke/profile/trace_file.h -- finds and reads the files of traces, plain or gzipped.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <vector>

#include "yoke/profile/trace.h"

namespace yoke::profile {

/// Reads the file at `path`. The rank comes from distributedInfo, or else from a file name like rankN.json.
/// `progress` is called from time to time with the number of bytes of the file read so far.
/// Errors  those of read_trace; as errno says; kDataLoss: the compressed data are damaged.
Trace read_trace_file(const std::filesystem::path& path, const std::function<void(int64_t)>& progress = {});

/// The traces that `path` names: itself, or if it is a folder, all files in it that end in .json or .json.gz, by name.
/// Errors  as errno says; kNotFound: there is none.
std::vector<std::filesystem::path> find_traces(const std::filesystem::path& path);

}  // namespace yoke::profile
