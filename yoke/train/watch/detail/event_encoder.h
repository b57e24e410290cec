// yoke/train/watch/detail/event_encoder.h -- the bytes of TensorBoard's events, without protobuf or TensorFlow.
//
// An event file is a sequence of records; a record is a serialized protobuf message `Event` with its length and two
// checksums. The encoders here write the few fields that scalars, histograms and images need.
// Source  tensorflow/core/util/event.proto, framework/summary.proto and lib/io/record_writer.cc.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace yoke::train::detail {

/// Values of one tensor, counted in bins. Bin i holds the values in (limits[i - 1], limits[i]].
struct Histogram {
  double min = 0, max = 0, num = 0, sum = 0, sum_squares = 0;
  std::vector<double> limits;  ///< Ascending.
  std::vector<double> counts;  ///< As many as limits.
};

/// A compressed image.
struct EncodedImage {
  int64_t height = 0, width = 0;
  int64_t num_channels = 0;  ///< 1 grey, 2 grey and alpha, 3 RGB, 4 RGBA.
  std::string png;
};

/// The payload of one event: a message `Summary` with one value.
std::string encode_scalar(std::string_view tag, float value);
std::string encode_histogram(std::string_view tag, const Histogram& histogram);
std::string encode_image(std::string_view tag, const EncodedImage& image);

/// The next three functions return serialized `Event` messages. `wall_time` is in seconds since the Unix epoch.
std::string encode_summary_event(double wall_time, int64_t step, std::string_view summary);
/// The first event of every file, which names the version of the format.
std::string encode_version_event(double wall_time);
/// Makes TensorBoard ignore events of earlier files in the folder that have this step or a later one.
std::string encode_restart_event(double wall_time, int64_t step);

/// `event` framed as a record: its length, the masked CRC-32C of the length, the event, and its masked CRC-32C.
std::string encode_record(std::string_view event);

}  // namespace yoke::train::detail
