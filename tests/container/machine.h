// tests/container/machine.h -- a machine with eight fake GPUs, real container engines with a state of their own, and
// the user ada.
#pragma once

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/fake_machine.h"

namespace yoke::test {

constexpr uid_t kAda = 61'001;

struct Setting {
  std::string engine;
  uid_t uid = 0;
  bool is_rootless = false;  ///< docker: the daemon is the user's own.
};

inline std::string name_of(const testing::TestParamInfo<Setting>& one) {
  const auto& setting = one.param;
  return setting.engine + (setting.is_rootless ? "Rootless" : setting.uid == 0 ? "AsRoot" : "AsAda");
}

inline bool has_program(const std::string& name) {
  return run({.argv = {"sh", "-c", "command -v " + name}}).exit_code == 0;
}

/// The path of docker's client of the system; other clients in PATH may be of another version.
inline std::string docker_client() { return std::filesystem::exists("/usr/bin/docker") ? "/usr/bin/docker" : "docker"; }

inline uid_t owner_of(const std::string& path) {
  struct stat info = {};
  return stat(path.c_str(), &info) == 0 ? info.st_uid : static_cast<uid_t>(-1);
}

class ContainerMachine {
 public:
  explicit ContainerMachine(Setting setting) : setting_(std::move(setting)) {
    namespace fs = std::filesystem;
    open(folder_.path());
    for (const auto* name : {"bin", "libexec/yoke", "lib", "cdi", "dev", "locks", "rootfs/bin", "work", "data"}) {
      fs::create_directories(path(name));
    }
    chmod(path("locks").c_str(), 01777);
    // Copies, because other users may not reach the build tree.
    fs::copy_file(YOKE_COMMAND, path("bin/yoke"));
    const auto build = fs::path(YOKE_COMMAND).parent_path().parent_path();
    fs::copy_file(build / "libexec/yoke/container-init", path("libexec/yoke/container-init"));
    fs::copy_file(YOKE_FAKES_FOLDER "/libnvidia-ml.so.1", path("lib/libnvidia-ml.so.1"));
    folder_.write("state.json", Json{{"devices", 8}}.dump());
    folder_.write("data/given", "given\n");
    write_cdi();
    write_engine();
    make_root();
    for (const auto* name : {"home-ada", "run-ada", "work", "podman", "rootless"}) {
      fs::create_directories(path(name));
      if (chown(path(name).c_str(), setting_.uid, setting_.uid) != 0) throw std::runtime_error("chown");
    }
    chmod(path("run-ada").c_str(), 0700);
    if (setting_.engine == "docker") start_docker();
    import();
  }
  ~ContainerMachine() {
    if (setting_.engine == "podman") run(engine_command({"rm", "--all", "--force", "--time", "0"}));
    if (docker_) {
      docker_->signal(SIGTERM);
      docker_->wait();
    }
    for (const auto pid : processes_with_tag(tag_)) kill(pid, SIGKILL);
    wait_until([&] { return processes_with_tag(tag_).empty(); });
    run({.argv = {"sh", "-c", "rm -rf -- \"$1\"", "sh", path("podman")}});
  }

  std::string path(const std::string& file) const { return folder_.path(file); }
  void write(const std::string& file, const std::string& text, bool is_program = false) const {
    folder_.write(file, text, is_program);
  }
  std::string image() const { return setting_.engine == "apptainer" ? path("rootfs") : "yoke-toy:1"; }
  const Setting& setting() const { return setting_; }
  const std::string& tag() const { return tag_; }

  /// A command of yoke as the user of the setting, in the folder work/.
  CommandOptions yoke(std::vector<std::string> words) const {
    words.insert(words.begin(), path("bin/yoke"));
    return as_user(std::move(words));
  }
  /// `yoke container run` with this engine and image. `--network none`, because tests have no bridge.
  CommandOptions container(std::vector<std::string> options, const std::vector<std::string>& program) const {
    options.insert(options.begin(), {"container", "run", "--engine", setting_.engine, "--deadline", "60"});
    if (setting_.engine != "apptainer") options.insert(options.end(), {"--network", "none"});
    options.push_back(image());
    options.emplace_back("--");
    options.insert(options.end(), program.begin(), program.end());
    return yoke(std::move(options));
  }
  CommandOptions shell(std::vector<std::string> options, const std::string& script) const {
    return container(std::move(options), {"sh", "-c", script});
  }
  /// A command of the engine itself.
  CommandOptions engine_command(std::vector<std::string> words) const {
    words.insert(words.begin(), path("bin/" + setting_.engine));
    auto options = as_user(std::move(words));
    options.environment.emplace_back("USER", setting_.uid == 0 ? "root" : "ada");
    return options;
  }

  const Command& docker_daemon() const { return *docker_; }
  std::string docker_host() const {
    return "unix://" + path(setting_.is_rootless ? "run-ada/docker.sock" : "docker.sock");
  }

  int64_t num_claimed() const {
    return static_cast<int64_t>(
        Json::parse(run(yoke({"claims", "--json", "--deadline", "60"})).out).at("claims").size());
  }
  /// Those of this test; others run at the same time.
  Json containers() const {
    auto own = Json::array();
    const auto pids = processes_with_tag(tag_);
    const auto all = Json::parse(run(yoke({"container", "ps", "--json"})).out);
    for (const auto& one : all.at("containers")) {
      if (std::find(pids.begin(), pids.end(), one.at("keeper").get<pid_t>()) != pids.end()) own.push_back(one);
    }
    return own;
  }

 private:
  static void open(const std::string& folder) { chmod(folder.c_str(), 0755); }

  CommandOptions as_user(std::vector<std::string> words) const {
    const auto number = std::to_string(setting_.uid);
    if (setting_.uid != 0) {
      words.insert(words.begin(), {"setpriv", "--reuid", number, "--regid", number, "--groups", number + ",61005"});
    }
    words.insert(words.begin(), {YOKE_ENTER, folder_.path()});
    CommandOptions options{.argv = std::move(words),
                           .environment = {{"YOKE_FAKE_NVML", path("state.json")},
                                           {"LD_LIBRARY_PATH", path("lib")},
                                           {"YOKE_CLAIM_DIR", path("locks")},
                                           {"YOKE_SITE_CONFIG", path("config.toml")},
                                           {"YOKE_TEST_TAG", tag_},
                                           {"PATH", path("bin") + ":" + std::getenv("PATH")},
                                           {"USER", "mallory"},
                                           {"LOGNAME", "mallory"}},
                           .without = {"CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "XDG_CONFIG_HOME", "COLUMNS",
                                       "XDG_RUNTIME_DIR", "DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG",
                                       "CONTAINERS_CONF", "CONTAINER_HOST", "CONTAINER_CONNECTION"},
                           .folder = path("work")};
    options.environment.emplace_back("HOME", path(setting_.uid == 0 ? "home-root" : "home-ada"));
    if (setting_.uid != 0) options.environment.emplace_back("XDG_RUNTIME_DIR", path("run-ada"));
    if (setting_.engine == "docker" && !setting_.is_rootless) {
      options.environment.emplace_back("DOCKER_HOST", docker_host());
    }
    return options;
  }

  /// A specification as nvidia-ctk writes it.
  void write_cdi() const {
    std::string text = "---\ncdiVersion: 0.5.0\nkind: nvidia.com/gpu\ndevices:\n";
    for (int i = 0; i < 8; ++i) {
      const auto number = std::to_string(i);
      text +=
          "- name: \"" + number + "\"\n  containerEdits:\n    deviceNodes:\n    - path: /dev/nvidia" + number + "\n";
    }
    text += "containerEdits:\n  deviceNodes:\n  - path: /dev/nvidiactl\n";
    folder_.write("cdi/nvidia.yaml", text);
  }

  void write_engine() const {
    folder_.write("config.toml", "");
    if (setting_.engine == "podman") {
      folder_.write("podman.conf",
                    "[containers]\nnetns = \"none\"\n[engine]\nruntime = \"runc\"\ncgroup_manager = \"cgroupfs\"\n"
                    "events_logger = \"file\"\n");
      folder_.write("bin/podman",
                    "#!/bin/sh\nexport CONTAINERS_CONF=" + path("podman.conf") + "\nexec /usr/bin/podman --root " +
                        path("podman/root") + " --runroot " + path("podman/run") + " \"$@\"\n",
                    true);
    } else if (setting_.engine == "docker") {
      folder_.write("bin/docker", "#!/bin/sh\nexec " + docker_client() + " \"$@\"\n", true);
      // What NVIDIA's hook does with --gpus, for nodes that are twins of /dev/null.
      folder_.write("bin/nvidia-container-runtime-hook",
                    "#!/bin/sh\n"
                    "state=$(cat)\n"
                    "bundle=$(echo \"$state\" | sed 's/.*\"bundle\":\"\\([^\"]*\\)\".*/\\1/')\n"
                    "pid=$(echo \"$state\" | sed 's/.*\"pid\":\\([0-9]*\\).*/\\1/')\n"
                    "wanted=$(grep -o 'NVIDIA_VISIBLE_DEVICES=GPU[^\"]*' \"$bundle/config.json\" | tail -1)\n"
                    "root=$(sed 's/.*\"root\":{\"path\":\"\\([^\"]*\\)\".*/\\1/' \"$bundle/config.json\")\n"
                    "i=0\n"
                    "for uuid in $(cat " +
                        path("uuids") +
                        "); do\n"
                        "  node=dev/nvidia$i\n"
                        "  case $wanted in *$uuid*)\n"
                        "    nsenter -t $pid -m mknod -m 666 $root/$node c 1 3 ||\n"
                        "    nsenter -t $pid -m sh -c \": > $root/$node; mount --bind /$node $root/$node\" ;;\n"
                        "  esac\n"
                        "  i=$((i+1))\n"
                        "done\n",
                    true);
    } else {
      const auto* const named = std::getenv("YOKE_APPTAINER");
      folder_.write("bin/apptainer",
                    std::string("#!/bin/sh\nexec ") + (named != nullptr ? named : "apptainer") + " \"$@\"\n", true);
    }
  }

  void make_root() const {
    const auto script =
        "set -e; cd \"$1\"; cp \"$(command -v busybox)\" bin/busybox; mkdir -p tmp etc proc sys dev root var/tmp; "
        "chmod 1777 tmp; "
        "for name in sh ls cat id sleep echo env touch true grep pwd ps kill trap; do ln -s busybox bin/$name; done; "
        "echo root:x:0:0:root:/root:/bin/sh > etc/passwd; echo root:x:0: > etc/group";
    const auto made = run({.argv = {"sh", "-c", script, "sh", path("rootfs")}});
    if (made.exit_code != 0) throw std::runtime_error(made.err);
  }

  void start_docker() {
    const auto json = Json::parse(run(yoke({"devices", "--json", "--deadline", "60"})).out);
    std::string list;
    for (const auto& device : json.at("devices")) {
      if (device.at("vendor") == "nvidia") list += device.at("uuid").get<std::string>() + "\n";
    }
    folder_.write("uuids", list);
    const auto state = path(setting_.is_rootless ? "rootless/" : "docker/");
    std::vector<std::string> daemon = {"dockerd",      "--data-root",      state + "data",      "--exec-root",
                                       state + "exec", "--pidfile",        state + "pid",       "-H",
                                       docker_host(),  "--iptables=false", "--ip6tables=false", "--ip-forward=false",
                                       "--bridge=none"};
    if (setting_.is_rootless) {
      start_rootless_docker(std::move(daemon));
    } else {
      std::filesystem::create_directory(state);
      docker_ = std::make_unique<Command>(CommandOptions{
          .argv = daemon, .environment = {{"PATH", path("bin") + ":" + std::getenv("PATH")}, {"YOKE_TEST_TAG", tag_}}});
    }
    const bool runs = wait_until([&] {
      chmod(path("docker.sock").c_str(), 0666);
      return run(engine_command({"version"})).exit_code == 0;
    });
    if (!runs) throw std::runtime_error("dockerd did not start: " + docker_->err());
  }

  /// What RootlessKit's --copy-up does: folders in which the daemon may write, with links to what was there.
  static constexpr const char* kCopyUp =
      "set -e; mount -t tmpfs rootless /run; mkdir /run/etc; mount --rbind /etc /run/etc; "
      "mount -t tmpfs rootless /etc; ln -s /run/etc/* /etc/; rm -f /etc/docker; exec \"$@\"";

  /// As dockerd-rootless.sh does with RootlessKit, and with a context that docker uses by itself. The limits are lower
  /// than those of a daemon of this machine.
  void start_rootless_docker(std::vector<std::string> daemon) {
    daemon.emplace_back("--rootless");
    daemon.insert(daemon.begin(), {"prlimit", "--nofile=4096:20000", "--memlock=65536:65536", "unshare", "--user",
                                   "--map-root-user", "--map-auto", "--mount", "sh", "-c", kCopyUp, "sh"});
    docker_ = std::make_unique<Command>(as_user(std::move(daemon)));
    for (const auto& words : {std::vector<std::string>{"create", "mine", "--docker", "host=" + docker_host()},
                              {"create", "far", "--docker", "host=ssh://ada@192.0.2.1"},
                              {"use", "mine"}}) {
      auto argv = words;
      argv.insert(argv.begin(), "context");
      const auto made = run(engine_command(argv));
      if (made.exit_code != 0) throw std::runtime_error(made.err);
    }
  }

 public:
  /// Its own user is another one, as in Jupyter's and micromamba's images.
  void import() const { import_folder("rootfs", "yoke-toy:1", "USER 1000"); }
  void import_folder(const std::string& root, const std::string& name, const std::string& change) const {
    if (setting_.engine == "apptainer") return;
    const auto tar = run({.argv = {"tar", "-C", path(root), "-cf", path(root + ".tar"), "."}});
    const auto imported = run(engine_command({"import", "--change", change, path(root + ".tar"), name}));
    if (tar.exit_code != 0 || imported.exit_code != 0) throw std::runtime_error(tar.err + imported.err);
  }

 private:
  Setting setting_;
  TemporaryFolder folder_;
  std::string tag_ = new_tag();
  std::unique_ptr<Command> docker_;
};

}  // namespace yoke::test
