// yoke/curve/recording.h -- reads the metrics that training runs recorded.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "yoke/curve/log.h"

namespace yoke::curve {

struct Recording {
  std::string run;                 ///< The path as the user wrote it.
  std::vector<Curve> curves;       ///< One curve per metric.
  std::vector<std::string> notes;  ///< Printable warnings: "FILE: 3 records could not be read; the first: ...".
};

/// Reads a run: one file, or a folder with `steps.jsonl`, `metrics.csv` or event files (in it or in its folder
/// `events`). If several files of a folder contain the metric NAME, its values come from `steps.jsonl`, or else from
/// the event files. The means in `metrics.csv` then become a separate metric, `epoch/NAME`.
///
/// Live     a training may be writing the run, so an incomplete last record is ignored.
/// Errors   kNotFound: there is no such file, or the folder contains no such file; kDataLoss: the file is in none of
///          these formats; as errno says, with the path.
Recording read_run(const std::filesystem::path& run);

/// Returns the run in `folder` that was written to last. Errors  kNotFound: the folder contains no run.
std::filesystem::path newest_run(const std::filesystem::path& folder);

}  // namespace yoke::curve
