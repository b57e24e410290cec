#include "tests/mount/server.h"

#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>

namespace yoke::test {
namespace {

constexpr const char* kPrepare =
    "set -e; mount --make-rprivate /; mkdir \"$1/ns\"; mount -t tmpfs -o dev,mode=0755 none \"$1/ns\"; cd \"$1/ns\"; "
    "mknod fuse c 10 229; chmod 666 fuse; mount --bind fuse /dev/fuse; "
    "{ cat /etc/passwd; echo \"ada:x:61001:61001::$1/ada:/bin/sh\"; echo \"bob:x:61002:61002::$1/bob:/bin/sh\"; } > "
    "passwd; mount --bind passwd /etc/passwd; cp /etc/fuse.conf fuse.conf; mount --bind fuse.conf /etc/fuse.conf; "
    "echo ready; exec sleep infinity";

void add_sessions(pid_t parent, std::vector<pid_t>& result) {
  for (const auto pid : children_of(parent)) {
    result.push_back(pid);
    add_sessions(pid, result);
  }
}

}  // namespace

void RemoteFolders::SetUp() {
  if (const auto why = Network::why_not(); !why.empty()) GTEST_SKIP() << why;
  if (const auto why = Network::why_no_sshd(); !why.empty()) GTEST_SKIP() << why;
  if (run({.argv = {"sh", "-c", "command -v sshfs fusermount3 && test -c /dev/fuse"}}).exit_code != 0) {
    GTEST_SKIP() << "no sshfs, fusermount3 or /dev/fuse (packages sshfs and fuse3)";
  }
  network_ = std::make_unique<Network>(1);
  network_->start_sshd(tag_);
  chmod(folder_.path().c_str(), 0755);
  // A copy, because other users may not reach the build tree.
  std::filesystem::copy_file(YOKE_COMMAND, folder_.path("yoke"));
  const auto key = std::filesystem::path(network_->ssh_config()).parent_path() / "user_key";
  const auto config = slurp(network_->ssh_config());
  for (const auto& [uid, name] : {std::pair<uid_t, std::string>{0, "root"}, {kAda, "ada"}, {kBob, "bob"}}) {
    std::filesystem::create_directory(folder_.path(name));
    std::filesystem::copy_file(key, folder_.path(name + "/key"));
    folder_.write("config" + std::to_string(uid),
                  "Host server\n  HostName 10.77.0.1\n  User root\n  RemoteCommand tmux attach\n  IdentityFile " +
                      folder_.path(name + "/key") + "\n" + config);
    for (const auto& path : {folder_.path(name), folder_.path(name + "/key")}) {
      ASSERT_EQ(chown(path.c_str(), uid, uid), 0);
    }
  }
  folder_.write("data/first", "from the server\n");
  namespace_ = std::make_unique<Command>(CommandOptions{
      .argv = {"setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "sh", "-c", kPrepare, "sh", folder_.path()}});
  ASSERT_TRUE(namespace_->wait_for_output("ready")) << namespace_->err();
}

void RemoteFolders::TearDown() {
  if (!namespace_) return;
  signal_sessions(SIGCONT);
  for (const auto pid : processes_with_tag(tag_)) kill(pid, SIGKILL);
  EXPECT_TRUE(wait_until([&] { return processes_with_tag(tag_).empty(); }));
}

std::vector<std::string> RemoteFolders::here(std::vector<std::string> argv, uid_t uid) const {
  std::vector<std::string> words = {"nsenter", "--mount=/proc/" + std::to_string(namespace_->pid()) + "/ns/mnt", "env",
                                    "YOKE_TEST_TAG=" + tag_,
                                    "HOME=" + folder_.path(uid == 0      ? "root"
                                                           : uid == kAda ? "ada"
                                                                         : "bob")};
  if (uid != 0) {
    const auto number = std::to_string(uid);
    words.insert(words.end(), {"setpriv", "--reuid", number, "--regid", number, "--clear-groups"});
  }
  words.insert(words.end(), argv.begin(), argv.end());
  return network_->on(Network::kOutside, words);
}

CommandOptions RemoteFolders::yoke(std::vector<std::string> words, uid_t uid) const {
  words.insert(words.begin(), folder_.path("yoke"));
  return {.argv = here(std::move(words), uid), .without = {"COLUMNS", "XDG_CONFIG_HOME"}, .folder = "/"};
}

Result RemoteFolders::timed(std::vector<std::string> words, double timeout_s, uid_t uid) const {
  words.insert(words.end(), {"--timeout", std::to_string(timeout_s)});
  auto result = run(yoke(std::move(words), uid));
  // A server that is cut off or stopped does not answer for longer than run() waits.
  EXPECT_FALSE(result.timed_out) << result.out << result.err;
  return result;
}

Result RemoteFolders::mount(uid_t uid, std::vector<std::string> more) const {
  std::vector<std::string> words = {"mount",
                                    "server:" + data(),
                                    uid == 0 ? point() : folder_.path("ada/point"),
                                    "-F",
                                    config_of(uid),
                                    "-o",
                                    "ServerAliveInterval=1,ServerAliveCountMax=2,ConnectTimeout=2"};
  words.insert(words.end(), more.begin(), more.end());
  return timed(words, 20, uid);
}

Json RemoteFolders::mounts(uid_t uid, double timeout_s) const {
  const auto listed = Json::parse(timed({"mounts", "--json"}, timeout_s, uid).out).at("mounts");
  auto found = Json::array();
  for (const auto& mount : listed) {  // a namespace is a copy, which may have mounts of others
    if (mount.at("dir") == data()) found.push_back(mount);
  }
  return found;
}

std::string RemoteFolders::state(double timeout_s) const {
  const auto found = mounts(0, timeout_s);
  return found.empty() ? "none" : found.back().at("state").get<std::string>();
}

std::vector<pid_t> RemoteFolders::sessions() const {
  std::vector<pid_t> result;
  add_sessions(network_->sshd(0), result);
  return result;
}

void RemoteFolders::signal_sessions(int number) const {
  for (const auto pid : sessions()) kill(pid, number);
}

}  // namespace yoke::test
