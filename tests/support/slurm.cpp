#include "tests/support/slurm.h"

#include <fcntl.h>
#include <unistd.h>

#include <filesystem>
#include <stdexcept>

#include "yoke/base/process.h"
#include "yoke/base/text.h"

namespace yoke::test {
namespace {

constexpr milliseconds kStart{90'000};

std::vector<std::string> joined(std::vector<std::string> words, const std::vector<std::string>& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

}  // namespace

std::string SlurmCluster::why_not(bool with_accounting) {
  if (geteuid() != 0) return "namespaces of a cluster need root";
  auto environment = Environment::of_process();
  environment.set("PATH", environment.find("PATH").value_or("") + ":/usr/sbin");
  std::vector<std::string> programs = {"munged", "slurmctld", "slurmd", "srun"};
  if (with_accounting) programs.insert(programs.end(), {"mariadbd", "slurmdbd"});
  for (const auto& program : programs) {
    if (!find_program(program, environment)) return "no " + program + " (slurm-wlm, munge, slurmdbd, mariadb-server)";
  }
  return "";
}

SlurmCluster::SlurmCluster(const std::vector<std::string>& words) {
  auto pipe = make_pipe();
  keep_alive_ = std::move(pipe.write_end);
  script_ = std::make_unique<Command>(
      CommandOptions{.argv = joined(joined({YOKE_SLURM_CLUSTER}, words),
                                    {"sh", "-c", "echo \"at $SLURM_TEST_DIR now\"; exec cat >/dev/null"}),
                     .input_fd = pipe.read_end.value()});
  pipe.read_end.reset();
  if (!script_->wait_until([&] { return script_->out().find(" now\n") != std::string::npos; }, kStart)) {
    throw std::runtime_error("the cluster did not start: " + script_->err());
  }
  folder_ = std::string(words_of(script_->out()).at(1));
  // The script waits for unshare, whose child is the first process in the namespaces.
  const auto outer = children_of(script_->pid());
  const auto inner = outer.empty() ? outer : children_of(outer[0]);
  if (inner.empty()) throw std::runtime_error("the cluster has ended: " + script_->err());
  inside_ = inner[0];
}

SlurmCluster::~SlurmCluster() {
  keep_alive_.reset();
  script_->wait();
}

std::vector<std::string> SlurmCluster::in(const std::vector<std::string>& argv, const std::string& user) const {
  std::vector<std::string> words = {"nsenter", "--target", std::to_string(inside_), "--net", "--mount", "--pid"};
  if (user != "root") {
    const std::string id = user == "ada" ? "7001" : "7002";
    words.insert(words.end(), {"setpriv", "--reuid", id, "--regid", id, "--clear-groups"});
  }
  words.insert(words.end(), {"env", "SLURM_CONF=" + folder_ + "/etc/slurm.conf", "SLURM_TEST_DIR=" + folder_,
                             "USER=" + user, "HOME=" + (user == "root" ? "/root" : folder_ + "/home/" + user)});
  return joined(std::move(words), argv);
}

std::vector<std::string> SlurmCluster::on(int node, const std::vector<std::string>& argv,
                                          const std::string& user) const {
  const auto script = "exec nsenter --target $(cat " + folder_ + "/run/node.n" + std::to_string(node) +
                      ".pid) --net --uts --mount \"$@\"";
  std::vector<std::string> words = {"sh", "-c", script, "sh"};
  const auto own = in(argv, user);
  words.insert(words.end(), own.begin() + 6, own.end());  // without nsenter and its options
  return in(words);
}

Result SlurmCluster::run(const std::vector<std::string>& argv, const std::string& user) const {
  return test::run({.argv = in(argv, user), .without = {"RANK", "WORLD_SIZE", "SLURM_JOB_ID", "SLURM_STEP_ID"}});
}

Result SlurmCluster::shell(const std::string& script, const std::string& user) const {
  return run({"sh", "-c", script}, user);
}

void SlurmCluster::kill_daemon(const std::string& name) const {
  const auto result = shell("kill -9 $(cat " + folder_ + "/run/" + name + ".pid)");
  if (result.exit_code != 0) throw std::runtime_error("killing " + name + ": " + result.err);
}

void SlurmCluster::cut(int node) const { run({"ip", "link", "set", "port" + std::to_string(node), "nomaster"}); }

void SlurmCluster::mend(int node) const {
  run({"ip", "link", "set", "port" + std::to_string(node), "master", "switch"});
}

std::string SlurmCluster::state_of(const std::string& job_id) const {
  const auto text = run({"scontrol", "--oneliner", "show", "job", job_id}).out;
  const auto begin = text.find("JobState=");
  if (begin == std::string::npos) return "";
  return std::string(words_of(std::string_view(text).substr(begin + 9)).at(0));
}

std::string SlurmCluster::story_of(const std::string& job_id) const {
  return shell("scontrol show job " + job_id + "; sinfo; tail -n 40 " + folder_ + "/log/slurm*.log").out;
}

bool SlurmCluster::wait_for_state(const std::string& job_id, const std::string& state, milliseconds limit) {
  return wait_until([&] { return state_of(job_id) == state; }, limit);
}

}  // namespace yoke::test
