// `yoke container run`: start a container that has claimed devices, and check in it that it has them.
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include "yoke/base/process.h"
#include "yoke/cli/frame/attempt.h"
#include "yoke/cli/options/container.h"
#include "yoke/cli/options/container_folders.h"
#include "yoke/cli/options/value.h"
#include "yoke/cli/share/container.h"
#include "yoke/container/config.h"

namespace yoke::cli {
namespace {

struct ContainerRunArgs : ContainerOptions {
  bool json = false;
  bool is_interactive = false, has_terminal = false, is_removed = false;  ///< Habits from docker: always so here.
};

/// The image and the command. The words of the command line have a "--" right before Context::rest if the site's image
/// is wanted.
ImageAndCommand split_rest(const Context& context, const container::SiteRules& rules) {
  auto rest = context.rest;
  const auto begin = context.words.size() - rest.size();
  const bool has_image = !rest.empty() && !(begin > 0 && context.words[begin - 1] == "--");
  ImageAndCommand result;
  if (has_image) {
    result.image = rest[0];
    rest.erase(rest.begin());
    if (!rest.empty() && rest[0] == "--") rest.erase(rest.begin());
  } else if (rules.default_image) {
    result.image = *rules.default_image;
  } else {
    refuse("say which image, as in `yoke container run IMAGE -- python train.py`; this site has no default_image");
  }
  result.command = std::move(rest);
  return result;
}

int print_container(const ContainerRunArgs& args, KeptContainer kept, Context& context) {
  int status = kExitOk;
  if (!take_devices(args, device_wish(args), kept, context, status)) return status;
  kept.request.meeting = keep::meeting_parent(context.environment) / ".yoke-container-XXXXXX";
  const auto grant = container::grant_devices(kept.engine, kept.devices);
  const auto words = container::plan_container(kept.engine, kept.request, grant).words(context.environment);
  if (args.json) {
    print_json(nlohmann::json(words), context);
  } else {
    for (const auto& word : words) context.out << word << '\n';
  }
  return kExitOk;
}

/// Why docker may have no GPU to give. It finds NVIDIA's hook in the PATH of its daemon, which is usually that of all.
std::string note_on_toolkit(const container::Engine& engine, const Context& context) {
  std::error_code ignored;
  const bool needs_hook = engine.kind == container::EngineKind::kDocker && !engine.has_cdi &&
                          std::filesystem::exists("/dev/nvidiactl", ignored);
  if (!needs_hook || find_tool("nvidia-container-runtime-hook", context.environment)) return "";
  return "docker gives GPUs to containers by the NVIDIA Container Toolkit, which is not in PATH; the administrator "
         "installs it and restarts docker. --gpu none does without a device";
}

int run_container_command(ContainerRunArgs args, Context& context) {
  // -i is a name of --device, so docker's -it has come as the device "t".
  if (std::erase(args.device.chosen, "t") > 0) args.is_interactive = true;
  if (args.json && !args.prints) refuse("--json is for --print");
  if (args.is_interactive || args.has_terminal || args.is_removed) {
    std::cerr << speaker(context)
              << "note: leave -i, -t and --rm out: a container has your input, a terminal if you "
                 "have one, and is removed when it ends\n";
  }
  const auto wish = device_wish(args);  // before anything is downloaded
  auto kept = describe_container(args, split_rest(context, container::read_rules(context.environment)), context);
  if (args.prints) return print_container(args, std::move(kept), context);
  const auto name = kept.request.name;
  auto notes = notes_on_private_mounts(kept.engine, kept.request, storage::read_mounts());
  if (const auto note = note_on_toolkit(kept.engine, context); !wish.is_none && !note.empty()) notes.push_back(note);
  const int result = run_container(
      context,
      [&](int& status) -> std::optional<KeptContainer> {
        if (!take_devices(args, wish, kept, context, status)) return std::nullopt;
        return std::move(kept);
      },
      args.detaches);
  if (result == keep::kEngineFailed) {
    for (const auto& note : notes) std::cerr << speaker(context) << "note: " << note << '\n';
  }
  if (args.detaches && result == kExitOk) context.out << name << std::endl;
  return result;
}

}  // namespace

void add_container_run(CLI::App& cmd, Context& context) {
  auto& args = add_args<ContainerRunArgs>(cmd, context, run_container_command);
  add_container_options(cmd, args);
  add_value(cmd, "--gpu,--gpus", args.gpu, "N|IDS|none",
            "How many devices to claim, or which (0,1 or UUIDs); none or \"\" for no device. Otherwise 1");
  add_device_choice(cmd, args.device.chosen, "-d,--device", "Take these devices: ids as in `yoke devices`",
                    ChoiceForm::kOneWord);
  add_value(cmd, "--name", args.name, "TEXT",
            "The name of the container is USER_TEXT; otherwise the image's name and a number");
  add_working_folder(cmd, args, "The folder in which the program starts; otherwise /workspace");
  add_value(cmd, "--env-file", args.variable_files, "FILE",
            "Set the variables of this file: lines of NAME=VALUE or NAME")
      ->take_all();
  cmd.add_flag("--interactive", args.is_interactive)->group("");  // these three are docker's
  cmd.add_flag("-t,--tty", args.has_terminal)->group("");
  cmd.add_flag("--rm", args.is_removed)->group("");
  add_value(cmd, "--network", args.network, "NETWORK", "The engine's network: host, none, or a name");
  add_value(cmd, "--shm-size", args.shared_memory, "SIZE",
            "A /dev/shm of this size, such as 16GiB, instead of the host's");
  add_value(cmd, "-m,--memory", args.memory, "SIZE", "The most memory that the container may use, such as 64GiB");
  add_value(cmd, "--cpus", args.cpus, "CPUS", "The most processor time, in CPUs, such as 8 or 1.5");
  add_value(cmd, "-p,--publish", args.ports, "[ADDRESS:]PORT:PORT",
            "Open a port of the container on this machine; without an address, for this machine alone")
      ->take_all();
  add_value(cmd, "--for", args.length, "TIME", "How long: 90s, 30m, 4h, 1d12h. The container is then ended (SIGTERM)");
  add_value(cmd, "--wait", args.wait, "[TIMEOUT]", "Queue until devices are free, for at most TIMEOUT (10m, 2h)");
  cmd.add_flag("--detach", args.detaches, "Print the container's name when its program starts, and return");
  cmd.add_flag("--print", args.prints, "Print the engine's command line, an argument a line, and start nothing");
  cmd.add_flag("--json", args.json, "With --print: print a JSON list");
  add_deadline(cmd, args.deadline_s);
  add_program(cmd, "IMAGE", "The image, and after it the program; without IMAGE, the site's, as in `-- bash`");
  cmd.footer(
      examples("  yoke container run ngc/pytorch:25.05-py3 -- python train.py\n"
               "  yoke container run --gpu 2 --wait -v /data:/data:ro my-image -- yoke run -n 2 -- ./train\n"
               "  yoke container run --gpu none debian:12 -- bash\n"
               "  yoke container run --engine apptainer ./lab.sif -- python train.py\n"
               "  yoke container run --gpu 2 --print my-image    the command line that would start it\n"
               "\n"
               "Exit status: the program's; 69 if the container does not have the devices that it should, 75 if not\n"
               "enough devices are free, 124 if the wait took too long, 125 if the engine could not start it,\n"
               "126 and 127 if the program cannot be executed or is not found."));
}

}  // namespace yoke::cli
