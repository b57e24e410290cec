// Tests `yoke mount`, `mounts` and `unmount` with a real sshd that is killed, stalled and cut off.
#include <csignal>
#include <filesystem>

#include "tests/mount/server.h"

namespace yoke::test {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;

using Mount = RemoteFolders;

TEST_F(Mount, AFolderIsMountedListedAndUnmounted) {
  const auto made = timed({"mount", "server:" + data(), "-F", config_of(0)}, 20);
  ASSERT_EQ(made.exit_code, 0) << made.err;
  auto name = "server" + data();
  std::replace(name.begin(), name.end(), '/', '-');
  const auto there = folder_.path("root/mnt/" + name);
  EXPECT_EQ(made.out, "server:" + data() + " is mounted on " + there + "\n");
  EXPECT_EQ(sh("cat " + there + "/first; echo to the server > " + there + "/second").out, "from the server\n");
  EXPECT_EQ(slurp(data("second")), "to the server\n");

  const auto listed = mounts();
  ASSERT_EQ(listed.size(), 1U) << listed;
  EXPECT_EQ(listed[0].at("host"), "server");
  EXPECT_EQ(listed[0].at("point"), there);
  EXPECT_EQ(listed[0].at("state"), "alive");
  EXPECT_GT(listed[0].at("latency_ms").get<double>(), 0);
  EXPECT_GT(listed[0].at("since").get<int64_t>(), 1'700'000'000);
  EXPECT_EQ(run(yoke({"mount", "server:" + data(), "-F", config_of(0)})).out,
            "server:" + data() + " is already mounted on " + there + "\n");
  const auto other = run(yoke({"mount", "server:" + data() + "/", "-F", config_of(0), "-o", "ro"}));
  EXPECT_EQ(other.exit_code, 69);
  EXPECT_THAT(other.err, HasSubstr("is mounted on " + there + " already, but it is writable; end that first"));

  const auto ended = timed({"unmount", "server"}, 20);
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(ended.out, "unmounted " + there + "\n");
  EXPECT_EQ(state(), "none");
  EXPECT_TRUE(wait_until([&] { return !has_sshfs(); }));
  EXPECT_FALSE(std::filesystem::exists(there)) << "programs could write into the folder below the mount";
  EXPECT_EQ(run(yoke({"unmount", "server"})).exit_code, 66);
}

TEST_F(Mount, LinksOfTheServerAreMounted) {
  folder_.write("data/sets/train", "1\n");
  std::filesystem::create_symlink(data("sets/train"), data("sets/absolute"));
  std::filesystem::create_symlink("sets", data("link"));
  const auto mount_link = [&](const std::vector<std::string>& options) {
    std::vector<std::string> words = {"mount", "server:" + data("link"), point(), "-F", config_of(0)};
    words.insert(words.end(), options.begin(), options.end());
    const auto made = timed(words, 20);
    EXPECT_EQ(made.exit_code, 0) << made.err;
  };
  const auto absolute = point() + "/absolute";
  mount_link({"-o", "ro"});
  EXPECT_EQ(sh("cat " + point() + "/train").out, "1\n");
  EXPECT_NE(sh("touch " + point() + "/new").exit_code, 0);
  const auto again = timed({"mount", "server:" + data("link"), point(), "-F", config_of(0)}, 20);
  EXPECT_THAT(again.err, HasSubstr("already, but it is read-only"));
  ASSERT_EQ(timed({"unmount", point()}, 20).exit_code, 0);
  mount_link({"-o", "follow_symlinks"});
  EXPECT_EQ(sh("test -L " + absolute + " || cat " + absolute).out, "1\n");
  ASSERT_EQ(timed({"unmount", point()}, 20).exit_code, 0);

  const auto sets =
      timed({"mount", "server:" + data("sets"), point(), "-F", config_of(0), "-o", "transform_symlinks"}, 20);
  ASSERT_EQ(sets.exit_code, 0) << sets.err;
  EXPECT_EQ(sh("readlink " + absolute).out, "train\n");
}

TEST_F(Mount, WhoeverGivesUpLeavesNothing) {
  const std::vector<std::string> words = {"mount", "server:" + data(), folder_.path("outer/inner"), "-F", config_of(0)};
  kill(network_->sshd(0), SIGSTOP);  // connections are accepted, and never answered
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    Command command(yoke(words));
    ASSERT_TRUE(wait_until([&] { return has_sshfs(); })) << command.err();
    command.signal(number);
    EXPECT_EQ(command.wait().exit_code, 128 + number);
    EXPECT_FALSE(has_sshfs()) << "the server would be mounted when it answers";
    EXPECT_FALSE(std::filesystem::exists(folder_.path("outer")));
  }
  EXPECT_EQ(state(), "none");

  std::vector<std::string> script = {"sh", "-c", "trap '' HUP; exec \"$0\" \"$@\"", folder_.path("yoke")};
  script.insert(script.end(), words.begin(), words.end());
  Command patient({.argv = here(script)});
  ASSERT_TRUE(wait_until([&] { return has_sshfs(); }));
  patient.signal(SIGHUP);
  kill(network_->sshd(0), SIGCONT);
  EXPECT_EQ(patient.wait().exit_code, 0) << "it was started to go on without its terminal" << patient.err();
}

TEST_F(Mount, WhatCannotBeMountedIsExplained) {
  folder_.write("full/file", "mine");
  const auto on = [&](const std::string& remote, const std::string& point) {
    return timed({"mount", remote, point, "-F", config_of(0)}, 20);
  };
  const auto full = on("server:" + data(), folder_.path("full"));
  EXPECT_EQ(full.exit_code, 69);
  EXPECT_THAT(full.err, HasSubstr(folder_.path("full") + " is not empty, and its files would be hidden"));
  const auto file = on("server:" + data(), folder_.path("full/file"));
  EXPECT_THAT(file.err, HasSubstr("is not a folder"));
  const auto missing = on("server:" + data("nothing"), point());
  EXPECT_EQ(missing.exit_code, 75);
  EXPECT_THAT(missing.err, AllOf(HasSubstr("No such file or directory"), HasSubstr("`ssh server ls -ld '")));
  const auto refused = on("nobody@server:" + data(), point());
  EXPECT_EQ(refused.exit_code, 75);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("Permission denied"), HasSubstr("`ssh nobody@server true`")));
  EXPECT_FALSE(std::filesystem::exists(point())) << "the folder was made, and nothing is mounted there";
  EXPECT_EQ(on("nobody@server:" + data(), folder_.path("outer/middle/inner")).exit_code, 75);
  EXPECT_FALSE(std::filesystem::exists(folder_.path("outer"))) << "so were those above it";
  EXPECT_EQ(state(), "none");
  EXPECT_FALSE(has_sshfs());
}

TEST_F(Mount, AKilledServerComesBackWithTheData) {
  ASSERT_EQ(mount().exit_code, 0);
  ASSERT_EQ(sh("echo kept > " + point() + "/written").exit_code, 0);
  signal_sessions(SIGKILL);
  EXPECT_TRUE(wait_until([&] { return state() == "alive"; }));
  EXPECT_EQ(sh("cat " + point() + "/written").out, "kept\n");

  kill(network_->sshd(0), SIGSTOP);  // connections are accepted, and never answered
  signal_sessions(SIGKILL);
  EXPECT_NE(state(1), "alive");
  kill(network_->sshd(0), SIGCONT);
  EXPECT_TRUE(wait_until([&] { return state(5) == "alive"; }, milliseconds(60'000)));
  EXPECT_EQ(slurp(data("written")), "kept\n");
  EXPECT_EQ(timed({"unmount", point()}, 10).exit_code, 0);
}

TEST_F(Mount, AStalledServerHoldsNobody) {
  ASSERT_EQ(mount_without_keepalive().exit_code, 0);
  ASSERT_EQ(sh("echo kept > " + point() + "/written").exit_code, 0);
  // A program of another kind with the same words is not taken for the sshfs of the mount.
  std::filesystem::create_directory(folder_.path("decoy"));
  std::filesystem::copy_file("/usr/bin/tail", folder_.path("decoy/sshfs"));
  Command decoy({.argv = here({folder_.path("decoy/sshfs"), "-f", "/dev/null", "server:" + data() + "/", point()})});
  Command program({.argv = here({"sh", "-c",
                                 "exec 3< " + point() + "/first; echo open; cat " + point() +
                                     "/written; "
                                     "echo \"ended $?\"; exec sleep 1000"})});
  ASSERT_TRUE(program.wait_for_output("open"));
  ASSERT_TRUE(program.wait_for_output("ended"));
  signal_sessions(SIGSTOP);
  Command reader({.argv = here({"sh", "-c", "cd " + point() + "; ls new"})});
  EXPECT_EQ(state(1), "stalled");
  EXPECT_THAT(timed({"mounts"}, 1).out, HasSubstr("no answer in 1 s"));

  const auto refused = timed({"unmount", point()}, 3);
  EXPECT_EQ(refused.exit_code, 69);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("sleep (pid "), HasSubstr("and is stalled"), HasSubstr("--force")));
  const auto forced = timed({"unmount", "--force", "server"}, 4);
  EXPECT_EQ(forced.exit_code, 0) << forced.err;
  EXPECT_EQ(forced.out, "unmounted " + point() + ", which was stalled\n");
  const auto read = reader.wait();
  EXPECT_TRUE(!read.timed_out && read.exit_code != 0) << "the reader got an error";
  EXPECT_EQ(state(), "none");
  EXPECT_TRUE(wait_until(
      [&] { return sh("pgrep -f '[s]shfs -f server:" + data() + "|[s]sh -x .*" + config_of(0) + "'").out.empty(); }));
  EXPECT_EQ(state_of(decoy.pid()), 'S') << "another process was killed";

  signal_sessions(SIGCONT);
  ASSERT_EQ(mount().exit_code, 0);
  EXPECT_EQ(sh("cat " + point() + "/written").out, "kept\n");
}

TEST_F(Mount, AServerThatIsCutOffIsNoHang) {
  const auto made = mount();
  ASSERT_EQ(made.exit_code, 0) << made.err;
  ASSERT_EQ(sh("echo kept > " + point() + "/written").exit_code, 0);
  network_->cut(0);
  EXPECT_EQ(state(1), "stalled");
  const auto other = timed({"mount", "server:" + data("."), folder_.path("other"), "-F", config_of(0)}, 2);
  // After some seconds the kernel knows that nobody answers, and ssh says so at once.
  EXPECT_TRUE(other.exit_code == 124 || other.exit_code == 75) << other.exit_code;
  EXPECT_THAT(other.err, AnyOf(HasSubstr("gave no answer in 2 s"), HasSubstr("No route to host")));
  EXPECT_FALSE(std::filesystem::exists(folder_.path("other")));
  // Programs get an error: after two silent seconds, and the time for connecting. TCP alone would take minutes.
  const auto failed = run({.argv = here({"timeout", "-s", "KILL", "50", "ls", point() + "/nothing"})});
  EXPECT_THAT(failed.err, HasSubstr("Input/output error"));
  network_->mend(0);
  EXPECT_TRUE(wait_until([&] { return state(5) == "alive"; }, milliseconds(60'000)));
  EXPECT_EQ(sh("cat " + point() + "/written").out, "kept\n");

  network_->cut(0);
  EXPECT_EQ(state(1), "stalled");
  EXPECT_EQ(timed({"unmount", point()}, 30).exit_code, 0);  // TCP alone would take minutes
  EXPECT_EQ(state(), "none");
}

TEST_F(Mount, StorageDoesNotHangOnAStalledServer) {
  folder_.write("config.toml", "[storage.remote]\npath = '" + point() + "/{user}'\n");
  ASSERT_EQ(mount_without_keepalive().exit_code, 0);
  signal_sessions(SIGSTOP);
  auto command = yoke({"storage", "--json", "--timeout", "5"});  // the other roots answer in a tenth of it
  command.environment = {{"YOKE_SITE_CONFIG", folder_.path("config.toml")}};
  const auto roots = Json::parse(run(command).out).at("roots");
  EXPECT_EQ(roots.size(), 3U);
  for (const auto& root : roots) {
    EXPECT_EQ(root.at("state"), root.at("name") == "remote" ? "no answer" : "there") << root;
    if (root.at("name") == "remote") {
      EXPECT_EQ(root.at("disk"), "network");
    }
  }
  const auto around = timed({"storage", "usage", folder_.path()}, 20);
  EXPECT_EQ(around.exit_code, 0) << around.err;
  EXPECT_THAT(around.out, HasSubstr("another file system, not counted: " + point()));
  const auto within = timed({"storage", "usage", point()}, 1);
  EXPECT_EQ(within.exit_code, 124);
  EXPECT_THAT(within.err, HasSubstr("no answer in 1 s"));
}

TEST_F(Mount, AnSshfsThatHasEndedLeavesADeadMount) {
  ASSERT_EQ(mount().exit_code, 0);
  kill(mounts().at(0).at("pid").get<pid_t>(), SIGKILL);
  EXPECT_TRUE(wait_until([&] { return state() == "dead"; }));
  EXPECT_EQ(mounts().at(0).at("reason"), "its sshfs has ended");
  const auto again = mount();
  EXPECT_EQ(again.exit_code, 69);
  EXPECT_THAT(again.err, HasSubstr("already, and is dead; end that first: `yoke unmount " + point() + "`"));
  EXPECT_EQ(timed({"unmount", point()}, 10).out, "unmounted " + point() + ", which was dead\n");
  EXPECT_EQ(mount().exit_code, 0);
}

TEST_F(Mount, AUserNeedsTheDeviceAndSeesOnlyItsOwn) {
  ASSERT_EQ(sh("chmod 600 /dev/fuse").exit_code, 0);
  const auto refused = mount(kAda);
  EXPECT_EQ(refused.exit_code, 69);
  EXPECT_THAT(refused.err, HasSubstr("you may not open /dev/fuse"));
  ASSERT_EQ(sh("chmod 666 /dev/fuse").exit_code, 0);
  EXPECT_THAT(mount(kAda, {"-o", "allow_other"}).err, HasSubstr("/etc/fuse.conf lacks the line user_allow_other"));

  const auto made = mount(kAda);
  ASSERT_EQ(made.exit_code, 0) << made.err;
  EXPECT_EQ(mounts(kAda).at(0).at("user"), "ada");
  EXPECT_EQ(mounts(kAda).at(0).at("state"), "alive");
  EXPECT_EQ(mounts(kBob).size(), 0U);
  EXPECT_EQ(mounts(0).at(0).at("state"), "alive") << "root asks as the user";
  EXPECT_EQ(timed({"unmount", folder_.path("ada/point")}, 10, kBob).exit_code, 77);
  EXPECT_EQ(timed({"unmount", "server"}, 10, kBob).exit_code, 66);
  EXPECT_EQ(timed({"unmount", "server"}, 10, 0).exit_code, 66) << "root names others' mounts by their folder";
  signal_sessions(SIGSTOP);
  EXPECT_EQ(timed({"unmount", "server"}, 4, kAda).exit_code, 0);
  EXPECT_EQ(mounts(0).size(), 0U);
}

}  // namespace
}  // namespace yoke::test
