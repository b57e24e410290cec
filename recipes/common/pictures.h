// recipes/common/pictures.h -- draws pictures of ten shapes, for trainings without a data set.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace recipes {

/// The shapes. A picture has one of them, of a random colour, size and place on another colour, under noise.
inline constexpr std::array kShapes = {"disc",  "ring", "square",  "frame",  "triangle",
                                       "cross", "rows", "columns", "checks", "diagonal"};
inline constexpr int64_t kNumShapes = kShapes.size();

/// Returns the bytes [size, size, 3] of a picture of shape `shape`, in [0, kNumShapes). `number` selects one picture
/// among many; the same arguments give the same bytes on every machine with IEEE arithmetic.
std::vector<uint8_t> draw_picture(int64_t shape, int64_t number, int64_t size);

}  // namespace recipes
