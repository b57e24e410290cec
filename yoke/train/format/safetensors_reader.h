// yoke/train/format/safetensors_reader.h -- tensors out of safetensors files without reading the rest of them.
#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "yoke/train/format/safetensors.h"
#include "yoke/train/format/tensor_mapping.h"

namespace yoke::train {

/// A safetensors file, or the set of files that an index (`*.index.json`) names, open by mapping. Construction reads
/// the headers; values come from the disk when they are used.
///
///     const SafetensorsReader reader("model.safetensors.index.json");
///     const auto rows = reader.rows("embedding.weight", rank * 1000, 1000);
///
/// The tensors view the file (see TensorMapping for what that means) and may outlive the reader. One whose bytes are
/// not aligned for its dtype, which the format allows, is copied instead.
class SafetensorsReader {
 public:
  /// Errors  kNotFound when a file is not there: for a shard with the index and a tensor that is lost with it;
  ///         kDataLoss, with the path, for what the format does not allow, and for a tensor of the index that its shard
  ///         lacks.
  explicit SafetensorsReader(const std::filesystem::path& path);

  std::vector<std::string> names() const;  ///< Ascending.
  bool contains(const std::string& name) const { return places_.contains(name); }

  /// Dtype, shape and place in its file. Errors: kNotFound naming file and tensor.
  const TensorSlot& slot(const std::string& name) const;

  /// The header's `__metadata__`; of a set of files, that of all, where the first that has a key counts.
  const StringMap& metadata() const { return metadata_; }

  /// Errors  kNotFound as above; kDataLoss for a BOOL that is neither 0 nor 1 (for which all of it is read).
  at::Tensor tensor(const std::string& name) const;

  /// [count, ...]: the rows from `first` on of a tensor with at least one dimension; the others are not read.
  /// Errors  as above; kInvalidArgument when they are not there.
  at::Tensor rows(const std::string& name, int64_t first, int64_t count) const;

  /// [count]: the elements from `first` on, in contiguous order. Errors: as rows.
  at::Tensor elements(const std::string& name, int64_t first, int64_t count) const;

  TensorMap tensors() const;  ///< All of them.

  std::span<const std::byte> bytes(const std::string& name) const;  ///< Of one tensor's values, as they are stored.
  /// The whole file, header included. REQUIRES: it is not an index.
  std::span<const std::byte> file() const { return shards_.front().mapping.bytes(); }
  int64_t header_bytes() const { return shards_.front().header.num_bytes; }

 private:
  struct Shard {
    std::filesystem::path path;
    TensorMapping mapping;
    SafetensorsHeader header;
  };
  struct Place {
    size_t shard;
    size_t slot;
  };

  const Place& place_of(const std::string& name) const;
  at::Tensor view(const std::string& name, int64_t first_byte, const std::vector<int64_t>& shape) const;
  void open_index();

  std::filesystem::path path_;
  std::vector<Shard> shards_;
  std::map<std::string, Place> places_;
  StringMap metadata_;
};

}  // namespace yoke::train
