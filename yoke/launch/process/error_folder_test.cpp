#include "yoke/launch/process/error_folder.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <fstream>

namespace yoke::launch {
namespace {

using std::filesystem::exists;

TEST(ErrorFolder, OnlyAbandonedOnesAreRemoved) {
  auto name_of_base = (std::filesystem::temp_directory_path() / "yoke-error-folder-XXXXXX").native();
  ASSERT_NE(mkdtemp(name_of_base.data()), nullptr);
  const std::filesystem::path base = name_of_base;
  const auto make = [&](const char* name) {
    auto lock = make_error_folder(base / name);
    EXPECT_TRUE(lock);
    std::ofstream(base / name / "attempt_0_rank_0.json") << "{}";
    std::filesystem::last_write_time(base / name,
                                     std::filesystem::file_time_type::clock::now() - std::chrono::hours(1));
    return lock;
  };
  const auto held = make("yoke-run-0000000000000001");
  make("yoke-run-0000000000000002");  // its owner is gone
  make("yoke-run-0000000000000003");
  std::filesystem::last_write_time(base / "yoke-run-0000000000000003", std::filesystem::file_time_type::clock::now());
  make("yoke-run-notes");
  std::filesystem::create_directory_symlink(base / "yoke-run-notes", base / "yoke-run-0000000000000004");
  EXPECT_FALSE(make_error_folder(base / "yoke-run-0000000000000001")) << "it exists";
  remove_abandoned_error_folders(base);
  EXPECT_TRUE(exists(base / "yoke-run-0000000000000001")) << "held";
  EXPECT_FALSE(exists(base / "yoke-run-0000000000000002")) << "abandoned";
  EXPECT_TRUE(exists(base / "yoke-run-0000000000000003")) << "young";
  EXPECT_TRUE(exists(base / "yoke-run-notes" / "attempt_0_rank_0.json")) << "has another name";
  std::filesystem::remove_all(base);
  remove_abandoned_error_folders(base);  // which is missing
}

}  // namespace
}  // namespace yoke::launch
