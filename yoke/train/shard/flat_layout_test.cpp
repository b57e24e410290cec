#include "yoke/train/shard/flat_layout.h"

#include <gtest/gtest.h>

#include <vector>

namespace yoke::train {

bool operator==(const FlatPart& a, const FlatPart& b) {
  return a.first == b.first && a.offset == b.offset && a.length == b.length;
}
std::ostream& operator<<(std::ostream& out, const FlatPart& part) {
  return out << "first " << part.first << " offset " << part.offset << " length " << part.length;
}

namespace {

TEST(FlatLayout, DividesTensorsBetweenRanks) {
  struct Case {
    std::vector<NamedShape> tensors;
    int64_t num_ranks, alignment, rank_elements;
    std::vector<std::vector<FlatPart>> parts;  ///< [tensor][rank]
  };
  const std::vector<Case> cases = {
      {{{"w", {2, 3}}, {"b", {2}}}, 1, 1, 8, {{{0, 0, 6}}, {{0, 6, 2}}}},
      {{{"w", {2, 3}}, {"b", {2}}}, 2, 1, 4, {{{0, 0, 4}, {4, 0, 2}}, {{}, {0, 2, 2}}}},
      // 8 elements on 3 ranks: one element of padding at the end of the last range.
      {{{"w", {2, 3}}, {"b", {2}}}, 3, 1, 3, {{{0, 0, 3}, {3, 0, 3}, {}}, {{}, {}, {0, 0, 2}}}},
      // A tensor over several ranks, and a rank without elements.
      {{{"w", {5}}}, 4, 1, 2, {{{0, 0, 2}, {2, 0, 2}, {4, 0, 1}, {}}}},
      // Aligned to 4: b begins at 8, and ranges are multiples of 4.
      {{{"w", {2, 3}}, {"b", {2}}}, 2, 4, 8, {{{0, 0, 6}, {}}, {{}, {0, 0, 2}}}},
      {{{"w", {2, 3}}, {"b", {2}}}, 3, 4, 4, {{{0, 0, 4}, {4, 0, 2}, {}}, {{}, {}, {0, 0, 2}}}},
      // Scalars have one element, empty tensors none.
      {{{"s", {}}, {"e", {0, 3}}, {"t", {1}}}, 2, 1, 1, {{{0, 0, 1}, {}}, {{}, {}}, {{}, {0, 0, 1}}}},
      {{}, 2, 4, 0, {}},
  };
  for (size_t i = 0; i < cases.size(); ++i) {
    const auto& [tensors, num_ranks, alignment, rank_elements, parts] = cases[i];
    const FlatLayout layout(tensors, num_ranks, alignment);
    EXPECT_EQ(layout.rank_elements(), rank_elements) << "case " << i;
    EXPECT_EQ(layout.num_elements(), rank_elements * num_ranks) << "case " << i;
    for (size_t item = 0; item < tensors.size(); ++item) {
      for (int64_t rank = 0; rank < num_ranks; ++rank) {
        EXPECT_EQ(layout.part(item, rank), parts[item][static_cast<size_t>(rank)])
            << "case " << i << ", " << tensors[item].name << ", rank " << rank;
      }
    }
  }
}

TEST(FlatLayout, PartsOfAllRanksCoverEveryTensorOnce) {
  const std::vector<NamedShape> tensors = {{"a", {7, 5}}, {"b", {1}}, {"c", {3, 1, 11}}, {"d", {}}, {"e", {64}}};
  for (int64_t num_ranks = 1; num_ranks <= 9; ++num_ranks) {
    for (const int64_t alignment : {1, 4, 16}) {
      const FlatLayout layout(tensors, num_ranks, alignment);
      for (size_t item = 0; item < tensors.size(); ++item) {
        int64_t next = 0;
        for (int64_t rank = 0; rank < num_ranks; ++rank) {
          const auto part = layout.part(item, rank);
          if (part.length == 0) continue;
          EXPECT_EQ(part.first, next);
          EXPECT_EQ(rank * layout.rank_elements() + part.offset, layout.items()[item].offset + part.first);
          EXPECT_LE(part.offset + part.length, layout.rank_elements());
          next += part.length;
        }
        EXPECT_EQ(next, layout.items()[item].num_elements);
      }
    }
  }
}

TEST(FlatLayout, AlignsTo64Bytes) {
  EXPECT_EQ(flat_alignment(4), 16);
  EXPECT_EQ(flat_alignment(2), 32);
  EXPECT_EQ(flat_alignment(128), 1);
}

}  // namespace
}  // namespace yoke::train
