// yoke/train/format/detail/pickle.h -- reads a pickle of tensors and plain data without executing it.
//
// A pickle is a program for a stack machine that may call any function. The machine here makes no calls: it knows the
// opcodes of plain data and the few names with which torch.save describes tensors, and refuses everything else.
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

/// An object of the pickle: the index of its node in Pickle.
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

/// The meaning of a name that a pickle may hold. For a storage class or a dtype, `dtype` is torch's name of the dtype.
struct PickleGlobal {
  enum class Kind {
    kOrderedDict,
    kTensor,  ///< torch._utils._rebuild_tensor and _v2
    kTensorWithDtype,
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
  std::string_view key;    ///< The storage is the entry data/KEY of the archive.
  int64_t num_elements = 0;
};

/// A tensor that is not yet checked against its storage.
struct PickleTensor {
  PickleRef storage = 0;
  std::string_view dtype;
  int64_t offset = 0;  ///< In elements, like the strides.
  std::vector<int64_t> sizes, strides;
  bool conjugated = false, negated = false;  ///< Flags that torch stores next to the values.
};

/// Any other object: a set, bytes, or an object of some class. It was skipped, and none of it was kept or executed.
/// This allows a file to contain such objects in addition to the data that a caller reads.
struct PickleOpaque {
  std::string_view what;          ///< "a set"; empty if `module` and `name` describe the object.
  std::string_view module, name;  ///< They name the class or function.
};
/// Returns why the object cannot be read.
std::string reason_of(const PickleOpaque& opaque);

using PickleNode = std::variant<std::monostate, bool, int64_t, double, std::string_view, PickleList, PickleTuple,
                                PickleDict, PickleGlobal, PickleStorage, PickleTensor, PickleOpaque>;

/// An object that the pickle refers to several times is one node. It may even contain itself.
struct Pickle {
  std::vector<PickleNode> nodes;
  PickleRef root = 0;
  std::deque<std::string> texts;  ///< Texts that are not contained in the pickle's bytes.
};

/// Reads a pickle of protocol 2 to 5. Texts are views of `bytes`. Memory and time are linear in the size, whatever the
/// content. torch.Size becomes a tuple, a device its text ("cuda:1"), an OrderedDict a dictionary without its
/// attributes (in a state_dict these are versions of modules), and a parameter its tensor. Errors kDataLoss, beginning
/// with `what`: names the invalid content of a tensor, list or dictionary, the unknown opcode, or the malformed part.
Pickle parse_pickle(std::span<const std::byte> bytes, const std::string& what);

}  // namespace yoke::train
