#include "yoke/dist/detail/nccl_engine.h"

#include <tuple>

namespace yoke::dist {

std::string nccl_engine(const NcclOfTorch& torch, const Environment& environment) {
  if (!torch.has_nccl2) return "nccl";
  const bool is_default = std::tuple(torch.major, torch.minor) >= std::tuple(2, 15);
  const auto wish = environment.find("TORCH_DIST_USE_NCCL2");
  return (is_default ? wish != "0" : wish == "1") ? "nccl2" : "nccl-legacy";
}

}  // namespace yoke::dist
