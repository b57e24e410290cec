// tests/support/fake_slurm.h -- programs with fixed answers in place of Slurm's: a real Slurm cannot be told to lose an
// answer, and takes seconds to start.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/support/command.h"
#include "tests/support/lines.h"
#include "yoke/base/environment.h"
#include "yoke/base/tell.h"

namespace yoke::test {

// What Slurm 22.05 says.
inline constexpr const char* kUnknownJob = "slurm_load_jobs error: Invalid job id specified";
inline constexpr const char* kNoController =
    "slurm_load_jobs error: Unable to contact slurm controller (connect failure)";
inline constexpr const char* kNoAccounts = "sacct: error: Slurm accounting storage is disabled";

/// While it exists, this process finds the programs first in PATH, and works in path(), which is also its HOME. At
/// first slurmctld knows no job, no accounts are kept, and sbatch and srun fail.
class FakeSlurm {
 public:
  FakeSlurm() : old_path_(std::getenv("PATH")), old_folder_(std::filesystem::current_path()) {
    for (const auto* program : {"scontrol", "squeue"}) make_failing(program, kUnknownJob);
    make_failing("sacct", kNoAccounts);
    for (const auto* program : {"sbatch", "srun"}) make_failing(program, "it is not expected here");
    setenv("PATH", (path("bin") + ":" + old_path_).c_str(), 1);
    std::filesystem::current_path(path());
  }
  ~FakeSlurm() {
    std::filesystem::current_path(old_folder_);
    setenv("PATH", old_path_.c_str(), 1);
  }
  FakeSlurm(const FakeSlurm&) = delete;
  FakeSlurm& operator=(const FakeSlurm&) = delete;

  std::string path(std::string_view file = "") const { return folder_.path(file); }
  void write(const std::string& file, const std::string& text) const { folder_.write(file, text); }

  Environment environment() const {
    return {{"PATH", std::getenv("PATH")}, {"HOME", path()}, {"XDG_STATE_HOME", path("state")}};
  }

  /// Makes a program that notes its words, and runs `script`.
  void make(const std::string& program, const std::string& script) const {
    folder_.write("bin/" + program, "#!/bin/sh\necho \"$*\" >>" + path("calls." + program) + "\n" + script + "\n",
                  true);
    std::filesystem::remove(path("calls." + program));
  }
  void make_failing(const std::string& program, const std::string& says) const {
    make(program, "echo '" + says + "' >&2; exit 1");
  }
  /// `scontrol show job` answers with these texts in turn, and goes on with the last one; an empty one: there is no
  /// such job. `scontrol show config` says that the cluster is "yoke", and that arrays have at most 1001 tasks.
  void make_scontrol(const std::vector<std::string>& answers) const {
    for (size_t i = 0; i < answers.size(); ++i) folder_.write("answers/" + std::to_string(i + 1), answers[i]);
    make("scontrol",
         "case \"$*\" in 'show config') echo 'ClusterName = yoke'; echo 'MaxArraySize = 1001'; exit;; esac\n"
         "n=$(grep -c '^show job' " +
             path("calls.scontrol") +
             ")\n"
             "[ $n -le " +
             std::to_string(answers.size()) + " ] || n=" + std::to_string(answers.size()) +
             "\n"
             "[ -s " +
             path("answers/") + "$n ] || { echo '" + kUnknownJob +
             "' >&2; exit 1; }\n"
             "case \"$*\" in 'show job'*) cat " +
             path("answers/") + "$n;; esac");
  }

  /// The words of each call of a program.
  std::vector<std::string> calls(const std::string& program) const { return lines_of(slurp(path("calls." + program))); }

 private:
  TemporaryFolder folder_;
  std::string old_path_;
  std::filesystem::path old_folder_;
};

/// Keeps what yoke tells, and what programs of Slurm have printed.
struct Heard {
  std::vector<std::string> yoke, slurm;

  Tell tell() {
    return [this](Told what, const std::string& text) {
      if (what == Told::kOutput) {
        slurm.push_back(text);
      } else {
        yoke.push_back((what == Told::kWarning ? "warning: " : "") + text);
      }
    };
  }
};

/// What `scontrol show job` prints of a job. `more`: further lines, as "   StdOut=/a\n".
inline std::string scontrol_job(const std::string& numbers, const std::string& state, const std::string& more = "",
                                const std::string& reason = "None") {
  return numbers + " JobName=tale\n   UserId=ada(7001) GroupId=ada(7001) MCS_label=N/A\n   JobState=" + state +
         " Reason=" + reason + " Dependency=(null)\n   Requeue=1 Restarts=0 BatchFlag=1 Reboot=0 ExitCode=0:0\n" +
         more + "   \n\n";
}

}  // namespace yoke::test
