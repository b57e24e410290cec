// Classifies events by the names that Kineto gives them. No other file depends on these names.
#include <algorithm>
#include <initializer_list>
#include <iterator>
#include <string_view>
#include <utility>

#include "yoke/base/environment.h"
#include "yoke/profile/trace.h"

namespace yoke::profile {
namespace {

bool has_any(std::string_view text, std::initializer_list<std::string_view> parts) {
  return std::ranges::any_of(parts, [&](std::string_view part) { return text.find(part) != text.npos; });
}

bool begins_with_any(std::string_view text, std::initializer_list<std::string_view> parts) {
  return std::ranges::any_of(parts, [&](std::string_view part) { return text.starts_with(part); });
}

/// Kineto had other names for categories until 2021 and 2022: torch 1.8 to 1.11 write some or all of them.
std::string_view todays(std::string_view category) {
  constexpr std::pair<std::string_view, std::string_view> kOld[] = {{"Operator", "cpu_op"},
                                                                    {"Kernel", "kernel"},
                                                                    {"Memcpy", "gpu_memcpy"},
                                                                    {"Memset", "gpu_memset"},
                                                                    {"Runtime", "cuda_runtime"}};
  const auto found = std::ranges::find(kOld, category, &std::pair<std::string_view, std::string_view>::first);
  return found == std::end(kOld) ? category : found->second;
}

/// Returns whether an event of the category cpu_op is an annotation: torch had no category for these before 1.12.
bool is_annotation(std::string_view name) {
  return begins_with_any(name, {"ProfilerStep#", "enumerate(DataLoader)", "data_loading", "Optimizer.",
                                "gloo:", "mpi:", "ucc:", "yoke:", "nccl:"});
}

Kind kind_of_annotation(std::string_view name) {
  if (begins_with_any(name, {"enumerate(DataLoader)", "data_loading"})) return Kind::kLoader;
  if (begins_with_any(name, {"Optimizer.step"})) return Kind::kOptimizer;
  if (begins_with_any(name, {"gloo:", "mpi:", "ucc:", "yoke:"})) return Kind::kHostCollective;
  return Kind::kIgnored;
}

/// The kernel names of cuBLAS, cuDNN and CUTLASS tell which units a kernel uses: `sgemm` and `simt` mean ordinary
/// units; `s1688gemm`, `tensorop` and `tf32` mean tensor cores. If a name has none of these parts, as on AMD, the
/// kernel counts as kKernel.
Kind kind_of_kernel(std::string_view name) {
  if (begins_with_any(name, {"nccl", "ncclDevKernel", "ncclKernel", "rccl", "mscclKernel"})) {
    return Kind::kDeviceCollective;
  }
  const bool is_plain = has_any(name, {"sgemm", "_simt_", "f32f32_f32f32", "winograd"});
  if (is_plain && !has_any(name, {"tensorop", "tf32", "1688", "884", "16816"})) return Kind::kPlainMatmul;
  // A kernel of multi_tensor_apply or Triton already combines several operations.
  const bool is_one = has_any(name, {"elementwise", "reduce_kernel", "oftmax", "ayer_norm", "LayerNorm", "atch_norm",
                                     "bn_fw", "bn_bw", "ropout"});
  return is_one && !has_any(name, {"triton", "multi_tensor_apply"}) ? Kind::kMemoryBound : Kind::kKernel;
}

Kind kind_of(std::string_view category, std::string_view name) {
  if (category == "cpu_op") {
    return begins_with_any(name, {"c10d::", "torch::distributed::reducer::"}) ? Kind::kCollectiveCall
                                                                              : Kind::kOperation;
  }
  if (category == "user_annotation") return kind_of_annotation(name);
  if (category == "gpu_user_annotation") {
    return kind_of_annotation(name) == Kind::kOptimizer ? Kind::kDeviceOptimizer : Kind::kIgnored;
  }
  if (category == "kernel") return kind_of_kernel(name);
  if (category == "gpu_memset") return Kind::kKernel;
  if (category == "gpu_memcpy") {
    if (!has_any(name, {"HtoD", "DtoH"})) return Kind::kKernel;
    return has_any(name, {"Pageable"}) ? Kind::kPageableCopy : Kind::kHostCopy;
  }
  if (category == "cuda_runtime" || category == "cuda_driver") {
    const bool waits = has_any(name, {"Synchronize"}) || name == "cudaMemcpy" || name == "hipMemcpyWithStream";
    return waits ? Kind::kSync : has_any(name, {"Memcpy"}) ? Kind::kCopyCall : Kind::kIgnored;
  }
  return Kind::kIgnored;
}

}  // namespace

Name classify(std::string_view category, std::string text) {
  constexpr std::string_view kStepPrefix = "ProfilerStep#";
  category = todays(category);
  if (category == "cpu_op" && is_annotation(text)) category = "user_annotation";
  if (category == "user_annotation" && text.starts_with(kStepPrefix)) {
    const auto step = parse_int(std::string_view(text).substr(kStepPrefix.size()));
    if (step && *step >= 0) return {std::move(text), Kind::kStep, *step};
  }
  const auto kind = kind_of(category, text);
  return {std::move(text), kind, -1};
}

}  // namespace yoke::profile
