// enter FOLDER CMD...: runs CMD in a mount namespace of its own, which looks like a machine with eight NVIDIA GPUs and
// the users ada and bob. Nothing outside FOLDER changes, except that the empty folder /run/cdi may be new. In FOLDER,
// cdi/ has CDI specifications, and dev/ is an empty folder. Needs root.
//
// A shell script that did this started 40 programs for each command of the tests: 70 processor-seconds in one run of
// them.
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>
#include <system_error>
#include <utility>

namespace {

void check(bool is_done, const std::string& what) {
  if (!is_done) throw std::system_error(errno, std::generic_category(), what);
}

void mount_at(const std::string& target, const std::string& source, const char* type, unsigned long flags,
              const char* options = nullptr) {
  check(mount(source.c_str(), target.c_str(), type, flags, options) == 0, "mount " + source + " at " + target);
}

/// Returns /etc/FILE without the lines of the users and groups that this machine adds.
std::string lines_of(const std::string& file) {
  std::ifstream in("/etc/" + file);
  std::string text;
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with("ada:") && !line.starts_with("bob:") && !line.starts_with("yoke-lab:")) text += line + "\n";
  }
  return text;
}

/// Adds users without changing the files of this machine. The copies are made for each command, because others change
/// theirs.
void add_users(const std::string& folder) {
  std::string etc = folder + "/etc.XXXXXX";
  check(mkdtemp(etc.data()) != nullptr, "mkdtemp " + etc);
  check(chmod(etc.c_str(), 0755) == 0, "chmod " + etc);
  const std::string ids = "ada:1600000000:65536\n";
  for (const auto& [file, text] :
       {std::pair<std::string, std::string>{"passwd", lines_of("passwd") + "ada:x:61001:61001::" + folder +
                                                          "/home-ada:/bin/sh\nbob:x:61002:61002::" + folder +
                                                          "/home-bob:/bin/sh\n"},
        {"group", lines_of("group") + "ada:x:61001:\nbob:x:61002:\nyoke-lab:x:61005:ada\n"},
        {"subuid", ids},
        {"subgid", ids}}) {
    const auto copy = etc + "/" + file;
    std::ofstream(copy) << text;
    check(chmod(copy.c_str(), 0644) == 0, "chmod " + copy);
    if (std::filesystem::exists("/etc/" + file)) mount_at("/etc/" + file, copy, nullptr, MS_BIND);
  }
}

void make_node(const std::string& path, unsigned major, unsigned minor) {
  check(mknod(path.c_str(), S_IFCHR, makedev(major, minor)) == 0, "mknod " + path);
  check(chmod(path.c_str(), 0666) == 0, "chmod " + path);  // for everybody, whatever the umask
}

/// A /dev with the nodes of GPUs, which are twins of /dev/null, and with message queues.
void make_dev(const std::string& dev) {
  mount_at(dev, "yoke-dev", "tmpfs", 0, "mode=755");
  constexpr std::array<std::pair<const char*, unsigned>, 7> kNodes = {
      {{"null", 3}, {"zero", 5}, {"full", 7}, {"random", 8}, {"urandom", 9}, {"nvidiactl", 3}, {"nvidia-uvm", 3}}};
  for (const auto& [name, minor] : kNodes) make_node(dev + "/" + name, 1, minor);
  for (int i = 0; i < 8; ++i) make_node(dev + "/nvidia" + std::to_string(i), 1, 3);
  make_node(dev + "/tty", 5, 0);
  make_node(dev + "/ptmx", 5, 2);
  if (std::filesystem::exists("/dev/fuse")) make_node(dev + "/fuse", 10, 229);
  for (const auto* part : {"/pts", "/shm", "/mqueue"}) std::filesystem::create_directory(dev + part);
  for (const std::string part : {"/pts", "/shm"}) mount_at(dev + part, "/dev" + part, nullptr, MS_BIND);
  for (const std::string link : {"/fd", "/stdin", "/stdout", "/stderr"}) {
    std::filesystem::create_symlink(std::filesystem::read_symlink("/dev" + link), dev + link);
  }
  mount_at(dev + "/mqueue", "yoke-mqueue", "mqueue", 0);
  mount_at("/dev", dev, nullptr, MS_BIND | MS_REC);
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 3) {
    std::cerr << "usage: enter FOLDER CMD...\n";
    return 2;
  }
  const std::string folder = argv[1];
  std::filesystem::create_directories("/run/cdi");
  check(unshare(CLONE_NEWNS) == 0, "unshare");
  mount_at("/", "none", nullptr, MS_REC | MS_PRIVATE);
  mount_at("/run/cdi", folder + "/cdi", nullptr, MS_BIND);
  add_users(folder);
  make_dev(folder + "/dev");
  execvp(argv[2], argv + 2);
  check(false, std::string("cannot start ") + argv[2]);
} catch (const std::exception& error) {
  std::cerr << "enter: " << error.what() << "\n";
  return 127;
}
