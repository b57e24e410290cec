// yoke/curve/recording.h -- reads what runs of a training recorded.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "yoke/curve/log.h"

namespace yoke::curve {

struct Recording {
  std::string run;                 ///< As the user named it.
  std::vector<Curve> curves;       ///< Each metric once.
  std::vector<std::string> notes;  ///< "FILE: 3 records could not be read; the first: ...", printable.
};

/// Reads a run: a folder with `steps.jsonl`, `metrics.csv` or event files (in it or in its folder `events`), or one
/// file of one of these formats. A metric that several files of a folder have comes from the finest, in the order
/// `steps.jsonl`, event files, `metrics.csv`; the means of `metrics.csv` are then there as `epoch/NAME`.
///
/// Live     a run may be writing: an incomplete last record is left out.
/// Errors   kNotFound: there is no such file, or nothing of this kind in the folder; kDataLoss: a file of another
///          format; as errno says, with the path.
Recording read_run(const std::filesystem::path& run);

/// The run in `folder` to which something was written last. Errors  kNotFound: there is none.
std::filesystem::path newest_run(const std::filesystem::path& folder);

}  // namespace yoke::curve
