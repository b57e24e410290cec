// yoke/train/format/tensor_mapping.h -- tensors whose values are a file's own pages.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>

namespace yoke::train {

/// A mapped file, kept until the last tensor that views it is gone. Copies share the mapping.
///
/// The mapping is private: writing to such a tensor copies the page it writes to, for this process alone, and never
/// reaches the file. Pages are read when they are touched first, and ranks on one machine share those that nobody wrote
/// to. Replacing the file (rename) does no harm; shortening it raises SIGBUS where a cut page is touched.
class TensorMapping {
 public:
  /// Errors  as errno says, with the path; kDataLoss when it is no regular file.
  explicit TensorMapping(const std::filesystem::path& path);

  std::span<const std::byte> bytes() const;

  /// A storage on the file's bytes, or on a copy of them where they do not lie at a multiple of `alignment_bytes`.
  /// REQUIRES: the range lies in the file.
  c10::Storage storage(int64_t begin_byte, int64_t num_bytes, int64_t alignment_bytes) const;

 private:
  struct Pages;
  std::shared_ptr<const Pages> pages_;
};

/// A view of a storage. REQUIRES: every element lies in it.
at::Tensor view_of(const c10::Storage& storage, at::ScalarType dtype, int64_t offset, at::IntArrayRef sizes,
                   at::IntArrayRef strides);

/// Whether each byte is 0 or 1, which a tensor of bools must be.
bool are_bools(std::span<const std::byte> bytes);

}  // namespace yoke::train
