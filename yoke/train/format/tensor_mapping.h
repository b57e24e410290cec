// yoke/train/format/tensor_mapping.h -- tensors whose memory is the mapped pages of a file.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>

namespace yoke::train {

/// A mapped file. The mapping lasts until the last tensor that views it is destroyed. Copies of this object share it.
///
/// The mapping is private: writing to such a tensor copies the page for this process and never changes the file. Pages
/// are read on first access, and ranks on one machine share all pages that no rank has written to. The file may be
/// replaced by rename. If the file is truncated, accessing a removed page raises SIGBUS.
class TensorMapping {
 public:
  /// Errors  as errno says, with the path; kDataLoss: it is not a regular file.
  explicit TensorMapping(const std::filesystem::path& path);

  std::span<const std::byte> bytes() const;

  /// Returns a storage that views the file's bytes. If they do not begin at a multiple of `alignment_bytes`, the
  /// storage is a copy. REQUIRES: the range is inside the file.
  c10::Storage storage(int64_t begin_byte, int64_t num_bytes, int64_t alignment_bytes) const;

 private:
  struct Pages;
  std::shared_ptr<const Pages> pages_;
};

/// Returns a tensor that views `storage`. REQUIRES: every element is inside the storage.
at::Tensor view_of(const c10::Storage& storage, at::ScalarType dtype, int64_t offset, at::IntArrayRef sizes,
                   at::IntArrayRef strides);

/// Returns whether each byte is 0 or 1, as a tensor of bools requires.
bool are_bools(std::span<const std::byte> bytes);

}  // namespace yoke::train
