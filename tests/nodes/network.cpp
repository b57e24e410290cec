#include "tests/nodes/network.h"

#include <sched.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <sstream>
#include <stdexcept>

#include "yoke/base/text.h"

namespace yoke::test {
namespace {

std::vector<std::string> split(const std::string& text) {
  const auto words = words_of(text);
  return {words.begin(), words.end()};
}

/// Starts a process that only keeps a network namespace alive, and ends with the test.
std::unique_ptr<Command> new_namespace() {
  auto holder = std::make_unique<Command>(CommandOptions{
      .argv = {"setpriv", "--pdeathsig", "KILL", "unshare", "--net", "sh", "-c", "echo ready; exec sleep infinity"}});
  if (!holder->wait_for_output("ready")) throw std::runtime_error("no network namespace: " + holder->err());
  return holder;
}

std::vector<std::string> enter(pid_t holder, const std::vector<std::string>& argv) {
  std::vector<std::string> words = {"nsenter", "--net=/proc/" + std::to_string(holder) + "/ns/net"};
  words.insert(words.end(), argv.begin(), argv.end());
  return words;
}

void check(const CommandOptions& options) {
  const auto result = run(options);
  if (result.exit_code == 0) return;
  std::string words;
  for (const auto& word : options.argv) words += word + " ";
  throw std::runtime_error(words + "failed: " + result.err);
}

}  // namespace

std::string Network::why_not() {
  if (geteuid() != 0) return "network namespaces need root";
  const auto result =
      run({.argv = {"unshare", "--net", "ip", "link", "add", "name", "one", "type", "veth", "peer", "name", "other"}});
  if (result.exit_code != 0) return "no network namespaces here: " + result.err;
  return "";
}

std::string Network::why_no_sshd() {
  return std::filesystem::exists("/usr/sbin/sshd") ? "" : "no sshd (package openssh-server)";
}

Network::Network(int num_hosts) : switch_(new_namespace()) {
  in_switch("ip link add switch type bridge");
  in_switch("ip link set switch up");
  in_switch("ip addr add " + address(kOutside) + "/24 dev switch");
  in_switch("ip link set lo up");
  for (int host = 0; host < num_hosts; ++host) {
    hosts_.push_back(new_namespace());
    const auto pid = std::to_string(hosts_.back()->pid());
    in_switch("ip link add " + port_of(host) + " type veth peer name eth0 netns " + pid);
    in_switch("ip link set " + port_of(host) + " up master switch");
    for (const auto& words : {std::string("ip link set lo up"), "ip addr add " + address(host) + "/24 dev eth0",
                              std::string("ip link set eth0 up")}) {
      check({.argv = on(host, split(words))});
    }
  }
}

Network::~Network() = default;

std::string Network::address(int host) { return "10.77.0." + std::to_string(host == kOutside ? 254 : host + 1); }

std::string Network::port_of(int host) const { return "port" + std::to_string(host); }

std::vector<std::string> Network::on(int host, const std::vector<std::string>& argv) const {
  return enter(host == kOutside ? switch_->pid() : hosts_.at(static_cast<size_t>(host))->pid(), argv);
}

void Network::in_switch(const std::string& words) const { check({.argv = enter(switch_->pid(), split(words))}); }

void Network::start_sshd(const std::string& tag) {
  mkdir("/run/sshd", 0755);  // sshd's service normally creates this folder
  for (const char* key : {"host_key", "user_key"}) {
    check({.argv = {"ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder_.path(key)}});
  }
  std::filesystem::copy_file(folder_.path("user_key.pub"), folder_.path("authorized_keys"));
  folder_.write(
      "sshd_config",
      "HostKey " + folder_.path("host_key") + "\nAuthorizedKeysFile " + folder_.path("authorized_keys") +
          "\nStrictModes no\nUsePAM no\nPermitRootLogin yes\nPidFile none\nMaxStartups 100\nAcceptEnv YOKE_TEST_TAG\n"
          "Subsystem sftp internal-sftp\n");
  folder_.write("ssh_config", "Host *\n  IdentityFile " + folder_.path("user_key") +
                                  "\n  IdentitiesOnly yes\n  StrictHostKeyChecking no\n  UserKnownHostsFile /dev/null\n"
                                  "  GlobalKnownHostsFile /dev/null\n  LogLevel ERROR\n  SetEnv YOKE_TEST_TAG=" +
                                  tag + "\n");
  for (int host = 0; host < static_cast<int>(hosts_.size()); ++host) {
    sshds_.push_back(
        std::make_unique<Command>(CommandOptions{.argv = on(host, {"setpriv", "--pdeathsig", "KILL", "/usr/sbin/sshd",
                                                                   "-D", "-e", "-f", folder_.path("sshd_config")})}));
    if (!sshds_.back()->wait_until(
            [&] { return sshds_.back()->err().find("Server listening on 0.0.0.0") != std::string::npos; })) {
      throw std::runtime_error("sshd: " + sshds_.back()->err());
    }
  }
}

void Network::cut(int host) {
  in_switch("ip link set " + port_of(host) + " nomaster");
  if (is_connected(host)) throw std::runtime_error(port_of(host) + " is still connected");
}

void Network::mend(int host) {
  in_switch("ip link set " + port_of(host) + " master switch");
  if (!is_connected(host)) throw std::runtime_error(port_of(host) + " is not connected");
}

bool Network::is_connected(int host) const {
  const auto link = run({.argv = enter(switch_->pid(), {"ip", "-o", "link", "show", port_of(host)})});
  return link.out.find(" master switch ") != std::string::npos;
}

std::vector<std::string> Network::listening(int host) const {
  const auto result = run({.argv = on(host, {"ss", "-H", "-t", "-l", "-n"})});
  std::vector<std::string> lines;
  std::istringstream stream(result.out);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

}  // namespace yoke::test
