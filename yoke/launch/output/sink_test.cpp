#include "yoke/launch/output/sink.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <csignal>
#include <string>

namespace yoke::launch {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

UniqueFd full_device() { return UniqueFd(open("/dev/full", O_WRONLY | O_CLOEXEC)); }

std::string content_of(int fd) {
  std::string text(1 << 16, '\0');
  const ssize_t count = pread(fd, text.data(), text.size(), 0);
  text.resize(count > 0 ? static_cast<size_t>(count) : 0);
  return text;
}

TEST(Sink, WritesWhatItIsGiven) {
  const UniqueFd file(memfd_create("test", MFD_CLOEXEC));
  Sink sink(file.value(), "standard output");
  sink.lines() += "a\n";
  sink.flush();
  sink.lines() += "b\n";
  sink.flush();
  sink.settle();
  EXPECT_EQ(content_of(file.value()), "a\nb\n");
  EXPECT_THAT(sink.take_news(), IsEmpty());
  EXPECT_FALSE(sink.has_lost());
}

TEST(Sink, AFullDiskIsToldAtOnceAndWaitsForNobody) {
  const auto full = full_device();
  Sink sink(full.value(), "standard output");
  sink.lines() += "a\n";
  sink.flush();
  EXPECT_THAT(sink.take_news(), ElementsAre(HasSubstr("cannot write standard output: No space left on device")));
  EXPECT_FALSE(sink.is_waiting()) << "such a file is always ready: its owner would never sleep";
  EXPECT_TRUE(sink.next_time().has_value());
  for (int i = 0; i < 100; ++i) {
    sink.lines() += std::string(100'000, 'x') + '\n';
    sink.flush();
    EXPECT_FALSE(sink.is_full()) << "ranks go on";
    EXPECT_LE(sink.lines().size(), 1U << 20) << "and memory is bounded";
  }
  EXPECT_THAT(sink.take_news(), IsEmpty()) << "once for each episode";
  EXPECT_TRUE(sink.has_lost());
  sink.settle();
  EXPECT_THAT(sink.take_news(), ElementsAre("101 lines are missing from standard output: No space left on device"));
  EXPECT_FALSE(sink.next_time().has_value());
}

TEST(Sink, WhatWaitedIsWrittenOnceThereIsRoom) {
  const UniqueFd room(memfd_create("test", MFD_CLOEXEC));
  const auto place = full_device();
  Sink sink(place.value(), "standard output");
  sink.lines() += "a\nb\n";
  sink.flush();
  sink.take_news();
  dup2(room.value(), place.value());  // now there is room on the disk
  sink.lines() += "c\n";
  sink.settle();
  EXPECT_EQ(content_of(room.value()), "a\nb\nc\n");
  EXPECT_THAT(sink.take_news(), ElementsAre("standard output can be written again; nothing is missing"));
  EXPECT_FALSE(sink.has_lost());
}

TEST(Sink, AReaderThatLeavesIsNoFailure) {
  signal(SIGPIPE, SIG_IGN);
  auto pipe = make_pipe();
  Sink sink(pipe.write_end.value(), "standard output");
  pipe.read_end.reset();
  sink.lines() += "a\n";
  sink.flush();
  sink.settle();
  EXPECT_THAT(sink.take_news(), IsEmpty());
  EXPECT_FALSE(sink.has_lost());
  signal(SIGPIPE, SIG_DFL);
}

TEST(Sink, ADescriptorThatIsNotForWritingIsAFailure) {
  const UniqueFd null(open("/dev/null", O_RDONLY | O_CLOEXEC));
  Sink sink(null.value(), "standard output");
  sink.settle();
  EXPECT_FALSE(sink.has_lost()) << "where nothing was to be written nothing is missing";
  sink.lines() += "a\n";
  sink.flush();
  sink.settle();
  EXPECT_THAT(sink.take_news(), ElementsAre(HasSubstr("Bad file descriptor"),
                                            "1 line is missing from standard output: Bad file descriptor"));
}

}  // namespace
}  // namespace yoke::launch
