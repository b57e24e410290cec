// Tests `yoke train embed` with a small BERT that the test writes: words of two languages, whose pairs must be found.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <sstream>

#include "tests/support/command.h"
#include "yoke/base/error.h"
#include "yoke/base/file.h"

namespace yoke {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr int kNumWords = 24, kWidth = 16, kHidden = 32, kVocabulary = 5 + 2 * kNumWords;

/// Writes random weights of transformers' BertModel with one layer, in the format of safetensors.
void write_bert_weights(const fs::path& path) {
  std::map<std::string, std::vector<int>> shapes = {
      {"embeddings.word_embeddings.weight", {kVocabulary, kWidth}},
      {"embeddings.position_embeddings.weight", {16, kWidth}},
      {"embeddings.token_type_embeddings.weight", {2, kWidth}},
      {"encoder.layer.0.intermediate.dense.weight", {kHidden, kWidth}},
      {"encoder.layer.0.intermediate.dense.bias", {kHidden}},
      {"encoder.layer.0.output.dense.weight", {kWidth, kHidden}},
      {"encoder.layer.0.output.dense.bias", {kWidth}},
  };
  for (const auto* name :
       {"encoder.layer.0.attention.self.query", "encoder.layer.0.attention.self.key",
        "encoder.layer.0.attention.self.value", "encoder.layer.0.attention.output.dense", "pooler.dense"}) {
    shapes[std::string(name) + ".weight"] = {kWidth, kWidth};
    shapes[std::string(name) + ".bias"] = {kWidth};
  }
  for (const auto* name : {"embeddings", "encoder.layer.0.attention.output", "encoder.layer.0.output"}) {
    shapes[std::string(name) + ".LayerNorm.weight"] = shapes[std::string(name) + ".LayerNorm.bias"] = {kWidth};
  }
  std::mt19937 random(1);
  std::string header = "{", data;
  for (const auto& [name, shape] : shapes) {
    const auto begin = data.size();
    const int count = shape.size() == 2 ? shape[0] * shape[1] : shape[0];
    for (int i = 0; i < count; ++i) {
      const bool is_scale = name.ends_with("LayerNorm.weight");
      const float value = (is_scale ? 1.0F : 0.0F) + 0.3F * (static_cast<float>(random() % 2001) / 1000 - 1);
      data.append(reinterpret_cast<const char*>(&value), sizeof value);
    }
    header += fmt::format("{}\"{}\":{{\"dtype\":\"F32\",\"shape\":[{}],\"data_offsets\":[{},{}]}}",
                          header.size() > 1 ? "," : "", name, fmt::join(shape, ","), begin, data.size());
  }
  header += "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  const uint64_t size = header.size();
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(&size), sizeof size)
      .write(header.data(), static_cast<std::streamsize>(header.size()))
      .write(data.data(), static_cast<std::streamsize>(data.size()));
}

class EmbedRecipe : public testing::Test {
 protected:
  EmbedRecipe() {
    fs::create_directory(file("model"));
    write_bert_weights(file("model/model.safetensors"));
    std::ofstream(file("model/config.json"))
        << fmt::format(R"({{"model_type": "bert", "vocab_size": {}, "max_position_embeddings": 16, "hidden_size": {}, )"
                       R"("num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": {}}})",
                       kVocabulary, kWidth, kHidden);
    std::ofstream vocabulary(file("model/vocab.txt"));
    vocabulary << "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n";
    for (int i = 0; i < 2 * kNumWords; ++i)
      vocabulary << (i < kNumWords ? 'a' : 'b') << "word" << i % kNumWords << '\n';
    write_pairs("train.tsv", 256, 2);
    write_pairs("test.tsv", 48, 3);
  }

  /// Three words of the first language, and the same words in another order in the second one.
  void write_pairs(const std::string& name, int count, uint32_t seed) const {
    std::mt19937 random(seed);
    std::ofstream out(file(name));
    for (int i = 0; i < count; ++i) {
      const auto x = random() % kNumWords, y = random() % kNumWords, z = random() % kNumWords;
      out << fmt::format("aword{} aword{} aword{}\tbword{} bword{} bword{}\n", x, y, z, z, x, y);
    }
  }

  test::Result train(const char* num_ranks, const std::vector<std::string>& words) const {
    std::vector<std::string> argv = {YOKE_COMMAND,          "train", "embed", "-n", num_ranks, "--model",
                                     file("model").string()};
    argv.insert(argv.end(), words.begin(), words.end());
    return test::run({.argv = argv, .folder = folder_.path()});
  }
  fs::path file(const std::string& name) const { return fs::path(folder_.path()) / name; }

  /// A column of metrics.csv.
  std::vector<double> figures(const std::string& run, const std::string& column) const {
    std::istringstream lines(read_file(file(run) / "metrics.csv"));
    std::vector<double> result;
    size_t index = 0;
    for (std::string line; std::getline(lines, line);) {
      std::vector<std::string> cells;
      std::istringstream parts(line);
      for (std::string cell; std::getline(parts, cell, ',');) cells.push_back(cell);
      if (cells.front() == "epoch") {
        index = static_cast<size_t>(std::find(cells.begin(), cells.end(), column) - cells.begin());
      } else {
        result.push_back(std::stod(cells.at(index)));
      }
    }
    return result;
  }

  test::TemporaryFolder folder_;
};

// Oracle: one process. The negatives of a sentence are those of all ranks, and their gradients come back, or two ranks
// would train otherwise than one.
TEST_F(EmbedRecipe, RanksTrainAsOneProcessDoes) {
  const auto words = [this](const std::string& out) {
    return std::vector<std::string>{"--preset",
                                    "scratch",
                                    "--data",
                                    file("train.tsv").string(),
                                    "--test",
                                    file("test.tsv").string(),
                                    "--epochs",
                                    "8",
                                    "--batch-size",
                                    "32",
                                    "--precision",
                                    "fp32",
                                    "--deterministic",
                                    "--out",
                                    out};
  };
  for (const auto* num_ranks : {"1", "2"}) {
    const auto result = train(num_ranks, words(std::string("ranks-") + num_ranks));
    ASSERT_EQ(result.exit_code, 0) << result.err;
  }
  const auto one = figures("ranks-1", "train_loss"), two = figures("ranks-2", "train_loss");
  ASSERT_EQ(one.size(), 8);
  ASSERT_EQ(two.size(), 8);
  for (size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(one[i], two[i], 2e-3) << "epoch " << i + 1;
  const auto accuracy = figures("ranks-2", "test_accuracy");
  EXPECT_GT(accuracy.back(), 0.5) << "1 in 48 by chance";
  EXPECT_NEAR(figures("ranks-1", "test_accuracy").back(), accuracy.back(), 0.05);
  EXPECT_TRUE(fs::exists(file("ranks-2/model/model.safetensors")));

  // What it wrote is a model that it reads: it embeds the same sentences to the same vectors.
  fs::copy(file("model/vocab.txt"), file("ranks-2/model/vocab.txt"));
  std::ofstream(file("lines.txt")) << "aword1 aword2\nbword3\n";
  const auto first = train("2", {"--model", file("ranks-2/model").string(), "--encode", file("lines.txt").string(),
                                 "--precision", "fp32", "--out", "vectors"});
  ASSERT_EQ(first.exit_code, 0) << first.err;
  const auto bytes = read_file(file("vectors/vectors.safetensors"));
  EXPECT_THAT(bytes, HasSubstr("[2,16]"));
  const auto sharded = train("2", {"--model", file("ranks-2/model").string(), "--encode", file("lines.txt").string(),
                                   "--precision", "fp32", "--parallel", "fsdp", "--out", "sharded"});
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
  std::ofstream(file("bad.tsv")) << "a\tb\nonly one\n";
  const auto result = train("1", {"--data", file("bad.tsv").string()});
  EXPECT_EQ(result.exit_code, exit_status(ErrorCode::kInvalidArgument));
  EXPECT_THAT(result.err, HasSubstr("bad.tsv: line 2 has 0 tabs"));
}

}  // namespace
}  // namespace yoke
