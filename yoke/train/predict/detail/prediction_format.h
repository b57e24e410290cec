// yoke/train/predict/detail/prediction_format.h -- the forms of a file of predictions.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "yoke/train/predict/predictions.h"

namespace yoke::train::detail {

/// An output of one sample.
struct OutputForm {
  std::string name;
  at::ScalarType dtype = at::kFloat;
  std::vector<int64_t> shape = {};  ///< Without the dimension of samples.
  bool operator==(const OutputForm&) const = default;
};
std::vector<OutputForm> forms_of(const NamedTensors& outputs);
std::string describe_forms(const std::vector<OutputForm>& forms);

/// The file while it is written.
struct PredictionBytes {
  int fd = -1;
  std::string path;
  int64_t num_appended = 0;  ///< Where append() writes.

  void append(std::string_view text);
  void write_at(int64_t offset, std::span<const std::byte> bytes) const;
};

class PredictionFormat {
 public:
  virtual ~PredictionFormat() = default;

  /// Whether each sample has outputs of the same names, dtypes and shapes. Then these are known before write().
  virtual bool is_fixed() const { return true; }
  /// What is written of outputs; arrays of NumPy lack some dtypes.
  virtual NamedTensors converted(const NamedTensors& outputs) const { return outputs; }
  /// Learns the forms; empty unless is_fixed(). Not called if they are not known, because no sample could be read.
  /// Errors  kInvalidArgument: such outputs do not fit.
  virtual void lay_out(const PredictedSource& source, const std::vector<OutputForm>& forms) = 0;
  virtual void write_head(PredictionBytes& /*file*/) const {}  ///< What comes before the first sample.
  virtual void write_bad(PredictionBytes& file, const std::vector<BadSample>& bad) const = 0;
  /// Writes the rows and the bad samples of a part.
  virtual void write(PredictionBytes& file, const Predictions& part) const = 0;
  /// What is appended to a file whose forms are not known, if the format allows that without samples.
  virtual bool allows_no_forms() const { return false; }
};

std::unique_ptr<PredictionFormat> json_lines_format();
std::unique_ptr<PredictionFormat> csv_format();
std::unique_ptr<PredictionFormat> npy_format();
std::unique_ptr<PredictionFormat> safetensors_format();

}  // namespace yoke::train::detail
