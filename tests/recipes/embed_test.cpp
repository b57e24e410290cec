// Tests `yoke train embed` with its small BERT and invented pairs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/recipes/figures.h"
#include "tests/support/command.h"
#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/text.h"

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

  // The run and the folder in it are models for `yoke infer`, which finds the partner of a sentence.
  std::ofstream(file("lines.txt")) << "aword1 aword2 aword3\nbword3 bword1 bword2\nbword4 bword5 bword6\n";
  for (const std::string model : {"ranks-2/model", "ranks-2"}) {
    const auto inferred = test::run({.argv = {YOKE_COMMAND, "infer", model, "--input", "lines.txt", "--out",
                                              "vectors.csv", "-n", "2", "--batch-size", "2", "--force"},
                                     .folder = folder_.path()});
    ASSERT_EQ(inferred.exit_code, 0) << inferred.err;
    const auto text = read_file(file("vectors.csv"));  // "sample,embedding.0,...", and a line for each sentence
    const auto rows = lines_of(text);
    ASSERT_EQ(rows.size(), 4) << text;
    const auto product = [&](size_t first, size_t second) {
      const auto x = split(rows[first], ','), y = split(rows[second], ',');
      double sum = 0;
      for (size_t i = 1; i < x.size(); ++i) sum += std::stod(std::string(x[i])) * std::stod(std::string(y.at(i)));
      return sum;
    };
    EXPECT_NEAR(product(1, 1), 1, 1e-4) << "as vectors of this length are";
    EXPECT_GT(product(1, 2), product(1, 3) + 0.2);
  }

  folder_.write("bad.tsv", "a\tb\nonly one\n");
  const auto result = train("1", {"--model", "ranks-2/model", "--data", "bad.tsv"});
  EXPECT_EQ(result.exit_code, exit_status(ErrorCode::kInvalidArgument));
  EXPECT_THAT(result.err, HasSubstr("bad.tsv: line 2 has 0 tabs"));
}

}  // namespace
}  // namespace yoke
