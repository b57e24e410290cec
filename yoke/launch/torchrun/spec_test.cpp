#include "yoke/launch/torchrun/spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "yoke/base/error.h"
#include "yoke/launch/torchrun/values.h"

namespace yoke::launch {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class Spec : public testing::Test {
 protected:
  LaunchSpec spec() { return to_spec(options_, surroundings_); }

  std::string refusal() {
    try {
      spec();
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  }

  RunOptions options_;
  Surroundings surroundings_{.program = {"./train", "--x"},
                             .environment = {},
                             .find_program = [](const std::string& name) -> std::optional<std::string> {
                               if (name == "python3") return "/bin/python3";
                               return std::nullopt;
                             }};
};

TEST_F(Spec, AProgramIsStartedAsItIsAndAScriptByPython) {
  EXPECT_THAT(spec().argv, ElementsAre("./train", "--x"));
  surroundings_.program = {"train.py"};
  EXPECT_THAT(spec().argv, ElementsAre("/bin/python3", "-u", "train.py"));
  options_.no_python = true;
  EXPECT_THAT(spec().argv, ElementsAre("train.py"));
  options_.module = true;
  EXPECT_THAT(refusal(), HasSubstr("--module needs Python"));
  options_.no_python = false;
  EXPECT_THAT(spec().argv, ElementsAre("/bin/python3", "-u", "-m", "train.py"));
  surroundings_.environment.set("PYTHON_EXEC", "pypy");
  EXPECT_EQ(spec().argv[0], "pypy");
}

TEST_F(Spec, AnAgentHasTheRanksThatTheHeadGaveIt) {
  options_.nproc_per_node = "2";
  EXPECT_EQ(spec().num_ranks, 2);
  surroundings_.is_agent = true;
  EXPECT_EQ(spec().num_ranks, 2);
  surroundings_.num_ranks = 5;
  EXPECT_EQ(spec().num_ranks, 5);
}

TEST_F(Spec, WhatOtherHostsHaveIsCountedThere) {
  options_.hosts = "a,b";
  options_.nproc_per_node = "gpu";
  surroundings_.program = {"train.py"};
  surroundings_.find_program = nullptr;
  EXPECT_EQ(spec().num_ranks, 1);
  EXPECT_EQ(spec().argv[0], "python");
}

TEST_F(Spec, TorchrunsWordsForBindingMeanOurs) {
  for (const auto& [word, mode] : {std::pair("node", "node"), {"exclusive", "auto"}, {"core-complex", "cache"}}) {
    options_.numa_binding = word;
    EXPECT_EQ(spec().bind, parse_bind_mode(mode)) << word;
  }
  options_.is_bind_given = true;
  EXPECT_THAT(refusal(), HasSubstr("both choose the CPUs of ranks"));
  surroundings_.environment.set("PET_NUMA_BINDING", options_.numa_binding);
  EXPECT_EQ(spec().bind, parse_bind_mode("auto")) << "the command line counts first";
}

TEST_F(Spec, TheGraceTimeHasThreeNames) {
  using std::chrono::milliseconds;
  EXPECT_EQ(spec().grace, milliseconds(10'000));
  surroundings_.environment.set("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "2.5");
  EXPECT_EQ(spec().grace, milliseconds(2500));
  options_.shutdown_timeout = 7;
  EXPECT_EQ(spec().grace, milliseconds(7000)) << "an option counts before the variable";
  options_.is_grace_given = true;
  options_.grace_seconds = 7;
  EXPECT_EQ(spec().grace, milliseconds(7000));
  options_.grace_seconds = 0.5;
  EXPECT_THAT(refusal(), HasSubstr("--grace 0.5 and --shutdown-timeout 7 are one time"));
  surroundings_.environment.set("PET_SHUTDOWN_TIMEOUT", "7");
  EXPECT_EQ(spec().grace, milliseconds(500)) << "the command line counts first";
  options_ = {};
  for (const char* text : {"soon", "-1", "1e7"}) {
    surroundings_.environment.set("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", text);
    EXPECT_THAT(refusal(), HasSubstr(std::string("TORCH_ELASTIC_SHUTDOWN_TIMEOUT ") + text + ": give 0 to 1000000"));
  }
}

TEST_F(Spec, UninterruptibleSleepIsWatchedOnlyOnRequest) {
  using std::chrono::milliseconds;
  constexpr const char* kName = "TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT";
  EXPECT_EQ(spec().kernel_sleep_limit, milliseconds(0));
  for (const auto& [text, limit] : {std::pair("", 0), {"0", 0}, {"-3", 0}, {"1.5", 1500}, {"1e2", 100'000}}) {
    surroundings_.environment.set(kName, text);
    EXPECT_EQ(spec().kernel_sleep_limit, milliseconds(limit)) << text;
  }
  surroundings_.environment.set(kName, "soon");
  EXPECT_THAT(refusal(), HasSubstr("TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT soon: give a number of seconds"));
}

TEST_F(Spec, TheOptionOfAPrefixCountsBeforeTheVariable) {
  surroundings_.environment.set("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE", "a");
  EXPECT_EQ(spec().logs.prefix_template, "a");
  options_.log_line_prefix_template = "b";
  EXPECT_EQ(spec().logs.prefix_template, "b");
}

TEST_F(Spec, MessagesNameTheOption) {
  options_.redirects = "7";
  EXPECT_THAT(refusal(), HasSubstr("--redirects"));
  options_.redirects = "0";
  options_.signals_to_handle = "TERM,KILL";
  EXPECT_THAT(refusal(), HasSubstr("--signals-to-handle: no process can handle SIGKILL"));
  options_.signals_to_handle = "";
  options_.local_ranks_filter = "a";
  EXPECT_THAT(refusal(), HasSubstr("--local-ranks-filter a"));
  options_.local_ranks_filter = "1";
  EXPECT_THAT(refusal(), HasSubstr("no rank would be shown; local ranks are 0 to 0"));
  options_.nnodes = "2";
  EXPECT_EQ(refusal(), "accepted") << "a node of another size may have the rank";
}

TEST(Variables, AreTorchruns) { EXPECT_EQ(variable_of_option("max-restarts"), "PET_MAX_RESTARTS"); }

}  // namespace
}  // namespace yoke::launch
