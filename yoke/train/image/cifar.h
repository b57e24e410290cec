// yoke/train/image/cifar.h -- reads the binary versions of CIFAR-10 and CIFAR-100.
#pragma once

#include <filesystem>

#include "yoke/train/data/samples.h"

namespace yoke::train {

struct Cifar {
  Samples train;  ///< data uint8 [50000, 3, 32, 32]; target int64 [50000].
  Samples test;   ///< 10000 images, with shapes as in `train`.
};

/// Reads data_batch_1.bin to data_batch_5.bin and test_batch.bin, in `dir` or in its folder cifar-10-batches-bin.
/// Errors  kNotFound and others as errno says; kDataLoss: a file has a wrong size, or a label is over 9. All name the
///         path; kDataLoss says what was expected and what was found.
/// Source  the format: https://www.cs.toronto.edu/~kriz/cifar.html, "Binary version".
Cifar read_cifar10(const std::filesystem::path& dir);

/// Reads train.bin and test.bin, in `dir` or in its folder cifar-100-binary. Otherwise like read_cifar10. Targets are
/// the fine labels, 0 to 99.
Cifar read_cifar100(const std::filesystem::path& dir);

/// Reads one file in the format of CIFAR-10's, with any number of images, such as a part of it or pictures of your own.
/// Errors  as read_cifar10; kDataLoss: the size is not that of a number of images.
Samples read_cifar10_file(const std::filesystem::path& path);

}  // namespace yoke::train
