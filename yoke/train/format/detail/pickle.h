// yoke/train/format/detail/pickle.h -- reads a pickle of tensors and plain data without executing it.
//
// A pickle is a program for a stack machine, and may call any function. This parser makes no calls. It accepts the
// opcodes of plain data, and the few names with which torch.save describes tensors. The parser refuses everything else.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace yoke::train {

/// Refers to an object of the pickle: the index of its node in Pickle.
using PickleRef = uint32_t;

struct PickleList {
  std::vector<PickleRef> items;
};
struct PickleTuple {
  std::vector<PickleRef> items;
};
struct PickleDict {
  /// The entries as written: keys may be of any kind and may repeat.
  std::vector<std::pair<PickleRef, PickleRef>> items;
};

/// The meaning of a name in a pickle. For a storage class or a dtype, `dtype` is torch's name of the dtype.
struct PickleGlobal {
  enum class Kind {
    kOrderedDict,
    kTensor,  ///< torch._utils._rebuild_tensor and _v2
    kTensorWithDtype,
    kTensorOfClass,  ///< torch._tensor._rebuild_from_type_v2: a tensor with attributes
    kTensorClass,    ///< torch.Tensor, torch.nn.parameter.Parameter, torch.FloatTensor, ...
    kParameter,
    kSize,
    kDevice,
    kDtype,
    kStorage,
  };
  Kind kind;
  std::string_view dtype;
};

struct PickleStorage {
  std::string_view dtype;  ///< "uint8" for a storage without a dtype.
  std::string_view key;    ///< In an archive, the storage is the entry data/KEY.
  int64_t num_elements = 0;
  /// The elements that tensors see. Before torch 0.4 a storage could be a part of another one; now they are all.
  int64_t first = 0, count = 0;
};

/// A tensor that is not yet checked against its storage.
struct PickleTensor {
  PickleRef storage = 0;
  std::string_view dtype;
  int64_t offset = 0;  ///< In elements, like the strides.
  std::vector<int64_t> sizes, strides;
  bool conjugated = false, negated = false;  ///< Flags that torch stores next to the values.
};

/// Any other object: a set, bytes, or an object of some class. The parser skips such an object without keeping or
/// executing any part of it. So a file may contain such objects in addition to the data that a caller reads.
struct PickleOpaque {
  std::string_view what;          ///< "a set"; empty if `module` and `name` describe the object.
  std::string_view module, name;  ///< Name the class or function.
};
/// Returns why the object cannot be read.
std::string reason_of(const PickleOpaque& opaque);

using PickleNode = std::variant<std::monostate, bool, int64_t, double, std::string_view, PickleList, PickleTuple,
                                PickleDict, PickleGlobal, PickleStorage, PickleTensor, PickleOpaque>;

/// Each object is one node, even if the pickle refers to it several times. An object may contain itself.
struct Pickle {
  std::vector<PickleNode> nodes;
  PickleRef root = 0;
  size_t num_bytes = 0;           ///< Size of the pickle itself.
  std::deque<std::string> texts;  ///< Texts that are not contained in the pickle's bytes.
};

/// Reads a pickle of protocol 2 to 5. Texts are views of `bytes`. Memory and time are linear in the size of `bytes`,
/// for any content. torch.Size becomes a tuple; a device becomes its text ("cuda:1"); a parameter becomes its tensor.
/// An OrderedDict becomes a dictionary without its attributes (in a state_dict these are versions of modules); a tensor
/// loses its attributes too. Texts of Python 2 are read as UTF-8, as torch.load does.
/// Errors kDataLoss, beginning with `what`: names the invalid content of a tensor, list or dictionary, the unknown
/// opcode, or the malformed part.
Pickle parse_pickle(std::span<const std::byte> bytes, const std::string& what);

/// As parse_pickle, but other bytes may follow the pickle.
Pickle parse_first_pickle(std::span<const std::byte> bytes, const std::string& what);

}  // namespace yoke::train
