// `yoke container`: run programs in containers that have the claimed devices, and look after these containers.
#include "yoke/cli/share/container.h"

#include <CLI/App.hpp>

namespace yoke::cli {

void add_container(CLI::App& cmd, Context& context) {
  cmd.require_subcommand(1);
  add_container_run(*cmd.add_subcommand("run", "Run a program in a container that sees the claimed devices"), context);
  add_container_ps(*cmd.add_subcommand("ps", "List the containers that `yoke container run` started"), context);
  add_container_logs(*cmd.add_subcommand("logs", "Print what a container has printed"), context);
  add_container_exec(*cmd.add_subcommand("exec", "Run another program in a container that runs"), context);
  add_container_stop(*cmd.add_subcommand("stop", "End containers, and wait for their end"), context);
  add_container_build(*cmd.add_subcommand("build", "Build an image with a name that the site allows"), context);
  add_container_packages(*cmd.add_subcommand("packages", "Compare the Python packages of images"), context);
  add_container_extend(*cmd.add_subcommand("extend", "Add Python packages on top of an image"), context);
  cmd.footer(
      examples("  yoke container run --gpu 2 ngc/pytorch:25.05-py3 -- python train.py\n"
               "  yoke container ps\n"
               "  yoke container exec ada_pytorch-1f3a -- bash\n"
               "  yoke container packages *.sif --grep lightning\n"
               "  yoke container stop ada_pytorch-1f3a"));
}

}  // namespace yoke::cli
