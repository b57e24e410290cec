// `yoke jupyter start`: become or keep a kernel that holds a claim, in a container or without one. Jupyter runs it.
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <iostream>

#include "yoke/base/error.h"
#include "yoke/base/process.h"
#include "yoke/base/text.h"
#include "yoke/cli/frame/attempt.h"
#include "yoke/cli/frame/teller.h"
#include "yoke/cli/options/claim.h"
#include "yoke/cli/options/container.h"
#include "yoke/cli/options/value.h"
#include "yoke/cli/share/jupyter.h"
#include "yoke/environment/kernel_process.h"
#include "yoke/keep/run.h"

namespace yoke::cli {
namespace {

struct StartArgs {
  std::string name, image;
  environment::KernelDevices devices;
  ContainerOptions container;
};

/// Why a kernel has no devices, for people who see it in a notebook and cannot give an option.
std::string reason_in_notebook(const Error& error) {
  const auto* const refused = dynamic_cast<const keep::Refused*>(&error);
  if (refused == nullptr || refused->refusal.next.empty()) return error.what();
  return refused->refusal.why + "; see `yoke claims`";
}

constexpr const char* kNoAnswer = "the drivers do not answer, so no device can be claimed; `yoke doctor` says more";

/// Becomes a kernel that answers every cell with `reason`. Without this, Jupyter would only say that a kernel died.
/// Returns the exit status if that fails.
int exec_refusal(const std::string& reason, int status, Context& context) {
  std::cerr << speaker(context) << printable(reason) << std::endl;
  if (environment::connection_file(context.rest) == nullptr) return status;
  const auto script = context.installation.share / "python" / "kernels" / environment::kRefusalScript;
  const auto argv = environment::refusal_command(context.rest, script.string(), reason);
  execve(argv[0].c_str(), exec_pointers(argv).data(), exec_pointers(context.environment.to_strings()).data());
  std::cerr << speaker(context) << system_error(errno, "cannot start " + argv[0]).what() << std::endl;
  return status;
}

/// The container of a kernel, which reaches Jupyter by the host's loopback.
KeptContainer describe_kernel(const StartArgs& args, std::vector<std::string> command,
                              std::vector<container::Mount> mounts, Context& context) {
  auto options = args.container;
  options.network = "host";
  options.name = name_with_number(args.name);
  // Without a server's PID, ipykernel tells its user on standard output how to connect. PID 1 is no server to watch.
  options.variables.insert(options.variables.end(), {"JPY_SESSION_NAME", "JPY_PARENT_PID=1"});
  options.own_mounts = std::move(mounts);
  const auto* const connection = environment::connection_file(context.rest);
  if (connection != nullptr) options.own_mounts.push_back({*connection, *connection});
  auto kept = describe_container(options, {.image = args.image, .command = std::move(command)}, context);
  kept.ends_with_command = true;
  return kept;
}

/// A kernel that answers every cell with `reason`, in a container without devices.
KeptContainer describe_refusal(const StartArgs& args, const std::string& reason, Context& context) {
  std::cerr << speaker(context) << printable(reason) << std::endl;
  constexpr const char* kKernelsInside = "/opt/yoke/kernels";
  auto command = environment::refusal_command(
      context.rest, fmt::format("{}/{}", kKernelsInside, environment::kRefusalScript), reason);
  const auto scripts = context.installation.share / "python" / "kernels";
  return describe_kernel(args, std::move(command), {{scripts.string(), kKernelsInside, true}}, context);
}

int start_in_container(StartArgs args, Context& context) {
  environment::end_with_server(context.environment);
  const auto& devices = args.devices;
  DeviceWish wish = {.is_none = !devices.is_claimed(), .num_devices = devices.num_devices};
  if (!devices.chosen.empty()) wish.ids = {devices.chosen};
  args.container.length = devices.length;
  args.container.purpose = "notebook " + args.name;
  auto kept = describe_kernel(args, context.rest, {}, context);
  return run_container(
      context,
      [&](int& status) -> std::optional<KeptContainer> {
        std::string reason = kNoAnswer;
        try {
          if (take_devices(args.container, wish, kept, context, status)) return std::move(kept);
        } catch (const Error& error) {
          reason = reason_in_notebook(error);
        }
        return describe_refusal(args, reason, context);
      },
      false);
}

int start_kernel(const StartArgs& args, Context& context) {
  if (context.rest.empty()) refuse("say what to start, as `yoke jupyter install` does");
  if (!args.image.empty()) return start_in_container(args, context);
  std::optional<ClaimSite> site;
  std::optional<keep::Acquired> acquired;
  keep::AcquireOptions options;
  int status = kExitOk;
  std::string reason;
  try {
    site.emplace(open_claim_site(context, SiteUse::kTake));
    const auto& devices = args.devices;
    if (!devices.chosen.empty()) options.device.chosen = {devices.chosen};
    options.request.wish.num_devices = devices.num_devices.value_or(devices.chosen.empty() ? 1 : 0);
    options.request.length = length_of_claim(devices.length, site->config);
    options.request.note.purpose = "notebook " + args.name;
    acquired = acquire(options, *site, context, status);
    reason = kNoAnswer;
  } catch (const Error& error) {
    status = exit_status(error.code());
    reason = reason_in_notebook(error);
  }
  if (!acquired) return exec_refusal(reason, status, context);
  environment::end_with_server(context.environment);
  return keep::run(*acquired, context.rest, context.environment, teller(context));
}

}  // namespace

void add_kernel_devices(CLI::App& cmd, environment::KernelDevices& devices) {
  add_number(cmd, "--claim", devices.num_devices, {"N", 1, 128, "devices"}, "Claim N devices while the kernel lives");
  add_value(cmd, "--devices", devices.chosen, "ID,ID...",
            "Claim these devices: ids as in `yoke devices`; with --claim, N of them");
  add_value(cmd, "--for", devices.length, "TIME",
            "The longest time of the claim, such as 8h; the kernel is then ended");
}

void add_jupyter_start(CLI::App& cmd, Context& context) {
  auto& args = add_args<StartArgs>(cmd, context, start_kernel);
  cmd.group("");  // Jupyter runs it
  add_value(cmd, "--name", args.name, "NAME", "The name of the kernel");
  add_value(cmd, "--image", args.image, "IMAGE", "Start it in a container of this image");
  add_container_options(cmd, args.container, "-e,--variable");
  add_kernel_devices(cmd, args.devices);
  add_program(cmd, "PROGRAM", "The kernel and its arguments");
  cmd.footer(examples("  yoke jupyter start --claim 1 -- python -m ipykernel_launcher -f FILE"));
}

}  // namespace yoke::cli
