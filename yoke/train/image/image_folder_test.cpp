#include "yoke/train/image/image_folder.h"

#include <ATen/ops/equal.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/support/message_of.h"
#include "tests/support/paths.h"
#include "yoke/base/file.h"
#include "yoke/train/image/batch_test.h"
#include "yoke/train/image/cifar.h"

namespace yoke::train {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ImageFolderTest : public ::testing::Test {
 protected:
  ImageFolderTest() { std::filesystem::create_directories(root_); }
  ~ImageFolderTest() override { std::filesystem::remove_all(root_); }

  void add(const std::string& path, const std::string& image = "grey.jpg") {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << (image.empty() ? "" : read_file(test::reference("images/" + image)));
  }
  std::vector<std::string> paths(const ImageFolder& folder) {
    std::vector<std::string> found;
    for (int64_t i = 0; i < folder.size(); ++i) found.push_back(folder.path(i).lexically_relative(root_).string());
    return found;
  }
  std::string refusal(ErrorCode code = ErrorCode::kInvalidArgument) {
    return test::message_of([&] { const ImageFolder folder(root_); }, code);
  }

  const std::filesystem::path root_ =
      std::filesystem::temp_directory_path() / ("yoke_image_folder." + std::to_string(getpid()));
};

TEST_F(ImageFolderTest, HasTorchvisionsOrder) {
  add("dog/b.jpg");
  add("dog/a.JPEG");
  add("dog/a-b/x.png");
  add("dog/a/x.png");
  add("dog/a/b/y.png");
  add("cat/with\nnewline.jpg");
  add("cat/not utf-8 \xff.jpg");
  add("cat/notes.txt");
  add("readme.md");
  add("linked_elsewhere/1.jpg");
  std::filesystem::create_directory_symlink(root_ / "linked_elsewhere", root_ / "cat/link");
  std::filesystem::create_symlink(root_ / "dog/b.jpg", root_ / "cat/link.jpg");
  const ImageFolder folder(root_);
  EXPECT_THAT(folder.classes(), ElementsAre("cat", "dog", "linked_elsewhere"));
  EXPECT_THAT(paths(folder), ElementsAre("cat/link.jpg", "cat/not utf-8 \xff.jpg", "cat/with\nnewline.jpg",
                                         "cat/link/1.jpg", "dog/a.JPEG", "dog/b.jpg", "dog/a/x.png", "dog/a-b/x.png",
                                         "dog/a/b/y.png", "linked_elsewhere/1.jpg"));
  EXPECT_EQ(folder.num_ignored(), 2);
  std::vector<int64_t> targets;
  for (int64_t i = 0; i < folder.size(); ++i) targets.push_back(folder.target(i));
  EXPECT_THAT(targets, ElementsAre(0, 0, 0, 0, 1, 1, 1, 1, 1, 2));
}

TEST_F(ImageFolderTest, RefusesFoldersThatAreNotWhole) {
  EXPECT_THAT(refusal(ErrorCode::kNotFound), HasSubstr("expected a folder for each class"));
  add("a/1.jpg");
  std::filesystem::create_directories(root_ / "b");
  EXPECT_THAT(refusal(), AllOf(HasSubstr("/b: this class has no"), HasSubstr("allow_empty_classes")));
  const ImageFolder folder(root_, {.allow_empty_classes = true});
  EXPECT_THAT(folder.classes(), ElementsAre("a", "b"));
  add("b/1.WebP");
  EXPECT_THAT(refusal(), AllOf(HasSubstr("/b/1.WebP: only JPEG and PNG"), HasSubstr("convert it")));
  std::filesystem::remove(root_ / "b/1.WebP");
  std::filesystem::create_directory_symlink(root_ / "b", root_ / "b/round");
  EXPECT_THAT(refusal(), HasSubstr("/b/round: this link leads to a folder that contains it"));
  EXPECT_THAT(test::message_of([&] { const ImageFolder missing(root_ / "missing"); }, ErrorCode::kNotFound),
              HasSubstr("/missing"));
}

const ImageTransform kSmall{.height = 8, .width = 8, .shorter_side = 8};

TEST_F(ImageFolderTest, GivesBatches) {
  add("a/1.png", "photo.png");
  add("b/1.png", "grey.png");
  add("b/2.jpg", "cmyk.jpg");
  const ImageFolder folder(root_, {.transform = kSmall});
  const std::vector<int64_t> order{2, 0, 1};
  const auto batch = folder.batch(request_for(order));
  ASSERT_EQ(batch.data.sizes(), (std::vector<int64_t>{3, 3, 8, 8}));
  for (int64_t row = 0; row < 3; ++row) {
    EXPECT_EQ(batch.target[row].item<int64_t>(), order[static_cast<size_t>(row)] == 0 ? 0 : 1);
    const auto alone = folder.batch(request_for(std::span(order).subspan(static_cast<size_t>(row), 1)));
    EXPECT_TRUE(at::equal(batch.data[row], alone.data[0])) << row;
  }
  EXPECT_FALSE(at::equal(batch.data[0], batch.data[1]));
}

TEST_F(ImageFolderTest, NamesFilesThatCannotBeRead) {
  add("a/1.png", "photo.png");
  add("a/2.jpg", "");
  add("a/3.jpg");
  add("a/4.jpg");
  std::filesystem::create_symlink("nowhere", root_ / "a/5.jpg");
  const ImageFolder folder(root_, {.transform = kSmall});
  std::filesystem::remove(root_ / "a/3.jpg");
  std::filesystem::resize_file(root_ / "a/4.jpg", 700);
  const auto error_of = [&](int64_t sample, ErrorCode code) {
    const std::vector<int64_t> samples{sample};
    return test::message_of([&] { folder.batch(request_for(samples)); }, code);
  };
  EXPECT_THAT(error_of(1, ErrorCode::kDataLoss), HasSubstr("a/2.jpg: expected a JPEG or PNG image, found an empty"));
  EXPECT_THAT(error_of(2, ErrorCode::kNotFound), HasSubstr("a/3.jpg"));
  EXPECT_THAT(error_of(3, ErrorCode::kDataLoss), HasSubstr("a/4.jpg: damaged JPEG"));
  EXPECT_THAT(error_of(4, ErrorCode::kNotFound), HasSubstr("a/5.jpg"));

  // If the loader may skip bad samples, the batch contains the remaining samples.
  std::vector<int64_t> bad;
  const std::vector<int64_t> samples{1, 2, 0, 3};
  const auto batch = folder.batch(
      request_for(samples, {.on_bad_sample = [&](int64_t sample, const std::exception&) { bad.push_back(sample); }}));
  EXPECT_THAT(bad, ElementsAre(1, 2, 3));
  EXPECT_EQ(batch.data.size(0), 1);
  EXPECT_EQ(batch.target.numel(), 1);
  // Opening a FIFO without a writer would wait for one for ever.
  std::filesystem::remove(root_ / "a/1.png");
  ASSERT_EQ(mkfifo((root_ / "a/1.png").c_str(), 0600), 0);
  EXPECT_THAT(error_of(0, ErrorCode::kDataLoss), HasSubstr("a/1.png is not a regular file"));
}

// Makes sparse files of zeros, which take no space on the disk. Every label is 0 except one that the test writes.
class CifarTest : public ImageFolderTest {
 protected:
  void write(const std::string& name, int64_t size, int64_t position, const std::string& bytes) {
    std::ofstream(root_ / name).close();
    std::filesystem::resize_file(root_ / name, static_cast<uintmax_t>(size));
    std::fstream file(root_ / name, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(position) << bytes;
  }
};

TEST_F(CifarTest, ReadsTheBinaryVersions) {
  constexpr int64_t kTen = 10000 * 3073, kHundred = 3074;
  for (const std::string name :
       {"data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "test_batch"}) {
    write(name + ".bin", kTen, kTen - 3073, "\x09\x7f");
  }
  const auto ten = read_cifar10(root_);
  EXPECT_EQ(ten.train.data.sizes(), (std::vector<int64_t>{50000, 3, 32, 32}));
  EXPECT_EQ(ten.train.target.sum().item<int64_t>(), 5 * 9);
  EXPECT_EQ(ten.train.target[29999].item<int64_t>(), 9);
  EXPECT_EQ(ten.train.data[29999][0][0][0].item<int>(), 0x7f);
  EXPECT_EQ(ten.test.target.size(0), 10000);

  write("some.bin", 3 * 3073, 2 * 3073, "\x08\x7e");
  const auto some = read_cifar10_file(root_ / "some.bin");
  EXPECT_EQ(some.data.sizes(), (std::vector<int64_t>{3, 3, 32, 32}));
  EXPECT_EQ(some.target[2].item<int64_t>(), 8);
  EXPECT_EQ(some.data.sum().item<int64_t>(), 0x7e);
  write("some.bin", 3 * 3073 - 1, 0, "");
  EXPECT_THAT(test::message_of([&] { read_cifar10_file(root_ / "some.bin"); }, ErrorCode::kDataLoss),
              HasSubstr("some.bin: expected images of 3073 bytes with their labels; found 9218 bytes"));

  const auto refusal = [&] { return test::message_of([&] { read_cifar10(root_); }, ErrorCode::kDataLoss); };
  write("data_batch_3.bin", kTen, 5 * 3073, "\x0a");
  EXPECT_THAT(refusal(), HasSubstr("data_batch_3.bin: expected labels from 0 to 9, found 10 for image 5"));
  write("data_batch_3.bin", kTen - 1, 0, "");
  EXPECT_THAT(refusal(), HasSubstr("data_batch_3.bin: expected 30730000 bytes, which are 10000 images with labels; "
                                   "found 30729999"));
  std::filesystem::remove(root_ / "data_batch_3.bin");
  EXPECT_THAT(test::message_of([&] { read_cifar10(root_); }, ErrorCode::kNotFound), HasSubstr("data_batch_3.bin"));

  std::filesystem::create_directories(root_ / "cifar-100-binary");
  write("cifar-100-binary/train.bin", 50000 * kHundred, 49999 * kHundred, "\x13\x63\x7f");  // coarse and fine label
  write("cifar-100-binary/test.bin", 10000 * kHundred, 0, "\x13");
  const auto hundred = read_cifar100(root_);
  EXPECT_EQ(hundred.train.target[49999].item<int64_t>(), 99);
  EXPECT_EQ(hundred.train.data[49999].sum().item<int64_t>(), 0x7f);
  EXPECT_EQ(hundred.test.target[0].item<int64_t>(), 0);
}

}  // namespace
}  // namespace yoke::train
