// yoke/train/format/detail/pickle_globals.h -- the only names that a pickle may hold.
#pragma once

#include <optional>
#include <string_view>

#include "yoke/train/format/detail/pickle.h"

namespace yoke::train {

/// The meaning of "MODULE.NAME"; nullopt if the name is not used to describe tensors.
std::optional<PickleGlobal> find_global(std::string_view module, std::string_view name);

/// "FloatStorage" for "float32"; empty for a dtype without a storage class.
std::string_view storage_class_of(std::string_view dtype);

}  // namespace yoke::train
