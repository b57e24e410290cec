// tests/profile/simulation.h -- trainings on devices that are not here, and the traces that Kineto would make of them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace yoke::test {

/// A training as a host that launches kernels and a device that runs them in order. Times in microseconds. Without
/// changes it is healthy.
struct Training {
  int64_t seed = 0;
  int64_t num_ranks = 1;
  int64_t num_steps = 6;
  bool has_device = true;
  bool marks_steps = true;
  int64_t num_layers = 24;
  double matmul_us = 400;      ///< Forward; backward takes twice as long.
  double elementwise_us = 12;  ///< Each of the elementwise kernels behind it.
  int64_t num_elementwise = 1;
  double launch_us = 7;  ///< What the host needs for a kernel.
  bool uses_tensor_cores = true;
  double loader_us = 60;
  double copy_us = 100;
  bool is_pinned = true;
  int64_t num_syncs = 0;        ///< `.item()` in each step.
  double collective_us = 1500;  ///< With several ranks: each of four, while backward goes on.
  double late_us = 0;           ///< What the last rank computes longer.
  double optimizer_us = 700;
  int64_t num_optimizer_kernels = 4;
};

struct Simulated {
  std::vector<std::string> traces;  ///< JSON as torch 2.11 writes it, by rank.
  double step_us = 0;               ///< How long a step takes.
};

Simulated simulate(const Training& training);

}  // namespace yoke::test
