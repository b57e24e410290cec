#include "yoke/profile/trace_reader.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/message_of.h"

namespace yoke::profile {
namespace {

using testing::HasSubstr;
using testing::SizeIs;
using yoke::test::message_of;

Trace trace_of(const std::string& text) {
  size_t at = 0;
  return read_trace(
      [&](std::span<char> buffer) {
        const auto count = text.copy(buffer.data(), buffer.size(), at);
        at += count;
        return count;
      },
      "some.json");
}

/// An operation of 2 us; `members` begin with a comma.
std::string operation(const std::string& name, const std::string& members = "") {
  return fmt::format(R"({{"ph":"X","cat":"cpu_op","name":"{}","pid":1,"tid":1,"ts":1,"dur":2{}}})", name, members);
}

// A run that is killed leaves any prefix of its trace. Each event that is complete counts, and no other.
TEST(TraceReader, EveryCutLeavesTheEventsBeforeIt) {
  std::string text = R"({"schemaVersion":1,"traceEvents":[)";
  std::vector<size_t> ends;
  for (const char* name : {"a", "b}]", "c\\\""}) {
    text += (ends.empty() ? "" : ",\n") + operation(name, R"(,"args":{"Input Dims":[[2,3]],"x":"}"})");
    ends.push_back(text.size());
  }
  text += R"(],"distributedInfo":{"rank":2}})";
  for (size_t length = 0; length <= text.size(); ++length) {
    const auto num_complete = std::ranges::count_if(ends, [&](size_t end) { return end <= length; });
    if (num_complete == 0) {
      EXPECT_THAT(message_of([&] { trace_of(text.substr(0, length)); }, ErrorCode::kDataLoss),
                  HasSubstr("and it is not complete JSON; give a file that"));
      continue;
    }
    const auto trace = trace_of(text.substr(0, length));
    EXPECT_THAT(trace.events, SizeIs(num_complete)) << length;
    EXPECT_EQ(trace.is_truncated, length < text.size()) << length;
    EXPECT_EQ(trace.num_without_duration, 0) << length;
    EXPECT_EQ(trace.rank.has_value(), length >= text.size() - 1) << "after its member's brace";
  }
}

TEST(TraceReader, GradientsHaveTheSizeOfTheirFirstShape) {
  const struct {
    const char* args;
    std::vector<int64_t> sizes;  // elements and bytes of each; empty: there is no gradient
  } cases[] = {
      {R"({"Input Dims": [[64, 10], [3]], "Input type": ["float", "int"]})", {640, 4}},
      {R"({"Input type": ["c10::BFloat16"], "Input Dims": [[7]]})", {7, 2}},
      {R"({"Input type": ["c10::Half"], "Input Dims": [[7]]})", {7, 2}},
      {R"({"Input Dims": [[2, 2, 2]], "Input type": ["double"]})", {8, 8}},
      {R"({"Input Dims": [[]], "Input type": ["float"]})", {1, 4}},
      {R"({"Input Dims": [[65536, 1048576]]})", {int64_t{1} << 36, 4}},
      {R"({"Input Dims": [[65536, 1048577]]})", {}},  // more than any parameter has
      {R"({"Input Dims": [[4611686018427387904, 4611686018427387904]]})", {}},
      {R"({"Input Dims": [[0, 5]]})", {}},
      {R"({"Input Dims": [[-1, 5]]})", {}},
      {R"({"Input Dims": [["x"]]})", {}},
      {R"({"Input Dims": [[[2, 3]]]})", {}},
      {R"({"Input Dims": []})", {}},
      {R"({"Input Dims": "[[2]]"})", {}},
      {R"({"Input Dims": })", {}},
      {R"([[2]])", {}},
  };
  for (const auto& [args, sizes] : cases) {
    const auto trace = trace_of("[" + operation("torch::autograd::AccumulateGrad", R"(,"args":)" + std::string(args)) +
                                "," + operation("aten::add", R"(,"args":{"Input Dims": [[9]]})") + "]");
    EXPECT_THAT(trace.events, SizeIs(2)) << args;
    ASSERT_THAT(trace.gradients, SizeIs(sizes.empty() ? 0 : 1)) << args;
    if (sizes.empty()) continue;
    EXPECT_EQ(trace.gradients[0].num_elements, sizes[0]) << args;
    EXPECT_EQ(trace.gradients[0].element_bytes, sizes[1]) << args;
    EXPECT_EQ(trace.gradients[0].end_ns(), 3000);
  }
}

TEST(TraceReader, KernelsOfDifferentProcessGroupsAreDifferentCollectives) {
  const auto kernel = [](const char* name, const char* group) {
    return fmt::format(
        R"(,{{"ph":"X","cat":"kernel","name":"{}","ts":1,"dur":1,"args":{{"x":[1],"Process Group Name":"{}"}}}})", name,
        group);
  };
  constexpr const char *kReduce = "ncclDevKernel_AllReduce", *kOther = "ampere_sgemm_128x64_tn";
  const auto trace = trace_of("[" + kernel(kReduce, "0") + kernel(kReduce, "1") + kernel(kReduce, "0") +
                              kernel(kOther, "0") + kernel(kOther, "1") + "]");
  ASSERT_THAT(trace.events, SizeIs(5));
  EXPECT_NE(trace.events[0].name, trace.events[1].name);
  EXPECT_EQ(trace.events[0].name, trace.events[2].name);
  EXPECT_EQ(trace.events[3].name, trace.events[4].name) << "only collectives have groups";
  EXPECT_EQ(trace.names[trace.events[1].name].kind, Kind::kDeviceCollective);
}

TEST(TraceReader, AnEndBelongsToTheLastBeginOnItsThread) {
  const auto begin = [](const char* category, const char* name, int64_t tid, int64_t time) {
    return fmt::format(R"({{"ph":"B","cat":"{}","name":"{}","pid":1,"tid":{},"ts":{}}},)", category, name, tid, time);
  };
  const auto end = [](int64_t tid, int64_t time) {
    return fmt::format(R"({{"ph":"E","pid":1,"tid":{},"ts":{}}},)", tid, time);
  };
  const auto trace = trace_of("[" + begin("cpu_op", "outer", 1, 1) + begin("python_function", "f", 1, 2) +
                              begin("cpu_op", "other", 2, 3) + end(1, 4) + end(1, 11) + end(2, 5) +
                              begin("cpu_op", "backwards", 2, 30) + end(2, 20) + "]");
  ASSERT_THAT(trace.events, SizeIs(2)) << "the Python function is ignored, but its end is not the operation's";
  EXPECT_EQ(trace.names[trace.events[0].name].text, "outer");
  EXPECT_EQ(trace.events[0].duration_ns, 10'000);
  EXPECT_EQ(trace.events[1].duration_ns, 2'000);
  EXPECT_NE(trace.events[0].track, trace.events[1].track);
  EXPECT_EQ(trace.num_without_duration, 1) << "one ends before it begins";
}

TEST(TraceReader, TimesThatCannotBeAreLeftOut) {
  const auto num_left_out = [](const char* start, const char* duration) {
    return trace_of("[" + operation("good") +
                    fmt::format(R"(,{{"ph":"X","cat":"cpu_op","name":"a","ts":{},"dur":{}}}])", start, duration))
        .num_without_duration;
  };
  EXPECT_EQ(num_left_out("0", "0"), 0);
  EXPECT_EQ(num_left_out("\"7\"", "\"1.5\""), 0) << "some programs write numbers as text";
  EXPECT_EQ(num_left_out("1", "1000000000000"), 0) << "11 days";
  EXPECT_EQ(num_left_out("1", "1000000000000.001"), 1);
  EXPECT_EQ(num_left_out("-1", "1"), 1);
  EXPECT_EQ(num_left_out("4000000000000000", "1"), 1) << "127 years";
}

TEST(TraceReader, AnEventWithAMistakeIsCountedAndTheNextOneIsRead) {
  for (const char* mistake : {R"({"ph" "X"})", R"({"ph":"X" "cat":"cpu_op"})", R"({7})", R"("x")", "[1, {}]"}) {
    const auto trace = trace_of("[" + operation("a") + "," + mistake + "," + operation("b") + "]");
    EXPECT_THAT(trace.events, SizeIs(2)) << mistake;
    EXPECT_EQ(trace.num_without_duration, 1) << mistake;
    EXPECT_FALSE(trace.is_truncated) << mistake;
  }
}

TEST(TraceReader, FactsMayPrecedeOrFollowTheEventsAndAreWholeNumbers) {
  const std::string events = R"("traceEvents":[)" + operation("c10d::allreduce_") + "]";
  const std::string facts =
      R"("host":{"num_threads":4,"num_cpus":"8","memory_stall_us":1.5,"has_operations":0,"other":{"num_cpus":3}},)"
      R"("num_threads":9,"distributedInfo":{"backend":"gloo","rank":3,"world_size":2})";
  for (const auto& text : {"{" + events + "," + facts + "}", "{" + facts + "," + events + "}"}) {
    const auto trace = trace_of(text);
    EXPECT_EQ(trace.host.num_threads, 4);
    EXPECT_EQ(trace.host.num_cpus, std::nullopt);
    EXPECT_EQ(trace.host.memory_stall_us, std::nullopt);
    EXPECT_EQ(trace.host.has_operations, 0);
    EXPECT_EQ(trace.rank, 3);
    EXPECT_EQ(trace.world_size, 2);
    EXPECT_EQ(trace.names[0].kind, Kind::kCollectiveCall);
  }
  const auto alone = trace_of("{" + events + R"(,"distributedInfo":{"world_size":1}})");
  EXPECT_EQ(alone.names[0].kind, Kind::kOperation) << "nobody waits in a job of one rank";
}

TEST(TraceReader, AnErrorOfTheFileIsTheReaders) {
  const auto broken = [](std::span<char>) -> size_t { throw Error(ErrorCode::kUnavailable, "the disk is gone"); };
  EXPECT_EQ(message_of([&] { read_trace(broken, "some.json"); }, ErrorCode::kUnavailable), "the disk is gone");
}

}  // namespace
}  // namespace yoke::profile
