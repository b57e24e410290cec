// Tests the file in which a rank reports why it failed, and the file in which the launcher reports the same reason to
// the program that started it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <optional>

#include "tests/run/launch.h"

namespace yoke::test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

/// Rank 0 executes `script` and exits with 3.
CommandOptions failing(const std::string& script) {
  return yoke_run_shell(2, "f=$TORCHELASTIC_ERROR_FILE; [ $RANK = 0 ] || exec sleep 60; " + script + "; exit 3");
}

constexpr const char* kExplain =
    R"(printf '%s' '{"message": {"message": "ValueError: no", "extraInfo": {"py_callstack": "Traceback\nValueError: no\n",)"
    R"( "timestamp": "1790000000"}, "by": "me"}}' > $f)";

TEST(ErrorFile, MayBeAnything) {
  const TemporaryFolder elsewhere;
  elsewhere.write("keep", "");
  for (const char* script : {
           "mkfifo $f",
           "ln -s /dev/zero $f",
           "ln -s /dev/tty $f",
           "mkdir $f",
           "rmdir $(dirname $f); ln -s $ELSEWHERE $(dirname $f)",
           "truncate -s 10G $f",
           "head -c 500000 /dev/zero | tr '\\0' '[' > $f",
           "printf '{\"message\": \"\\377\\376\"}' > $f",
       }) {
    auto options = failing(script);
    options.environment = {{"ELSEWHERE", elsewhere.path()}};
    const auto result = run(options);
    EXPECT_FALSE(result.timed_out) << script;
    EXPECT_TRUE(fs::exists(elsewhere.path("keep"))) << script;
    EXPECT_EQ(result.exit_code, 3) << script;
    EXPECT_THAT(result.err, HasSubstr("exited with code 3; stopped the other rank\n")) << script;
  }
}

TEST(ErrorFile, PlainTextIsShown) {
  EXPECT_THAT(run(failing(R"(echo '{"message": "just text"}' > $f)")).err,
              HasSubstr("yoke run: rank 0 failed: just text\nyoke run: rank 0 (pid "));
}

// None of them is to blame alone. All have written their reports before the first one ends.
TEST(ErrorFile, OneThatAllRanksWriteBlamesNoneOfThem) {
  const TemporaryFolder folder;
  auto options = yoke_run_shell(3, std::string("f=$TORCHELASTIC_ERROR_FILE; ") + kExplain +
                                       "; : > $F/$RANK; until [ -e $F/0 ] && [ -e $F/1 ] && [ -e $F/2 ]; do sleep "
                                       "0.01; done; exit 3");
  options.environment = {{"F", folder.path()}};
  const auto result = run(options);
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_THAT(result.err, testing::ContainsRegex("yoke run: rank [0-2] failed: ValueError: no\n"
                                                 "yoke run: ranks 0-2 of 3 failed with the same error; then rank [0-2] "
                                                 "\\(pid [0-9]+\\) exited with code 3; stopped the 2 other ranks\n$"));
}

/// Both forms of libtorch: TORCH_CHECK, and the checks of its allocator.
TEST(ErrorFile, AStackOfLibtorchIsLeftOut) {
  for (const char* stack :
       {"Exception raised from check at a.cpp:1:\\nframe #0: f()", "frame #0: f()\\nframe #1: g()"}) {
    const auto script = R"(printf '%s' '{"message": {"message": "c10::Error: no memory (train, a.cpp:3)\n)" +
                        std::string(stack) + R"(", "extraInfo": {"timestamp": "1790000000"}}}' > $f)";
    EXPECT_THAT(run(failing(script)).err,
                HasSubstr("yoke run: rank 0 failed: c10::Error: no memory (train, a.cpp:3)\nyoke run: rank 0 (pid "));
  }
}

TEST(ErrorFile, NeedsNoUsableTmpdir) {
  const TemporaryFolder folder;
  folder.write("relative/file", "");
  for (const char* tmpdir : {"relative", "/proc", "/no/such/folder"}) {
    auto options = failing("cd /; " + std::string(kExplain));
    options.folder = folder.path();
    options.environment = {{"TMPDIR", tmpdir}};
    EXPECT_THAT(run(options).err, HasSubstr("yoke run: rank 0 failed: ValueError: no\n")) << tmpdir;
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path("relative")), {}), 1) << "nothing is left there";
}

/// Runs `options` after the shell commands `mounts`. Returns nullopt if this machine does not allow mounts.
std::optional<Result> run_with(const std::string& mounts, CommandOptions options) {
  options.argv.insert(options.argv.begin(), {"unshare", "-rm", "sh", "-c", mounts + " || exit 77; exec \"$@\"", "sh"});
  auto result = run(options);
  if (result.exit_code == 77 || result.err.find("unshare: ") != std::string::npos) return std::nullopt;
  return result;
}

TEST(ErrorFile, NeedsNoRoomInTmpdir) {
  const TemporaryFolder folder;
  auto options = failing(kExplain);
  options.environment = {{"TMPDIR", folder.path()}};
  const auto result =
      run_with("mount -t tmpfs -o size=4k none $TMPDIR && head -c 4096 /dev/zero > $TMPDIR/all", options);
  if (!result) GTEST_SKIP() << "no mount namespaces";
  EXPECT_THAT(result->err, HasSubstr("yoke run: rank 0 failed: ValueError: no\n"));
}

TEST(ErrorFile, ALimitOfFileSizesDoesNotLoseIt) {
  auto options = failing(kExplain);
  options.argv.insert(options.argv.begin(), {"sh", "-c", "ulimit -f 16 && exec \"$0\" \"$@\""});  // 8 KiB
  EXPECT_THAT(run(options).err, HasSubstr("yoke run: rank 0 failed: ValueError: no\n"));
}

TEST(ErrorFile, WithoutAnyFolderForItIsAWarning) {
  auto options = failing("[ -z \"$f\" ] && echo none");
  options.environment = {{"TMPDIR", "/proc"}};
  // --rbind: a user may not leave out what is mounted below, such as the images of other tests.
  const auto result = run_with(
      "for folder in /tmp /var/tmp; do mount --rbind $folder $folder && "
      "mount -o remount,bind,ro,nosuid,nodev $folder || exit 77; done",
      options);
  if (!result) GTEST_SKIP() << "no mount namespaces";
  EXPECT_EQ(result->exit_code, 3);
  EXPECT_EQ(result->out, "[0] none\n");
  EXPECT_THAT(
      result->err,
      HasSubstr("yoke run: ranks cannot write error files, because TMPDIR, /tmp and /var/tmp are not writable"));
}

TEST(ErrorFile, ALogThatARankPutInPlaceIsRefused) {
  const TemporaryFolder folder;
  for (const char* thing : {"mkfifo", "ln -s /dev/zero", "mkdir"}) {
    auto options = yoke_run({"--max-restarts", "1", "--log-dir", folder.path(), "--tee", "1", "--", "sh", "-c",
                             "cd $(dirname $TORCHELASTIC_ERROR_FILE)/../..; mkdir -p attempt_1/0; " +
                                 std::string(thing) + " attempt_1/0/stdout.log; exit 3"});
    const auto result = run(options);
    EXPECT_FALSE(result.timed_out) << thing;
    EXPECT_THAT(result.err, HasSubstr("opening the log ")) << thing;
    EXPECT_THAT(result.exit_code, testing::AnyOf(69, 75)) << thing;
  }
}

/// Returns the content of the launcher's own error file.
std::string handed_on(const TemporaryFolder& folder, CommandOptions options) {
  const auto own = folder.path("own.json");
  options.environment = {{"TORCHELASTIC_ERROR_FILE", own}, {"OWN", own}};
  run(options);
  return slurp(own);
}

TEST(ErrorFile, IsHandedOn) {
  const TemporaryFolder folder;
  EXPECT_EQ(handed_on(folder, failing(std::string("[ $f != $OWN ] && ") + kExplain)),
            R"({"message":{"by":"me","errorCode":3,"extraInfo":{"py_callstack":"Traceback\nValueError: no\n",)"
            R"("timestamp":"1790000000"},"message":"ValueError: no"}})")
      << "as torchrun does: what the rank wrote, and its exit code";
}

TEST(ErrorFile, ReplacesAnOlderOne) {
  const TemporaryFolder folder;
  folder.write("own.json", "old");
  EXPECT_EQ(handed_on(folder, failing(R"(echo '{"message": "just text", "timestamp": 7}' > $f)")),
            R"({"message":"just text","timestamp":7})");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), {}), 1) << "no temporary file is left";
}

TEST(ErrorFile, WithoutAReportTheReasonIsHandedOn) {
  const TemporaryFolder folder;
  EXPECT_THAT(handed_on(folder, failing("kill -SEGV $$")),
              AllOf(HasSubstr("was killed by SIGSEGV; stopped the other rank"), HasSubstr("\"errorCode\":-11")));
  EXPECT_THAT(handed_on(folder, yoke_run({"--", "/no/such/program"})), HasSubstr("cannot run '/no/such/program'"));
  EXPECT_THAT(handed_on(folder, yoke_run({"--log-dir", "/proc/nothing", "--tee", "3", "--", "true"})),
              HasSubstr("making the log folder /proc/nothing"));
}

TEST(ErrorFile, AnOuterLauncherShowsTheCauseOfTheInnerOne) {
  auto options = failing("true");
  options.argv.insert(options.argv.begin(), {kYoke, "run", "-n", "2", "--"});
  options.argv.back() = std::string("f=$TORCHELASTIC_ERROR_FILE; ") + kExplain + "; exit 3";
  EXPECT_THAT(run(options).err, testing::ContainsRegex("failed: ValueError: no\nyoke run: ranks? "));
}

TEST(ErrorFile, OfAJobThatSucceedsIsNone) {
  const TemporaryFolder folder;
  EXPECT_EQ(handed_on(folder, yoke_run_shell(2,
                                             "[ -z \"$OWN\" ] && exit 1; echo '{\"message\": \"x\"}' > "
                                             "$TORCHELASTIC_ERROR_FILE; [ $TORCHELASTIC_ERROR_FILE != $OWN ]")),
            "");
}

TEST(ErrorFile, OneThatCannotBeWrittenIsAWarning) {
  const TemporaryFolder folder;
  fs::create_symlink("/dev/null", folder.path("link"));
  for (const auto& path : {std::string("/dev/null"), std::string("/no/such/folder/x"), folder.path("link")}) {
    auto options = failing("true");
    options.environment = {{"TORCHELASTIC_ERROR_FILE", path}};
    const auto result = run(options);
    EXPECT_EQ(result.exit_code, 3) << path;
    EXPECT_THAT(result.err, HasSubstr("yoke run: TORCHELASTIC_ERROR_FILE cannot be written: ")) << path;
  }
  EXPECT_TRUE(fs::is_character_file("/dev/null")) << "it is replaced by nothing";
  EXPECT_TRUE(fs::is_symlink(folder.path("link")));
}

}  // namespace
}  // namespace yoke::test
