#include "yoke/dist/detail/nccl_engine.h"

#include <gtest/gtest.h>

namespace yoke::dist {
namespace {

std::string engine(int minor, bool has_nccl2, const char* wish = nullptr) {
  Environment environment;
  if (wish != nullptr) environment.set("TORCH_DIST_USE_NCCL2", wish);
  return nccl_engine({.major = 2, .minor = minor, .has_nccl2 = has_nccl2}, environment);
}

TEST(NcclEngine, IsTheOneThatPythonMakesForNccl) {
  EXPECT_EQ(engine(11, false), "nccl");
  EXPECT_EQ(engine(11, false, "1"), "nccl");
  EXPECT_EQ(engine(14, true), "nccl-legacy");
  EXPECT_EQ(engine(14, true, "1"), "nccl2");
  EXPECT_EQ(engine(14, true, "yes"), "nccl-legacy");
  EXPECT_EQ(engine(15, true), "nccl2");
  EXPECT_EQ(engine(15, true, ""), "nccl2");
  EXPECT_EQ(engine(15, true, "1"), "nccl2");
  EXPECT_EQ(engine(15, true, "0"), "nccl-legacy");
  EXPECT_EQ(engine(15, false), "nccl") << "a build without NCCL2";
}

}  // namespace
}  // namespace yoke::dist
