#include "yoke/slurm/job/job_sampler.h"

#include <poll.h>
#include <sys/wait.h>

#include <csignal>

#include "yoke/base/error.h"
#include "yoke/base/process.h"
#include "yoke/slurm/job/job_folder.h"

namespace yoke::slurm {

JobSampler::JobSampler(const std::filesystem::path& yoke, const Environment& environment) {
  if (!environment.contains("SLURM_JOB_ID") || !samples_folder(environment)) return;
  try {
    auto pipe = make_pipe();
    child_ = spawn({.argv = {yoke.string(), "slurm", "sample", "--until-eof"},
                    .environment = environment.to_strings(),
                    .in = pipe.read_end.value(),
                    .out = kNullStream,
                    .process_group = 0});  // Ctrl-C does not reach it
    if (child_ > 0) end_ = std::move(pipe.write_end);
  } catch (const Error&) {  // out of descriptors
  }
}

JobSampler::~JobSampler() {
  if (child_ <= 0) return;
  end_.reset();
  for (int i = 0; i < 100; ++i) {
    if (waitpid(child_, nullptr, WNOHANG) != 0) return;
    poll(nullptr, 0, 10);
  }
  kill(child_, SIGKILL);  // a driver or a file system holds it
}

}  // namespace yoke::slurm
