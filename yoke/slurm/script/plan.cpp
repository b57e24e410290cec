#include "yoke/slurm/script/plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>

#include "yoke/base/error.h"
#include "yoke/base/format.h"
#include "yoke/base/shell.h"
#include "yoke/base/spelling.h"
#include "yoke/base/text.h"
#include "yoke/slurm/words/options.h"
#include "yoke/slurm/words/request.h"

namespace yoke::slurm {
namespace {

constexpr int64_t kSignalSeconds = 120;
/// slurmctld looks at limits every 30 s, and takes a signal for due that would be before it looks again.
/// Source  src/slurmctld/job_mgr.c, send_job_warn_signal: warn_time + PERIODIC_TIMEOUT.
constexpr int64_t kSignalEarlySeconds = 30;
/// Variables that say where a rank is, or what Slurm gave the job.
bool is_of_ranks(std::string_view name) {
  constexpr std::string_view kNames =
      "RANK LOCAL_RANK GROUP_RANK NODE_RANK WORLD_SIZE LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT";
  return check::has_word(kNames, name) || name.starts_with("SLURM_") || name.starts_with("SLURMD_");
}

bool is_memory_of_cpu_or_gpu(std::string_view option) {
  return option.starts_with("--mem-per-cpu") || option.starts_with("--mem-per-gpu");
}

/// Builds a plan, part by part.
class Planner {
 public:
  Planner(const Request& request, const Site& site, const std::optional<Version>& version)
      : request_(request), site_(site), version_(version) {}

  ScriptPlan plan() {
    check();
    choose_sizes();
    choose_launcher();
    choose_masks();
    add_directives();
    add_environment();
    add_step();
    warn_of_misspelt();
    add_program();
    add_title();
    return std::move(plan_);
  }

 private:
  [[noreturn]] static void refuse(const std::string& why) { throw Error(ErrorCode::kInvalidArgument, "{}", why); }

  void decide(std::string what, std::string why) { plan_.decisions.push_back({std::move(what), std::move(why)}); }

  void check() const {
    if (request_.argv.empty()) refuse("give a program, as in `yoke slurm submit -N 2 -- python train.py`");
    const auto program = base_name(request_.argv[0]);
    if (program == "srun" || program == "sbatch" || program == "salloc") {
      refuse(fmt::format("give the program itself, without {}: the script starts its ranks by srun", program));
    }
    // Each directive is one line of one word, so a text with a space or a line end would be cut or be another option.
    const auto check_text = [](std::string_view option, const std::string& text) {
      const auto is_bad = [](unsigned char c) { return c <= ' ' || c == '#' || c == '"' || c == '\'' || c == 0x7f; };
      if (std::ranges::any_of(text, is_bad)) {
        refuse(fmt::format("{} {}: spaces, quotes and # cannot stand in a line of #SBATCH", option, printable(text)));
      }
    };
    check_text("--partition", request_.partition);
    check_text("--account", request_.account);
    check_text("--qos", request_.qos);
    check_text("--mem", request_.memory);
    check_text("--constraint", request_.constraint);
    check_text("--reservation", request_.reservation);
    check_text("--array", request_.array);
    check_text("--dependency", request_.dependency);
    check_text("--job-name", request_.job_name);
    check_text("--output", request_.output);
    for (const auto& option : request_.options) {
      const bool is_long = option.starts_with("--") && option.find(' ') >= option.find('=');
      if (!is_long) refuse(fmt::format("--sbatch {}: give a long option, --NAME=VALUE", printable(option)));
      check_text("--sbatch", option);
      check_option(option);
      if (is_memory_of_cpu_or_gpu(option) && !request_.memory.empty()) {
        refuse(fmt::format("--sbatch {}: --mem is given too, and Slurm takes one of them", option));
      }
    }
    if (site_.needs_account && request_.account.empty()) {
      refuse(fmt::format("{} bills each job to a project: give --account PROJECT", site_.name));
    }
    if (!request_.overlay.empty() && request_.container.empty()) {
      refuse("--overlay is laid over a container: give --container IMAGE too");
    }
    if (!request_.mounts.empty() && request_.container.empty()) {
      refuse("--bind mounts folders into a container: give --container IMAGE too");
    }
  }

  /// Refuses options that contradict what the script asks for by itself, also by the abbreviations that sbatch knows.
  static void check_option(const std::string& option) {
    constexpr std::pair<std::string_view, std::string_view> kConflicts[] = {
        {"nodes", "-N"},
        {"ntasks", "-N and --ranks-per-node"},
        {"ntasks-per-node", "--ranks-per-node"},
        {"tasks-per-node", "--ranks-per-node"},
        {"ntasks-per-gpu", "--ranks-per-node; each task would have a GPU cgroup of its own"},
        {"gres", "--gpus-per-node; Slurm 26.05 refuses both"},
        {"gpus", "-N and --gpus-per-node"},
        {"gpus-per-node", "yoke's --gpus-per-node"},
        {"gpus-per-task", "--gpus-per-node; GPUs of different tasks could not reach each other"},
        {"cpus-per-gpu", "--cpus-per-rank; steps ignore it before Slurm 23.11"},
        {"cpus-per-task", "--cpus-per-rank"},
        {"gpu-bind", "nothing: each rank takes the GPU of its LOCAL_RANK"},
        {"signal", "--stop-before"},
        {"requeue", "yoke's --requeue N"},
        {"no-requeue", "yoke's --requeue 0"},
        {"wrap", "the program after --"},
        {"wait", "yoke's --wait; sbatch would say the job's number at its end alone"},
        {"test-only", "--dry-run"},
        {"time", "yoke's --time"},
        {"mem", "yoke's --mem"},
        {"partition", "yoke's --partition"},
        {"account", "yoke's --account"},
        {"qos", "yoke's --qos"},
        {"constraint", "yoke's --constraint"},
        {"reservation", "yoke's --reservation"},
        {"array", "yoke's --array"},
        {"dependency", "yoke's --dependency"},
        {"job-name", "yoke's --job-name"},
        {"output", "yoke's --output"},
        {"distribution", "nothing: the ranks of a node follow each other"},
        {"chdir", "`cd` before: the job runs in the folder of its submission"},
        {"gpus-per-socket", "--gpus-per-node"},
        {"ntasks-per-socket", "--ranks-per-node"},
        {"tres-per-task", "--gpus-per-node and --cpus-per-rank"},
    };
    for (const auto& given : check::parse_options(check::kSbatch, {{.text = option}}).given) {
      for (const auto& [name, instead] : kConflicts) {
        if (name == given.spec->name) refuse(fmt::format("--sbatch {}: use {}", option, instead));
      }
    }
  }

  bool has_whole_nodes(const std::string& partition) const {
    return std::ranges::any_of(site_.whole_node_partitions,
                               [&](const auto& one) { return one == "*" || one == partition; });
  }

  void choose_sizes() {
    partition_ = request_.partition.empty() ? site_.partition : request_.partition;
    gpus_ = request_.gpus_per_node.value_or(site_.num_gpus);
    if (!request_.gpus_per_node && site_.num_gpus == 0 && !site_.vendor.empty()) {
      refuse(fmt::format("the site {} does not say how many GPUs a node has: give --gpus-per-node, 0 for none",
                         site_.name));
    }
    if (request_.num_nodes < 1) refuse("-N takes a number of nodes from 1");
    if (site_.num_gpus > 0 && gpus_ > site_.num_gpus) {
      refuse(fmt::format("--gpus-per-node {}: a node of {} has {} GPUs", gpus_, site_.name, site_.num_gpus));
    }
    ranks_ = request_.ranks_per_node.value_or(std::max<int64_t>(gpus_, 1));
    if (ranks_ < 1) refuse("--ranks-per-node takes a number from 1");
    plan_.num_ranks = ranks_ * request_.num_nodes;
    if (gpus_ > 0 && ranks_ > gpus_) {
      plan_.warnings.push_back(
          fmt::format("{} ranks share {} on each node: rank i takes GPU LOCAL_RANK, so ranks beyond the last GPU must "
                      "choose another one themselves",
                      ranks_, counted(gpus_, "GPU")));
    } else if (gpus_ > ranks_) {
      plan_.warnings.push_back(
          fmt::format("{} on each node for {}: a rank takes the GPU of its LOCAL_RANK, so others are idle unless the "
                      "program uses several",
                      counted(gpus_, "GPU"), counted(ranks_, "rank")));
    }
    cpus_ = request_.cpus_per_rank;
    if (!cpus_ && site_.cpus_per_gpu && gpus_ > 0) {
      cpus_ = std::max<int64_t>(*site_.cpus_per_gpu * gpus_ / ranks_, 1);
      decide(counted(*cpus_, "CPU") + " for each rank",
             fmt::format("a GPU's share of a node of {}, also for workers that load data", site_.name));
    }
    if (!cpus_ && gpus_ > 0) {
      plan_.warnings.emplace_back(
          "each rank gets Slurm's default of one CPU, which starves workers that load data; give --cpus-per-rank, or a "
          "site by --site");
    }
    if (cpus_ && site_.num_cpus && *cpus_ * ranks_ > *site_.num_cpus) {
      refuse(
          fmt::format("{} ranks with {} CPUs each are {} CPUs, but a job can have {} of a node of {}: it would never "
                      "run; give --cpus-per-rank {}",
                      ranks_, *cpus_, *cpus_ * ranks_, *site_.num_cpus, site_.name,
                      std::max<int64_t>(*site_.num_cpus / ranks_, 1)));
    }
  }

  void choose_masks() {
    const bool has_node = has_whole_nodes(partition_);
    const bool fits = site_.has_masks() && site_.num_gpus > 0 && gpus_ == site_.num_gpus && ranks_ == gpus_;
    asks_for_exclusive_ = fits && !has_node && has_task_per_rank();
    uses_masks_ = fits && (has_node || asks_for_exclusive_);
  }

  void choose_launcher() {
    const auto program = base_name(request_.argv[0]);
    const auto word = [&](size_t i) { return i < request_.argv.size() ? std::string_view(request_.argv[i]) : ""; };
    const bool is_module =
        word(1) == "-m" && (word(2) == "torch.distributed.run" || word(2) == "torch.distributed.launch");
    is_torchrun_ = program == "torchrun" || (program.starts_with("python") && is_module);
    const bool is_yoke = program == "yoke" && (word(1) == "run" || word(1) == "train");
    const bool is_other =
        program == "deepspeed" || (program == "accelerate" && word(1) == "launch") || program == "mpirun";
    if (is_torchrun_ || is_yoke || is_other) {
      if (request_.launcher == Launcher::kSrun || request_.launcher == Launcher::kYoke) {
        refuse(
            fmt::format("{} starts ranks itself; give the training program alone, or leave out --launcher", program));
      }
      plan_.launcher = Launcher::kItself;
      plan_.stops_with_any_status = is_torchrun_;
      if (is_torchrun_) plan_.stop_signal = "TERM";
      decide("one launcher on each node", fmt::format("{} starts the ranks of its node itself", program));
      if (is_other) {
        plan_.warnings.push_back(
            fmt::format("{} must be told the number of nodes and the rank of its node by its own options: "
                        "$SLURM_NNODES, $SLURM_NODEID, $MASTER_ADDR, $MASTER_PORT",
                        program));
      }
      return;
    }
    const bool is_yoke_wanted =
        request_.launcher == Launcher::kYoke || (request_.launcher == Launcher::kAuto && site_.launcher == "yoke");
    plan_.launcher = is_yoke_wanted ? Launcher::kYoke : Launcher::kSrun;
    if (is_yoke_wanted) {
      decide("one `yoke run` on each node",
             request_.launcher == Launcher::kYoke
                 ? "--launcher yoke: it binds ranks by PCI bus, names the rank that failed and leaves no process"
                 : fmt::format("{} has yoke on its nodes", site_.name));
    } else {
      plan_.has_rank_tasks = request_.container.empty();
      decide(plan_.num_ranks == 1 ? "one task"
             : gpus_ > 0          ? "one task for each GPU"
                                  : "one task for each rank",
             "it needs nothing on the nodes but Slurm; `--launcher yoke` where yoke is installed there");
    }
  }

  void directive(std::string text, std::string why = "") {
    plan_.directives.push_back({std::move(text), std::move(why)});
  }

  /// The CPUs that a rank can use: with masks, those of the smallest one, if the job has more.
  std::optional<int64_t> cpus_of_rank() const {
    auto cpus = cpus_;
    if (uses_masks_ && plan_.launcher != Launcher::kItself) {
      for (const auto& gpu : site_.gpus) cpus = std::min(cpus.value_or(gpu.cpus.size()), gpu.cpus.size());
    }
    return cpus;
  }

  bool has_task_per_rank() const { return plan_.launcher == Launcher::kSrun; }

  void add_directives() {
    const auto option = [&](std::string_view name, const std::string& value, std::string why = "") {
      if (!value.empty()) directive(fmt::format("{}={}", name, value), std::move(why));
    };
    option("--job-name", request_.job_name.empty() ? default_name() : request_.job_name);
    option("--account", request_.account);
    option("--partition", partition_);
    option("--qos", request_.qos);
    option("--constraint", request_.constraint);
    option("--reservation", request_.reservation);
    option("--array", request_.array);
    option("--dependency", request_.dependency);
    directive(fmt::format("--nodes={}", request_.num_nodes));
    directive(fmt::format("--ntasks-per-node={}", has_task_per_rank() ? ranks_ : 1),
              !has_task_per_rank() ? "one launcher, which starts the ranks"
              : ranks_ == gpus_    ? "one rank for each GPU"
                                   : "");
    if (gpus_ > 0) {
      const auto type = site_.gpu_type.empty() ? "" : site_.gpu_type + ":";
      directive(fmt::format("--gpus-per-node={}{}", type, gpus_),
                "each task sees all of them, so that GPUs reach each other");
    }
    if (cpus_) {
      directive(fmt::format("--cpus-per-task={}", has_task_per_rank() ? *cpus_ : *cpus_ * ranks_));
    }
    if (asks_for_exclusive_) {
      directive("--exclusive", "the CPU masks below are right on whole nodes alone");
      decide("whole nodes", "all GPUs of a node are asked for, and CPU masks need the whole node");
    }
    if (!request_.memory.empty()) {
      option("--mem", request_.memory);
    } else if (std::ranges::none_of(request_.options, is_memory_of_cpu_or_gpu)) {
      if (gpus_ > 0) option("--mem-per-gpu", site_.memory_per_gpu);
      if (asks_for_exclusive_ && site_.memory_per_gpu.empty()) option("--mem", "0", "all memory of the nodes");
    }
    if (request_.time.empty()) {
      plan_.warnings.emplace_back(
          "no --time is given: Slurm takes the partition's default, often the longest, and a shorter job starts "
          "sooner");
    } else {
      option("--time", slurm_time(request_.time));
    }
    const auto output = !request_.output.empty() ? request_.output
                        : request_.array.empty() ? std::string("slurm-%j.out")
                                                 : std::string("slurm-%A_%a.out");
    option("--output", output);
    plan_.num_requeues = request_.num_requeues;
    // Of an array, a job's own number can be that of the whole array.
    if (!request_.array.empty()) plan_.job = "${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID";
    if (request_.num_requeues > 0) {
      directive("--open-mode=append", "a requeued job continues the file");
      directive("--requeue", "after a lost node or preemption too");
    } else {
      directive("--no-requeue");
    }
    if (const auto seconds = signal_seconds(); seconds > 0) {
      if (!request_.signal_seconds && seconds < kSignalSeconds) {
        decide(fmt::format("ranks are told to stop {} s before the end", seconds),
               fmt::format("the usual {} s are too long for this --time, because Slurm may be {} s early; "
                           "--stop-before says otherwise",
                           kSignalSeconds, kSignalEarlySeconds));
      }
      directive(fmt::format("--signal=B:USR1@{}", seconds),
                fmt::format("{} s before the end this script tells the ranks to stop", seconds));
    }
    for (const auto& one : site_.options) {
      const auto own = one.substr(0, one.find('='));
      if (own == "--constraint" && !request_.constraint.empty()) continue;
      directive(one);
    }
    for (const auto& one : request_.options) directive(one);
  }

  /// The name of what is trained: "train" for `python -u train.py`.
  std::string default_name() const {
    const auto simplified = [](std::string_view word) {
      std::string text(base_name(word));
      text = text.substr(0, text.rfind('.') == std::string::npos || text.rfind('.') == 0 ? text.npos : text.rfind('.'));
      std::erase_if(text, [](unsigned char c) { return std::isalnum(c) == 0 && c != '-' && c != '_' && c != '.'; });
      return text.substr(0, 40);
    };
    for (size_t i = 0; i < request_.argv.size(); ++i) {
      const auto& word = request_.argv[i];
      const bool is_script = word.ends_with(".py") || word.ends_with(".sh");
      if (is_script && !word.starts_with('-') && !simplified(word).empty()) return simplified(word);
    }
    auto name = simplified(request_.argv[0]);
    if (name == "yoke" && request_.argv.size() > 2) {  // yoke train fashion-mnist, yoke run -n 2 ./train
      const auto last = simplified(request_.argv[1] == "train" ? request_.argv[2] : request_.argv.back());
      if (!last.empty() && !last.starts_with('-')) name = last;
    }
    return name.empty() || name.starts_with('-') ? "job" : name;
  }

  /// Text in double quotes of a shell, where $NAME is replaced.
  static std::string double_quoted(const std::string& value) { return '"' + value + '"'; }

  /// How long before its end the job is told to stop: of a short job, half of the time that is left when Slurm is as
  /// early as it may be.
  int64_t signal_seconds() const {
    const auto minutes = request_.time.empty() ? std::nullopt : check::parse_minutes(slurm_time(request_.time));
    const auto length = std::max<int64_t>(minutes.value_or(0), 0) * 60;  // -1 is UNLIMITED
    if (length == 0) return request_.signal_seconds.value_or(kSignalSeconds);
    const auto most = length - kSignalEarlySeconds;
    if (!request_.signal_seconds) return std::min(kSignalSeconds, most / 2);
    if (*request_.signal_seconds == 0 || *request_.signal_seconds < most) return *request_.signal_seconds;
    refuse(
        fmt::format("--stop-before {}: the job's time is {} s, and Slurm tells it up to {} s earlier than that, so it "
                    "would be told to stop as it begins; give less than {}, 0 for not at all, or a longer --time",
                    *request_.signal_seconds, length, kSignalEarlySeconds, most));
  }

  void add_environment() {
    for (const auto& words : request_.container.empty() ? std::vector<std::string>{} : site_.container_modules) {
      plan_.modules.push_back({words, ""});
    }
    for (const auto& words : site_.modules) plan_.modules.push_back({words, ""});
    for (const auto& words : request_.modules) {
      if (!is_module_text(words)) {
        refuse(fmt::format("--module {}: give the name of a module", printable(words)));
      }
      plan_.modules.push_back({"load " + words, ""});
    }
    plan_.master_suffix = site_.master_suffix;
    const auto add = [&](const std::string& name, const std::string& value, std::string why = "") {
      plan_.exports.push_back({name + '=' + value, std::move(why)});
    };
    if (!site_.nccl_interfaces.empty()) {
      add("NCCL_SOCKET_IFNAME", double_quoted(site_.nccl_interfaces), "the fast network");
    }
    if (!site_.gloo_interface.empty()) add("GLOO_SOCKET_IFNAME", double_quoted(site_.gloo_interface));
    for (const auto& [name, value] : site_.variables) add(name, double_quoted(value));
    if (!site_.cache_folder.empty()) {
      plan_.cache_folder = fmt::format("{}/$USER-$SLURM_JOB_ID", site_.cache_folder);
      for (const auto& name : site_.cache_variables) {
        add(name, double_quoted(fmt::format("{}/{}", plan_.cache_folder, lower_case(name))),
            name == site_.cache_variables.front() ? "caches of this job alone, on each node's own disk" : "");
        plan_.folders.push_back('$' + name);
      }
    }
    if (const auto cpus = cpus_of_rank(); cpus && has_task_per_rank()) {
      add("OMP_NUM_THREADS", std::to_string(*cpus), "the CPUs of a rank");
    }
    const auto is_unbuffered = [](const auto& variable) { return variable.first == "PYTHONUNBUFFERED"; };
    if (std::ranges::none_of(request_.variables, is_unbuffered)) {
      add("PYTHONUNBUFFERED", "1", "lines of Python appear when they are printed");
    }
    for (const auto& [name, value] : request_.variables) {
      if (is_of_ranks(name)) refuse(fmt::format("--env {}: the script and Slurm set this variable themselves", name));
      add(name, shell_word(value));
    }
    if (is_torchrun_) {
      add("PET_NNODES", "\"$SLURM_NNODES\"", "torchrun takes PET_* as defaults of its options");
      add("PET_NPROC_PER_NODE", std::to_string(ranks_));
      add("PET_MASTER_ADDR", "\"$MASTER_ADDR\"");
      add("PET_MASTER_PORT", "\"$MASTER_PORT\"");
      plan_.rank_exports.push_back({"PET_NODE_RANK=$SLURM_NODEID", ""});
      decide("torchrun's static rendezvous",
             "its default one compares names of hosts, which fails where a node has two");
    } else if (has_task_per_rank()) {
      plan_.rank_exports = {
          {"RANK=$SLURM_PROCID", ""}, {"LOCAL_RANK=$SLURM_LOCALID", ""}, {"GROUP_RANK=$SLURM_NODEID", ""}};
      add("WORLD_SIZE", std::to_string(plan_.num_ranks));
      add("LOCAL_WORLD_SIZE", std::to_string(ranks_));
    }
  }

  void add_step() {
    auto& step = plan_.step;
    const auto because = [&](std::string what, std::string why) {
      plan_.step_reasons.push_back({std::move(what), std::move(why)});
    };
    step.emplace_back("--kill-on-bad-exit=1");
    because("--kill-on-bad-exit=1", "the first rank that fails ends the others");
    if (request_.has_file_per_rank) {
      step.push_back(fmt::format("--output=slurm-{}-{}.out", request_.array.empty() ? "%j" : "%A_%a",
                                 has_task_per_rank() ? "rank%t" : "node%n"));
    } else if (has_task_per_rank() && plan_.num_ranks > 1) {
      step.emplace_back("--label");
      because("--label", "each line begins with its rank");
    }
    if (!has_task_per_rank()) {
      if (cpus_) step.push_back(fmt::format("--cpus-per-task={}", *cpus_ * ranks_));
      step.emplace_back("--cpu-bind=none");
      because("--cpu-bind=none", plan_.launcher == Launcher::kYoke
                                     ? "yoke run binds each rank to the CPUs near its GPU"
                                     : "the launcher's ranks may use all CPUs of the job");
      if (uses_masks_ && is_torchrun_) {
        plan_.warnings.push_back(
            fmt::format("torchrun does not bind its ranks to the CPUs near their GPUs, which matters on {}; give the "
                        "training program alone, or --numa-binding=node to a torchrun that has it",
                        site_.name));
      }
      return;
    }
    if (uses_masks_) {
      std::vector<std::string> masks;
      for (const auto& gpu : site_.gpus) masks.push_back(gpu.cpus.to_mask());
      step.push_back(fmt::format("--cpu-bind=mask_cpu:{}", fmt::join(masks, ",")));
      because("--cpu-bind", fmt::format("the CPUs near each GPU of {}, GPU 0 first", site_.name));
      const auto cpus = *cpus_of_rank();
      decide("CPU masks of the site",
             fmt::format("each rank runs beside its GPU{}; the jobs have whole nodes, where masks are right",
                         cpus_ && cpus < *cpus_ ? fmt::format(", on {} of these CPUs", cpus) : ""));
      if (!version_ || *version_ >= kInheritsCpus) {
        plan_.unset.push_back({"SLURM_CPUS_PER_TASK", "with masks a step must have all CPUs of the node:"});
        plan_.unset.push_back({"SLURM_TRES_PER_TASK", "from Slurm 23.11 on these two would make it smaller"});
      }
      return;
    }
    if (cpus_) {
      step.push_back(fmt::format("--cpus-per-task={}", *cpus_));
      because("--cpus-per-task", "srun does not take it from the job in Slurm 22.05 to 23.02");
    }
    if (site_.has_masks() && !uses_masks_) {
      decide("Slurm's own CPU binding", "the site's masks are right on whole nodes with a rank for each GPU alone");
    }
  }

  void add_program() {
    auto& command = plan_.command;
    if (plan_.launcher == Launcher::kYoke) {
      for (auto word : {"yoke", "run", "-n"}) command.emplace_back(word);
      command.push_back(std::to_string(ranks_));
      command.emplace_back("--");
    }
    if (!request_.container.empty()) {
      auto words = site_.container;
      if (words.empty()) {
        words = {"apptainer", "exec"};
        if (!site_.sources.empty()) {  // it is the file of one cluster
          plan_.warnings.push_back(
              fmt::format("the file of {} does not say how containers are started there, so the script uses apptainer; "
                          "`[container] command` of a site's file says it",
                          site_.name));
        }
        if (site_.vendor == "nvidia") words.emplace_back("--nv");
        if (site_.vendor == "amd") words.emplace_back("--rocm");
      }
      command.insert(command.end(), words.begin(), words.end());
      for (const auto& mount : request_.mounts) {
        command.emplace_back("-B");
        command.push_back(mount);
      }
      if (!request_.overlay.empty()) {
        const auto form = site_.container_overlay.empty() ? "--overlay {}:ro" : site_.container_overlay;
        for (const auto part : words_of(form)) command.push_back(replaced(std::string(part), "{}", request_.overlay));
      }
      command.push_back(request_.container);
    }
    for (const auto& word : request_.argv) command.push_back(filled(word));
  }

  static std::string replaced(std::string text, std::string_view what, const std::string& by) {
    for (auto at = text.find(what); at != text.npos; at = text.find(what, at + by.size())) {
      text.replace(at, what.size(), by);
    }
    return text;
  }

  /// A word such as {cpu} is probably meant for {cpus}; it stays, because programs have braces of their own.
  void warn_of_misspelt() {
    for (const auto& word : request_.argv) {
      for (auto at = word.find('{'); at != word.npos; at = word.find('{', at + 1)) {
        const auto end = word.find('}', at);
        if (end == word.npos) break;
        const auto text = word.substr(at + 1, end - at - 1), name = lower_case(text);
        if (text == "cpus" || text == "gpus" || (at > 0 && word[at - 1] == '$')) continue;
        const auto is_like = [&](std::string_view known) {
          return name == known || edit_distance(name, known) <= 1 || name.ends_with(fmt::format("_{}", known));
        };
        const auto meant = is_like("cpus") ? "cpus" : is_like("gpus") ? "gpus" : nullptr;
        if (meant == nullptr) continue;
        plan_.warnings.push_back(fmt::format("{} stays as it is; {{{}}} is replaced by the number of {}",
                                             printable(word.substr(at, end - at + 1)), meant,
                                             meant[0] == 'c' ? "CPUs of a rank" : "GPUs of a node"));
      }
    }
  }

  std::string filled(const std::string& word) const {
    const auto with_cpus = replaced(word, "{cpus}", std::to_string(cpus_of_rank().value_or(1)));
    return replaced(with_cpus, "{gpus}", std::to_string(gpus_));
  }

  void add_title() {
    auto text = counted(request_.num_nodes, "node");
    if (gpus_ > 0) text += fmt::format(", {} on each", counted(gpus_, "GPU"));
    text += fmt::format(", {}", counted(plan_.num_ranks, "rank"));
    plan_.title.push_back(fmt::format("{} (site {}, Slurm {}). `yoke slurm script` wrote this; it needs no yoke{}.",
                                      text, site_.name, version_ ? to_text(*version_) : "22.05 to 26.05",
                                      plan_.launcher == Launcher::kYoke ? " on the login node" : ""));
    for (const auto& [what, why] : plan_.decisions) plan_.title.push_back(fmt::format("  {}: {}.", what, why));
  }

  const Request& request_;
  const Site& site_;
  const std::optional<Version>& version_;
  ScriptPlan plan_;
  std::string partition_;
  int64_t gpus_ = 0, ranks_ = 1;
  std::optional<int64_t> cpus_;
  bool asks_for_exclusive_ = false, uses_masks_ = false, is_torchrun_ = false;
};

}  // namespace

ScriptPlan plan_script(const Request& request, const Site& site, const std::optional<Version>& version) {
  return Planner(request, site, version).plan();
}

}  // namespace yoke::slurm
