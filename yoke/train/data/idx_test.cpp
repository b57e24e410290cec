#include "yoke/train/data/idx.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include <zlib.h>

#include <fstream>

#include "yoke/base/error.h"

namespace yoke::train {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string idx(const std::vector<uint32_t>& sizes, const std::string& values, char type = 8) {
  std::string bytes{'\0', '\0', type, static_cast<char>(sizes.size())};
  for (const uint32_t size : sizes) {
    for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(size >> shift);
  }
  return bytes + values;
}

std::string gzip(const std::string& bytes) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string packed(deflateBound(&stream, bytes.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

std::string refusal(const std::string& bytes) {
  try {
    decode_idx(bytes, "the file");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kDataLoss) << error.what();
    EXPECT_THAT(error.what(), HasSubstr("the file"));
    return error.what();
  }
  return "(nothing thrown)";
}

const std::string kPlain = idx({2, 3}, "abcdef");

TEST(Idx, ReadsPlainAndGzipped) {
  const auto expected = at::tensor(at::ArrayRef<uint8_t>{'a', 'b', 'c', 'd', 'e', 'f'}).view({2, 3});
  EXPECT_TRUE(at::equal(decode_idx(kPlain, "plain"), expected));
  EXPECT_TRUE(at::equal(decode_idx(gzip(kPlain), "gzipped"), expected));
  const auto parts = gzip(kPlain.substr(0, 7)) + gzip(kPlain.substr(7));
  EXPECT_TRUE(at::equal(decode_idx(parts, "two gzip members"), expected));
  EXPECT_EQ(decode_idx(gzip(idx({3000}, std::string(3000, 'x'))), "1000 to 1").numel(), 3000);
}

// A file truncated at any byte must not be accepted as a whole file.
TEST(Idx, RefusesATruncatedFile) {
  const auto packed = gzip(kPlain);
  for (size_t size = 0; size < kPlain.size(); ++size) EXPECT_NE(refusal(kPlain.substr(0, size)), "(nothing thrown)");
  for (size_t size = 0; size < packed.size(); ++size) {
    EXPECT_NE(refusal(packed.substr(0, size)), "(nothing thrown)") << size;
  }
  EXPECT_THAT(refusal(kPlain.substr(0, 3)), HasSubstr("found only 3 bytes"));
  EXPECT_THAT(refusal(kPlain.substr(0, 9)), HasSubstr("expected 2 dimensions in the IDX header, found 1"));
  EXPECT_THAT(refusal(gzip(kPlain.substr(0, 14))), HasSubstr("which is 6 values; found 2"));
  EXPECT_THAT(refusal(packed.substr(0, packed.size() - 1)), HasSubstr("cut short"));
}

TEST(Idx, RefusesWhatIsBehindTheData) {
  EXPECT_THAT(refusal(kPlain + "x"), HasSubstr("found more data after them"));
  EXPECT_THAT(refusal(gzip(kPlain + "x")), HasSubstr("found more data after them"));
  EXPECT_THAT(refusal(gzip(kPlain) + "garbage"), HasSubstr("7 bytes of something else"));
}

// Every bit of a gzip file is either covered by its checksums or does not affect the content.
TEST(Idx, RefusesOrIgnoresEveryFlippedBit) {
  const auto packed = gzip(kPlain);
  const auto expected = decode_idx(packed, "whole");
  int num_refused = 0;
  for (size_t bit = 0; bit < packed.size() * 8; ++bit) {
    auto damaged = packed;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
    try {
      EXPECT_TRUE(at::equal(decode_idx(damaged, "damaged"), expected)) << "bit " << bit;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kDataLoss);
      ++num_refused;
    }
  }
  EXPECT_GT(num_refused, static_cast<int>(packed.size() * 8) / 2);
}

TEST(Idx, RefusesForeignFiles) {
  EXPECT_THAT(refusal("<html>not found</html>"), AllOf(HasSubstr("expected an IDX file"), HasSubstr("3c 68 74 6d")));
  EXPECT_THAT(refusal(idx({6}, "abcdef", 0x0d)), HasSubstr("found type 0d"));
  EXPECT_THAT(refusal(idx({}, "abcdef")), HasSubstr("number of dimensions"));
  EXPECT_THAT(refusal(std::string("\0\0\x08\xff", 4) + std::string(2000, '\1')), HasSubstr("number of dimensions"));
}

// Sizes that no file could hold are refused before they are allocated: these headers announce up to 2^128 bytes.
TEST(Idx, RefusesHostileHeaders) {
  const std::vector<std::vector<uint32_t>> hostile = {
      {0xffffffff}, {0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0}, {0, 0xffffffff}};
  for (const auto& sizes : hostile) {
    EXPECT_THAT(refusal(idx(sizes, "abcdef")), HasSubstr("cannot hold"));
    EXPECT_THAT(refusal(gzip(idx(sizes, "abcdef"))), HasSubstr("cannot hold"));
  }
}

class FashionMnistFiles : public ::testing::Test {
 protected:
  FashionMnistFiles() {
    std::filesystem::create_directory(dir_);
    write("train-images-idx3-ubyte.gz", gzip(idx({3, 28, 28}, std::string(3 * 784, 'i'))));
    write("train-labels-idx1-ubyte.gz", gzip(idx({3}, {0, 5, 9})));
    write("t10k-images-idx3-ubyte.gz", gzip(idx({1, 28, 28}, std::string(784, 't'))));
    write("t10k-labels-idx1-ubyte", idx({1}, {4}));  // some files may be plain
  }
  ~FashionMnistFiles() override { std::filesystem::remove_all(dir_); }

  void write(const std::string& name, const std::string& bytes) {
    std::ofstream(dir_ / name, std::ios::binary) << bytes;
  }

  std::string refused(ErrorCode code) {
    try {
      read_fashion_mnist(dir_);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      EXPECT_THAT(error.what(), HasSubstr(dir_.string()));
      return error.what();
    }
    return "(nothing thrown)";
  }

  std::filesystem::path dir_ = std::filesystem::temp_directory_path() / ("yoke-idx-" + std::to_string(getpid()));
};

TEST_F(FashionMnistFiles, AreReadAsSamples) {
  const auto samples = read_fashion_mnist(dir_);
  EXPECT_EQ(samples.train.data.sizes(), (std::vector<int64_t>{3, 1, 28, 28}));
  EXPECT_EQ(samples.train.data.scalar_type(), at::kByte);
  EXPECT_TRUE(at::equal(samples.train.target, at::tensor(at::ArrayRef<int64_t>{0, 5, 9})));
  EXPECT_EQ(samples.test.data.size(0), 1);
  EXPECT_EQ(samples.test.target.item<int64_t>(), 4);
}

TEST_F(FashionMnistFiles, MissingAreNamedWithTheWayToGetThem) {
  std::filesystem::remove(dir_ / "t10k-images-idx3-ubyte.gz");
  EXPECT_THAT(refused(ErrorCode::kNotFound),
              AllOf(HasSubstr("t10k-images-idx3-ubyte.gz"), HasSubstr("dataset-fashion-mnist"), HasSubstr("--data")));
}

TEST_F(FashionMnistFiles, MustAgree) {
  write("train-labels-idx1-ubyte.gz", gzip(idx({2}, {0, 5})));
  EXPECT_THAT(refused(ErrorCode::kDataLoss),
              AllOf(HasSubstr("train-labels-idx1-ubyte.gz"), HasSubstr("has images, 3; found 2")));
  write("train-labels-idx1-ubyte.gz", gzip(idx({3}, {0, 10, 9})));
  EXPECT_THAT(refused(ErrorCode::kDataLoss), HasSubstr("found 10 for sample 1"));
  write("train-labels-idx1-ubyte.gz", gzip(idx({3, 1}, {0, 1, 9})));
  EXPECT_THAT(refused(ErrorCode::kDataLoss), HasSubstr("found [3, 1]"));
  write("train-images-idx3-ubyte.gz", gzip(idx({3, 27, 28}, std::string(3 * 27 * 28, 'i'))));
  EXPECT_THAT(refused(ErrorCode::kDataLoss), HasSubstr("expected images [N, 28, 28], found [3, 27, 28]"));
}

TEST_F(FashionMnistFiles, DamagedInTheOtherThreadIsReportedToo) {
  write("t10k-images-idx3-ubyte.gz", "nonsense");
  EXPECT_THAT(refused(ErrorCode::kDataLoss), HasSubstr("t10k-images-idx3-ubyte.gz"));
}

}  // namespace
}  // namespace yoke::train
