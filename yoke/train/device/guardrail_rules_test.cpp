// Tests what DeviceGuardrails decides and prints; tests/train/guardrails_test.cpp runs it on simulated GPUs.
#include "yoke/train/device/detail/guardrail_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <type_traits>

#include "yoke/train/device/detail/call_site.h"

namespace yoke::train {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const c10::Device kHost(c10::kCPU), kGpu(c10::kCUDA, 0), kOtherGpu(c10::kCUDA, 1), kNoData(c10::kMeta);

static_assert(!std::is_move_constructible_v<DeviceGuardrails> && !std::is_move_assignable_v<DeviceGuardrails>);
static_assert(!std::is_move_constructible_v<DeviceGuardrails::Allow>);

TEST(GuardrailRules, CopiesThatCount) {
  constexpr auto kCopy = GuardrailKind::kCopy, kSync = GuardrailKind::kSync;
  using Verdict = std::optional<GuardrailKind>;
  const struct {
    const char* what;
    CopyFacts copy;
    Verdict by_default, only_syncs;
  } rows[] = {
      {"on one device", {kGpu, kGpu}, {}, {}},
      {"on the host", {kHost, kHost}, {}, {}},
      {"to the device", {kHost, kGpu}, kCopy, kSync},
      {"to the host", {kGpu, kHost}, kCopy, kSync},
      {"between devices", {kGpu, kOtherGpu}, kCopy, {}},
      {"pageable, asked to be asynchronous", {kHost, kGpu, false, true, false}, kCopy, kSync},
      {"pinned, but blocking", {kHost, kGpu, false, false, true}, kCopy, kSync},
      {"pinned and asynchronous", {kHost, kGpu, false, true, true}, {}, {}},
      {"into pinned memory, asynchronous", {kGpu, kHost, false, true, true}, {}, {}},
      {"between devices, asynchronous", {kGpu, kOtherGpu, false, true}, {}, {}},
      {"between devices, back", {kGpu, kOtherGpu, false, false, false, true}, {}, {}},
      {"to the host, back", {kGpu, kHost, false, false, false, true}, kCopy, kSync},
      {"of nothing", {kHost, kGpu, true}, {}, {}},
      {"to meta", {kGpu, kNoData}, {}, {}},
  };
  for (const auto& row : rows) {
    EXPECT_EQ(judge_copy(row.copy, {}), row.by_default) << row.what;
    EXPECT_EQ(judge_copy(row.copy, {.copies = false}), row.only_syncs) << row.what;
    EXPECT_EQ(judge_copy(row.copy, {.copies = false, .syncs = false}), Verdict()) << row.what;
  }
}

TEST(GuardrailRules, OperatorsThatAreChecked) {
  const std::vector<at::Tag> none, pointwise = {at::Tag::core, at::Tag::pointwise};
  const std::vector<at::Tag> value = {at::Tag::data_dependent_output}, shape = {at::Tag::dynamic_output_shape};
  EXPECT_EQ(guardrail_check("aten::add.Tensor", pointwise), GuardrailCheck::kNone);
  EXPECT_EQ(guardrail_check("aten::copy_", none), GuardrailCheck::kCopy);
  EXPECT_EQ(guardrail_check("aten::item", value), GuardrailCheck::kSync);
  EXPECT_EQ(guardrail_check("aten::nonzero", shape), GuardrailCheck::kSync);
  EXPECT_EQ(guardrail_check("torchvision::nms", shape), GuardrailCheck::kSync);  // other libraries have tags too
  EXPECT_EQ(guardrail_check("aten::index.Tensor", shape), GuardrailCheck::kMaskIndex);
  EXPECT_EQ(guardrail_check("aten::repeat_interleave.Tensor", shape), GuardrailCheck::kRepeat);
  EXPECT_EQ(guardrail_check("aten::one_hot", shape), GuardrailCheck::kNone);  // if one_hot waits, it does so by item()
  EXPECT_EQ(guardrail_check("aten::to.device", none), GuardrailCheck::kName);
}

TEST(GuardrailRules, FunctionsOfLibrariesAreNotTheUsers) {
  const struct {
    const char* name;
    bool is_library;
  } rows[] = {
      {"at::Tensor::cpu() const", true},
      {"float at::Tensor::item<float>() const", true},
      {"std::ostream& at::operator<<(std::ostream&, at::Tensor const&)", true},
      {"c10::impl::wrap_kernel_functor_unboxed_<f, void (at::Tensor&)>::call(int)", true},
      {"std::_Function_handler<void (), trainer::run()::{lambda()#1}>::_M_invoke(std::_Any_data const&)", true},
      {"yoke::train::(anonymous namespace)::act_on(yoke::train::Found const&)", true},
      {"_start", true},
      {"decltype ({parm#1}()) yoke::train::ParallelModule::told_to_all<trainer::f>(trainer::f&&)", true},
      {"decltype (((parm#1)(1)).x()) trainer::call<trainer::f>(trainer::f&&)", false},
      {"main", false},
      {"trainer::train_step(at::Tensor const&)", false},
      {"trainer::(anonymous namespace)::Net::forward(at::Tensor)", false},
      {"(anonymous namespace)::train_step(at::Tensor const&)", false},
      {"at::Tensor trainer::loss_of<at::Tensor>(at::Tensor)", false},
      {"std::vector<at::Tensor, std::allocator<at::Tensor> > trainer::split<2>(at::Tensor)", false},
      {"trainer::operator<<(trainer::Log&, at::Tensor const&)", false},
      {"trainer::run()::{lambda(at::Tensor const&)#1}::operator()(at::Tensor const&) const", false},
      {"yoke::recipes::train(yoke::recipes::Options const&)", false},
      {"attention::forward(at::Tensor)", false},
  };
  for (const auto& row : rows) EXPECT_EQ(is_library_function(row.name), row.is_library) << row.name;
}

TEST(GuardrailRules, HeadersOfLibrariesAreNotTheUsers) {
  EXPECT_TRUE(is_library_header("/opt/torch/include/ATen/core/TensorBody.h"));
  EXPECT_TRUE(is_library_header("/opt/libtorch/include/torch/csrc/api/include/torch/nn/modules/linear.h"));
  EXPECT_TRUE(is_library_header("/usr/include/c++/12/bits/std_function.h"));
  EXPECT_TRUE(is_library_header("/usr/include/c++/12/optional"));
  EXPECT_TRUE(is_library_header("/usr/local/include/yoke/train/data/loader.h"));
  EXPECT_FALSE(is_library_header("/home/ada/trainer/model.h"));
  EXPECT_FALSE(is_library_header("/home/ada/torch/train.cpp"));
  EXPECT_FALSE(is_library_header("/home/ada/yoke/recipes/cifar.cpp"));
  EXPECT_FALSE(is_library_header("train.cpp"));
}

TEST(GuardrailRules, FilesOfLibrariesAreNotTheUsers) {
  EXPECT_TRUE(is_library_file("/opt/torch/lib/libtorch_cpu.so"));
  EXPECT_TRUE(is_library_file("/lib/x86_64-linux-gnu/libc.so.6"));
  EXPECT_TRUE(is_library_file("libyoke_dist.so"));
  EXPECT_FALSE(is_library_file("/home/ada/libtorch/train"));
  EXPECT_FALSE(is_library_file("/home/ada/libmodel.so"));
  EXPECT_FALSE(is_library_file("/home/ada/libtorch_trainer.so"));
}

TEST(GuardrailRules, AMessageSaysWhatWhereAndWhatToDo) {
  GuardrailPlace place{.operation = "aten::to",
                       .from = "cuda:0",
                       .to = "cpu",
                       .tensor = "Float [3]",
                       .function = "train_step(Net&)",
                       .file = "trainer.cpp",
                       .line = 42};
  EXPECT_EQ(
      guardrail_message(place),
      "aten::to copies Float [3] from cuda:0 to cpu within DeviceGuardrails, called by train_step(Net&) "
      "(trainer.cpp:42): keep the value on cuda:0 (a train::Meter, Run::log and TensorBoardWriter do) and read it "
      "after the step, or allow it by a DeviceGuardrails::Allow before the call");
  place.kind = GuardrailKind::kSync;
  place.operation = "aten::item";
  place.file.clear();
  place.backward_of = "MulBackward0";
  EXPECT_THAT(guardrail_message(place),
              AllOf(HasSubstr("aten::item of Float [3] makes the host wait for cuda:0 within"),
                    HasSubstr("called by train_step(Net&), in the backward of MulBackward0:")));
  place = {.operation = "aten::to", .from = "cpu", .to = "cuda:1", .tensor = "Float [3]"};
  EXPECT_THAT(guardrail_message(place),
              AllOf(HasSubstr("make it on cuda:1"), HasSubstr("by a thread without a function of the program:")));
}

TEST(GuardrailRules, AReportIsATableAndJson) {
  EXPECT_THAT(guardrail_text({}), HasSubstr("found no copy"));
  const std::vector<GuardrailPlace> places = {{.kind = GuardrailKind::kSync,
                                               .operation = "aten::item",
                                               .from = "cuda:0",
                                               .to = "cpu",
                                               .tensor = "Float []",
                                               .function = "step()\x1b[31m",
                                               .count = 3},
                                              {.operation = "aten::to", .count = 2, .bytes = 2048}};
  EXPECT_THAT(guardrail_text(places), AllOf(HasSubstr("    3  sync  aten::item  cuda:0"), HasSubstr("2.0 KiB")));
  const auto read = nlohmann::json::parse(guardrail_json(places));
  EXPECT_EQ(read["places"][0]["kind"], "sync");
  EXPECT_EQ(read["places"][0]["count"], 3);
  EXPECT_EQ(read["places"][1]["bytes"], 2048);
}

}  // namespace
}  // namespace yoke::train
