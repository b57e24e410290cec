#include "yoke/train/format/safetensors_reader.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <cstring>
#include <optional>

#include "tests/support/command.h"
#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/train/format/safetensors_index.h"

namespace yoke::train {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

class SafetensorsReaderTest : public testing::Test {
 protected:
  fs::path write(const std::string& name, const std::string& bytes) const {
    replace_file(folder_ / name, [&](int fd) { write_all(fd, std::as_bytes(std::span(bytes)), name); });
    return folder_ / name;
  }

  /// Writes three shards of 40 bytes each.
  fs::path write_shards() const {
    TensorMap tensors;
    for (int i = 0; i < 3; ++i) tensors["t" + std::to_string(i)] = at::full({10}, i, at::kFloat);
    return write_safetensors_shards(folder_, tensors, {{"format", "pt"}}, {.max_shard_bytes = 40});
  }

  void expect_refused(const fs::path& path, ErrorCode code, const std::string& reason) const {
    try {
      SafetensorsReader{path};
      ADD_FAILURE() << "accepted; expected: " << reason;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      EXPECT_THAT(error.what(), HasSubstr(path.string() + ": ")) << reason;
      EXPECT_THAT(error.what(), HasSubstr(reason));
    }
  }

  const test::TemporaryFolder temporary_;
  const fs::path folder_ = temporary_.path();
};

TEST_F(SafetensorsReaderTest, ViewsOutliveReaderAndFileAndNeverChangeIt) {
  const auto path = folder_ / "t.safetensors";
  const auto expected = at::arange(24, at::kFloat).reshape({6, 4});
  write_safetensors(path, {{"x", expected}, {"n", at::full({}, 7, at::kLong)}, {"e", at::zeros({0, 3})}}, {{"k", "v"}});
  const auto before = read_file(path);
  at::Tensor x, rows;
  {
    const SafetensorsReader reader(path);
    EXPECT_THAT(reader.names(), ElementsAre("e", "n", "x"));
    EXPECT_EQ(reader.metadata(), (StringMap{{"k", "v"}}));
    EXPECT_EQ(reader.slot("x").shape, (std::vector<int64_t>{6, 4}));
    EXPECT_EQ(reader.slot("n").dtype, at::kLong);
    EXPECT_EQ(reader.tensor("n").item<int64_t>(), 7);
    EXPECT_EQ(reader.tensor("e").sizes(), (std::vector<int64_t>{0, 3}));
    x = reader.tensor("x");
    rows = reader.rows("x", 2, 3);
    EXPECT_EQ(reader.rows("x", 6, 0).sizes(), (std::vector<int64_t>{0, 4}));
    for (const auto& [first, count] : {std::pair<int64_t, int64_t>{-1, 1}, {0, 7}, {7, 0}, {3, -1}, {1, INT64_MAX}}) {
      EXPECT_THROW(reader.rows("x", first, count), Error) << first << " " << count;
    }
    EXPECT_THROW(reader.rows("n", 0, 0), Error);
    EXPECT_THROW(reader.tensor("y"), Error);
    EXPECT_EQ(static_cast<const char*>(rows.data_ptr()) - static_cast<const char*>(x.data_ptr()), 2 * 16);
  }
  EXPECT_TRUE(rows.equal(expected.narrow(0, 2, 3)));
  x.add_(1);  // writes only to this process's copies of the pages
  EXPECT_EQ(read_file(path), before);
  EXPECT_TRUE(SafetensorsReader(path).tensor("x").equal(expected));
  fs::remove(path);
  EXPECT_TRUE(x.equal(expected.add(1)));
}

TEST_F(SafetensorsReaderTest, WhatIsNotAlignedIsCopied) {
  std::string header = R"({"b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                       R"("x":{"dtype":"F32","shape":[2,2],"data_offsets":[1,17]}})";
  const uint64_t length = header.size();
  std::string file(8, '\0');
  std::memcpy(file.data(), &length, 8);
  const float values[] = {1, 2, 3, 4};
  file += header + '\1' + std::string(reinterpret_cast<const char*>(values), sizeof values);
  const SafetensorsReader reader(write("t", file));
  const auto x = reader.tensor("x"), row = reader.rows("x", 1, 1);
  for (const auto& tensor : {x, row}) EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor.data_ptr()) % 4, 0u);
  EXPECT_TRUE(x.equal(at::arange(1, 5, at::kFloat).reshape({2, 2})));
  EXPECT_TRUE(row.equal(at::arange(3, 5, at::kFloat).reshape({1, 2})));
}

TEST_F(SafetensorsReaderTest, ShardsAreOneSet) {
  const auto index = write_shards();
  EXPECT_EQ(index.filename(), "model.safetensors.index.json");
  EXPECT_EQ(read_file(index), R"({
  "metadata": {
    "total_size": 120
  },
  "weight_map": {
    "t0": "model-00001-of-00003.safetensors",
    "t1": "model-00002-of-00003.safetensors",
    "t2": "model-00003-of-00003.safetensors"
  }
}
)");
  const SafetensorsReader reader(index);
  EXPECT_THAT(reader.names(), ElementsAre("t0", "t1", "t2"));
  EXPECT_EQ(reader.metadata(), (StringMap{{"format", "pt"}}));
  const auto all = reader.tensors();
  ASSERT_EQ(all.size(), 3u);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(all.at("t" + std::to_string(i)).equal(at::full({10}, i, at::kFloat)));

  // Tensors that fit into one file need no index, and an older index is removed.
  const auto single = write_safetensors_shards(folder_, {{"t", at::ones({2})}});
  EXPECT_EQ(single.filename(), "model.safetensors");
  EXPECT_FALSE(fs::exists(index));
  EXPECT_TRUE(SafetensorsReader(single).tensor("t").equal(at::ones({2})));
  EXPECT_EQ(write_shards(), index);
  EXPECT_FALSE(fs::exists(single)) << "which others look for first";
  // A tensor that is larger than a shard has its own file.
  const auto wide = write_safetensors_shards(
      folder_, {{"a", at::ones({2})}, {"b", at::ones({99})}, {"c", at::ones({2})}, {"d", at::ones({2})}}, {},
      {.stem = "wide", .max_shard_bytes = 16});
  EXPECT_EQ(SafetensorsReader(wide).slot("c").name, "c");
  EXPECT_TRUE(fs::exists(folder_ / "wide-00003-of-00003.safetensors"));
  EXPECT_THROW(write_safetensors_shards(folder_, {}, {}, {.max_shard_bytes = 0}), Error);
  EXPECT_THROW(write_safetensors_shards(folder_, {}, {}, {.stem = "../out"}), Error);
}

TEST_F(SafetensorsReaderTest, ASetThatCannotBeWrittenLeavesTheEarlierOne) {
  const auto index = write_shards();
  const auto num_files = [&] { return std::distance(fs::directory_iterator(folder_), fs::directory_iterator()); };
  const auto write_larger = [&] {  // the third shard exceeds the limit on file sizes that is set below
    const TensorMap larger{{"t0", at::ones({10})}, {"t1", at::ones({10})}, {"t2", at::ones({100'000})}};
    write_safetensors_shards(folder_, larger, {}, {.max_shard_bytes = 40});
  };
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto old_handler = signal(SIGXFSZ, SIG_IGN);
  const rlimit limit{100'000, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  EXPECT_THROW(write_larger(), Error);
  setrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, old_handler);
  EXPECT_EQ(num_files(), 4);
  const auto all = SafetensorsReader(index).tensors();
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(all.at("t" + std::to_string(i)).equal(at::full({10}, i, at::kFloat)));

  write_larger();
  EXPECT_EQ(num_files(), 4);
  EXPECT_TRUE(SafetensorsReader(index).tensor("t0").equal(at::ones({10})));
}

TEST_F(SafetensorsReaderTest, ASetThatIsNotWholeIsRefusedByName) {
  const auto index = write_shards();
  const auto second = folder_ / "model-00002-of-00003.safetensors";
  fs::remove(second);
  expect_refused(index, ErrorCode::kNotFound, "the shard model-00002-of-00003.safetensors with tensor 't1' is missing");
  write_safetensors(second, {{"other", at::ones({1})}});
  expect_refused(index, ErrorCode::kDataLoss, "tensor 't1' should be in " + second.string() + ", which has no such");
  write(second.filename(), "torn");
  EXPECT_THROW(SafetensorsReader{index}, Error);
  fs::remove(second);
  ASSERT_EQ(mkfifo(second.c_str(), 0600), 0);
  EXPECT_THROW(SafetensorsReader{index}, Error);  // the constructor must not wait for a writer of the FIFO
}

TEST_F(SafetensorsReaderTest, AMalformedIndexIsRefused) {
  write_safetensors(folder_ / "a", {{"t", at::ones({1})}});
  const auto accept = [&](const std::string& text) {
    EXPECT_EQ(SafetensorsReader(write("x.index.json", text)).names().size(), 1u) << text;
  };
  accept(R"({"metadata":{"total_size":1e9,"more":[[{"weight_map":3}]]},"weight_map":{"t":"a"},"x":null})");
  struct Case {
    std::string text;
    std::string reason;
  };
  const std::vector<Case> cases = {
      {"", "not a JSON object"},
      {"{", "not a JSON object"},
      {R"({"weight_map":{"t":"a"}})" + std::string(1, '\0'), "not a JSON object (at its byte 24)"},
      {"[]", "the index is a list"},
      {"7", "the index is a number"},
      {"\"weight_map\"", "the index is a string"},
      {std::string(1'000'000, '['), "the index is a list"},
      {R"({"metadata":{}})", "has no 'weight_map'"},
      {R"({"weight_map":["t"]})", "'weight_map' is a list"},
      {R"({"weight_map":null})", "'weight_map' is null"},
      {R"({"weight_map":{"t":7}})", "the file of tensor 't' is a number"},
      {R"({"weight_map":{"t":["a"]}})", "the file of tensor 't' is a list"},
      {R"({"weight_map":{"t":{"u":"a"}}})", "the file of tensor 't' is an object"},
      {R"({"weight_map":{"t":"a","t":"a"}})", "tensor 't' appears twice"},
      {R"({"weight_map":{},"weight_map":{}})", "'weight_map' appears twice"},
      {R"({"weight_map":{"t":"../a"}})", "the file of tensor 't' is not a plain name: '../a'"},
      {R"({"weight_map":{"t":"/etc/passwd"}})", "not a plain name"},
      {R"({"weight_map":{"t":".."}})", "not a plain name"},
      {R"({"weight_map":{"t":""}})", "not a plain name"},
      {R"({"weight_map":{"t":"a\u0000b"}})", "not a plain name"},
      {R"({"weight_map":{"u":"a"}})", "tensor 'u' should be in"},
  };
  for (const auto& [text, reason] : cases) expect_refused(write("x.index.json", text), ErrorCode::kDataLoss, reason);
}

}  // namespace
}  // namespace yoke::train
