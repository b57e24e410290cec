// yoke/train/optim/python_state.h -- an optimizer's state in the form of Python's optimizer.state_dict().
//
// Python's dictionary and this structure correspond value by value:
//
//     {"state": {0: {"step": tensor, "exp_avg": tensor, ...}, 1: ...},        .state
//      "param_groups": [{"lr": 0.001, "betas": (0.9, 0.999), ..., "params": [0, 1]}, ...]}    .param_groups
//
// so that a reader and a writer of a file format (.pt, safetensors with JSON) need to know nothing about optimizers.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "yoke/train/optim/optimizer.h"

namespace yoke::train {

/// A value such as None, True, 3, 0.1, "text" or (0.9, 0.999). Python's tuples become lists, which Python accepts too.
using PythonOption = std::variant<std::monostate, bool, int64_t, double, std::string, std::vector<double>>;

struct PythonParamGroup {
  std::map<std::string, PythonOption> options;  ///< All except "params" and "param_names".
  std::vector<int64_t> params;                  ///< Keys of `state`; usually 0, 1, 2, ... over all groups.
  std::vector<std::string> param_names;         ///< In the order of params; empty if Python was given no names.
};

struct PythonOptimizerState {
  std::map<int64_t, TensorMap> state;  ///< "step" (float, 0-dim), "exp_avg", "momentum_buffer", ... by parameter.
                                       ///< Undefined means None.
  std::vector<PythonParamGroup> param_groups;
};

/// Returns a state that the Python optimizer of the same name can load with load_state_dict. The parameters must have
/// the same order (model.parameters() has the order of named_parameters() here). Python loads the options too, so it
/// continues with the same kernels: `fused` is true if the kernels here are fused. NAdam and RMSprop have no such
/// option; for them `foreach` is true. Tensors are the optimizer's own, not copies.
PythonOptimizerState to_python(const Optimizer& optimizer);

/// Loads a state of this form: first the learning rates and the options that exist here, then the state of each
/// parameter in their order. Options without a meaning here (foreach, capturable and similar ones) are ignored. Steps
/// may have any numeric type. On an error nothing changes.
/// Errors  kInvalidArgument: the number of groups, or of parameters in a group, differs; a name in param_names differs
///         from the parameter's; a state of Adam is given to AdamW or the reverse; and those of load_state_dict.
void load_python(Optimizer& optimizer, const PythonOptimizerState& state);

}  // namespace yoke::train
