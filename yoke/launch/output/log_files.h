// yoke/launch/output/log_files.h -- folders and files for the output and the error files of ranks.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "yoke/base/file.h"
#include "yoke/launch/plan/spec.h"

namespace yoke::launch {

/// Creates FOLDER/RUN-ID_XXXXXX and returns its path, or an empty text if no files are wanted.
/// Errors  as errno says, with the path.
std::string make_run_folder(const LogOptions& logs, const std::string& run_id);

/// Creates RUN-FOLDER/attempt_N with a folder for each local rank. Errors  as errno says, with the path.
std::string make_attempt_folder(const std::string& run_folder, int64_t attempt, int64_t num_ranks);

/// Returns an unguessable name for the folder of the ranks' error files, in TMPDIR or, if that is not writable, in
/// /tmp. Returns an empty text if no folder is writable. The guardian creates the folder, and removes it when the
/// guardian ends. If the guardian is killed, the launcher removes it.
std::string error_folder_name();

/// Whether a file of some KiB can be made in `folder` now.
bool has_room_for_files(const std::filesystem::path& folder);

enum class LogStart { kEmpty, kAtEnd };

/// Creates `path` for the output of a rank, and opens it to append; truncates it unless it is to be continued. Never
/// blocks, whatever a rank has put there. Errors  as errno says, with the path; kFailedPrecondition if it exists and is
/// not a regular file.
UniqueFd open_log(const std::string& path, LogStart start = LogStart::kEmpty);

}  // namespace yoke::launch
