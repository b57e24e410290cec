// yoke/train/checkpoint/detail/group_values.h -- finds values that groups of ranks have each of their own under one
// name.
#pragma once

#include <string>
#include <vector>

#include "yoke/train/checkpoint/train_state.h"

namespace yoke::train::detail {

/// Not collective. Names the tensors that are kept equal on some ranks of the state's group alone, and those ranks.
/// Empty as a rule, and so is text of it.
std::string describe_group_values(const TrainState& state);

/// Collective if any of `groups_by_rank` (describe_group_values) is not empty. Refuses a state of which a checkpoint
/// would have the values of one group alone. `descriptions_by_rank`: of the slices (describe_slices).
/// Errors  kInvalidArgument, on all ranks: ranks outside of the group have a tensor of that name with other values.
void refuse_group_values(const TrainState& state, const std::string& what,
                         const std::vector<std::string>& groups_by_rank,
                         const std::vector<std::string>& descriptions_by_rank);

}  // namespace yoke::train::detail
