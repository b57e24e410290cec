#include "yoke/cli/options/run.h"

#include <string>

#include "yoke/cli/help/values.h"
#include "yoke/cli/options/allocation.h"
#include "yoke/cli/options/color.h"
#include "yoke/cli/options/value.h"
#include "yoke/launch/torchrun/values.h"

namespace yoke::cli {
namespace {

/// Adds options that torchrun has too. Their defaults come from torchrun's environment variables, PET_OPTION_NAME.
/// Options that only yoke has are added to `command` directly.
struct Adder {
  CLI::App& command;

  template <typename T>
  CLI::Option* option(const std::string& names, T& target, const char* type, const std::string& text) const {
    return with_variable(add_value(command, names, target, type, text));
  }
  CLI::Option* flag(const std::string& names, bool& target, const std::string& text) const {
    return with_variable(command.add_flag(names, target, text));
  }

 private:
  static CLI::Option* with_variable(CLI::Option* option) {
    return option->envname(launch::variable_of_option(option->get_lnames().front()));
  }
};

void add_rank_options(const Adder& add, launch::RunOptions& options) {
  add.option(
         "-n,--nproc-per-node", options.nproc_per_node, "auto|gpu|cpu|N",
         "Ranks on each node: a number; gpu, one for each GPU; cpu, one for each processor; auto, as gpu if there is "
         "a GPU, else as cpu. In a job of Slurm the default is its GPUs, or else its tasks, of each node")
      ->each([&options](const std::string&) { options.is_nproc_given = true; })
      ->capture_default_str();
  add.option("--max-restarts", options.max_restarts, "N|N/STEPSsteps",
             "The most times that all ranks are started again after one failed; 3/1000steps: within 1000 steps of the "
             "training, and not if the same failure comes again or no step was ever made")
      ->check([](const std::string& text) {
        const auto shown = text.empty() ? "''" : text;
        return launch::parse_restart_limit(text) ? "" : shown + ": " + launch::kRestartLimits;
      })
      ->capture_default_str();
  add.option("--replace", options.replace, "N",
             "The most times that one rank which a signal has killed is started again alone, while the others keep "
             "their processes; with --spares also the ranks of a lost host; for programs on train::Run or "
             "dist::World::recover(), on the CPU")
      ->check(in_range(0, 1'000'000, "replacements"));
  add_number(add.command, "--grace", options.grace_seconds, {"SECONDS", 0, 1e6},
             "Time between asking the ranks to stop and killing them")
      ->each([&options](const std::string&) { options.is_grace_given = true; });
  add.option("--shutdown-timeout", options.shutdown_timeout, "SECONDS", "The same as --grace, in torchrun's words")
      ->check(in_range(0, 1'000'000, "seconds"));
  add.option(
      "--signals-to-handle", options.signals_to_handle, "NAMES",
      "Signals that end the job; default SIGTERM,SIGINT,SIGHUP,SIGQUIT. SIGUSR1 and SIGUSR2 are passed on to ranks");
  add_value(add.command, "--bind", options.bind, "auto|none|node|socket|cache|mask:LIST|cpus:LIST",
            "CPUs that each rank may use; auto: those nearest to its GPU; see `yoke bind`")
      ->each([&options](const std::string&) { options.is_bind_given = true; })
      ->capture_default_str();
  add.option("--numa-binding", options.numa_binding, "node|socket|exclusive|core-complex",
             "The same as --bind, in torchrun's words");
  add.flag("--virtual-local-rank", options.virtual_local_rank,
           "Each rank sees one GPU, its device 0, and has local rank 0");

  add.command.add_flag(
      "--preload", options.preload,
      "Load the program once, and fork the ranks from it, also after a restart: a C++ program that is linked to "
      "libyoke_dist, before its main, or a Python program after the imports at its beginning");
  add_value(
      add.command, "--preload-modules", options.preload_modules, "NAMES",
      "Python modules that --preload imports, with commas between them, instead of those at the script's beginning");
}

void add_program_options(const Adder& add, launch::RunOptions& options) {
  add.flag("-m,--module", options.module, "The program is a Python module: python -u -m PROGRAM");
  add.flag("--no-python", options.no_python, "Do not run the program with Python, although its name ends in .py");
  add.flag("--run-path", options.run_path, "The program is a Python script, although its name does not end in .py");
}

void add_output_options(const Adder& add, launch::RunOptions& options) {
  add.option("--log-dir", options.log_dir, "DIR",
             "Folder for logs and error files: DIR/ID_XXXXXX/attempt_N/LOCAL-RANK/{stdout.log,stderr.log,error.json}");
  add.option("-r,--redirects", options.redirects, "0..3|RANK:0..3,...",
             "What goes into logs and not on the screen: 1 standard output, 2 standard error, 3 both")
      ->capture_default_str();
  add.option("-t,--tee", options.tee, "0..3|RANK:0..3,...", "What goes into logs and on the screen")
      ->capture_default_str();
  add.option("--log-line-prefix-template", options.log_line_prefix_template, "TEXT",
             "Begin lines with this text, in which ${role_name}, ${rank}, ${local_rank} and ${hostname} are replaced");
  add.option("--local-ranks-filter", options.local_ranks_filter, "RANKS",
             "Show the output of these local ranks only, such as 0,1");
  add.option("--duplicate-stdout-filters", options.duplicate_stdout_filters, "TEXTS",
             "Also copy the lines that --tee shows, of all ranks, to filtered_stdout.log if they contain one of TEXTS");
  add.option("--duplicate-stderr-filters", options.duplicate_stderr_filters, "TEXTS",
             "The same for standard error, to filtered_stderr.log");
  add_value(add.command, "--keyboard", options.keyboard, "RANK",
            "The rank that reads standard input, as for torch.distributed.breakpoint(rank=1)")
      ->check(in_range(0, 1'000'000))
      ->capture_default_str();
  add.command.add_flag("--no-prefix", options.no_prefix, "Do not begin lines with [rank]");
  add.command.add_flag("-q,--quiet", options.quiet, "Print only why the job failed, and show no status line");
  add_color_option(add.command, options.color);
}

void add_host_options(const Adder& add, launch::RunOptions& options) {
  add_value(add.command, "--hosts", options.hosts, "HOSTS",
            "Run on these hosts, reached by ssh: a,b,c or n[01-04]; a:2 has 2 ranks");
  add_value(add.command, "--hostfile", options.hostfile, "FILE",
            "The same from a file: one host per line, optionally followed by slots=N")
      ->excludes("--hosts");
  add_in_option(add.command, options.allocation)->excludes("--hosts")->excludes("--hostfile");
  add_value(add.command, "--spares", options.spares, "N",
            "The last N hosts, or nodes, have no ranks until they take the place of lost ones: at a restart, or with "
            "--replace while the others go on")
      ->check(in_range(0, 1'000'000, "hosts"));
  add_value(add.command, "--ssh", options.ssh, "WORDS", "Command that reaches hosts: ssh and options for it")
      ->excludes("--in")
      ->capture_default_str();
  add_value(add.command, "--remote-yoke", options.remote_yoke, "PATH",
            "Path of yoke on the hosts, if it differs from the path here")
      ->excludes("--in");
}

void add_node_options(const Adder& add, launch::RunOptions& options) {
  add.option("--nnodes", options.nnodes, "N|MIN:MAX",
             "Number of nodes; start the same command on each, by hand, srun or mpirun");
  add.option("--node-rank", options.node_rank, "N",
             "Rank of this node, from 0; node 0 is the head node, which the others join");
  add.option("--rdzv-endpoint", options.rdzv_endpoint, "HOST:PORT",
             "Address of the head node, where other nodes join; default port 29400");
  add.option("--rdzv-backend", options.rdzv_backend, "NAME",
             "static or c10d, which mean the same here; etcd, which needs a server, is refused");
  add.option("--rdzv-conf", options.rdzv_conf, "KEY=VALUE,...",
             "join_timeout (seconds, 600 unless given), last_call_timeout (seconds, 30 unless given), is_host=1 (this "
             "node is the head node); other keys have no effect");
  add_number(add.command, "--heartbeat-timeout", options.heartbeat_timeout_seconds, {"SECONDS", 2, 1e6},
             "A node that sends nothing for this long counts as lost");
  add.option("--local-addr", options.local_addr, "ADDRESS", "Address at which other nodes reach this one");
  add.option("--master-addr", options.master_addr, "ADDRESS",
             "Address of the ranks' TCPStore; default: that of rank 0's node");
  add.option("--master-port", options.master_port, "PORT", "Port of the ranks' TCPStore; 0 or not given: a free one")
      ->check(in_range(0, 65'535));
  add.option("--rdzv-id", options.rdzv_id, "ID", "Name of the job, TORCHELASTIC_RUN_ID")->capture_default_str();
  add.option("--role", options.role, "NAME", "ROLE_NAME of the ranks")->capture_default_str();
  add.flag("--standalone", options.standalone, "A job of this node alone, with a name of its own");
}

void add_options_without_effect(const Adder& add, launch::RunOptions& options) {
  constexpr const char* kNoEffect = "An option of torchrun that is accepted without effect";
  add.option("--monitor-interval", options.monitor_interval, "SECONDS", kNoEffect);
  add.option("--start-method", options.start_method, "NAME", kNoEffect);
  add.option("--event-log-handler", options.event_log_handler, "NAME", kNoEffect);
  add.option("--logs-specs", options.logs_specs, "NAME", "")->group("");
}

}  // namespace

void add_run_options(CLI::App& command, launch::RunOptions& options) {
  const Adder add{command};  // help shows the options in this order
  add_rank_options(add, options);
  add_program_options(add, options);
  add_output_options(add, options);
  add_host_options(add, options);
  add_node_options(add, options);
  add_options_without_effect(add, options);
}

}  // namespace yoke::cli
