// yoke/train/format/safetensors.h -- named tensors in one file, readable in Python and C++; a file contains no code.
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
#include <string_view>
#include <vector>

#include "yoke/train/named_tensors.h"

namespace yoke::train {

using StringMap = std::map<std::string, std::string>;

struct TensorFile {
  TensorMap tensors;
  StringMap metadata;  ///< The header's `__metadata__`.
};

/// Reads a whole file; safetensors_reader.h reads parts of a file.
///
/// Shapes  as written, including 0-dim and empty tensors. Every tensor is a contiguous copy on the CPU, so the file may
///         be removed afterwards. The file is mapped, so ranks that read the same file share its pages.
/// Errors  kDataLoss, with the path, for everything that the format does not allow; no value is used before it is
///         checked. kFailedPrecondition: a tensor has a dtype that libtorch lacks (names it; a SafetensorsReader reads
///         the others). As errno says if the file cannot be read.
/// Source  https://github.com/huggingface/safetensors, "Format"; the checks are those of its reference reader; in
///         addition, a BOOL byte must be 0 or 1.
TensorFile read_safetensors(const std::filesystem::path& path);

/// Replaces `path` by a new file, atomically (see replace_file). Tensors may have any shape and strides; elements are
/// written in logical order. CUDA tensors are copied to the CPU one at a time; nothing else is copied. Errors
/// kInvalidArgument naming the tensor: it is undefined, sparse, quantized or without data, the format lacks its dtype,
/// or a name or metadata is not UTF-8. As errno says if writing fails.
void write_safetensors(const std::filesystem::path& path, const TensorMap& tensors, const StringMap& metadata = {});
TensorMap by_name(const NamedTensors& tensors);  ///< Errors: kInvalidArgument: a name appears twice.
template <std::same_as<NamedTensors> Tensors>    // a template, so that `{{"a", a}}` is a TensorMap
void write_safetensors(const std::filesystem::path& path, const Tensors& tensors, const StringMap& metadata = {}) {
  write_safetensors(path, by_name(tensors), metadata);
}

// The steps of reading and writing, for code that checks or stores the bytes itself, such as checkpoints.

/// The position of one tensor.
struct TensorSlot {
  std::string name;
  at::ScalarType dtype = at::kFloat;  ///< Undefined if libtorch lacks it (F6, or F4 with an odd last size).
  std::vector<int64_t> shape;         ///< As libtorch has it: two elements of F4 are one of Float4_e2m1fn_x2.
  int64_t begin_byte = 0;  ///< Counted from the end of the header. end_byte is the position after the last byte.
  int64_t end_byte = 0;
  std::string_view dtype_name = {};  ///< The format's name of the dtype, "F32"; only of a file that was read.
};

struct SafetensorsHeader {
  int64_t num_bytes = 0;          ///< Size of the header with its length field; the data begins there.
  std::vector<TensorSlot> slots;  ///< In the order of the data, without gaps and overlaps.
  StringMap metadata;
};

/// Checks everything except the values of the data. Errors: kDataLoss, beginning with `what`, the file's name.
SafetensorsHeader parse_safetensors_header(std::span<const std::byte> file, const std::string& what);

/// The layout of a file, computed before it is written.
struct SafetensorsLayout {
  std::string header;              ///< The first bytes of the file, with the length field; a multiple of 8 bytes.
  std::vector<std::string> order;  ///< Names in the order of the data: wide dtypes first, so that all are aligned.
  int64_t num_bytes = 0;           ///< Size of the whole file.
};
SafetensorsLayout lay_out_safetensors(const TensorMap& tensors, const StringMap& metadata);

/// Passes the data to `sink`, tensor by tensor in the layout's order.
void stream_tensors(const SafetensorsLayout& layout, const TensorMap& tensors,
                    const std::function<void(std::span<const std::byte>)>& sink);

}  // namespace yoke::train
