// yoke/launch/output/log_files.h -- folders and files for the output and the error files of ranks.
#pragma once

#include <cstdint>
#include <string>

#include "yoke/base/file.h"
#include "yoke/launch/plan/plan.h"
#include "yoke/launch/plan/spec.h"

namespace yoke::launch {

/// Creates FOLDER/RUN-ID_XXXXXX and returns it; empty if no files are wanted.
/// Errors  the error of errno, with the path.
std::string make_run_folder(const LogOptions& logs, const std::string& run_id);

/// Creates RUN-FOLDER/attempt_N with a folder for each local rank. Errors  the error of errno, with the path.
std::string make_attempt_folder(const std::string& run_folder, int64_t attempt, int64_t num_ranks);

/// An unguessable name for the folder of the ranks' error files, below TMPDIR, or below /tmp if TMPDIR cannot be
/// written; empty if no folder can be written. The guardian creates the folder and removes it when the guardian ends.
/// If the guardian is killed, the launcher removes it.
std::string error_folder_name();

/// Creates or truncates `path` for the output of a rank, and opens it to append. Never blocks, whatever a rank has put
/// there.
/// Errors  the error of errno, with the path; kFailedPrecondition: it exists and is not a regular file.
UniqueFd open_log(const std::string& path);

}  // namespace yoke::launch
