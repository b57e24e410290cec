// Reads any bytes as a pickle: it is refused with an Error, or gives objects whose references are all valid.
#include <cstdio>
#include <cstdlib>

#include "yoke/base/error.h"
#include "yoke/train/format/detail/pickle.h"

namespace {

void check(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "does not hold: %s\n", what);
  std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, size_t size) {
  using namespace yoke::train;  // NOLINT(google-build-using-namespace): a program of one file
  const auto bytes = std::as_bytes(std::span(data, size));
  Pickle pickle;
  try {
    pickle = parse_pickle(bytes, "file");
  } catch (const yoke::Error&) {
    return 0;
  }
  const auto known = [&](PickleRef ref) { check(ref < pickle.nodes.size(), "a reference is to an object"); };
  known(pickle.root);
  check(pickle.nodes.size() <= size, "an object takes a byte at least");
  for (const auto& node : pickle.nodes) {
    if (const auto* list = std::get_if<PickleList>(&node)) {
      for (const auto ref : list->items) known(ref);
    } else if (const auto* tuple = std::get_if<PickleTuple>(&node)) {
      for (const auto ref : tuple->items) known(ref);
    } else if (const auto* dict = std::get_if<PickleDict>(&node)) {
      for (const auto& [key, value] : dict->items) known(key), known(value);
    } else if (const auto* tensor = std::get_if<PickleTensor>(&node)) {
      known(tensor->storage);
      check(std::holds_alternative<PickleStorage>(pickle.nodes[tensor->storage]), "a tensor has a storage");
      check(tensor->sizes.size() <= 64 && tensor->strides.size() <= 64, "tensors have few dimensions");
    } else if (const auto* storage = std::get_if<PickleStorage>(&node)) {
      check(storage->num_elements >= 0, "sizes are not negative");
    }
  }
  return 0;
}
