// recipes/common/training.h -- small parts of trainings that recipes share.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <functional>

namespace torch::nn {
class Module;
}
namespace yoke::dist {
class World;
}
namespace yoke::infer {
struct Model;
}
namespace yoke::train {
class Run;
struct StoredCheckpoint;
}  // namespace yoke::train

namespace recipes {

struct Options;

/// Threads that make batches: 2 beside a GPU. On the CPU none, because they would compete with the training.
int64_t num_workers(const yoke::dist::World& world);

/// Collective. Rank 0 calls `act`, such as to write files, and the others wait. If it throws, all ranks do.
void on_rank_zero(yoke::dist::World& world, const std::function<void()>& act);

/// Converts the weights of convolutions to channels_last, which their kernels need for images in that format.
void to_channels_last(torch::nn::Module& module);

/// For infer::main_of_recipe, if checkpoints do not say the sizes of the network, but a run ends with the folder
/// `model`. Errors  kFailedPrecondition, always: names the folder.
yoke::infer::Model model_of_folder_only(const yoke::train::StoredCheckpoint& checkpoint, c10::Device device);

/// Adds to the run's state what a resumed run needs besides the network and its optimizer: generators, and the number
/// of threads, which --deterministic takes from the checkpoint.
void add_rest(yoke::train::Run& run, const Options& options);

}  // namespace recipes
