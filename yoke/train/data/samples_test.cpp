#include "yoke/train/data/samples.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "yoke/base/error.h"

namespace yoke::train {
namespace {

class MapTensor : public ::testing::Test {
 protected:
  ~MapTensor() override { std::filesystem::remove(path_); }

  void write(const std::string& bytes) { std::ofstream(path_, std::ios::binary) << bytes; }

  ErrorCode code_of(const FileLayout& layout) {
    try {
      map_tensor(path_, layout);
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr(path_.string()));
      return error.code();
    }
    return ErrorCode::kInternal;
  }

  std::filesystem::path path_ = std::filesystem::temp_directory_path() / ("yoke-samples-" + std::to_string(getpid()));
};

TEST_F(MapTensor, HoldsTheFilesValuesAndItsMapping) {
  const auto values = at::arange(12, at::kInt);
  write("head" + std::string(static_cast<const char*>(values.const_data_ptr()), 48));
  const auto mapped = map_tensor(path_, {.sizes = {3, 4}, .dtype = at::kInt, .offset_bytes = 4});
  std::filesystem::remove(path_);  // the mapping stays valid
  EXPECT_TRUE(at::equal(mapped, values.view({3, 4})));
}

TEST_F(MapTensor, RefusesWhatTheFileCannotHold) {
  write(std::string(48, 'x'));
  EXPECT_EQ(code_of({.sizes = {49}}), ErrorCode::kDataLoss);
  EXPECT_EQ(code_of({.sizes = {12}, .dtype = at::kInt, .offset_bytes = 4}), ErrorCode::kDataLoss);
  EXPECT_EQ(code_of({.sizes = {1}, .offset_bytes = 100}), ErrorCode::kDataLoss);
  EXPECT_EQ(code_of({.sizes = {-1}}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of({.sizes = {int64_t{1} << 40, int64_t{1} << 40}}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of({.sizes = {4}, .dtype = at::kInt, .offset_bytes = 2}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of({.sizes = {4}, .offset_bytes = -1}), ErrorCode::kInvalidArgument);
  std::filesystem::remove(path_);
  EXPECT_EQ(code_of({.sizes = {4}}), ErrorCode::kNotFound);
}

}  // namespace
}  // namespace yoke::train
