#include "yoke/profile/trace_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <filesystem>

#include "tests/support/command.h"
#include "tests/support/message_of.h"

namespace yoke::profile {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;
using testing::StartsWith;
using yoke::test::message_of;

/// The JSON of a trace with `count` operations; `members` follow them.
std::string trace_text(int count = 1, const std::string& members = "") {
  std::string text = R"({"traceEvents":[)";
  for (int i = 0; i < count; ++i) {
    text += R"({"ph":"X","cat":"cpu_op","name":"a)" + std::to_string(i * 7919 % 10'007) + R"(","ts":1,"dur":2},)";
  }
  return text + "]" + members + "}";
}

void write_gzipped(const std::string& path, const std::string& text) {
  const auto file = gzopen(path.c_str(), "ab");  // a file may have several members
  ASSERT_EQ(gzwrite(file, text.data(), static_cast<unsigned>(text.size())), static_cast<int>(text.size()));
  ASSERT_EQ(gzclose(file), Z_OK);
}

TEST(TraceFile, TheRankIsInTheTraceOrInTheName) {
  const test::TemporaryFolder folder;
  const auto rank_of = [&](const std::string& name, const std::string& members = "") {
    folder.write(name, trace_text(1, members));
    return read_trace_file(folder.path(name)).rank;
  };
  EXPECT_EQ(rank_of("rank7.json"), 7);
  EXPECT_EQ(rank_of("rank-12.Jul_15.pt.trace.json"), 12);
  EXPECT_EQ(rank_of("node1_rank_003.json"), 3);
  EXPECT_EQ(rank_of("frankfurt-2_rank5.json"), 5) << "a host whose name has the word, too";
  for (const char* name : {"rank.json", "ranking.json", "rank--3.json", "trace3.json"}) {
    EXPECT_EQ(rank_of(name), std::nullopt) << name;
  }
  EXPECT_EQ(rank_of("rank7.json", R"(,"distributedInfo":{"rank":1})"), 1);
  EXPECT_EQ(rank_of("rank7.json", R"(,"distributedInfo":{"rank":-1})"), 7) << "of a program without a group";
}

TEST(TraceFile, AFolderHasItsTracesInTheOrderOfTheirNames) {
  const test::TemporaryFolder folder;
  for (const char* name : {"b.json", "a.json.gz", "c.json.tmp", "json", "below/d.json"}) folder.write(name, "");
  fs::create_directory(folder.path("e.json"));
  fs::create_symlink("b.json", folder.path("link.json"));
  EXPECT_THAT(find_traces(folder.path()),
              ElementsAre(fs::path(folder.path("a.json.gz")), folder.path("b.json"), folder.path("link.json")));
  EXPECT_THAT(find_traces(folder.path("missing")), ElementsAre(fs::path(folder.path("missing"))));
  EXPECT_THAT(message_of([&] { find_traces(folder.path("e.json")); }, ErrorCode::kNotFound),
              AllOf(StartsWith(folder.path("e.json")), HasSubstr("there is no trace in this folder")));
}

TEST(TraceFile, ProgressIsInBytesOfTheFile) {
  const test::TemporaryFolder folder;
  const auto text = trace_text(10'000);
  folder.write("plain.json", text);
  write_gzipped(folder.path("one.json.gz"), text);
  write_gzipped(folder.path("two.json.gz"), text.substr(0, 5000));
  write_gzipped(folder.path("two.json.gz"), text.substr(5000));
  for (const char* name : {"plain.json", "one.json.gz", "two.json.gz"}) {
    std::vector<int64_t> seen = {0};
    const auto trace = read_trace_file(folder.path(name), [&](int64_t num_bytes) { seen.push_back(num_bytes); });
    EXPECT_THAT(trace.events, SizeIs(10'000)) << name;
    EXPECT_FALSE(trace.is_truncated) << name;
    EXPECT_TRUE(std::ranges::is_sorted(seen)) << name;
    EXPECT_EQ(seen.back(), static_cast<int64_t>(fs::file_size(folder.path(name)))) << name;
  }
}

TEST(TraceFile, DamageIsToldFromAnEndThatIsMissing) {
  const test::TemporaryFolder folder;
  write_gzipped(folder.path("rank0.json.gz"), trace_text(10'000));
  const auto whole = test::slurp(folder.path("rank0.json.gz"));
  folder.write("cut.json.gz", whole.substr(0, whole.size() / 2));
  const auto cut = read_trace_file(folder.path("cut.json.gz"));
  EXPECT_TRUE(cut.is_truncated);
  EXPECT_GT(cut.events.size(), 100u);
  EXPECT_LT(cut.events.size(), 10'000u);
  auto damaged = whole;
  damaged[whole.size() - 6] ^= 1;  // of the checksum, which is before the length of 4 bytes (RFC 1952)
  folder.write("damaged.json.gz", damaged);
  EXPECT_THAT(message_of([&] { read_trace_file(folder.path("damaged.json.gz")); }, ErrorCode::kDataLoss),
              AllOf(StartsWith(folder.path("damaged.json.gz") + ": the compressed data are damaged"),
                    HasSubstr("copy or record it again")));
}

TEST(TraceFile, WhatCannotBeReadIsNamed) {
  const test::TemporaryFolder folder;
  EXPECT_THAT(message_of([&] { read_trace_file(folder.path("gone.json")); }, ErrorCode::kNotFound),
              AllOf(StartsWith(folder.path("gone.json")), HasSubstr("No such file")));
  EXPECT_THAT(yoke::test::error_of([&] { read_trace_file(folder.path()); }).what(),
              AllOf(StartsWith(folder.path()), HasSubstr("Is a directory")));
}

}  // namespace
}  // namespace yoke::profile
