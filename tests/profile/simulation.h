// tests/profile/simulation.h -- simulates trainings on devices, and writes the traces that Kineto would write.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace yoke::test {

/// Describes a training: a host that launches kernels, and a device that runs them in order. Times are in microseconds.
/// The default values give a training without a bottleneck.
struct Training {
  int64_t seed = 0;
  int64_t num_ranks = 1;
  int64_t num_steps = 6;
  bool has_device = true;
  bool marks_steps = true;
  int64_t num_layers = 24;
  double matmul_us = 400;      ///< For forward; backward takes twice as long.
  double elementwise_us = 12;  ///< For each elementwise kernel after it.
  int64_t num_elementwise = 1;
  double launch_us = 7;  ///< The time that the host takes to launch a kernel.
  bool uses_tensor_cores = true;
  double loader_us = 60;
  double copy_us = 100;
  bool is_pinned = true;
  int64_t num_syncs = 0;        ///< The number of calls of `.item()` in each step.
  double collective_us = 1500;  ///< For each of four collectives during backward, if there are several ranks.
  double late_us = 0;           ///< How much longer than the others the last rank computes.
  double optimizer_us = 700;
  int64_t num_optimizer_kernels = 4;
};

struct Simulated {
  std::vector<std::string> traces;  ///< One for each rank: JSON as torch 2.11 writes it.
  double step_us = 0;               ///< The duration of a step.
};

Simulated simulate(const Training& training);

/// An operation of a trace, as JSON. `members` are added to it, and begin with a comma.
std::string trace_event(const std::string& members);

}  // namespace yoke::test
