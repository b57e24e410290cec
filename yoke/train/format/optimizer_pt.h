// yoke/train/format/optimizer_pt.h -- an optimizer's state to Python and from it, in `.pt` files.
//
//     write_pt("ours.pt", PtDict{{{"model", to_pt(named_tensors(*model))}, {"optimizer", to_pt(optimizer)}}});
//
//     checkpoint = torch.load("ours.pt")                       # Python goes on from there
//     optimizer.load_state_dict(checkpoint["optimizer"])
//
//     const auto theirs = read_pt("theirs.pt");                // and the other way
//     load_pt(optimizer, *theirs.get_if<PtDict>()->find("optimizer"));
#pragma once

#include "yoke/train/format/pt_value.h"

namespace yoke::train {

class Optimizer;

/// What optimizer.state_dict() of the Python optimizer of that name is; see python_state.h. Tensors are the optimizer's
/// own, not copies.
PtDict to_pt(const Optimizer& optimizer);

/// Takes over such a dictionary: state, learning rates, and the options that exist here. All or nothing.
/// Errors  kInvalidArgument: no optimizer's state_dict, with the place that is none; otherwise as load_python.
void load_pt(Optimizer& optimizer, const PtValue& state_dict);

}  // namespace yoke::train
