// yoke/train/format/safetensors.h -- named tensors in one file that Python and C++ both read, and that cannot run
// code.
#pragma once

#include <ATen/core/Tensor.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "yoke/train/named_tensors.h"

namespace yoke::train {

using StringMap = std::map<std::string, std::string>;

struct TensorFile {
  TensorMap tensors;
  StringMap metadata;  ///< The header's `__metadata__`.
};

/// Reads a whole file; safetensors_reader.h reads parts of one.
///
/// Shapes  as written, 0-dim and empty tensors included. Every tensor is a contiguous copy on the CPU, so the file may
///         go away; its pages are mapped, so ranks that read one file share them.
/// Errors  kDataLoss, with the path, for anything that the format does not allow: nothing is believed before it is
///         checked. As errno says when the file cannot be read.
/// Source  https://github.com/huggingface/safetensors, "Format"; the checks are those of its reference reader, and a
///         BOOL byte must be 0 or 1.
TensorFile read_safetensors(const std::filesystem::path& path);

/// Replaces `path` by a new file, atomically (see replace_file).
///
/// Shapes  any; written contiguous in logical order, whatever the strides. A CUDA tensor is copied to the CPU when its
///         turn comes, one at a time; nothing else is copied.
/// Errors  kInvalidArgument naming the tensor: undefined, sparse, quantized or without data, a dtype that the format
/// lacks, a name
///         or metadata that is not UTF-8. As errno says when writing fails.
void write_safetensors(const std::filesystem::path& path, const TensorMap& tensors, const StringMap& metadata = {});
TensorMap by_name(const NamedTensors& tensors);  ///< Errors: kInvalidArgument for a name that comes twice.
template <std::same_as<NamedTensors> Tensors>    // so that `{{"a", a}}` is a map
void write_safetensors(const std::filesystem::path& path, const Tensors& tensors, const StringMap& metadata = {}) {
  write_safetensors(path, by_name(tensors), metadata);
}

// The parts of both, for those who check or store the bytes in their own way, as checkpoints do.

/// Where one tensor lies.
struct TensorSlot {
  std::string name;
  at::ScalarType dtype = at::kFloat;
  std::vector<int64_t> shape;
  int64_t begin_byte = 0;  ///< From the end of the header; end_byte is one past the last.
  int64_t end_byte = 0;
};

struct SafetensorsHeader {
  int64_t num_bytes = 0;          ///< With the length field: where the data begins.
  std::vector<TensorSlot> slots;  ///< In the order of the data, which they cover without gap or overlap.
  StringMap metadata;
};

/// Checks everything but the values of the data. Errors: kDataLoss, beginning with `what`, the file's name.
SafetensorsHeader parse_safetensors_header(std::span<const std::byte> file, const std::string& what);

/// A file before its data: decided first, written afterwards.
struct SafetensorsLayout {
  std::string header;              ///< The file's first bytes, length field included; a multiple of 8.
  std::vector<std::string> order;  ///< Names in the order of the data: wide dtypes first, so that all are aligned.
  int64_t num_bytes = 0;           ///< Of the whole file.
};
SafetensorsLayout lay_out_safetensors(const TensorMap& tensors, const StringMap& metadata);

/// Hands the data to `sink`, tensor by tensor in the layout's order.
void stream_tensors(const SafetensorsLayout& layout, const TensorMap& tensors,
                    const std::function<void(std::span<const std::byte>)>& sink);

}  // namespace yoke::train
