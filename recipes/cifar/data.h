// recipes/cifar/data.h -- CIFAR-10, or drawn shapes in files of its format, and their augmentation.
#pragma once

#include <filesystem>
#include <string>

#include "yoke/dist/world.h"
#include "yoke/train/data/normalization.h"
#include "yoke/train/data/source.h"
#include "yoke/train/image/cifar.h"

namespace cifar {

/// Collective. Reads CIFAR-10 from `dir`, or the files train.bin and test.bin there, which have its format and any
/// number of images. If `dir` is empty, rank 0 draws shapes into such files in `folder`, if they are not there yet, and
/// all ranks read those.
yoke::train::Cifar read_or_draw(const std::string& dir, const std::filesystem::path& folder, int64_t num_train,
                                int64_t num_test, yoke::dist::World& world);

/// The means and deviations of CIFAR-10's training images.
yoke::train::Normalization normalization();

/// The training images: shifted by up to four pixels, with zeros (the mean colour) beyond the border, and mirrored or
/// not. A source for Loader; batches are float [n, 3, 32, 32] in channels_last.
class Augmented {
 public:
  explicit Augmented(yoke::train::Samples samples);
  int64_t size() const { return samples_.data.size(0); }
  yoke::train::Batch batch(const yoke::train::BatchRequest& request) const;

 private:
  yoke::train::Samples samples_;
  float values_[3][256];  ///< The normalised value of each byte in each channel.
};

}  // namespace cifar
