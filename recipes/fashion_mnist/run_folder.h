// recipes/fashion_mnist/run_folder.h -- where a run's checkpoints and figures go.
#pragma once

#include <filesystem>
#include <string>

namespace fashion_mnist {

/// `wanted`, or when that is empty: to resume the newest of runs/fashion-mnist, runs/fashion-mnist-2, ..., and to start
/// the first of these names that is free, which it makes. Only rank 0 calls it, and tells the others.
/// Errors  kFailedPrecondition: a new run would write into a folder that holds another run's checkpoints.
///         kNotFound: nothing to resume.
std::filesystem::path choose_run_folder(const std::string& wanted, bool resume);

}  // namespace fashion_mnist
