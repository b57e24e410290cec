#include "yoke/train/data/token_files.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/command.h"
#include "tests/support/message_of.h"
#include "yoke/train/data/loader.h"

namespace yoke::train {
namespace {

using test::message_of;
using ::testing::HasSubstr;

template <class Token>
std::filesystem::path write_tokens(const std::filesystem::path& path, const std::vector<Token>& tokens) {
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(tokens.data()), static_cast<std::streamsize>(tokens.size() * sizeof(Token)));
  return path;
}

template <class Token>
std::vector<Token> counted(size_t count, Token first) {
  std::vector<Token> tokens(count);
  for (auto& token : tokens) token = first++;
  return tokens;
}

TEST(TokenFiles, GivesSequencesAndTheirNextTokens) {
  const test::TemporaryFolder dir;
  // 20 tokens give 4 sequences of 4 tokens; 17 tokens are used, and 3 remain. 9 tokens give 2 sequences.
  const auto a = write_tokens<uint32_t>(dir.path("a.bin"), counted<uint32_t>(20, 100000));
  const auto b = write_tokens<uint32_t>(dir.path("b.bin"), counted<uint32_t>(9, 500));
  Loader loader(TokenFiles({a, b}, {.sequence_length = 4, .dtype = at::kUInt32}), {.batch_size = 3, .shuffle = false});
  std::vector<int64_t> firsts;
  for (const auto& batch : loader.epoch(0)) {
    for (int64_t row = 0; row < batch.data.size(0); ++row) {
      const auto first = batch.data[row][0].item<int64_t>();
      EXPECT_TRUE(at::equal(batch.data[row], at::arange(first, first + 4)));
      EXPECT_TRUE(at::equal(batch.target[row], at::arange(first + 1, first + 5)));
      firsts.push_back(first);
    }
    EXPECT_FALSE(batch.documents.defined());
  }
  EXPECT_EQ(firsts, (std::vector<int64_t>{100000, 100004, 100008, 100012, 500, 504}));
}

TEST(TokenFiles, NumbersPackedDocuments) {
  const test::TemporaryFolder dir;
  const auto path = write_tokens<uint16_t>(dir.path("a.bin"), {9, 9, 5, 6, 0, 65535, 0, 0, 7});
  Loader loader(TokenFiles({path}, {.sequence_length = 6, .offset_bytes = 4, .end_of_document = 0}), {.batch_size = 8});
  loader.epoch(0);
  const auto batch = loader.next();
  EXPECT_TRUE(at::equal(batch->data, at::tensor({5, 6, 0, 65535, 0, 0}, at::kLong).unsqueeze(0)));
  EXPECT_TRUE(at::equal(batch->target, at::tensor({6, 0, 65535, 0, 0, 7}, at::kLong).unsqueeze(0)));
  EXPECT_TRUE(at::equal(batch->documents, at::tensor({0, 0, 0, 1, 1, 2}, at::kLong).unsqueeze(0)));
}

TEST(TokenFiles, NamesWhatIsWrong) {
  const test::TemporaryFolder dir;
  const auto path = write_tokens<uint16_t>(dir.path("a.bin"), counted<uint16_t>(100, 0));
  const auto refusal = [&](const std::filesystem::path& file, const TokenOptions& options,
                           ErrorCode code = ErrorCode::kDataLoss) {
    return message_of([&] { TokenFiles({file}, options); }, code);
  };
  EXPECT_THAT(refusal(dir.path("none.bin"), {}, ErrorCode::kNotFound), HasSubstr("none.bin: No such file"));
  EXPECT_THAT(refusal(dir.path(), {}), HasSubstr("not a regular file"));
  EXPECT_THAT(refusal(path, {}),
              HasSubstr("a.bin has 100 tokens; a sequence of 1024 and the token after it need 1025"));
  EXPECT_THAT(refusal(path, {.sequence_length = 4, .offset_bytes = 3}), HasSubstr("has 200 bytes"));
  EXPECT_THAT(refusal(path, {.sequence_length = 4, .offset_bytes = 300}), HasSubstr("has 200 bytes"));
  EXPECT_THAT(refusal(path, {.dtype = at::kInt}, ErrorCode::kInvalidArgument), HasSubstr("dtype Int"));

  Loader loader(TokenFiles({path}, {.sequence_length = 10, .vocabulary_size = 55}),
                {.batch_size = 1, .shuffle = false});
  loader.start({5});
  EXPECT_THAT(message_of([&] { loader.next(); }, ErrorCode::kDataLoss),
              HasSubstr("a.bin: token 55 is 55, but the vocabulary has 55 tokens"));
  std::filesystem::resize_file(path, 100);
  loader.start({8});
  EXPECT_THAT(message_of([&] { loader.next(); }, ErrorCode::kDataLoss), HasSubstr("a.bin ends at byte 160"));
}

}  // namespace
}  // namespace yoke::train
