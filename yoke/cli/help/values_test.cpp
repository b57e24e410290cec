#include "yoke/cli/help/values.h"

#include <gtest/gtest.h>

#include <CLI/App.hpp>

namespace yoke::cli {
namespace {

TEST(Values, ComplaintsSayWhatMayBeGiven) {
  struct Case {
    const char *value, *text, *complaint;
  };
  constexpr Case kCases[] = {
      {"nvidia|amd|cpu", "amd", ""},
      {"nvidia|amd|cpu", "nvida", "give nvidia, amd or cpu (did you mean `nvidia`?)"},
      {"nvidia|amd|cpu", "", "give nvidia, amd or cpu"},
      {"auto|gpu|cpu|N", "12", ""},
      {"auto|gpu|cpu|N", "gpus", "give auto, gpu, cpu or N (did you mean `gpu`?)"},
      {"auto|none|mask:LIST", "mask:0xf", ""},
      {"auto|none|mask:LIST", "maks:0xf", "give auto, none or mask:LIST"},
      {"N|MIN:MAX", "whatever", ""},
      {"0..3|RANK:0..3,...", "7", ""},
      {"KEY=VALUE,...", "", ""},
      {"N", "3", ""},
      {"N", "-3", ""},
      {"N", "1.5", "give a whole number"},
      {"RANK", "x", "give a whole number"},
      {"PID...", "99999999999999999999", "give a whole number"},
      {"SECONDS", "1e2", ""},
      {"SECONDS", "soon", "give a number of seconds"},
      {"SECONDS", "nan", "give a number of seconds"},
      {"SECONDS", "", "give a number of seconds"},
      {"FILE", "", ""},
      {"", "x", ""},
  };
  for (const auto& one : kCases) EXPECT_EQ(complaint_about(one.value, one.text), one.complaint) << one.value;
}

TEST(Values, RangesAreInPlainNumbers) {
  struct Case {
    CLI::Validator range;
    const char *text, *complaint;
  };
  const Case cases[] = {
      {in_range(2, 1e6, "seconds"), "2", ""},
      {in_range(2, 1e6, "seconds"), "1000000", ""},
      {in_range(2, 1e6, "seconds"), "1", "1: give 2 to 1000000 seconds"},
      {in_range(0.05, 3600, "seconds"), "0", "0: give 0.05 to 3600 seconds"},
      {in_range(1, 65'535), "inf", "inf: give 1 to 65535"},
      {in_range(1, 65'535), "", "'': give 1 to 65535"},
  };
  for (const auto& one : cases) {
    std::string text = one.text;
    EXPECT_EQ(one.range(text), one.complaint);
    EXPECT_EQ(one.range.get_description(), "") << "it would be appended to the value in --help";
  }
}

}  // namespace
}  // namespace yoke::cli
