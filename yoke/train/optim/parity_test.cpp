// Oracle for all of this folder: PyTorch's figures (tests/reference/record_optimizers.py). Kernels depend on the CPU
// model, so the comparison has a tolerance. On the machine that recorded the figures, YOKE_SAME_BITS=1 requires
// equality.
#include <ATen/Parallel.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/tanh.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "tests/support/hex.h"
#include "tests/support/paths.h"
#include "yoke/base/error.h"
#include "yoke/train/format/safetensors.h"
#include "yoke/train/optim/adagrad.h"
#include "yoke/train/optim/adam.h"
#include "yoke/train/optim/clip_grad.h"
#include "yoke/train/optim/ema.h"
#include "yoke/train/optim/nadam.h"
#include "yoke/train/optim/python_state.h"
#include "yoke/train/optim/rmsprop.h"
#include "yoke/train/optim/sgd.h"

namespace yoke::train {
namespace {

using nlohmann::json;
using test::parse_hex;
using ::testing::HasSubstr;

const json& recorded_optimizers() {
  static const json file = json::parse(std::ifstream(test::reference("optimizers.json")));
  return file;
}

double tolerance() { return std::getenv("YOKE_SAME_BITS") != nullptr ? 0 : 2e-4; }

at::Tensor values(at::IntArrayRef shape, int64_t first, double (*f)(double), double factor) {
  auto tensor = at::empty(shape, at::kDouble);
  for (int64_t i = 0; i < tensor.numel(); ++i) {
    tensor.data_ptr<double>()[i] = f(static_cast<double>(first + i)) * factor;
  }
  return tensor;
}

struct Network {
  explicit Network(at::ScalarType type = at::kFloat) : dtype(type) {
    int64_t k = 0;
    const auto add = [&](const std::string& name, at::IntArrayRef shape) {
      const auto tensor = values(shape, k, std::sin, 0.5).to(dtype).requires_grad_();
      k += tensor.numel();
      parameters.emplace_back(name, tensor);
    };
    add("fc1.weight", {16, 8});
    add("fc1.bias", {16});
    add("fc2.weight", {4, 16});
    add("fc2.bias", {4});
  }

  at::Tensor loss() const {
    const auto x = values({32, 8}, 0, std::cos, 1).to(dtype);
    const auto hidden = at::tanh(at::linear(x, parameters[0].second, parameters[1].second));
    const auto logits = at::linear(hidden, parameters[2].second, parameters[3].second);
    return at::cross_entropy_loss(logits, at::arange(32).remainder(4));
  }

  NamedTensors select(const json& names) const {
    NamedTensors selected;
    for (const auto& name : names) {
      for (const auto& parameter : parameters) {
        if (parameter.first == name.get<std::string>()) selected.push_back(parameter);
      }
    }
    return selected;
  }

  TensorMap map() const { return {parameters.begin(), parameters.end()}; }

  at::ScalarType dtype;
  NamedTensors parameters;
};

void read(const json& given, SgdOptions& o) {
  o.lr = given.value("lr", o.lr);
  o.momentum = given.value("momentum", o.momentum);
  o.dampening = given.value("dampening", o.dampening);
  o.weight_decay = given.value("weight_decay", o.weight_decay);
  o.nesterov = given.value("nesterov", o.nesterov);
  o.maximize = given.value("maximize", o.maximize);
}

template <class Options>
void read_adam(const json& given, Options& o) {
  o.lr = given.value("lr", o.lr);
  if (given.contains("betas")) {
    o.beta1 = given["betas"][0];
    o.beta2 = given["betas"][1];
  }
  o.eps = given.value("eps", o.eps);
  o.weight_decay = given.value("weight_decay", o.weight_decay);
  o.amsgrad = given.value("amsgrad", o.amsgrad);
  o.maximize = given.value("maximize", o.maximize);
}
void read(const json& given, AdamOptions& o) { read_adam(given, o); }
void read(const json& given, AdamWOptions& o) { read_adam(given, o); }

void read(const json& given, AdagradOptions& o) {
  o.lr = given.value("lr", o.lr);
  o.lr_decay = given.value("lr_decay", o.lr_decay);
  o.weight_decay = given.value("weight_decay", o.weight_decay);
  o.eps = given.value("eps", o.eps);
  o.initial_accumulator_value = given.value("initial_accumulator_value", o.initial_accumulator_value);
  o.maximize = given.value("maximize", o.maximize);
}

void read(const json& given, NAdamOptions& o) {
  o.lr = given.value("lr", o.lr);
  if (given.contains("betas")) {
    o.beta1 = given["betas"][0];
    o.beta2 = given["betas"][1];
  }
  o.eps = given.value("eps", o.eps);
  o.weight_decay = given.value("weight_decay", o.weight_decay);
  o.momentum_decay = given.value("momentum_decay", o.momentum_decay);
  o.decoupled_weight_decay = given.value("decoupled_weight_decay", o.decoupled_weight_decay);
  o.maximize = given.value("maximize", o.maximize);
}

void read(const json& given, RMSpropOptions& o) {
  o.lr = given.value("lr", o.lr);
  o.alpha = given.value("alpha", o.alpha);
  o.eps = given.value("eps", o.eps);
  o.weight_decay = given.value("weight_decay", o.weight_decay);
  o.momentum = given.value("momentum", o.momentum);
  o.centered = given.value("centered", o.centered);
  o.maximize = given.value("maximize", o.maximize);
}

template <class Kind, class Options>
std::unique_ptr<Optimizer> make(const Network& network, const json& entry) {
  Options options;
  read(entry["options"], options);
  if (!entry.contains("groups")) return std::make_unique<Kind>(network.parameters, options);
  std::vector<ParameterGroup<Options>> groups;
  for (const auto& group : entry["groups"]) {
    auto of_group = options;
    read(group, of_group);
    groups.push_back({network.select(group["names"]), of_group});
  }
  return std::make_unique<Kind>(groups);
}

std::unique_ptr<Optimizer> make_optimizer(const Network& network, const json& entry) {
  const auto& kind = entry["optimizer"];
  if (kind == "Adam") return make<Adam, AdamOptions>(network, entry);
  if (kind == "AdamW") return make<AdamW, AdamWOptions>(network, entry);
  if (kind == "Adagrad") return make<Adagrad, AdagradOptions>(network, entry);
  if (kind == "NAdam") return make<NAdam, NAdamOptions>(network, entry);
  if (kind == "RMSprop") return make<RMSprop, RMSpropOptions>(network, entry);
  return make<Sgd, SgdOptions>(network, entry);
}

void expect_digests(const json& expected, const TensorMap& tensors, const std::string& what) {
  ASSERT_EQ(expected.size(), tensors.size()) << what;
  for (const auto& [name, want] : expected.items()) {
    ASSERT_TRUE(tensors.contains(name)) << what << ": " << name;
    const auto tensor = tensors.at(name).detach().to(at::kDouble);
    const auto flat = tensor.flatten();
    EXPECT_NEAR(tensor.sum().item<double>(), parse_hex(want[0]), 10 * tolerance()) << what << ": sum of " << name;
    for (size_t i = 1; i < want.size(); ++i) {
      EXPECT_NEAR(flat[static_cast<int64_t>(i) - 1].item<double>(), parse_hex(want[i]), tolerance())
          << what << ": " << name << " at " << i - 1;
    }
  }
}

class OneThread {
 public:
  OneThread() { at::set_num_threads(1); }
  ~OneThread() { at::set_num_threads(before_); }

 private:
  int before_ = at::get_num_threads();
};

void run_case(const json& entry) {
  const std::string what = entry["optimizer"].get<std::string>() + entry["options"].dump() +
                           entry.value("groups", json()).dump() + entry.value("scale", json()).dump();
  const Network network(entry["dtype"] == "float64" ? at::kDouble : at::kFloat);
  const auto optimizer = make_optimizer(network, entry);
  std::optional<ExponentialMovingAverage> ema;
  if (entry.contains("ema")) ema.emplace(network.parameters, NamedTensors{}, EmaOptions{.decay = entry["ema"]});
  const int64_t num_steps = recorded_optimizers()["steps"];
  double loss_value = 0;
  for (int64_t step = 0; step < num_steps; ++step) {
    optimizer->zero_grad();
    const auto loss = network.loss();
    loss_value = loss.item<double>();
    if (step == 0) {
      EXPECT_NEAR(loss_value, parse_hex(entry["losses"][0]), tolerance()) << what;
    }
    if (entry.contains("scale")) {
      const double scale = entry["scale"];
      loss.mul(scale).backward();
      const bool found = std::find(entry["found"].begin(), entry["found"].end(), step) != entry["found"].end();
      optimizer->step(
          {.scale = at::scalar_tensor(scale, at::kFloat), .found_inf = at::scalar_tensor(found, at::kFloat)});
    } else {
      loss.backward();
      if (entry.contains("clip")) {
        const auto& clip = entry["clip"];
        const auto norm = clip_grad_norm(
            network.parameters, {.max_norm = clip["max_norm"],
                                 .norm_type = std::strtod(clip["norm_type"].get<std::string>().c_str(), nullptr)});
        if (static_cast<size_t>(step) < entry["norms"].size()) {
          EXPECT_NEAR(norm.item<double>(), parse_hex(entry["norms"][static_cast<size_t>(step)]), tolerance()) << what;
        }
      }
      if (entry.contains("clip_value")) clip_grad_value(network.parameters, entry["clip_value"]);
      optimizer->step();
    }
    if (ema) ema->update();
    if (step == 0) expect_digests(entry["first"], network.map(), what + " after the first step");
  }
  EXPECT_NEAR(loss_value, parse_hex(entry["losses"][1]), tolerance()) << what;
  expect_digests(entry["last"], network.map(), what + " after the last step");
  auto state = optimizer->state_dict();
  for (const auto* of_groups : {"lr", "momentum"}) state.erase(of_groups);  // which Python has in param_groups
  expect_digests(entry["state"], state, what + " state");
  if (ema) {
    const auto averages = ema->averages();
    expect_digests(entry["averages"], {averages.begin(), averages.end()}, what + " averages");
  }
}

TEST(Optimizers, EqualPyTorchs) {
  const OneThread one_thread;
  ASSERT_EQ(recorded_optimizers()["cases"].size(), 57u);
  for (const auto& entry : recorded_optimizers()["cases"]) run_case(entry);
}

// Reads the optimizer state that Python wrote. The file has its options as JSON.
PythonOptimizerState python_state_of(const TensorFile& file) {
  PythonOptimizerState state;
  for (const auto& [name, tensor] : file.tensors) {
    if (!name.starts_with("state.")) continue;
    const auto dot = name.find('.', 6);
    state.state[std::stoll(name.substr(6, dot - 6))].emplace(name.substr(dot + 1), tensor);
  }
  for (const auto& group : json::parse(file.metadata.at("param_groups"))) {
    auto& into = state.param_groups.emplace_back();
    for (const auto& [name, value] : group.items()) {
      if (name == "params") {
        into.params = value.get<std::vector<int64_t>>();
      } else if (name == "param_names") {
        into.param_names = value.get<std::vector<std::string>>();
      } else if (value.is_null()) {
        into.options[name] = std::monostate();
      } else if (value.is_boolean()) {
        into.options[name] = value.get<bool>();
      } else if (value.is_number_integer()) {
        into.options[name] = value.get<int64_t>();
      } else if (value.is_number()) {
        into.options[name] = value.get<double>();
      } else {
        into.options[name] = value.get<std::vector<double>>();
      }
    }
  }
  return state;
}

std::string kind_file(const json& entry) {
  auto kind = entry["optimizer"].get<std::string>();
  for (auto& letter : kind) letter = static_cast<char>(std::tolower(letter));
  return test::reference(std::string("optimizer_") + kind + ".safetensors");
}

// An optimizer of the fixture's class and groups, with default options.
std::unique_ptr<Optimizer> make_for(const Network& network, const json& entry, const PythonOptimizerState& state) {
  auto plain = entry;
  plain["options"] = json::object();
  if (state.param_groups.size() > 1) {
    for (const auto& group : state.param_groups) plain["groups"].push_back({{"names", group.param_names}});
  }
  return make_optimizer(network, plain);
}

Network network_in(const TensorFile& file) {
  Network network;
  for (auto& [name, parameter] : network.parameters) {
    parameter = file.tensors.at("parameter." + name).clone().requires_grad_();
  }
  return network;
}

// Oracle: Python's training, which continued from this state. yoke continues from the same state and options.
TEST(PythonState, TrainsOnFromPythonsState) {
  const OneThread one_thread;
  ASSERT_EQ(recorded_optimizers()["exchange"].size(), 5u);
  for (const auto& entry : recorded_optimizers()["exchange"]) {
    const auto file = read_safetensors(kind_file(entry));
    const auto network = network_in(file);
    const auto state = python_state_of(file);
    const auto optimizer = make_for(network, entry, state);
    load_python(*optimizer, state);
    for (int64_t step = recorded_optimizers()["half"]; step < recorded_optimizers()["steps"]; ++step) {
      optimizer->zero_grad();
      network.loss().backward();
      optimizer->step();
    }
    expect_digests(entry["last"], network.map(), entry["optimizer"].get<std::string>() + " resumed");
  }
}

double number_of(const PythonOption& option) {
  if (const auto* integer = std::get_if<int64_t>(&option)) return static_cast<double>(*integer);
  return std::get<double>(option);
}

// to_python() returns the state that load_python() got, key by key and bit by bit (0 may have become 0.0).
TEST(PythonState, IsWhatPythonWrote) {
  for (const auto& entry : recorded_optimizers()["exchange"]) {
    const auto file = read_safetensors(kind_file(entry));
    const auto network = network_in(file);
    const auto theirs = python_state_of(file);
    const auto optimizer = make_for(network, entry, theirs);
    load_python(*optimizer, theirs);
    const auto ours = to_python(*optimizer);
    ASSERT_EQ(ours.param_groups.size(), theirs.param_groups.size());
    for (size_t i = 0; i < ours.param_groups.size(); ++i) {
      const auto &mine = ours.param_groups[i], &their = theirs.param_groups[i];
      EXPECT_EQ(mine.params, their.params);
      EXPECT_EQ(mine.param_names, their.param_names);
      EXPECT_EQ(mine.options.size(), their.options.size());
      for (const auto& [name, value] : their.options) {
        ASSERT_TRUE(mine.options.contains(name)) << entry["optimizer"] << " lacks " << name;
        const auto& my_value = mine.options.at(name);
        if (std::holds_alternative<int64_t>(value) || std::holds_alternative<double>(value)) {
          EXPECT_EQ(number_of(my_value), number_of(value)) << name;
        } else {
          EXPECT_EQ(my_value, value) << name;
        }
      }
    }
    ASSERT_EQ(ours.state.size(), theirs.state.size());
    for (const auto& [index, tensors] : theirs.state) {
      ASSERT_EQ(ours.state.at(index).size(), tensors.size());
      for (const auto& [name, tensor] : tensors) {
        EXPECT_TRUE(at::equal(ours.state.at(index).at(name), tensor)) << index << " " << name;
        EXPECT_EQ(ours.state.at(index).at(name).sizes(), tensor.sizes()) << index << " " << name;
      }
    }
  }
}

TEST(PythonState, RefusesAnotherOptimizersState) {
  const auto& entry = recorded_optimizers()["exchange"][0];
  const auto file = read_safetensors(kind_file(entry));
  const auto network = network_in(file);
  const auto good = python_state_of(file);
  const auto optimizer = make_for(network, entry, good);
  const auto message = [&](const PythonOptimizerState& state) -> std::string {
    try {
      load_python(*optimizer, state);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      EXPECT_EQ(optimizer->lr(), 1e-3) << "options were taken over in part";
      EXPECT_EQ(optimizer->state_dict().size(), 1u) << "more than the rates";
      return error.what();
    }
    return "(nothing thrown)";
  };
  auto state = good;
  state.param_groups.pop_back();
  EXPECT_THAT(message(state), HasSubstr("1 parameter groups, this optimizer 2"));
  state = good;
  state.param_groups[0].params.pop_back();
  EXPECT_THAT(message(state), HasSubstr("group 0 of the state has 1 parameters, this optimizer's 2"));
  state = good;
  state.param_groups[0].param_names[1] = "other.weight";
  EXPECT_THAT(message(state), HasSubstr("'other.weight' in the state and 'fc2.weight' here"));
  state = good;
  state.param_groups[1].options["decoupled_weight_decay"] = false;
  EXPECT_THAT(message(state), HasSubstr("use Adam"));
  state = good;
  state.state[0].erase("exp_avg");
  EXPECT_THAT(message(state), HasSubstr("'fc1.weight' lacks 'exp_avg.fc1.weight'"));
  state = good;
  state.param_groups[1].options["eps"] = -1.0;
  EXPECT_THAT(message(state), HasSubstr("eps -1"));
  state = good;
  state.param_groups[1].options["amsgrad"] = std::string("yes");
  EXPECT_THAT(message(state), HasSubstr("max_exp_avg_sq"));
}

// As of `AdamW(p for p in model.parameters() if p.requires_grad)` in Python, and of earlier DistributedDataParallels.
TEST(PythonState, OfTheTrainedParametersAloneIsLoaded) {
  const auto trained = torch::ones({3}).requires_grad_(), frozen = torch::ones({2});
  AdamW of_trained(NamedTensors{{"trained", trained}}, {.lr = 0.1});
  trained.sum().backward();
  of_trained.step();
  AdamW of_all(NamedTensors{{"frozen", frozen}, {"trained", trained}}, {.lr = 0.2});
  load_python(of_all, to_python(of_trained));
  EXPECT_EQ(of_all.lr(), 0.1);
  EXPECT_EQ(of_all.state_dict().at("step.trained").item<float>(), 1);
  EXPECT_FALSE(of_all.state_dict().contains("step.frozen"));
}

}  // namespace
}  // namespace yoke::train
