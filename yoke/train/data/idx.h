// yoke/train/data/idx.h -- the files that MNIST and its successors come in.
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <string_view>

#include "yoke/train/data/samples.h"

namespace yoke::train {

/// An IDX file of unsigned bytes, plain or gzipped, as a uint8 tensor of the dimensions in its header.
/// The whole file must be as its header says: nothing missing, nothing behind it, gzip's checksums right.
/// Errors  kNotFound and the like as errno says; kDataLoss for any other file. All name the path; kDataLoss says what
///         was expected and what was found, before anything of a size that a header invented is allocated.
/// Source  The format: http://yann.lecun.com/exdb/mnist/, "FILE FORMATS".
at::Tensor read_idx(const std::filesystem::path& path);

/// The same for bytes in memory; `name` stands for the path in errors.
at::Tensor decode_idx(std::string_view bytes, std::string_view name);

/// Where Debian's package dataset-fashion-mnist puts its files.
inline constexpr std::string_view kFashionMnistDir = "/usr/share/datasets/fashion-mnist";

struct FashionMnist {
  Samples train;  ///< data uint8 [60000, 1, 28, 28]; target int64 [60000], 0 to 9.
  Samples test;   ///< The same for 10000.
};

/// Reads {train,t10k}-{images-idx3,labels-idx1}-ubyte.gz, or the same without .gz. MNIST itself and its
/// other replacements, of any count, are read as well.
/// Errors  as read_idx; kNotFound names the missing file and says where to get it; kDataLoss when images are not
///         28 x 28, when they are not as many as the labels, or for a label over 9.
FashionMnist read_fashion_mnist(const std::filesystem::path& dir = kFashionMnistDir);

}  // namespace yoke::train
