// yoke/curve/recording.h -- reads what runs of a training recorded.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "yoke/curve/log.h"

namespace yoke::curve {

struct Recording {
  std::string run;                 ///< As the user named it.
  std::vector<Curve> curves;       ///< One curve per metric.
  std::vector<std::string> notes;  ///< "FILE: 3 records could not be read; the first: ...", printable.
};

/// Reads a run: a folder with `steps.jsonl`, `metrics.csv` or event files (in it or in its folder `events`), or one
/// file in one of these formats. If several files of a folder have the same metric NAME, its values come from
/// `steps.jsonl`, or else from the event files. The means in `metrics.csv` are then a separate metric, `epoch/NAME`.
///
/// Live     a training may be writing the run: an incomplete last record is left out.
/// Errors   kNotFound: there is no such file, or nothing of this kind in the folder; kDataLoss: the file is in none of
///          these formats; as errno says, with the path.
Recording read_run(const std::filesystem::path& run);

/// The run in `folder` that was written to last. Errors  kNotFound: there is none.
std::filesystem::path newest_run(const std::filesystem::path& folder);

}  // namespace yoke::curve
