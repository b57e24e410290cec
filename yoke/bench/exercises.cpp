#include "yoke/bench/exercises.h"

#include <algorithm>
#include <array>

namespace yoke::bench {
namespace {

constexpr auto kExercises = std::to_array<Exercise>({
    {"matmul", "Large and small matrix products on the CPU and on each GPU", "sizes dtype"},
    {"sync", "Reading a number after each of 1,000 products, or at the end", ""},
    {"two-devices", "Two products on two devices at once, or one after the other", "sizes"},
    {"copies", "Copies between host and devices, with pinned memory and without", "sizes"},
    {"all-reduce", "Sums over ranks by size, with algorithm and bus bandwidth", "sizes n"},
    {"batch", "The time of a training step against the batch size", "batch-size model"},
    {"precision", "Mixed precision against float32, and where it loses", "batch-size model"},
    {"loader", "What loading costs a training, and how many workers would hide it", "batch-size model data workers"},
});

}  // namespace

std::span<const Exercise> exercises() { return kExercises; }

const Exercise* find_exercise(std::string_view name) {
  const auto* found = std::ranges::find(kExercises, name, &Exercise::name);
  return found == kExercises.end() ? nullptr : found;
}

}  // namespace yoke::bench
