#include "yoke/train/data/tar_shards.h"

#include <fmt/format.h>
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
using ::testing::AllOf;
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

// `num_parts` blocks of data, with holes of zeros before, between and after them.
std::string holey(int num_parts) {
  std::string text(8192, '\0');
  for (int i = 0; i < num_parts; ++i) {
    text += std::string(512, static_cast<char>('a' + i % 26)) +
            std::string(static_cast<size_t>(8192 + 512 * (i % 3)), '\0');
  }
  return text;
}

// Writes only the blocks that are not zero, because tar packs a file as a sparse one if the disk has holes for it.
void write_sparse(const std::filesystem::path& path, const std::string& text) {
  write(path, "");
  std::ofstream file(path, std::ios::binary);
  for (size_t i = 0; i < text.size(); i += 512) {
    const auto block = text.substr(i, 512);
    if (block.find_first_not_of('\0') == block.npos) continue;
    file.seekp(static_cast<std::streamoff>(i));
    file << block;
  }
  file.close();
  std::filesystem::resize_file(path, text.size());
}

// Oracle: the files that tar has packed as sparse ones. 50 parts need more headers than one.
TEST(TarShards, ReadsSparseFiles) {
  const std::vector<std::pair<std::string, std::string>> files = {{"0.txt", "before"},
                                                                  {"1.bin", holey(1) + "end"},
                                                                  {"2" + std::string(150, 'n') + ".bin", holey(50)},
                                                                  {"3.bin", holey(0)},
                                                                  {"4.txt", "after"}};
  for (const std::string format :
       {"gnu", "pax --sparse-version=0.0", "pax --sparse-version=0.1", "pax --sparse-version=1.0"}) {
    const test::TemporaryFolder dir;
    for (const auto& [name, text] : files) write_sparse(dir.path("files/" + name), text);
    const auto shard = pack(dir.path("files"), dir.path("shard.tar"), "-S --hole-detection=raw --format=" + format);
    ASSERT_LT(std::filesystem::file_size(shard), 80'000) << "tar has packed the holes, with " << format;
    const TarShards shards({shard});
    ASSERT_EQ(shards.size(), 5) << format;
    for (int64_t i = 0; i < 5; ++i) {
      const auto& [name, text] = files[static_cast<size_t>(i)];
      const auto sample = shards.sample(i);
      EXPECT_EQ(sample.key + "." + sample.files[0].first, name) << format;
      EXPECT_TRUE(sample.files[0].second == text) << name << " of format " << format;
    }
  }
}

TEST(TarShards, RefusesSparseFilesWhoseMapIsWrong) {
  const test::TemporaryFolder dir;
  write_sparse(dir.path("files/1.bin"), holey(2));  // parts of 512 bytes at 8192 and 16896
  const auto packed = [&](const std::string& format) {
    return read_file(pack(dir.path("files"), dir.path("whole.tar"), "-S --hole-detection=raw --format=" + format));
  };
  const auto refuse = [&](std::string bytes, const std::string& from, const std::string& to, const std::string& why) {
    ASSERT_EQ(from.size(), to.size());
    ASSERT_NE(bytes.find(from), bytes.npos) << from;
    write(dir.path("damaged.tar"), bytes.replace(bytes.find(from), from.size(), to));
    const auto said = message_of([&] { TarShards({dir.path("damaged.tar")}); }, ErrorCode::kDataLoss);
    EXPECT_THAT(said, AllOf(HasSubstr("damaged.tar"), HasSubstr(why))) << to;
  };
  const auto in_header = packed("pax --sparse-version=0.1");
  refuse(in_header, "=8192,512,16896,", "=8192,512,00001,", "a sparse file whose parts overlap, or exceed its size");
  refuse(in_header, "sparse.size=26112", "sparse.size=16999", "exceed its size");
  refuse(in_header, "=8192,512,", "=8192,513,", "a sparse file whose map does not fit its content");
  refuse(in_header, "=8192,512,", "=8192,51x,", "a pax number that is wrong");
  refuse(in_header, "sparse.map=", "sparse.mop=", "a sparse file whose map does not fit its content");

  const auto in_data = packed("pax --sparse-version=1.0");
  refuse(in_data, "3\n8192\n", "9\n8192\n", "a sparse file whose map");
  refuse(in_data, "3\n8192\n", "3\n819x\n", "a sparse file whose map cannot be read");
  refuse(in_data, "3\n8192\n", "308192\n", "a sparse file whose map");

  // GNU's own form. The checksum of the header is made right again.
  auto gnu = packed("gnu");
  gnu.replace(483, 11, 11, '7');
  gnu.replace(148, 8, 8, ' ');
  int sum = 0;
  for (size_t i = 0; i < 512; ++i) sum += static_cast<unsigned char>(gnu[i]);
  const auto checksum = fmt::format("{:06o}", sum) + std::string("\0 ", 2);
  refuse(gnu, std::string(8, ' '), checksum,
         "sparse file at byte 0 has 8589934591 bytes, more than the limit of 1073741824");
}

// As webdataset, which raises an error for the second file, and knows extensions in small letters only.
TEST(TarShards, ExtensionsAreInSmallLettersAndUnique) {
  const test::TemporaryFolder dir;
  write(dir.path("files/0.JPG"), "image");
  write(dir.path("files/0.Seg.PNG"), "mask");
  write(dir.path("files/1.JPG"), "other");
  const auto path = pack(dir.path("files"), dir.path("shard.tar"), "");
  const TarShards shards({path});
  EXPECT_THAT(shards.sample(0).files, ElementsAre(Pair("jpg", "image"), Pair("seg.png", "mask")));
  EXPECT_EQ(shards.sample(0).at("jpg"), "image");
  EXPECT_EQ(shards.sample(0).at("JPG"), "image");
  const auto append = [&](const std::string& name) {
    const auto folder = dir.path("files");
    return std::system(("cd '" + folder + "' && tar -rf '" + path.string() + "' " + name).c_str());
  };
  write(dir.path("files/1.jpg"), "newer");
  ASSERT_EQ(append("1.jpg"), 0);
  EXPECT_THAT(message_of([&] { TarShards({path}); }, ErrorCode::kDataLoss),
              HasSubstr("shard.tar: the sample 1 has two files .jpg"));
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
  EXPECT_THAT(outcome(""), HasSubstr("damaged.tar has 0 bytes"));
  EXPECT_EQ(outcome(std::string(1024, '\0')), "") << "a tar file without entries has no samples";
}

}  // namespace
}  // namespace yoke::train
