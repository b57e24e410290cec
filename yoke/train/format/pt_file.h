// yoke/train/format/pt_file.h -- `.pt` files: reads files of Python's torch.save without executing their pickle, and
// writes files that torch.load(weights_only=True) reads.
//
//     const auto weights = read_state_dict("model.pt");                    // torch.save(model.state_dict(), ...)
//     const auto of_trainer = read_state_dict("last.pt", {"state_dict"});  // a dictionary in the file's dictionary
//     write_pt("ours.pt", to_pt(named_tensors(*model)));
#pragma once

#include <concepts>
#include <filesystem>
#include <string>
#include <vector>

#include "yoke/train/format/pt_value.h"
#include "yoke/train/format/safetensors.h"

namespace yoke::train {

/// Reads a file of torch.save: a zip archive, or the layout before torch 1.6.
///
/// Shapes   sizes, strides and dtypes as saved, on the CPU; tensors that shared a storage still share it. The tensors
///          view the mapped file (see TensorMapping).
/// Lost     types that plain data cannot express: torch.Size becomes a tuple, a device or dtype its text ("cuda:1",
///          "torch.float32"), an OrderedDict a dictionary, a Parameter a tensor that does not require grad. Attributes
///          of tensors and dictionaries are dropped.
/// Refused  (with the name) every other class or function, sparse and quantized tensors, bytes, sets, integers of more
///          than 64 bits. Nothing in the file is executed or used unchecked.
/// Errors   kDataLoss, with the path, for refused objects and for malformed or changed data (each entry of an archive
///          has a CRC-32); kFailedPrecondition for TorchScript and for tar files (torch until 2017), with the way to
///          convert them; as errno says if the file cannot be read.
PtValue read_pt(const std::filesystem::path& path);

/// Reads a dictionary of tensors from a file of torch.save: the outermost dictionary, or a nested one to which `keys`
/// lead. Ignores all other data in the file, even objects that read_pt refuses, such as a trainer's sets, bytes,
/// counters and arguments. In the dictionary itself, ignores None and what get_extra_state() of a module gave
/// ("NAME._extra_state"), unless it is a tensor.
///
/// Errors  as read_pt; kInvalidArgument: `keys` lead nowhere (lists the existing keys), or a value is not a tensor.
TensorMap read_state_dict(const std::filesystem::path& path, const std::vector<std::string>& keys = {});

/// Replaces `path` by a new file, atomically (see replace_file). Equal values give equal bytes.
///
/// Shapes  any. As in Python, each storage is written whole and once, even if several tensors view it. So clone() a
///         small slice of a large tensor first. A storage viewed with two dtypes is written once for each dtype. CUDA
///         tensors are copied to the CPU one at a time.
/// Errors  kInvalidArgument saying where: an undefined, sparse or quantized tensor, a text that is not UTF-8, an
///         invalid key, or values nested more than 256 deep. As errno says if writing fails.
void write_pt(const std::filesystem::path& path, const PtValue& value);

/// Errors kInvalidArgument, naming the tensor, if it is divided between ranks. Call gather_tensors first.
PtItem pt_item(const std::string& name, const at::Tensor& tensor);
PtDict to_pt(const TensorMap& tensors);
/// Keeps the order of the tensors; for a module it is that of Python's state_dict (named_tensors in module_state.h).
template <std::same_as<NamedTensors> Tensors>  // a template, so that `{{"a", a}}` is a TensorMap
PtDict to_pt(const Tensors& tensors) {
  PtDict dict;
  for (const auto& [name, tensor] : tensors) dict.items.push_back(pt_item(name, tensor));
  return dict;
}

/// Limit for the nesting of values. Applies to reading and writing.
inline constexpr int kMaxPtDepth = 256;

}  // namespace yoke::train
