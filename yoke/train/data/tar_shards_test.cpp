#include "yoke/train/data/tar_shards.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "tests/support/command.h"
#include "tests/support/message_of.h"
#include "yoke/base/file.h"
#include "yoke/train/data/loader.h"

namespace yoke::train {
namespace {

using test::message_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

// Runs tar to pack the files of `folder` into `shard`, in the order of their names.
std::filesystem::path pack(const std::filesystem::path& folder, const std::filesystem::path& shard,
                           const std::string& options) {
  const auto command = "cd '" + folder.string() + "' && tar --sort=name " + options + " -cf '" + shard.string() + "' *";
  EXPECT_EQ(std::system(command.c_str()), 0);
  return shard;
}

void write(const std::filesystem::path& path, const std::string& text) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

// Oracle: the files that Debian's tar has packed, in each of its formats.
TEST(TarShards, ReadsWhatTarWrites) {
  for (const std::string format : {"ustar", "gnu", "pax", "v7"}) {
    const test::TemporaryFolder dir;
    const std::filesystem::path folder = dir.path("files");
    write(folder / "a/0001.jpg", std::string(1000, 'x'));
    write(folder / "a/0001.cls", "3");
    write(folder / "a/0002.seg.png", "");
    write(folder / "a/0002.cls", std::string(512, '\0'));
    write(folder / "b/README", "no part of a sample");
    // A name too long for a header, so that each format stores it in its own way. v7 cannot store such a name.
    const std::string name = format == "v7" ? "b/x" : "b/" + std::string(format == "ustar" ? 90 : 200, 'n');
    write(folder / (name + ".txt"), "long");
    const TarShards shards({pack(folder, dir.path("shard.tar"), "--format=" + format)});
    ASSERT_EQ(shards.size(), 3) << format;
    const auto first = shards.sample(0);
    EXPECT_EQ(first.key, "a/0001");
    EXPECT_THAT(first.files, ElementsAre(Pair("cls", "3"), Pair("jpg", std::string(1000, 'x'))));
    EXPECT_EQ(first.at("cls"), "3");
    EXPECT_THAT(message_of([&] { first.at("json"); }, ErrorCode::kDataLoss),
                HasSubstr("the sample a/0001 has no file .json"));
    EXPECT_THAT(shards.sample(1).files, ElementsAre(Pair("cls", std::string(512, '\0')), Pair("seg.png", "")));
    EXPECT_EQ(shards.sample(2).key, name) << format;
    EXPECT_EQ(shards.sample(2).at("txt"), "long");
  }
}

TEST(TarShards, FeedALoaderShardByShard) {
  const test::TemporaryFolder dir;
  std::vector<std::filesystem::path> paths;
  for (int shard = 0; shard < 3; ++shard) {
    const std::filesystem::path folder = dir.path(std::to_string(shard));
    for (int i = 0; i < 10; ++i) write(folder / (std::to_string(i) + ".txt"), std::to_string(10 * shard + i));
    paths.push_back(pack(folder, dir.path(std::to_string(shard) + ".tar"), ""));
  }
  const TarShards shards(paths);
  EXPECT_THAT(shards.shard_sizes(), ElementsAre(10, 10, 10));
  Loader loader(MappedSource(shards, [](const TarSample& sample) { return std::stoll(sample.at("txt")); }),
                {.batch_size = 10, .sampler = shuffled_shards(shards.shard_sizes(), 10, 5)});
  std::vector<int64_t> all;
  for (const auto& batch : loader.epoch(0)) {
    const std::vector<int64_t> given(batch.const_data_ptr<int64_t>(), batch.const_data_ptr<int64_t>() + 10);
    for (const int64_t number : given) EXPECT_EQ(number / 10, given[0] / 10) << "a window is as large as a shard";
    all.insert(all.end(), given.begin(), given.end());
  }
  std::sort(all.begin(), all.end());
  ASSERT_EQ(all.size(), 30u);
  for (int64_t i = 0; i < 30; ++i) EXPECT_EQ(all[static_cast<size_t>(i)], i);
}

// Truncates a shard at any byte, or changes one byte of a header. Reading then returns all samples, or throws an error
// that names the shard.
TEST(TarShards, DamagedFilesAreNamed) {
  const test::TemporaryFolder dir;
  write(dir.path("files/0.txt"), "zero");
  write(dir.path("files/1" + std::string(150, 'n') + ".txt"), "one");
  const auto path = pack(dir.path("files"), dir.path("whole.tar"), "--format=pax -b 1");
  const auto whole = read_file(path);
  const auto damaged = dir.path("damaged.tar");
  const auto outcome = [&](const std::string& bytes) -> std::string {
    write(damaged, bytes);
    try {
      const TarShards shards({damaged});
      for (int64_t i = 0; i < shards.size(); ++i) shards.sample(i);
      return "";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kDataLoss);
      return error.what();
    }
  };
  EXPECT_EQ(outcome(whole), "");
  int num_refused = 0;
  for (size_t size = 1; size < whole.size(); size += 37) {
    const auto said = outcome(whole.substr(0, size));
    if (said.empty()) continue;
    ++num_refused;
    EXPECT_THAT(said, HasSubstr("damaged.tar"));
  }
  EXPECT_GT(num_refused, 20);
  for (size_t at = 0; at < 512; at += 3) {
    auto changed = whole;
    changed[at] = static_cast<char>(changed[at] ^ 0x15);
    EXPECT_THAT(outcome(changed), HasSubstr("damaged.tar: there is a header whose checksum is wrong at byte 0"));
  }
  EXPECT_THAT(outcome("\x1f\x8b" + std::string(2000, 'z')), HasSubstr("not an uncompressed tar file"));
  EXPECT_EQ(outcome(""), "") << "an empty file has no samples";
}

}  // namespace
}  // namespace yoke::train
