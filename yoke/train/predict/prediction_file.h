// yoke/train/predict/prediction_file.h -- predictions in a file that appears when it is complete, and goes on after a
// kill.
//
//     train::PredictionFile file("out.npy", {.resume = true});
//     train::predict(net, loader, world, file);
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "yoke/train/predict/predictions.h"

namespace yoke::train {

struct PredictionFileOptions {
  /// Goes on where an earlier run has ended, whatever ended it; begins if there was none. If the file itself is there,
  /// it is complete, and nothing is predicted. If false, a file that is there is replaced when the new one is complete.
  bool resume = false;
  /// What determines the predictions: the model, its options. A run does not resume one with another text.
  std::string identity = "";
  /// How often the predictions are brought to the disk. After a kill, those since then are computed again.
  std::chrono::milliseconds save_every = std::chrono::seconds(1);
};

/// Writes predictions to `path`. Its extension chooses the form:
///
///   .jsonl        a line for each sample: {"sample": 7, "name": "cat/1.png", "output": [0.5, 1.25]}. "name" is there
///   if
///                 the source has names. Outputs may have other shapes for each sample. Numbers that are not finite are
///                 null, complex ones pairs. A bad sample has "error" in place of outputs.
///   .csv          a row for each sample, with a column for each value: sample,name,output.0,output.1. Values of a bad
///                 sample are empty.
///   .npy          one output as an array [samples, ...] for numpy.load. Row i is sample i. bfloat16 and float8 become
///                 float32.
///   .safetensors  all outputs as tensors [samples, ...].
///
/// In arrays, values of a bad sample are NaN, or 0 or false if their dtype has no NaN.
///
/// Files    `PATH.partial` while it is written, and `PATH.progress` (JSON), which says how far it is on disk. At the
/// end
///          the first gets the name PATH, and the second is removed. So PATH is complete or not there.
/// Resumed  the file is equal to that of an undisturbed run, byte for byte, if the model, the source and the batch size
///          are the same and the network's kernels give the same bits; the number of ranks may differ.
/// Ranks    made on all ranks; rank 0 alone reads and writes.
/// Errors   the constructor: kInvalidArgument: another extension. Later, on all ranks: kInvalidArgument: the outputs do
///          not fit the form (says which form fits), or the run to resume had another source or identity; kUnavailable:
///          another process writes the file; kDataLoss: no sample can be read, or PATH.progress or PATH.partial is
///          damaged; as errno says, with the path. Then the predictions before are kept for a run that resumes.
class PredictionFile : public PredictionSink {
 public:
  explicit PredictionFile(std::filesystem::path path, const PredictionFileOptions& options = {});
  /// Saves what was taken, so that an error elsewhere loses nothing. If nothing was, removes PATH.partial.
  ~PredictionFile() override;

  int64_t begin(const PredictedSource& source) override;
  void take(const Predictions& part) override;
  void stop() override;  ///< Saves what was taken.
  void finish() override;
  std::vector<BadSample> bad_before() const override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace yoke::train
