// yoke/train/image/mix.h -- mixes the images of a batch with each other: mixup and CutMix.
#pragma once

#include <cstdint>

#include "yoke/train/data/sample_random.h"
#include "yoke/train/data/samples.h"

namespace yoke::train {

// Both functions mix each image with the previous image of the batch, and the first image with the last. The whole
// batch uses one random share, which has the distribution Beta(alpha, alpha). The result's targets, float [batch,
// num_classes], contain the shares of the two classes; cross_entropy accepts such targets.
//
// Device   any; the random numbers come from `random` alone.
// Errors   kInvalidArgument: images are not floating-point [B, C, H, W], targets are not int64 [B], num_classes or
//          alpha is not positive. For a target outside [0, num_classes), libtorch throws.
// Source   the definitions of torchvision.transforms.v2 (MixUp, CutMix).

/// Returns weighted sums of two images. Zhang et al., "mixup: Beyond Empirical Risk Minimization", ICLR 2018.
Batch mixup(const Batch& batch, int64_t num_classes, double alpha, SampleRandom& random);

/// Replaces a rectangle of each image by that of the previous image; the shares are those of the areas. Yun et al.,
/// "CutMix", ICCV 2019.
Batch cutmix(const Batch& batch, int64_t num_classes, double alpha, SampleRandom& random);

/// Returns a random number with the distribution Beta(alpha, alpha), in [0, 1].
double draw_beta(double alpha, SampleRandom& random);

}  // namespace yoke::train
