#include "yoke/tune/program.h"

#include <gtest/gtest.h>

#include <csignal>

namespace yoke::tune {
namespace {

using Words = std::vector<std::string>;

TEST(TuneProgram, GetsTheBatchSizeInItsCommandLine) {
  EXPECT_EQ(with_batch({"./train", "--b={}", "{}x{}"}, {}, 64), (Words{"./train", "--b=64", "64x64"}));
  const Handover option{.variable = "", .option = "--batch-size"};
  EXPECT_EQ(with_batch({"./train"}, option, 64), (Words{"./train", "--batch-size", "64"}));
  EXPECT_EQ(with_batch({"./train", "--batch-size", "8", "-v"}, option, 64),
            (Words{"./train", "--batch-size", "64", "-v"}));
  EXPECT_EQ(with_batch({"./train", "--batch-size=8"}, option, 64), (Words{"./train", "--batch-size=64"}));
  EXPECT_EQ(with_batch({"./train", "--batch-size"}, option, 64),
            (Words{"./train", "--batch-size", "--batch-size", "64"}));
  EXPECT_EQ(with_batch({"./train", "8"}, {.variable = "B", .option = ""}, 64), (Words{"./train", "8"}));
  EXPECT_TRUE(has_placeholder({"a", "b{}c"}));
  EXPECT_FALSE(has_placeholder({"a", "{ }"}));
}

TEST(TuneProgram, OutOfMemoryIsToldByItsWordsOrBySigkill) {
  for (const char* words :
       {"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", "terminate called: std::bad_alloc",
        "RuntimeError: [enforce fail at alloc_cpu.cpp:118] err == 0. DefaultCPUAllocator: can't allocate memory",
        "MemoryError", "OSError: [Errno 12] Cannot allocate memory", "Signal 9 (SIGKILL) received by PID 4121"}) {
    EXPECT_TRUE(is_out_of_memory(1, words)) << words;
    EXPECT_FALSE(is_out_of_memory(0, words)) << "the program has coped with it";
  }
  EXPECT_TRUE(is_out_of_memory(128 + SIGKILL, ""));
  EXPECT_FALSE(is_out_of_memory(1, "ValueError: expected more than 1 value per channel"));
  EXPECT_FALSE(is_out_of_memory(128 + SIGSEGV, ""));
}

TEST(TuneProgram, TheLastLinesArePrintable) { EXPECT_EQ(last_lines("a\nb\n\n\x1b[31mc", 2), "  b\n  ?[31mc\n"); }

}  // namespace
}  // namespace yoke::tune
