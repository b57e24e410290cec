// Tests `yoke train embed` with its small BERT and invented pairs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/recipes/figures.h"
#include "tests/support/command.h"
#include "yoke/base/error.h"
#include "yoke/base/file.h"

namespace yoke {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class EmbedRecipe : public testing::Test {
 protected:
  test::Result train(const char* num_ranks, const std::vector<std::string>& words) const {
    std::vector<std::string> argv = {YOKE_COMMAND, "train", "embed", "-n", num_ranks};
    argv.insert(argv.end(), words.begin(), words.end());
    return test::run({.argv = argv, .folder = folder_.path()});
  }
  fs::path file(const std::string& name) const { return folder_.path(name); }
  std::vector<double> figures(const std::string& run, const std::string& column) const {
    return test::figures_of(file(run), column);
  }

  test::TemporaryFolder folder_;
};

// Oracle: one process. The negatives of a sentence are those of all ranks, and their gradients come back, or two ranks
// would train otherwise than one.
TEST_F(EmbedRecipe, RanksTrainAsOneProcessDoes) {
  for (const std::string num_ranks : {"1", "2"}) {
    const auto result =
        train(num_ranks.c_str(), {"--precision", "fp32", "--deterministic", "--out", "ranks-" + num_ranks});
    ASSERT_EQ(result.exit_code, 0) << result.err;
  }
  const auto one = figures("ranks-1", "train_loss"), two = figures("ranks-2", "train_loss");
  ASSERT_EQ(one.size(), 10);
  ASSERT_EQ(two.size(), 10);
  for (size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(one[i], two[i], 2e-3) << "epoch " << i + 1;
  const auto accuracy = figures("ranks-2", "test_accuracy");
  EXPECT_GT(accuracy.back(), 0.9) << "1 in 200 by chance";
  EXPECT_NEAR(figures("ranks-1", "test_accuracy").back(), accuracy.back(), 0.05);

  // What it wrote is a model that it reads: it embeds the same sentences to the same vectors.
  std::ofstream(file("lines.txt")) << "aword1 aword2\nbword3\n";
  const auto first =
      train("2", {"--model", "ranks-2/model", "--encode", "lines.txt", "--precision", "fp32", "--out", "vectors"});
  ASSERT_EQ(first.exit_code, 0) << first.err;
  const auto bytes = read_file(file("vectors/vectors.safetensors"));
  EXPECT_THAT(bytes, HasSubstr("[2,32]"));
  const auto sharded = train("2", {"--model", "ranks-2/model", "--encode", "lines.txt", "--precision", "fp32",
                                   "--parallel", "fsdp", "--out", "sharded"});
  ASSERT_EQ(sharded.exit_code, 0) << sharded.err;
  EXPECT_EQ(read_file(file("sharded/vectors.safetensors")), bytes);

  // `yoke infer` gives the same vectors, from the model's folder or that of its run.
  for (const auto* model : {"ranks-2/model", "ranks-2"}) {
    const auto inferred =
        test::run({.argv = {YOKE_COMMAND, "infer", file(model).string(), "--input", file("lines.txt").string(), "--out",
                            "vectors.safetensors", "-n", "2", "--batch-size", "2", "--force"},
                   .folder = folder_.path()});
    ASSERT_EQ(inferred.exit_code, 0) << inferred.err;
    const auto again = read_file(file("vectors.safetensors"));
    EXPECT_THAT(again, HasSubstr("\"embedding\":{\"dtype\":\"F32\",\"shape\":[2,16]"));
    constexpr size_t kBytesOfVectors = 2 * 16 * 4;
    EXPECT_EQ(again.substr(again.size() - kBytesOfVectors), bytes.substr(bytes.size() - kBytesOfVectors));
  }
}

TEST_F(EmbedRecipe, NamesTheLineThatIsNoPair) {
  folder_.write("bad.tsv", "a\tb\nonly one\n");
  const auto result = train("1", {"--data", "bad.tsv"});
  EXPECT_EQ(result.exit_code, exit_status(ErrorCode::kInvalidArgument));
  EXPECT_THAT(result.err, HasSubstr("bad.tsv: line 2 has 0 tabs"));
}

}  // namespace
}  // namespace yoke
