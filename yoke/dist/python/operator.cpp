// Shared memory for torch.distributed in Python. python/yoke_torch/__init__.py loads this library and calls the
// operator.
//
// torch's registry of operators passes process groups between Python and C++, so nothing of Python is needed here.
#include <torch/library.h>

#include <chrono>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "yoke/dist/detail/shared_memory.h"
#include "yoke/dist/detail/shared_work.h"

namespace yoke::dist {
namespace {

using Group = c10::intrusive_ptr<c10d::ProcessGroup>;

/// Collective. `gloo` has a store of its ranks, and Gloo as the backend of the CPU. The result has the backend that the
/// ranks should use: shared memory, or Gloo if not all of them can share it.
Group share_memory_of(const Group& gloo, int64_t timeout_ms) {
  const auto backend = share_memory(
      *gloo->getStore(), [&] { return gloo->getBackend(c10::DeviceType::CPU); },
      {.rank = gloo->getRank(), .size = gloo->getSize(), .timeout = std::chrono::milliseconds(timeout_ms)});
  auto result = c10::make_intrusive<c10d::ProcessGroup>(gloo->getStore(), gloo->getRank(), gloo->getSize());
  result->setBackend(c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::CUSTOM, backend);
  return result;
}

}  // namespace
}  // namespace yoke::dist

TORCH_LIBRARY_FRAGMENT(yoke, library) {
  library.def("may_share() -> bool", &yoke::dist::offers_shared_memory);
  library.def(
      "share_memory(__torch__.torch.classes.c10d.ProcessGroup gloo, int timeout_ms) -> "
      "__torch__.torch.classes.c10d.ProcessGroup",
      &yoke::dist::share_memory_of);
  library.def("wait_for_callbacks(int timeout_ms) -> bool", [](int64_t timeout_ms) {
    return yoke::dist::Callbacks::wait_for_all(std::chrono::milliseconds(timeout_ms));
  });
}
