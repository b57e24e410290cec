#include "yoke/train/detail/own_kernels.h"

#include <c10/util/Exception.h>
#include <torch/library.h>

#include <cstdlib>
#include <string_view>

#include "yoke/contract/variables.h"

namespace yoke::train::detail {

bool replace_kernels() {
  const auto* const wish = std::getenv(variable::kKernels);
  if (wish != nullptr && std::string_view(wish) == "libtorch") return false;
  struct : c10::WarningHandler {
    void process(const c10::Warning&) override {}
  } quiet;  // libtorch warns of a kernel that is replaced
  const c10::WarningUtils::WarningHandlerGuard guard(&quiet);
  try {
    // It is never destroyed: threads may use the kernels until the process ends.
    static auto* const library =
        new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::CPU, __FILE__, __LINE__);
    library->impl("max_pool2d_with_indices", &max_pool2d);
    library->impl("max_pool2d_with_indices_backward", &max_pool2d_backward);
    library->impl("bernoulli_.float", &bernoulli_);
  } catch (const c10::Error&) {
    return false;  // a libtorch whose operators have other arguments keeps its kernels
  }
  return true;
}

}  // namespace yoke::train::detail
