// yoke/launch/output/log_files.h -- the folders and files for what ranks print and why they fail.
#pragma once

#include <cstdint>
#include <string>

#include "yoke/base/file.h"
#include "yoke/launch/plan/plan.h"
#include "yoke/launch/plan/spec.h"

namespace yoke::launch {

/// FOLDER/RUN-ID_XXXXXX, made here; empty when no files are asked for.
/// Errors  as errno says, with the path.
std::string make_run_folder(const LogOptions& logs, const std::string& run_id);

/// RUN-FOLDER/attempt_N with a folder for each local rank in it. Errors  as errno says, with the path.
std::string make_attempt_folder(const std::string& run_folder, int64_t attempt, int64_t num_ranks);

/// A name below TMPDIR, or below /tmp where TMPDIR cannot be written, that nobody can guess, for a folder with the
/// error files of ranks; empty when no folder can be written. The guardian makes it and whoever is left removes it:
/// nobody can be killed in between.
std::string error_folder_name();

/// Opens `path` for a rank's output: new or emptied, at its end. Never waits, whatever a rank has put there.
/// Errors  as errno says, with the path; kFailedPrecondition when it is there and no regular file.
UniqueFd open_log(const std::string& path);

}  // namespace yoke::launch
