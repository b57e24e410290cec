// yoke/train/optim/schedule.h -- learning rates as pure functions of the step's number, and their composition.
//
//     const auto lr = sequence({{500, linear_lr({.lr = 0.1, .start_factor = 0.01, .num_steps = 500})},
//                               {9500, cosine_annealing_lr({.lr = 0.1, .num_steps = 9500})}});
//     optimizer.step(lr(i));   // i from 0; a resumed run goes on with its step's number, there is nothing to save
//
// Each equals the torch.optim.lr_scheduler of its name, the rate in force while step i runs, within 1e-12 of the base
// rate: PyTorch multiplies most of them up from step to step, which rounds otherwise than the closed forms here. A rate
// per epoch is the same function of the epoch's number.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "yoke/train/optim/one_cycle.h"

namespace yoke::train {

/// The learning rate of a step, from 0 on. Base rates are 1 unless given, which makes a schedule a factor.
/// Errors  kInvalidArgument for a step below 0. The functions below throw it for options outside their ranges.
using Schedule = std::function<double(int64_t step)>;

struct ConstantLrOptions {
  double lr = 1;
  double factor = 1.0 / 3;  ///< Until num_steps, then 1.
  int64_t num_steps = 5;
};
Schedule constant_lr(const ConstantLrOptions& options);

/// Warm-up, or a straight way down: from lr * start_factor to lr * end_factor at step num_steps, and so on from there.
struct LinearLrOptions {
  double lr = 1;
  double start_factor = 1.0 / 3;
  double end_factor = 1;
  int64_t num_steps = 5;
};
Schedule linear_lr(const LinearLrOptions& options);

/// lr * (1 - step / num_steps)^power, then 0.
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

/// Times gamma after every step_size steps.
struct StepLrOptions {
  double lr = 1;
  int64_t step_size = 0;
  double gamma = 0.1;
};
Schedule step_lr(const StepLrOptions& options);

/// Times gamma at each milestone; one that is there twice counts twice.
struct MultiStepLrOptions {
  double lr = 1;
  std::vector<int64_t> milestones;
  double gamma = 0.1;
};
Schedule multi_step_lr(MultiStepLrOptions options);

/// Half a cosine from lr to min_lr at step num_steps. Beyond it the cosine goes on and the rate rises again, as
/// PyTorch's does: end the training there, or put what should follow behind it with sequence().
struct CosineAnnealingLrOptions {
  double lr = 1;
  double min_lr = 0;
  int64_t num_steps = 0;
};
Schedule cosine_annealing_lr(const CosineAnnealingLrOptions& options);

/// Cosines from lr to min_lr, each `growth` times as long as the one before; at the first step of each, lr.
/// Source  Loshchilov and Hutter, "SGDR", ICLR 2017.
struct CosineWarmRestartsOptions {
  double lr = 1;
  double min_lr = 0;
  int64_t first_num_steps = 0;
  int64_t growth = 1;
};
Schedule cosine_annealing_warm_restarts(const CosineWarmRestartsOptions& options);

/// one_cycle.h as a Schedule; the steps are those of [0, total_steps).
Schedule one_cycle_lr(const OneCycleOptions& options);

/// One after another: each for so many steps, which it counts from 0; the last goes on for ever (its number is not
/// looked at). PyTorch's SequentialLR, with lengths for milestones.
Schedule sequence(std::vector<std::pair<int64_t, Schedule>> parts);

/// All at once, multiplied: a schedule with a base rate and factors. PyTorch's ChainedScheduler, but for a cosine with
/// a min_lr, which is no factor.
Schedule product(std::vector<Schedule> factors);

}  // namespace yoke::train
