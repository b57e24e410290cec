// yoke/dist/gpu/graphs.h -- graphs of a GPU, as at::cuda::CUDAGraph has them.
#pragma once

#include <c10/core/Device.h>

#include <memory>

#include "yoke/dist/plug.h"

namespace yoke::dist::gpu {

std::unique_ptr<GraphMaker> make_graph_maker(c10::DeviceIndex index);

}  // namespace yoke::dist::gpu
