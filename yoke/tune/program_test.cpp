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
    EXPECT_TRUE(is_out_of_memory({1, words})) << words;
    EXPECT_FALSE(is_out_of_memory({0, words})) << "the program has coped with it";
  }
  EXPECT_TRUE(is_out_of_memory({128 + SIGKILL, ""}));
  EXPECT_FALSE(is_out_of_memory({1, "ValueError: expected more than 1 value per channel"}));
  EXPECT_FALSE(is_out_of_memory({128 + SIGSEGV, ""}));
}

TEST(TuneProgram, EndingsAreDescribed) {
  EXPECT_EQ(describe({3, ""}), "the program ended with status 3");
  EXPECT_EQ(describe({128 + SIGSEGV, ""}), "SIGSEGV ended the program");
  EXPECT_EQ(last_lines("a\nb\n\n\x1b[31mc", 2), "  b\n  ?[31mc\n");
}

TEST(TuneProgram, CgroupsLeaveWhatIsNotUsed) {
  EXPECT_EQ(available_bytes_of_meminfo("MemTotal: 10 kB\nMemAvailable:   7 kB\n"), 7 * 1024);
  EXPECT_EQ(available_bytes_of_meminfo("MemTotal: 10 kB\n"), 0);
  EXPECT_EQ(available_bytes_of_cgroup("1000\n", "600\n", "anon 1\ninactive_file 100\n"), 500);
  EXPECT_EQ(available_bytes_of_cgroup("1000\n", "600\n", "inactive_file 1\ntotal_inactive_file 200\n"), 600);
  EXPECT_EQ(available_bytes_of_cgroup("1000", "2000", ""), 0);
  EXPECT_FALSE(available_bytes_of_cgroup("max\n", "600\n", ""));
  EXPECT_FALSE(available_bytes_of_cgroup("9223372036854771712\n", "600\n", ""));
  EXPECT_FALSE(available_bytes_of_cgroup("", "", ""));
  EXPECT_GT(available_host_bytes(), 0);
}

}  // namespace
}  // namespace yoke::tune
