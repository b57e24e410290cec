// yoke/bench/exercises.h -- the measurements of `yoke bench`.
#pragma once

#include <span>
#include <string_view>

namespace yoke::bench {

struct Exercise {
  std::string_view name;
  std::string_view summary;
  /// The options that this exercise has besides those that all have, separated by spaces: "sizes dtype".
  std::string_view options;
};

/// In the order in which a course takes them.
std::span<const Exercise> exercises();

/// Null: there is no exercise of this name.
const Exercise* find_exercise(std::string_view name);

}  // namespace yoke::bench
