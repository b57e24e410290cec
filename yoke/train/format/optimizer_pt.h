// yoke/train/format/optimizer_pt.h -- exchanges an optimizer's state with Python in `.pt` files.
//
//     write_pt("ours.pt", PtDict{{{"model", to_pt(named_tensors(*model))}, {"optimizer", to_pt(optimizer)}}});
//
//     checkpoint = torch.load("ours.pt")                       # Python continues from there
//     optimizer.load_state_dict(checkpoint["optimizer"])
//
//     const auto theirs = read_pt("theirs.pt");                // the other direction
//     load_pt(optimizer, *theirs.get_if<PtDict>()->find("optimizer"));
#pragma once

#include "yoke/train/format/pt_value.h"

namespace yoke::train {

class Optimizer;

/// Returns what optimizer.state_dict() returns for the Python optimizer of the same name; see python_state.h. Tensors
/// are the optimizer's own, not copies.
PtDict to_pt(const Optimizer& optimizer);

/// Loads a state_dict of a Python optimizer: its state, learning rates, and the options that yoke has. On an error
/// nothing changes.
/// Errors  kInvalidArgument: the dictionary is not an optimizer's state_dict (names the place); otherwise as
///         load_python.
void load_pt(Optimizer& optimizer, const PtValue& state_dict);

}  // namespace yoke::train
