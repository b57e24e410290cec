// yoke/infer/run.h -- the program behind `yoke infer`: predicts all samples of an input, on all ranks, into a file.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "yoke/infer/model.h"
#include "yoke/infer/request.h"
#include "yoke/train/checkpoint/stored_checkpoint.h"

namespace yoke::infer {

using OpenModel = std::function<Model(const Request& request, c10::Device device)>;

/// A main function. `words` are those of request_of(). Returns the exit status.
int main_of(const std::vector<std::string>& words, const OpenModel& open);

/// The first argument with which `yoke infer` starts a recipe's program; words for main_of_recipe() follow.
inline constexpr const char* kInferWord = "--yoke-infer";

/// What a recipe's main function begins with: predicts with the network of a checkpoint if `yoke infer` has started the
/// program. Returns nullopt otherwise.
///
///     if (const auto status = infer::main_of_recipe(argc, argv, network_of)) return *status;
///
/// `network` makes the network that the checkpoint's metadata describe, loads part("model"), moves it to the device and
/// sets evaluation mode.
using NetworkOfCheckpoint = std::function<Model(const train::StoredCheckpoint& checkpoint, c10::Device device)>;
std::optional<int> main_of_recipe(int argc, char** argv, const NetworkOfCheckpoint& network);

}  // namespace yoke::infer
