// yoke/train/watch/tensorboard.h -- figures, histograms and images of a training, for TensorBoard.
//
//     train::TensorBoardWriter board(run.folder() / "events");
//     for (...) {
//       board.add_scalar("loss", loss, step);   // does not wait for the device
//     }
//     board.add_histogram("weight", model->weight, step);
//     board.flush();                            // tensorboard --logdir runs
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

namespace yoke::train {

struct TensorBoardOptions {
  /// The first step that this process writes. TensorBoard then ignores this step and later ones in earlier files of the
  /// folder. A resumed training passes its last checkpoint's step, so that no step is shown twice.
  std::optional<int64_t> first_step;
  /// The number of values that are kept on their devices before they are read and written together.
  int64_t max_pending = 1000;
};

/// Writes an event file of TensorBoard's format, as torch.utils.tensorboard.SummaryWriter does.
///
/// Devices  values stay on their device until flush(), or until `max_pending` values are kept; then one copy per device
///          reads all scalars. So adding does not wait for a GPU.
/// Ranks    not collective. Usually rank 0 alone has a writer.
/// Threads  use it from one thread at a time.
/// Errors   kInvalidArgument: a tensor has the wrong shape or dtype. As errno says (a full disk is kUnavailable), with
///          the path: values cannot be written; they are kept, and the next flush() tries again.
class TensorBoardWriter {
 public:
  /// Makes `folder` and a new event file in it.
  explicit TensorBoardWriter(const std::filesystem::path& folder, const TensorBoardOptions& options = {});
  TensorBoardWriter(TensorBoardWriter&&) noexcept;
  ~TensorBoardWriter();  ///< Writes the kept values. An error is a warning on standard error.

  /// `value` has one element, of any dtype and on any device. The value is written as float32, because the format
  /// stores float32.
  void add_scalar(const std::string& tag, const at::Tensor& value, int64_t step);
  void add_scalar(const std::string& tag, double value, int64_t step);

  /// The distribution of `values`, of any shape, real and not empty, in `num_bins` bins of equal width. Values that are
  /// not finite are left out; if no value is finite, nothing is written.
  void add_histogram(const std::string& tag, const at::Tensor& values, int64_t step, int64_t num_bins = 64);

  /// `image` is [C, H, W] or [H, W], with C from 1 to 4 (grey, grey and alpha, RGB, RGBA): uint8, or floating point in
  /// [0, 1]. Values outside of [0, 1] are clamped. Waits for the device.
  void add_image(const std::string& tag, const at::Tensor& image, int64_t step);

  /// Reads the kept values and writes everything, so that TensorBoard can show it.
  void flush();

  /// The event file.
  const std::filesystem::path& path() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace yoke::train
