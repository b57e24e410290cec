// yoke/bench/exercises.h -- the measurements of `yoke bench`.
#pragma once

#include <span>
#include <string_view>

namespace yoke::bench {

struct Exercise {
  std::string_view name;
  std::string_view summary;
  /// The options of this exercise, separated by spaces: "sizes dtype". Options that all exercises have are left out.
  std::string_view options;
};

/// Returns the exercises in the order in which a course would use them.
std::span<const Exercise> exercises();

/// Finds an exercise by its name; null if there is none.
const Exercise* find_exercise(std::string_view name);

}  // namespace yoke::bench
