// yoke/train/data/normalization.h -- how the bytes of images become numbers.
#pragma once

#include <vector>

namespace yoke::train {

/// Converts bytes to (x / 255 - mean) / stddev, with the same bits as torchvision's ToTensor and Normalize. The vectors
/// have one entry per channel (dimension 1 of the data), or one entry for all channels.
struct Normalization {
  std::vector<double> mean;
  std::vector<double> stddev;
};

}  // namespace yoke::train
