// yoke/train/format/detail/pickle.h -- what a pickle of tensors and plain data says, without obeying it.
//
// A pickle is a program for a stack machine that may call anything. This machine has no calls: it knows the opcodes of
// plain data, and the few names by which torch.save describes tensors, and refuses everything else.
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

/// An object of the pickle: the index of a node.
using PickleRef = uint32_t;

struct PickleList {
  std::vector<PickleRef> items;
};
struct PickleTuple {
  std::vector<PickleRef> items;
};
struct PickleDict {
  std::vector<std::pair<PickleRef, PickleRef>> items;  ///< As written: keys may be of any kind, and come twice.
};

/// One of the names that a pickle may hold; for a storage class or a dtype, torch's name of the dtype.
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
  std::string_view dtype;  ///< "uint8" when it has none of its own.
  std::string_view key;    ///< Its entry is data/KEY.
  int64_t num_elements = 0;
};

/// Not yet checked against its storage.
struct PickleTensor {
  PickleRef storage = 0;
  std::string_view dtype;
  int64_t offset = 0;  ///< In elements, like the strides.
  std::vector<int64_t> sizes, strides;
  bool conjugated = false, negated = false;  ///< Marks that torch keeps beside the values.
};

/// Anything else: a set, bytes, an object of some class. It was read over, and nothing of it is known or was executed.
/// So a file may have such things beside what somebody asks for.
struct PickleOpaque {
  std::string_view what;          ///< "a set"; empty where the names say it.
  std::string_view module, name;  ///< Of the class or function.
};
/// Why it cannot be read.
std::string reason_of(const PickleOpaque& opaque);

using PickleNode = std::variant<std::monostate, bool, int64_t, double, std::string_view, PickleList, PickleTuple,
                                PickleDict, PickleGlobal, PickleStorage, PickleTensor, PickleOpaque>;

/// Objects that the pickle shares are one node; they may even contain themselves.
struct Pickle {
  std::vector<PickleNode> nodes;
  PickleRef root = 0;
  std::deque<std::string> texts;  ///< Those that the bytes do not hold.
};

/// Reads a pickle of protocol 2 to 5. Texts view `bytes`. Memory and time grow with its size, whatever it says.
///
/// torch.Size is a tuple here, a device its text ("cuda:1"), an OrderedDict a dictionary without its attributes (those
/// of a state_dict are versions of modules), a parameter its tensor.
/// Errors  kDataLoss, beginning with `what`: naming what a tensor, list or dictionary is said to be made of and cannot
/// be;
///         an opcode that is not known; or saying what is malformed.
Pickle parse_pickle(std::span<const std::byte> bytes, const std::string& what);

}  // namespace yoke::train
