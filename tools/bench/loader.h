// tools/bench/loader.h -- measures what a loader costs the steps of a training.
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
  /// Makes a loader with this number of workers. `round` chooses the epoch, so that a round reads new samples.
  std::function<std::unique_ptr<Feed>(int64_t num_workers, int64_t round)> open;
  std::function<void(const train::Batch& batch)> step;  ///< Waits for the device at the end.
  std::vector<train::Batch> cached;                     ///< Batches in memory, on the device.
  int64_t batch_size = 64;
};

/// What the steps of one stretch of training took.
struct Stretch {
  double step_seconds = 0;
  double ready_share = 0;  ///< Of the steps whose batch was ready when they asked for it.
  double cpu_load = 0;     ///< Of all CPUs, from 0 to 1.
};

/// The measurement with one number of workers. The vectors have one entry for each round; those of one round were taken
/// one right after the other, so that they met the same machine.
struct WorkersMeasurement {
  int64_t num_workers = 0;
  std::vector<double> samples_per_second;  ///< Of the loader alone.
  int64_t memory_bytes = 0;                ///< The most by which resident memory grew while the loader ran alone.
  std::vector<Stretch> fed;                ///< The steps take their batches from the loader.
  std::vector<Stretch> cached;             ///< The steps take their batches from memory.
  std::vector<Stretch> one_batch;          ///< All steps take the same batch: the floor of the computation.
};

std::vector<WorkersMeasurement> measure_loader(const FedTraining& training, const std::vector<int64_t>& workers,
                                               const Rounds& rounds, Progress& progress);

/// The share of a step that its loader costs, in each round: 1 - floor / fed.
std::vector<double> costs_of(const std::vector<Stretch>& fed, const std::vector<Stretch>& floor);

/// Numbers of workers to try: 0, 1, 2, 4, ... and the number of CPUs. Pure.
std::vector<int64_t> usual_workers(int64_t num_cpus);

}  // namespace yoke::exercise
