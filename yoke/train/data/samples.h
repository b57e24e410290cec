// yoke/train/data/samples.h -- a data set as two tensors, in memory or mapped from a file.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <filesystem>
#include <vector>

namespace yoke::train {

/// Samples and their targets: row i of both tensors belongs to sample i.
struct Samples {
  at::Tensor data;    ///< [N, ...], any dtype, contiguous, on the CPU.
  at::Tensor target;  ///< [N, ...], int64 [N] for classes; contiguous, on the CPU.
};

/// One sample and its target, returned by sources that make samples one by one.
struct Sample {
  at::Tensor data;
  at::Tensor target;
};

/// Samples that were made together, and their targets.
struct Batch {
  at::Tensor data;    ///< [batch, ...]
  at::Tensor target;  ///< [batch, ...]
};

/// The position and type of a tensor in a file of raw values.
struct FileLayout {
  std::vector<int64_t> sizes;
  at::ScalarType dtype = at::kByte;
  int64_t offset_bytes = 0;
};

/// Maps a file's values as a tensor without reading them: pages are read on first use, and all ranks of a machine share
/// them. The tensor is read-only (a write raises SIGSEGV) and keeps the mapping. The file must have the machine's byte
/// order.
/// Errors  kDataLoss: the file is shorter than the layout says; kInvalidArgument: the layout is impossible (a negative
///         size, an offset that is not aligned for the dtype); as errno says, with the path.
at::Tensor map_tensor(const std::filesystem::path& path, const FileLayout& layout);

}  // namespace yoke::train
