// yoke/dist/detail/single_tensor_collectives.h -- the collectives of c10d that libtorch 2.13 has renamed.
//
// Each function calls the new name if the group has it, because the old one is deprecated there, and otherwise the old
// name. They are templates so that only the call that exists is compiled.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace yoke::dist {

template <typename ProcessGroup>
auto all_to_all_single(ProcessGroup& group, at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                       std::vector<int64_t>& input_splits) {
  if constexpr (requires { group.all_to_all_single(output, input, output_splits, input_splits); }) {
    return group.all_to_all_single(output, input, output_splits, input_splits);
  } else {
    return group.alltoall_base(output, input, output_splits, input_splits);
  }
}

template <typename ProcessGroup>
auto all_gather_single(ProcessGroup& group, at::Tensor& output, at::Tensor& input) {
  if constexpr (requires { group.all_gather_single(output, input); }) {
    return group.all_gather_single(output, input);
  } else {
    return group._allgather_base(output, input);
  }
}

template <typename ProcessGroup, typename Options>
auto reduce_scatter_single(ProcessGroup& group, at::Tensor& output, at::Tensor& input, const Options& options) {
  if constexpr (requires { group.reduce_scatter_single(output, input, options); }) {
    return group.reduce_scatter_single(output, input, options);
  } else {
    return group._reduce_scatter_base(output, input, options);
  }
}

}  // namespace yoke::dist
