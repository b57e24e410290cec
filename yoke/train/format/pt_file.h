// yoke/train/format/pt_file.h -- `.pt` files: what Python's torch.save wrote is read without executing its pickle,
// and what is written here is read by torch.load(weights_only=True).
//
//     const auto weights = read_state_dict("model.pt");                    // torch.save(model.state_dict(), ...)
//     const auto of_trainer = read_state_dict("last.pt", {"state_dict"});  // a dictionary in a dictionary
//     write_pt("ours.pt", to_pt(named_tensors(*model)));
#pragma once

#include <concepts>
#include <filesystem>
#include <string>
#include <vector>

#include "yoke/train/format/pt_value.h"
#include "yoke/train/format/safetensors.h"

namespace yoke::train {

/// Reads a file of torch.save (torch 1.6 or later).
///
/// Shapes   sizes, strides and dtypes as saved, on the CPU; tensors that shared a storage share it. They view the
///          mapped file and may outlive this call: see TensorMapping for what that means.
/// Lost     what plain data cannot say: torch.Size becomes a tuple, a device and a dtype their text ("cuda:1",
///          "torch.float32"), an OrderedDict a dictionary, a Parameter a tensor that does not require grad.
/// Refused  with the name: every other class or function, sparse and quantized tensors, bytes, sets, integers of over
///          64 bits. Nothing that the file says is executed or believed unchecked.
/// Errors   kDataLoss, with the path, for those and for whatever is malformed or changed (each entry has a CRC-32);
///          kFailedPrecondition for the format before torch 1.6 and for TorchScript, with the way to convert them; as
///          errno says when the file cannot be read.
PtValue read_pt(const std::filesystem::path& path);

/// A dictionary of tensors out of such a file: the outermost, or the one that `keys` lead to. What else is in the file
/// is not looked at, and may be what read_pt refuses: a trainer's sets, bytes, counters and arguments.
///
/// Errors  as read_pt; kInvalidArgument when `keys` lead nowhere, with what is there, or when a value is no tensor.
TensorMap read_state_dict(const std::filesystem::path& path, const std::vector<std::string>& keys = {});

/// Replaces `path` by a new file, atomically (see replace_file). The same values give the same bytes.
///
/// Shapes  any. As in Python the whole of each storage is written, once however many tensors view it: clone() a small
///         slice of something large first. A storage viewed with two dtypes is written once for each. CUDA tensors are
///         copied to the CPU one at a time.
/// Errors  kInvalidArgument saying where: an undefined, sparse or quantized tensor, a text that is not UTF-8, a key
///         that is no key, values nested over 256 deep. As errno says when writing fails.
void write_pt(const std::filesystem::path& path, const PtValue& value);

/// Errors  kInvalidArgument, naming the tensor, for one that is divided between ranks (gather_tensors makes it whole).
PtItem pt_item(const std::string& name, const at::Tensor& tensor);
PtDict to_pt(const TensorMap& tensors);
/// In their order: a module's as Python's state_dict has them (named_tensors in module_state.h).
template <std::same_as<NamedTensors> Tensors>  // so that `{{"a", a}}` is a map
PtDict to_pt(const Tensors& tensors) {
  PtDict dict;
  for (const auto& [name, tensor] : tensors) dict.items.push_back(pt_item(name, tensor));
  return dict;
}

/// Of values in values, both ways.
inline constexpr int kMaxPtDepth = 256;

}  // namespace yoke::train
