#include "yoke/base/preload.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

namespace yoke {
namespace {

PreloadedRank example_start() {
  return {.environment = {"A=1", "EMPTY=", "LINES=a\nb", "LONG=" + std::string(3 << 20, 'x')},
          .inherited_fds = {7, 250},
          .cpus = {0, 2, 65},
          .memory_nodes = {1},
          .process_group = 4711,
          .file_limit = {1024, RLIM_INFINITY}};
}

TEST(Preload, WhatIsEncodedComesBack) {
  EXPECT_EQ(decode_preloaded_rank(encode(example_start())), example_start());
  const PreloadedRank empty{.file_limit = {0, 0}};
  EXPECT_EQ(decode_preloaded_rank(encode(empty)), empty);
}

TEST(Preload, AnythingElseIsRefused) {
  auto rank = example_start();
  rank.environment = {"A=1"};
  const auto bytes = encode(rank);
  for (size_t size = 0; size < bytes.size(); ++size) {
    const auto cut = decode_preloaded_rank(std::string_view(bytes).substr(0, size));
    EXPECT_FALSE(cut == rank) << "cut to " << size;
  }
  using namespace std::string_view_literals;
  for (const auto text :
       {"x\0\0000\0001\0001\0000\0"sv, "\0\0000\000-2\0001\0000\0"sv, "\0\0000\0001\0001\0002\0007\0"sv,
        "\0\0000\0001\0001\000-1\0"sv, "\0\0000\0001\0001\0001\000-7\0"sv, "\0\000-1\0001\0001\0000\0"sv}) {
    EXPECT_EQ(decode_preloaded_rank(text), std::nullopt);
  }
}

TEST(Preload, DescriptorsArriveInOrderAndTheEndIsSeen) {
  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
  UniqueFd near(pair[0]);
  const UniqueFd far(pair[1]);
  std::vector<Pipe> pipes;
  std::vector<int> fds;
  for (int i = 0; i < 20; ++i) {
    pipes.push_back(make_pipe());
    fds.push_back(pipes.back().write_end.value());
  }
  ASSERT_TRUE(send_fds(near.value(), fds));
  const auto received = receive_fds(far.value());
  ASSERT_TRUE(received);
  ASSERT_EQ(received->size(), fds.size());
  for (size_t i = 0; i < fds.size(); ++i) {
    const auto byte = static_cast<char>(i);
    char read_byte = -1;
    ASSERT_EQ(write((*received)[i].value(), &byte, 1), 1);
    ASSERT_EQ(read(pipes[i].read_end.value(), &read_byte, 1), 1);
    EXPECT_EQ(read_byte, byte);
  }
  EXPECT_FALSE(send_fds(near.value(), std::vector<int>(kMaxMessageFds + 1, 0)));
  near.reset();
  EXPECT_FALSE(receive_fds(far.value()));
  EXPECT_FALSE(send_fds(far.value(), {0}));
}

}  // namespace
}  // namespace yoke
