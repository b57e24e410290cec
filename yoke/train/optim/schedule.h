// yoke/train/optim/schedule.h -- learning rates as pure functions of the step number, and their composition.
//
//     const auto lr = sequence({{500, linear_lr({.lr = 0.1, .start_factor = 0.01, .num_steps = 500})},
//                               {9500, cosine_annealing_lr({.lr = 0.1, .num_steps = 9500})}});
//     optimizer.step(lr(i));   // i counts from 0; a resumed run continues with its step number, so nothing is saved
//
// Each schedule returns the rate that the torch.optim.lr_scheduler of its name has while step i runs, within 1e-12 of
// the base rate. PyTorch computes most rates from the previous step's rate, which rounds differently from the closed
// forms here. For a rate per epoch, pass the epoch's number.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "yoke/train/optim/one_cycle.h"

namespace yoke::train {

/// The learning rate of a step, counted from 0. The default base rate is 1, which makes a schedule a factor.
/// Errors  kInvalidArgument for a step below 0. The functions below throw it if an option is out of range.
using Schedule = std::function<double(int64_t step)>;

struct ConstantLrOptions {
  double lr = 1;
  double factor = 1.0 / 3;  ///< Factor of the rate before step num_steps; 1 from there.
  int64_t num_steps = 5;
};
Schedule constant_lr(const ConstantLrOptions& options);

/// Linear warm-up or decay from lr * start_factor to lr * end_factor at step num_steps, and constant from there.
struct LinearLrOptions {
  double lr = 1;
  double start_factor = 1.0 / 3;
  double end_factor = 1;
  int64_t num_steps = 5;
};
Schedule linear_lr(const LinearLrOptions& options);

/// lr * (1 - step / num_steps)^power; 0 from step num_steps on.
struct PolynomialLrOptions {
  double lr = 1;
  double power = 1;
  int64_t num_steps = 5;
};
Schedule polynomial_lr(const PolynomialLrOptions& options);

/// lr * gamma^step.
struct ExponentialLrOptions {
  double lr = 1;
  double gamma = 0;
};
Schedule exponential_lr(const ExponentialLrOptions& options);

/// The rate is multiplied by gamma after every step_size steps.
struct StepLrOptions {
  double lr = 1;
  int64_t step_size = 0;
  double gamma = 0.1;
};
Schedule step_lr(const StepLrOptions& options);

/// The rate is multiplied by gamma at each milestone; a milestone that is listed twice counts twice.
struct MultiStepLrOptions {
  double lr = 1;
  std::vector<int64_t> milestones;
  double gamma = 0.1;
};
Schedule multi_step_lr(MultiStepLrOptions options);

/// The rate follows half a cosine from lr to min_lr, which it reaches at step num_steps. Later the cosine continues and
/// the rate rises again, as in PyTorch: end the training there, or append a different schedule with sequence().
struct CosineAnnealingLrOptions {
  double lr = 1;
  double min_lr = 0;
  int64_t num_steps = 0;
};
Schedule cosine_annealing_lr(const CosineAnnealingLrOptions& options);

/// The rate follows cosines from lr to min_lr, each `growth` times as long as the previous one. The rate is lr at the
/// first step of each cosine.
/// Source  Loshchilov and Hutter, "SGDR", ICLR 2017.
struct CosineWarmRestartsOptions {
  double lr = 1;
  double min_lr = 0;
  int64_t first_num_steps = 0;
  int64_t growth = 1;
};
Schedule cosine_annealing_warm_restarts(const CosineWarmRestartsOptions& options);

/// The schedule of one_cycle.h as a Schedule, for steps in [0, total_steps).
Schedule one_cycle_lr(const OneCycleOptions& options);

/// Runs schedules one after another, each for its number of steps. Each schedule counts its steps from 0. The last
/// schedule continues without end (its number of steps is ignored). sequence() equals PyTorch's SequentialLR, with
/// lengths instead of milestones.
Schedule sequence(std::vector<std::pair<int64_t, Schedule>> parts);

/// The product of all schedules: usually one schedule has a base rate, and the others are factors. product() equals
/// PyTorch's ChainedScheduler, except for a cosine with a min_lr, which PyTorch does not treat as a factor.
Schedule product(std::vector<Schedule> factors);

}  // namespace yoke::train
