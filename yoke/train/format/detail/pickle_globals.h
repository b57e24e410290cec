// yoke/train/format/detail/pickle_globals.h -- the names that a pickle may hold, and nothing else.
#pragma once

#include <optional>
#include <string_view>

#include "yoke/train/format/detail/pickle.h"

namespace yoke::train {

/// What "MODULE.NAME" is; nullopt when it is none of those that describe tensors.
std::optional<PickleGlobal> find_global(std::string_view module, std::string_view name);

/// "FloatStorage" for "float32"; empty for a dtype that has no storage class of its own.
std::string_view storage_class_of(std::string_view dtype);

}  // namespace yoke::train
