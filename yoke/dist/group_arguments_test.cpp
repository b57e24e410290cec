// Tensors that a Group's collectives refuse, in the same words whatever carries them: CMakeLists.txt runs these tests
// with shared memory and with Gloo.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "fakes/run_ranks.h"
#include "yoke/base/error.h"
#include "yoke/dist/world.h"

namespace yoke::dist {
namespace {

using fakes::run_ranks;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument) << error.what();
    return error.what();
  } catch (const std::exception& error) {
    return std::string("not yoke's error: ") + error.what();
  }
  return "not refused";
}

bool uses_gloo(World& world) {
  return world.process_group().getBackend(c10::DeviceType::CPU)->getBackendName() == "gloo";
}

// Gloo would read and write the memory beside the column.
TEST(Group, RefusesWhatIsNotContiguousWhereItWouldBeWrong) {
  run_ranks(2, [](World& world) {
    const auto whole = at::zeros({4, 3}), column = whole.select(1, 0);
    const int64_t other = 1 - world.rank();
    EXPECT_THAT(refusal([&] { world.start_all_reduce(column).wait(); }),
                AllOf(StartsWith("all_reduce: "), HasSubstr("not contiguous"), HasSubstr("[4] with strides [3]")));
    EXPECT_THAT(refusal([&] { world.start_all_reduce(at::ones({1}).expand({4000})).wait(); }),
                AllOf(StartsWith("all_reduce: "), HasSubstr("not contiguous")));
    EXPECT_THAT(refusal([&] { world.start_receive(column, other).wait(); }),
                AllOf(StartsWith("receive: "), HasSubstr("not contiguous")));
    EXPECT_TRUE(at::equal(whole, at::zeros({4, 3})));
    const auto turned = at::arange(6).view({2, 3}).t();  // dense, with the same strides on all ranks
    world.start_all_reduce(turned).wait();
    EXPECT_TRUE(at::equal(turned, at::arange(6).view({2, 3}).t() * 2));
  });
}

TEST(Group, TakesViewsWhereTheyAreRight) {
  run_ranks(2, [](World& world) {
    const auto own = at::full({4, 2}, 99.0, at::kDouble);
    own.select(1, 0).fill_(world.rank() + 1);
    const auto column = own.select(1, 0), marks = at::arange(1, 3, at::kDouble).repeat_interleave(4);
    const auto all = at::zeros({8, 2}, at::kDouble), part = at::zeros({2, 2}, at::kDouble);
    world.all_gather_into(all.select(1, 0), column);
    EXPECT_TRUE(at::equal(all.select(1, 0), marks));
    world.reduce_scatter(part.select(1, 1), column);
    EXPECT_TRUE(at::equal(part.select(1, 1), at::full({2}, 3.0, at::kDouble)));
    const auto exchanged = at::zeros({4, 2}, at::kDouble);
    world.all_to_all(exchanged.select(1, 1), column);
    EXPECT_TRUE(at::equal(exchanged.select(1, 1), at::arange(1, 3, at::kDouble).repeat_interleave(2)));
    for (const auto& result : {all.select(1, 1), part.select(1, 0), exchanged.select(1, 0)}) {
      EXPECT_EQ(result.sum().item<double>(), 0) << "beside it";
    }
    const auto received = at::zeros({4}, at::kDouble);
    auto sending = world.start_send(column, 1 - world.rank());
    world.receive(received, 1 - world.rank());
    sending.wait();
    EXPECT_TRUE(at::equal(received, at::full({4}, 2.0 - world.rank(), at::kDouble)));
    const auto square = at::zeros({2, 2}, at::kDouble);
    world.scatter(square, at::arange(8, at::kDouble).view({2, 4}), 1);
    EXPECT_TRUE(at::equal(square, at::arange(4, at::kDouble).view({2, 2}) + 4 * world.rank()));
    const auto rows = at::zeros({4, 3}, at::kDouble);
    world.all_gather_into(rows, at::full({2, 3}, 1.0 + world.rank(), at::kDouble));
    EXPECT_TRUE(at::equal(rows, at::arange(1, 3, at::kDouble).repeat_interleave(2).unsqueeze(1).expand({4, 3})));
  });
}

TEST(Group, NamesTheCallWhoseTensorIsUndefined) {
  run_ranks(2, [](World& world) {
    const at::Tensor none;
    const auto plain = at::ones({2});
    const int64_t other = 1 - world.rank();
    const std::pair<const char*, std::function<void()>> calls[] = {
        {"all_reduce", [&] { world.all_reduce(none); }},
        {"all_reduce", [&] { world.start_all_reduce(none).wait(); }},
        {"broadcast", [&] { world.broadcast(none); }},
        {"all_gather", [&] { world.all_gather(none); }},
        {"gather", [&] { world.gather(none); }},
        {"scatter",
         [&] {
           world.scatter(none, at::ones({2, 2}));
         }},
        {"all_to_all", [&] { world.all_to_all(plain, none); }},
        {"all_to_all", [&] { world.all_to_all(none, plain); }},
        {"all_gather_into", [&] { world.all_gather_into(none, plain); }},
        {"all_gather_into", [&] { world.all_gather_into(plain, none); }},
        {"reduce_scatter", [&] { world.reduce_scatter(none, plain); }},
        {"reduce_scatter", [&] { world.reduce_scatter(plain, none); }},
        {"send", [&] { world.send(none, other); }},
        {"receive", [&] { world.receive(none, other); }},
    };
    for (const auto& [name, call] : calls) {
      EXPECT_THAT(refusal(call), AllOf(StartsWith(std::string(name) + ": "), HasSubstr("undefined"))) << name;
    }
    if (world.rank() == 0) {
      EXPECT_THAT(refusal([&] { world.scatter(plain, none); }), HasSubstr("scatter: a tensor is undefined"));
    }
  });
}

// Oracle: what Gloo itself says of each dtype.
TEST(Group, NamesTheElementsThatGlooDoesNotCarry) {
  run_ranks(1, [](World& world) {
    ASSERT_TRUE(uses_gloo(world));
    for (const auto type : {at::kBool, at::kByte, at::kChar, at::kShort, at::kUInt16, at::kInt, at::kUInt32, at::kLong,
                            at::kUInt64, at::kHalf, at::kBFloat16, at::kFloat, at::kDouble}) {
      const auto tensor = at::zeros({3}, type);
      std::vector<at::Tensor> tensors = {tensor.clone()};
      std::string says;
      try {
        world.process_group().broadcast(tensors, {})->wait();
      } catch (const std::exception& error) {
        says = error.what();
      }
      const auto ours = refusal([&] { world.broadcast(tensor); });
      EXPECT_EQ(ours == "not refused", says.empty()) << c10::toString(type) << ": " << ours << "; " << says;
    }
  });
  run_ranks(2, [](World& world) {
    const auto tensor = at::full({3}, world.rank() + 1, at::kShort);
    if (uses_gloo(world)) {
      const auto said = AllOf(HasSubstr("Gloo carries no Short"), HasSubstr("convert it"), Not(HasSubstr("frame #")));
      EXPECT_THAT(refusal([&] { world.all_reduce(tensor); }), AllOf(StartsWith("all_reduce: "), said));
      EXPECT_THAT(refusal([&] { world.all_gather(tensor); }), AllOf(StartsWith("all_gather: "), said));
    } else {
      world.all_reduce(tensor);
      EXPECT_TRUE(at::equal(tensor, at::full({3}, 3, at::kShort)));
    }
    auto sending = world.start_send(at::full({3}, 7, at::kShort), 1 - world.rank());  // its bytes, of any type
    world.receive(tensor, 1 - world.rank());
    sending.wait();
    EXPECT_TRUE(at::equal(tensor, at::full({3}, 7, at::kShort)));
  });
}

TEST(Group, SaysWhichSizesACallWants) {
  run_ranks(2, [](World& world) {
    EXPECT_THAT(refusal([&] { world.all_gather_into(at::zeros({5}), at::zeros({4})); }),
                HasSubstr("all_gather_into: an output of Float [5] is not 2 times an input of Float [4]"));
    EXPECT_THAT(refusal([&] { world.all_gather_into(at::zeros({8}, at::kDouble), at::zeros({4})); }),
                HasSubstr("all_gather_into: an output of Double [8] is not 2 times an input of Float [4]"));
    EXPECT_THAT(refusal([&] { world.all_to_all(at::zeros({4}, at::kDouble), at::zeros({4})); }),
                HasSubstr("all_to_all: an output of Double [4] and an input of Float [4]"));
    if (world.rank() == 0) {
      const auto wanted = HasSubstr("is not one part of Float [4] for each of 2 ranks");
      EXPECT_THAT(refusal([&] {
                    world.scatter(at::zeros({4}), at::zeros({2, 5}));
                  }),
                  AllOf(HasSubstr("scatter: an input of Float [2, 5] "), wanted));
      EXPECT_THAT(refusal([&] { world.scatter(at::zeros({4}), at::zeros({3, 4})); }), wanted);
      EXPECT_THAT(refusal([&] { world.scatter(at::zeros({4}), at::zeros({2, 4}, at::kDouble)); }), wanted);
      EXPECT_THAT(refusal([&] { world.scatter(at::zeros({4}), at::zeros({}, at::kDouble)); }), wanted);
    }
  });
}

TEST(Group, SaysThatSplitsDoNotFit) {
  const auto body = [](World& world) {
    if (uses_gloo(world)) return;  // there the process ends
    Splits splits;
    if (world.rank() == 0) splits = {.input = {1, 3}, .output = {1, 3}};
    try {
      world.all_to_all(at::zeros({4}), at::zeros({4}), splits);
      ADD_FAILURE() << "nothing was thrown on rank " << world.rank();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kFailedPrecondition);
      EXPECT_THAT(error.what(), AllOf(HasSubstr("all_to_all"), HasSubstr("Splits"), Not(HasSubstr("root"))));
    }
  };
  run_ranks(2, body, std::chrono::seconds(3));
}

}  // namespace
}  // namespace yoke::dist
