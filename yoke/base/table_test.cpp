#include "yoke/base/table.h"

#include <gtest/gtest.h>

namespace yoke {
namespace {

Table example() {
  return {.columns = {{"#", Align::kRight}, {"name", Align::kLeft, 6}, {"users", Align::kLeft, 4}},
          .rows = {{"0", "NVIDIA A100", "ada, grace"}, {"11", "x", ""}}};
}

TEST(Table, AlignsColumns) {
  EXPECT_EQ(to_text(example(), 80),
            " #  name         users\n"
            " 0  NVIDIA A100  ada, grace\n"
            "11  x\n");
}

TEST(Table, ShrinksTheLastColumnsFirst) {
  EXPECT_EQ(to_text(example(), 22),
            " #  name         users\n"
            " 0  NVIDIA A100  ada,…\n"
            "11  x\n");
  EXPECT_EQ(to_text(example(), 16),
            " #  name    use…\n"
            " 0  NVIDI…  ada…\n"
            "11  x\n");
  EXPECT_EQ(to_text(example(), 10),
            " #  name …\n"
            " 0  NVIDI…\n"
            "11  x\n")
      << "what cannot shrink any further is cut";
}

TEST(Table, LeavesOutWhatCanBeMissedMost) {
  const Table table{.columns = {{.title = "#", .align = Align::kRight},
                                {.title = "name", .shrinks_to = 6, .drop_order = 2},
                                {.title = "watts", .drop_order = 1},
                                {.title = "users", .shrinks_to = 4, .shrinks_late = true}},
                    .rows = {{"0", "NVIDIA A100", "60 W", "ada, grace"}}};
  const struct {
    int64_t width;
    const char* text;
  } kCases[] = {{33,
                 "#  name         watts  users\n"
                 "0  NVIDIA A100  60 W   ada, grace\n"},
                {28,
                 "#  name    watts  users\n"
                 "0  NVIDI…  60 W   ada, grace\n"},
                {27,
                 "#  name         users\n"
                 "0  NVIDIA A100  ada, grace\n"},
                {21,
                 "#  name    users\n"
                 "0  NVIDI…  ada, grace\n"},
                {20, "#  users\n0  ada, grace\n"},
                {7, "#  use…\n0  ada…\n"},
                {5, "#  u…\n0  a…\n"}};
  for (const auto& [width, text] : kCases) EXPECT_EQ(to_text(table, width), text) << width;
}

TEST(Table, CellsAreMadePrintable) {
  EXPECT_EQ(to_text({.columns = {{"a"}}, .rows = {{"\x1b[2J\n"}}}, 80), "a\n?[2J\n");
}

TEST(Table, WritesCsv) {
  EXPECT_EQ(to_csv({.columns = {{"name"}, {"memory_bytes"}}, .rows = {{"a,\"b\"", "1"}, {"", "2"}}}),
            "name,memory_bytes\n\"a,\"\"b\"\"\",1\n,2\n");
}

}  // namespace
}  // namespace yoke
