#include "yoke/keep/kept_containers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "yoke/base/json.h"

namespace yoke::keep {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

KeptContainerRow container_row(int64_t keeper, const char* name, Json pid) {
  return {{"", 1000, keeper}, Json{{"name", name}, {"keeper", keeper}, {"pid", std::move(pid)}}};
}

TEST(KeptContainers, AreFoundByNameOrProcess) {
  const std::vector<KeptContainerRow> rows = {container_row(10, "ada_a", 11),
                                              container_row(20, "ada_b", nullptr),
                                              container_row(30, "ada_a", 31),
                                              {{"", 1000, 40}, {}}};
  EXPECT_THAT(find_named(rows, "ada_b").found, ElementsAre(1U));
  EXPECT_THAT(find_named(rows, "ada_a").found, ElementsAre(0U, 2U)) << "two have the name";
  EXPECT_THAT(find_named(rows, "30").found, ElementsAre(2U)) << "the keeper";
  EXPECT_THAT(find_named(rows, "11").found, ElementsAre(0U)) << "the first process";
  EXPECT_THAT(find_named(rows, "40").found, IsEmpty());
  EXPECT_THAT(find_named(rows, "ada_c").are_silent, ElementsAre(40)) << "it may be this one";
}

}  // namespace
}  // namespace yoke::keep
