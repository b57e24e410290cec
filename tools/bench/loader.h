// tools/bench/loader.h -- measures how much a loader slows down the steps of a training.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "tools/bench/data.h"
#include "tools/bench/measure.h"

namespace yoke::exercise {

/// The loader and the training to measure.
struct FedTraining {
  /// Creates a loader with `num_workers` workers. `round` selects the epoch, so that each round reads new samples.
  std::function<std::unique_ptr<Feed>(int64_t num_workers, int64_t round)> open;
  std::function<void(const train::Batch& batch)> step;  ///< Waits for the device at its end.
  std::vector<train::Batch> cached;                     ///< Batches in memory, on the device.
  int64_t batch_size = 64;
};

/// The measurements of a stretch of consecutive training steps.
struct Stretch {
  double step_seconds = 0;
  double ready_share = 0;  ///< The share of steps whose batch was ready when they requested it.
  double cpu_load = 0;     ///< The load of all CPUs, from 0 to 1.
};

/// The measurement with one number of workers. The vectors have one entry for each round. The entries of a round are
/// measured directly after each other, so that the load of the machine is the same.
struct WorkersMeasurement {
  int64_t num_workers = 0;
  std::vector<double> samples_per_second;  ///< Of the loader alone.
  int64_t memory_bytes = 0;                ///< The most by which resident memory grew while the loader ran alone.
  std::vector<Stretch> fed;                ///< The steps take their batches from the loader.
  std::vector<Stretch> cached;             ///< The steps take their batches from memory.
  std::vector<Stretch> one_batch;          ///< All steps use the same batch; the shortest possible step.
};

std::vector<WorkersMeasurement> measure_loader(const FedTraining& training, const std::vector<int64_t>& workers,
                                               const Rounds& rounds, Progress& progress);

/// Returns the share of a step that the loader costs, for each round: 1 - floor / fed.
std::vector<double> costs_of(const std::vector<Stretch>& fed, const std::vector<Stretch>& floor);

/// Returns the numbers of workers to try: 0, 1, 2, 4, ... and the number of CPUs. Pure.
std::vector<int64_t> usual_workers(int64_t num_cpus);

}  // namespace yoke::exercise
