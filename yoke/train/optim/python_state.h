// yoke/train/optim/python_state.h -- an optimizer's state as Python's optimizer.state_dict() has it.
//
// Python's dictionary and this structure are the same thing, value by value:
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

/// None, True, 3, 0.1, a text, (0.9, 0.999). Python's tuples of numbers become lists, which it takes as well.
using PythonOption = std::variant<std::monostate, bool, int64_t, double, std::string, std::vector<double>>;

struct PythonParamGroup {
  std::map<std::string, PythonOption> options;  ///< All but "params" and "param_names".
  std::vector<int64_t> params;                  ///< Keys of `state`: 0, 1, 2, ... over all groups, by custom.
  std::vector<std::string> param_names;         ///< Beside params; empty where Python was given none.
};

struct PythonOptimizerState {
  std::map<int64_t, TensorMap> state;  ///< "step" (float, 0-dim), "exp_avg", "momentum_buffer", ... by parameter.
                                       ///< Undefined stands for None, and is passed over.
  std::vector<PythonParamGroup> param_groups;
};

/// What the Python optimizer of the same name loads with load_state_dict, for parameters in the same order
/// (model.parameters() lists them as named_parameters() does here). Python takes over the options, too: `fused` is
/// true where the kernels here are fused; NAdam and RMSprop have no such option, and `foreach` is true for them. So
/// Python goes on with the same kernels. Tensors are the optimizer's own, not copies.
PythonOptimizerState to_python(const Optimizer& optimizer);

/// The other way: learning rates and options that exist here are taken over as Python's load_state_dict does (foreach,
/// capturable and the like have no meaning here), then the state, parameter by parameter in their order. Steps may be
/// of any numeric type. All or nothing.
/// Errors  kInvalidArgument: another number of groups or of parameters in one; a name in param_names that differs from
///         the parameter's; Adam's state for AdamW or the reverse; otherwise as load_state_dict.
void load_python(Optimizer& optimizer, const PythonOptimizerState& state);

}  // namespace yoke::train
