// Models that come with their code: TorchScript, and what AOTInductor has compiled.
#include <ATen/core/ivalue.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/csrc/jit/serialization/import.h>

#include <algorithm>
#include <cstdlib>

#include "yoke/base/error.h"
#include "yoke/base/text.h"
#include "yoke/infer/model.h"
#include "yoke/train/predict/predictions.h"

namespace yoke::infer {
namespace {

void add_value(const std::string& name, const c10::IValue& value, train::NamedTensors& to) {
  using train::detail::output_name;
  if (value.isTensor()) {
    to.emplace_back(name.empty() ? "output" : name, value.toTensor());
  } else if (value.isGenericDict()) {
    for (const auto& item : value.toGenericDict()) {
      const auto key = item.key().isString() ? item.key().toStringRef() : fmt::format("{}", to.size());
      add_value(output_name(name, key), item.value(), to);
    }
  } else if (value.isTuple()) {
    const auto& schema = value.toTupleRef().type<c10::TupleType>()->schema();  // only a NamedTuple has one
    const auto& elements = value.toTupleRef().elements();
    for (size_t i = 0; i < elements.size(); ++i) {
      add_value(schema ? output_name(name, schema->arguments()[i].name()) : output_name(name, static_cast<int64_t>(i)),
                elements[i], to);
    }
  } else if (value.isList()) {
    int64_t index = 0;
    for (const c10::IValue& element : value.toListRef()) add_value(output_name(name, index++), element, to);
  } else if (!value.isNone()) {
    throw Error(ErrorCode::kInvalidArgument,
                "its output {} is a {}, and predictions are tensors, or lists, tuples or "
                "dictionaries of them",
                name.empty() ? "" : "'" + name + "'", value.tagKind());
  }
}

struct Argument {
  std::string name;
  bool is_required = true;
};

std::string names_in(const Inputs& inputs) {
  std::vector<std::string> names;
  for (const auto& [name, _] : inputs) names.push_back(name);
  return fmt::format("{}", fmt::join(names, ", "));
}

/// Returns what the model is called with: by name if it has arguments of all these names; otherwise one input as the
/// first argument, or of a text as many as it needs.
std::vector<at::Tensor> arguments_for(const Inputs& inputs, const std::vector<Argument>& arguments) {
  const auto find = [&](const std::string& name) {
    return std::ranges::find(inputs, name, [](const auto& input) { return input.first; });
  };
  std::vector<at::Tensor> by_name;
  for (const auto& argument : arguments) {
    const auto input = find(argument.name);
    if (input == inputs.end()) break;
    by_name.push_back(input->second);
  }
  const auto num_required = static_cast<size_t>(std::ranges::count(arguments, true, &Argument::is_required));
  const bool is_text = inputs.front().first == "input_ids";
  const bool is_text_enough = is_text && !by_name.empty() && by_name.size() >= num_required;
  if (by_name.size() == inputs.size() || is_text_enough) return by_name;
  if (inputs.size() > 1 && !is_text) {
    std::vector<std::string> wanted;
    for (const auto& argument : arguments) wanted.push_back(argument.name);
    throw Error(ErrorCode::kInvalidArgument,
                "the input has the tensors {}, and the model's first arguments are {}: give the tensors their names",
                names_in(inputs), fmt::join(wanted, ", "));
  }
  std::vector<at::Tensor> result;
  for (const auto& [_, tensor] : inputs) {
    if (result.empty() || result.size() < num_required) result.push_back(tensor);
  }
  return result;
}

}  // namespace

Model open_torchscript(const std::filesystem::path& path, c10::Device device) {
  std::shared_ptr<torch::jit::Module> module;
  std::vector<Argument> arguments;
  try {
    module = std::make_shared<torch::jit::Module>(torch::jit::load(path.string(), device));
    module->eval();
    for (const auto& argument : module->get_method("forward").function().getSchema().arguments()) {
      arguments.push_back({argument.name(), !argument.default_value().has_value()});
    }
    arguments.erase(arguments.begin());  // self
  } catch (const std::exception& error) {
    throw Error(ErrorCode::kDataLoss, "loading the TorchScript of {}: {}", printable(path.string()), reason_of(error));
  }
  std::optional<at::ScalarType> dtype;
  for (const auto& parameter : module->parameters()) {
    if (!dtype && parameter.is_floating_point()) dtype = parameter.scalar_type();
  }
  const auto run = [module, arguments, dtype](const Inputs& inputs) {
    // The executor would profile the first batch and change the program for the next ones, so that the bits of a
    // sample's output would depend on where a run began.
    const torch::jit::GraphOptimizerEnabledGuard as_written(false);
    std::vector<c10::IValue> values;
    for (const auto& tensor : arguments_for(inputs, arguments)) {
      values.emplace_back(dtype && tensor.is_floating_point() ? tensor.to(*dtype) : tensor);
    }
    train::NamedTensors outputs;
    add_value("", module->forward(std::move(values)), outputs);
    return outputs;
  };
  return {.kind = "TorchScript", .run = run};
}

Model open_aot_inductor(const std::filesystem::path& path, c10::Device device) {
  // Without it, the code reads other shapes than those that it was compiled for as if they were these.
  setenv("AOTI_RUNTIME_CHECK_INPUTS", "1", 0);
  std::shared_ptr<torch::inductor::AOTIModelPackageLoader> loader;
  size_t num_inputs = 0;
  // See tools/infer/CMakeLists.txt. If it is absent, the package's error says what is missing.
  dlopen((std::filesystem::read_symlink("/proc/self/exe").parent_path() / "libyoke-libtorch-name.so").c_str(),
         RTLD_NOW | RTLD_GLOBAL);
  try {
    loader = std::make_shared<torch::inductor::AOTIModelPackageLoader>(path.string(), "model", false, 1,
                                                                       device.has_index() ? device.index() : -1);
    const auto spec = loader->get_call_spec();
    const std::string_view inputs = spec.empty() ? "" : std::string_view(spec.front());
    constexpr std::string_view kLeaf = "\"type\": null";
    for (size_t at = 0; (at = inputs.find(kLeaf, at)) != inputs.npos; at += kLeaf.size()) ++num_inputs;
  } catch (const std::exception& error) {
    throw Error(ErrorCode::kDataLoss, "loading AOTInductor's package {} on {}: {}", printable(path.string()),
                device.str(), reason_of(error));
  }
  const auto run = [loader, num_inputs](const Inputs& inputs) {
    std::vector<at::Tensor> values;
    for (const auto& [_, tensor] : inputs) {
      // Compiled code takes float32 unless it was exported otherwise, and NumPy's arrays are float64 by default.
      values.push_back(tensor.scalar_type() == at::kDouble ? tensor.to(at::kFloat) : tensor);
    }
    if (num_inputs > 0 && num_inputs < values.size() && inputs.front().first == "input_ids") values.resize(num_inputs);
    if (num_inputs > 0 && num_inputs != values.size()) {
      throw Error(ErrorCode::kInvalidArgument, "it takes {} tensors, and the input has {}: {}", num_inputs,
                  values.size(), names_in(inputs));
    }
    auto results = loader->run(values);
    train::NamedTensors outputs;
    for (size_t i = 0; i < results.size(); ++i) {
      const auto name = results.size() == 1 ? "output" : train::detail::output_name("", static_cast<int64_t>(i));
      outputs.emplace_back(name, std::move(results[i]));
    }
    return outputs;
  };
  return {.kind = "AOTInductor", .run = run, .is_compiled = true};
}

}  // namespace yoke::infer
