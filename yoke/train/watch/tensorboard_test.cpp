#include "yoke/train/watch/tensorboard.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "tests/support/command.h"
#include "yoke/base/error.h"
#include "yoke/base/file.h"

namespace yoke::train {
namespace {

using ::testing::ElementsAre;

/// The fields of a protobuf message, by number. A fixed-size number is 8 or 4 bytes, any other number is digits, and
/// the rest is unchanged.
using Fields = std::map<int, std::string>;

Fields parse(std::string_view bytes) {
  Fields fields;
  const auto varint = [&] {
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = static_cast<uint8_t>(bytes.at(0));
      bytes.remove_prefix(1);
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
  };
  while (!bytes.empty()) {
    const auto key = varint();
    const auto type = key & 7;
    if (type == 0) {
      fields[static_cast<int>(key >> 3)] = std::to_string(varint());
      continue;
    }
    const auto size = type == 1 ? 8 : type == 5 ? 4 : varint();
    fields[static_cast<int>(key >> 3)] = bytes.substr(0, size);
    bytes.remove_prefix(size);
  }
  return fields;
}

template <typename T>
std::vector<T> numbers(const std::string& bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

/// The events of a file, as their fields.
std::vector<Fields> events_of(const std::filesystem::path& path) {
  const auto bytes = read_file(path);
  std::vector<Fields> events;
  for (size_t place = 0; place < bytes.size();) {
    const auto size = numbers<uint64_t>(bytes.substr(place, 8)).at(0);
    events.push_back(parse(bytes.substr(place + 12, size)));
    place += size + 16;
  }
  return events;
}

/// The one value in an event's summary.
Fields value_of(const Fields& event) { return parse(parse(event.at(5)).at(1)); }

class TensorBoardTest : public ::testing::Test {
 protected:
  const test::TemporaryFolder folder_;
};

TEST_F(TensorBoardTest, ScalarsAreThereInTheirOrder) {
  TensorBoardWriter board(folder_.path("new/folder"));
  auto loss = at::full({}, 0.5, at::kBFloat16);
  board.add_scalar("loss", loss, 0);
  loss.fill_(7);  // a change after adding must not count
  board.add_scalar("lr", 0.125, 1);
  board.add_scalar("count", at::full({1}, 3, at::kLong), 2);
  EXPECT_EQ(events_of(board.path()).size(), 1u) << "nothing has been read from the device";
  board.flush();
  const auto events = events_of(board.path());
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(events[0].at(3), "brain.Event:2");
  std::vector<std::string> tags;
  std::vector<float> values;
  for (size_t i = 1; i < 4; ++i) {
    const auto value = value_of(events[i]);
    tags.push_back(value.at(1));
    values.push_back(numbers<float>(value.at(2)).at(0));
    EXPECT_EQ(events[i].contains(2) ? events[i].at(2) : "0", std::to_string(i - 1));
  }
  EXPECT_THAT(tags, ElementsAre("loss", "lr", "count"));
  EXPECT_THAT(values, ElementsAre(0.5f, 0.125f, 3.0f));
}

TEST_F(TensorBoardTest, HistogramsCountFiniteValues) {
  TensorBoardWriter board(folder_.path());
  const auto infinity = std::numeric_limits<double>::infinity();
  board.add_histogram("w", at::tensor(std::vector<double>{0, 1, 1.5, 4, infinity, std::nan("")}).reshape({2, 3}), 5, 4);
  board.add_histogram("equal", at::full({9}, 2, at::kInt), 6, 2);
  board.add_histogram("none", at::full({2}, infinity), 7);
  board.flush();
  const auto events = events_of(board.path());
  ASSERT_EQ(events.size(), 3u) << "a histogram of nothing is not written";
  const auto histogram = parse(value_of(events[1]).at(5));
  EXPECT_FALSE(histogram.contains(1)) << "a smallest value of 0 is protobuf's default";
  EXPECT_THAT(numbers<double>(histogram.at(2) + histogram.at(3) + histogram.at(4) + histogram.at(5)),
              ElementsAre(4, 4, 6.5, 19.25));
  EXPECT_THAT(numbers<double>(histogram.at(6)), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(numbers<double>(histogram.at(7)), ElementsAre(0, 1, 2, 0, 1));
  const auto equal = parse(value_of(events[2]).at(5));
  EXPECT_THAT(numbers<double>(equal.at(6)), ElementsAre(1.5, 2, 2.5));
  EXPECT_THAT(numbers<double>(equal.at(7)), ElementsAre(0, 0, 9));
}

TEST_F(TensorBoardTest, ImagesArePngs) {
  TensorBoardWriter board(folder_.path());
  board.add_image("grey", at::zeros({4, 6}, at::kByte), 1);
  board.add_image("colour", at::full({3, 2, 5}, 1.5), 2);
  board.flush();
  const auto events = events_of(board.path());
  ASSERT_EQ(events.size(), 3u);
  const auto grey = parse(value_of(events[1]).at(4)), colour = parse(value_of(events[2]).at(4));
  EXPECT_EQ(grey.at(1) + "x" + grey.at(2) + "x" + grey.at(3), "4x6x1");
  EXPECT_EQ(colour.at(1) + "x" + colour.at(2) + "x" + colour.at(3), "2x5x3");
  EXPECT_TRUE(colour.at(4).starts_with("\x89PNG"));
}

TEST_F(TensorBoardTest, AResumedTrainingTellsFromWhichStepOn) {
  TensorBoardWriter board(folder_.path(), {.first_step = 40});
  TensorBoardWriter second(folder_.path());
  EXPECT_NE(board.path(), second.path());
  const auto events = events_of(board.path());
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[1].at(2), "40");
  EXPECT_EQ(parse(events[1].at(7)).at(1), "1");
}

TEST_F(TensorBoardTest, WhatCannotBeWrittenIsKept) {
  TensorBoardWriter board(folder_.path());
  board.add_scalar("before", 1.0, 1);
  board.flush();
  const auto length = std::filesystem::file_size(board.path());
  board.add_scalar("after", 2.0, 2);
  struct rlimit limit {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
  const auto small = rlimit{length + 10, limit.rlim_max};
  auto* const before = signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  EXPECT_THROW(board.flush(), Error);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  signal(SIGXFSZ, before);
  EXPECT_EQ(std::filesystem::file_size(board.path()), length) << "a part of a record would end the file for readers";
  board.flush();
  const auto events = events_of(board.path());
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(value_of(events[2]).at(1), "after");
}

TEST_F(TensorBoardTest, RefusesWhatDoesNotFit) {
  TensorBoardWriter board(folder_.path());
  EXPECT_THROW(board.add_scalar("two", at::zeros({2}), 1), Error);
  EXPECT_THROW(board.add_scalar("undefined", at::Tensor(), 1), Error);
  EXPECT_THROW(board.add_histogram("empty", at::zeros({0}), 1), Error);
  EXPECT_THROW(board.add_image("five channels", at::zeros({5, 2, 2}), 1), Error);
  EXPECT_THROW(board.add_image("integers", at::zeros({2, 2}, at::kInt), 1), Error);
  EXPECT_THROW(TensorBoardWriter("/proc/nothing"), Error);
}

}  // namespace
}  // namespace yoke::train
