// yoke/train/image/mix.h -- mixes the images of a batch with each other: mixup and CutMix.
#pragma once

#include <cstdint>

#include "yoke/train/data/loader.h"
#include "yoke/train/data/sample_random.h"

namespace yoke::train {

// Both mix each image with the one before it in the batch, the first with the last, by one random share for the whole
// batch: share and 1 - share are distributed as Beta(alpha, alpha). The result has targets [batch, num_classes], float,
// which are the shares of the two classes; cross_entropy takes them.
//
// Device   any; the random numbers come from `random` alone.
// Errors   kInvalidArgument: images are not floating-point [B, C, H, W], targets are not int64 [B], num_classes or
// alpha
//          is not positive. A target outside [0, num_classes) is libtorch's error.
// Source   the definitions of torchvision.transforms.v2 (MixUp, CutMix).

/// The weighted sum of both images. Zhang et al., "mixup: Beyond Empirical Risk Minimization", ICLR 2018.
Batch mixup(const Batch& batch, int64_t num_classes, double alpha, SampleRandom& random);

/// A rectangle with the other image's pixels; the shares are those of the area. Yun et al., "CutMix", ICCV 2019.
Batch cutmix(const Batch& batch, int64_t num_classes, double alpha, SampleRandom& random);

/// A number with the distribution Beta(alpha, alpha), in [0, 1].
double draw_beta(double alpha, SampleRandom& random);

}  // namespace yoke::train
