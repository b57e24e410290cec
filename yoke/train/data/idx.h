// yoke/train/data/idx.h -- reads the file format of MNIST and its successors.
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <string_view>

#include "yoke/train/data/samples.h"

namespace yoke::train {

/// Reads an IDX file of unsigned bytes, plain or gzipped, as a uint8 tensor with the dimensions in its header. The file
/// must match its header exactly: no byte is missing or extra, and gzip's checksums are right.
/// Errors  kNotFound and others as errno says; kDataLoss for any other file. Every message has the path; a kDataLoss
///         message also says what was expected and found. A header's sizes are checked before memory is allocated.
/// Source the format: http://yann.lecun.com/exdb/mnist/, "FILE FORMATS".
at::Tensor read_idx(const std::filesystem::path& path);

/// Like read_idx, for bytes in memory. Error messages contain `name` instead of a path.
at::Tensor decode_idx(std::string_view bytes, std::string_view name);

/// The folder in which Debian's package dataset-fashion-mnist puts its files.
inline constexpr std::string_view kFashionMnistDir = "/usr/share/datasets/fashion-mnist";

struct FashionMnist {
  Samples train;  ///< data uint8 [60000, 1, 28, 28]; target int64 [60000], 0 to 9.
  Samples test;   ///< 10000 images, with shapes as in `train`.
};

/// Reads {train,t10k}-{images-idx3,labels-idx1}-ubyte.gz, or the same without .gz. Also reads MNIST and other data sets
/// in this format, with any number of samples.
/// Errors  as read_idx; kNotFound names the missing file and says where to get it; kDataLoss: images are not 28 x 28,
///         the numbers of images and labels differ, or a label is over 9.
FashionMnist read_fashion_mnist(const std::filesystem::path& dir = kFashionMnistDir);

}  // namespace yoke::train
