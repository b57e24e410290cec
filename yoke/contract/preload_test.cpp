#include "yoke/contract/preload.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <span>

#include "yoke/base/error.h"
#include "yoke/base/process.h"

namespace yoke {
namespace {

RankProcess example_rank() {
  return {.environment = {"A=1", "EMPTY=", "LINES=a\nb", "LONG=" + std::string(3 << 20, 'x')},
          .inherited_fds = {7, 250},
          .cpus = {0, 2, 65},
          .memory_nodes = {1},
          .process_group = 4711,
          .file_limit = {1024, RLIM_INFINITY}};
}

std::string bytes_of(const RankProcess& rank) {
  FieldWriter fields;
  encode(rank, fields);
  return fields.bytes();
}

RankProcess decoded(std::string_view bytes) {
  FieldReader fields(bytes);
  auto rank = decode_rank_process(fields);
  EXPECT_TRUE(fields.at_end());
  return rank;
}

TEST(Preload, WhatIsEncodedComesBack) {
  EXPECT_EQ(decoded(bytes_of(example_rank())), example_rank());
  const RankProcess empty{.file_limit = {0, 0}};
  EXPECT_EQ(decoded(bytes_of(empty)), empty);
  auto odd = example_rank();
  odd.environment = {std::string("A=\0\xff", 4)};
  EXPECT_EQ(decoded(bytes_of(odd)), odd);
}

TEST(Preload, AnythingElseIsRefused) {
  auto rank = example_rank();
  rank.environment = {"A=1"};
  const auto bytes = bytes_of(rank);
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_THROW(decoded(std::string_view(bytes).substr(0, size)), Error) << "cut to " << size;
  }
  for (const auto& wrong : {RankProcess{.inherited_fds = {-1}}, RankProcess{.process_group = -2}}) {
    EXPECT_THROW(decoded(bytes_of(wrong)), Error);
  }
  FieldWriter numbers;
  numbers.add(int64_t{-1});  // read as the number of variables
  EXPECT_THROW(decoded(numbers.bytes()), Error);
  FieldWriter sets;
  sets.add(std::vector<std::string>()).add(std::vector<int>()).add(std::string_view("x"));
  EXPECT_THROW(decoded(sets.bytes()), Error);
}

TEST(Preload, DescriptorsArriveInOrderAndTheEndIsSeen) {
  auto [near, far] = make_socket_pair();
  std::vector<Pipe> pipes;
  std::vector<int> fds;
  for (int i = 0; i < 20; ++i) {
    pipes.push_back(make_pipe());
    fds.push_back(pipes.back().write_end.value());
  }
  const auto text = [](auto& bytes) { return std::as_writable_bytes(std::span(bytes)); };
  std::array sent = {'a', 'b'}, read_bytes = {'?', '?'};
  ASSERT_TRUE(send_with_fds(near.value(), text(sent), fds));
  std::vector<UniqueFd> received;
  ASSERT_EQ(receive_with_fds(far.value(), text(read_bytes), received), 2);
  EXPECT_EQ(read_bytes, sent);
  ASSERT_EQ(received.size(), fds.size());
  for (size_t i = 0; i < fds.size(); ++i) {
    const auto byte = static_cast<char>(i);
    char read_byte = -1;
    ASSERT_EQ(write(received[i].value(), &byte, 1), 1);
    ASSERT_EQ(read(pipes[i].read_end.value(), &read_byte, 1), 1);
    EXPECT_EQ(read_byte, byte);
    EXPECT_EQ(fcntl(received[i].value(), F_GETFD), FD_CLOEXEC);
  }
  EXPECT_FALSE(send_with_fds(near.value(), text(sent), std::vector<int>(kMaxMessageFds + 1, 0)));
  near.reset();
  EXPECT_EQ(receive_with_fds(far.value(), text(read_bytes), received), 0);
  EXPECT_FALSE(send_with_fds(far.value(), text(sent), {}));
}

}  // namespace
}  // namespace yoke
