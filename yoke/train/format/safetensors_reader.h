// yoke/train/format/safetensors_reader.h -- reads tensors from safetensors files without reading the rest of the files.
#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "yoke/train/format/safetensors.h"
#include "yoke/train/format/tensor_mapping.h"

namespace yoke::train {

/// A safetensors file, or the set of files that an index (`*.index.json`) names. The files are mapped. The constructor
/// reads only the headers; values are read from the disk when they are used.
///
///     const SafetensorsReader reader("model.safetensors.index.json");
///     const auto rows = reader.rows("embedding.weight", rank * 1000, 1000);
///
/// The tensors are views of the file (see TensorMapping) and may outlive the reader. The format allows a tensor whose
/// bytes are not aligned for its dtype; such a tensor is copied.
class SafetensorsReader {
 public:
  /// Errors  kNotFound: a file does not exist (for a shard, names the index and a tensor in it); kDataLoss, with the
  ///         path: the format does not allow the content, or a shard lacks a tensor of the index.
  explicit SafetensorsReader(const std::filesystem::path& path);

  std::vector<std::string> names() const;  ///< Ascending.
  bool contains(const std::string& name) const { return places_.contains(name); }

  /// Dtype, shape and position in its file. Errors: kNotFound naming file and tensor.
  const TensorSlot& slot(const std::string& name) const;

  /// The header's `__metadata__`; for a set of files, their union. If files have the same key, the first file's value
  /// is kept.
  const StringMap& metadata() const { return metadata_; }

  /// Errors kNotFound as slot(); kDataLoss: a BOOL is neither 0 nor 1 (the check reads the whole tensor);
  /// kFailedPrecondition: libtorch lacks the dtype, but bytes() has the values.
  at::Tensor tensor(const std::string& name) const;

  /// Returns [count, ...]: rows [first, first + count) of a tensor with at least one dimension. Other rows are not
  /// read.
  /// Errors  as tensor(); kInvalidArgument: the rows do not exist.
  at::Tensor rows(const std::string& name, int64_t first, int64_t count) const;

  /// Returns [count]: elements [first, first + count) of the flattened tensor. Errors: as rows().
  at::Tensor elements(const std::string& name, int64_t first, int64_t count) const;

  TensorMap tensors() const;  ///< All tensors.

  std::span<const std::byte> bytes(const std::string& name) const;  ///< One tensor's values as stored.
  /// The whole file, including the header. REQUIRES: the reader was constructed from a single file, not an index.
  std::span<const std::byte> file() const { return shards_.front().mapping.bytes(); }
  int64_t header_bytes() const { return shards_.front().header.num_bytes; }

 private:
  struct Shard {
    std::filesystem::path path;
    TensorMapping mapping;
    SafetensorsHeader header;
  };
  struct Address {
    size_t shard;
    size_t slot;
  };

  const Address& place_of(const std::string& name) const;
  const TensorSlot& readable_slot(const std::string& name) const;
  at::Tensor view(const std::string& name, int64_t first_byte, const std::vector<int64_t>& shape) const;
  void open_index();

  std::filesystem::path path_;
  std::vector<Shard> shards_;
  std::map<std::string, Address> places_;
  StringMap metadata_;
};

}  // namespace yoke::train
