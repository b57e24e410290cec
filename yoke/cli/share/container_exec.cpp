// `yoke container exec`: run another program in a container that `yoke container run` has started.
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "yoke/base/error.h"
#include "yoke/base/process.h"
#include "yoke/base/text.h"
#include "yoke/cli/options/container.h"
#include "yoke/cli/options/value.h"
#include "yoke/cli/share/container.h"
#include "yoke/container/exec.h"
#include "yoke/device/process/info.h"
#include "yoke/keep/kept_containers.h"

namespace yoke::cli {
namespace {

namespace fs = std::filesystem;

/// Whether the process is in another user namespace than this one. Errors  kPermissionDenied: it is another user's.
bool has_own_users(const keep::KeptContainerRow& row, pid_t pid) {
  std::error_code error;
  const auto theirs = fs::read_symlink("/proc/" + std::to_string(pid) + "/ns/user", error);
  if (error) throw system_error(error.value(), "looking at the namespaces of " + row.text("name"));
  const bool is_same = theirs == fs::read_symlink("/proc/self/ns/user");
  if (is_same && geteuid() != 0) {
    throw Error(ErrorCode::kPermissionDenied,
                "{} runs under an apptainer with the setuid bit, so no more programs can be run in it; run them "
                "beside the first one, as in `yoke container run IMAGE -- sh -c 'first & second'`",
                printable(row.text("name")));
  }
  return !is_same;
}

int exec_in_container(const ContainerOptions& options, Context& context) {
  auto program = context.rest;
  if (program.size() < 2 || (program.size() == 2 && program[1] == "--")) {
    refuse("say in which container, and what to run there, as in `yoke container exec NAME -- bash`");
  }
  const auto row = keep::find_container(program[0]);
  program.erase(program.begin(), program.begin() + (program[1] == "--" ? 2 : 1));
  if (!row.json->at("pid").is_number()) {
    throw Error(ErrorCode::kUnavailable, "{} is starting, and no program runs in it yet; try again",
                printable(row.text("name")));
  }
  const auto engine = container::parse_engine_kind(row.text("engine")).value_or(container::EngineKind::kPodman);
  const bool is_apptainer = engine == container::EngineKind::kApptainer;
  if (row.socket.uid != geteuid() && engine == container::EngineKind::kPodman) {
    throw Error(ErrorCode::kPermissionDenied, "{} belongs to {}, and podman lets only that user into it",
                printable(row.text("name")), printable(row.text("user")));
  }
  // Its files and programs are that user's, and would be run by root.
  if (is_apptainer && row.socket.uid != geteuid()) {
    throw Error(ErrorCode::kPermissionDenied, "{} belongs to {}, and only that user may run programs in it",
                printable(row.text("name")), printable(row.text("user")));
  }
  container::ExecRequest request{.name = row.text("name"),
                                 .pid = row.json->at("pid").get<pid_t>(),
                                 .program = std::move(program),
                                 .foreground = foreground_of_streams(),
                                 .variables = variables_of_user(options, context.environment)};
  if (is_apptainer) request.has_own_users = has_own_users(row, request.pid);
  if (!options.working_folder.empty()) request.working_folder = working_folder_inside(options);
  const auto tool = is_apptainer ? "nsenter" : container::name(engine);
  const auto path = find_tool(tool, context.environment);
  if (!path) {
    throw Error(ErrorCode::kNotFound, "PATH has no program {}{}", tool,
                is_apptainer ? ", of the package util-linux" : "");
  }
  const auto client = container::plan_exec(engine, *path, request);
  context.out.flush();
  // podman looks for the subordinate ids of this user by its name in the environment.
  for (const auto* name : {"USER", "LOGNAME"}) context.environment.set(name, device::user_name(geteuid()));
  const auto& argv = client.argv;
  const auto variables = client.environment(context.environment).to_strings();
  execve(argv[0].c_str(), exec_pointers(argv).data(), exec_pointers(variables).data());
  throw system_error(errno, "executing " + argv[0]);
}

}  // namespace

void add_container_exec(CLI::App& cmd, Context& context) {
  auto& args = add_args<ContainerOptions>(cmd, context, exec_in_container);
  add_variables(cmd, args);
  add_working_folder(cmd, args, "The folder in which the program starts; otherwise that of the container");
  cmd.add_flag("-i,--interactive,-t,--tty")->group("");  // docker's; always so here
  add_program(cmd, "NAME", "A container of `yoke container ps`, and after it the program");
  cmd.footer(
      examples("  yoke container exec ada_pytorch-1f3a -- bash\n"
               "  yoke container exec ada_pytorch-1f3a -- nvidia-smi\n"
               "\n"
               "The program has the user, the variables and the devices of the container, and ends with it at the\n"
               "latest. It does not keep the container alive.\n"
               "\n"
               "Exit status: the program's; 126 and 127 if it cannot be executed or is not found."));
}

}  // namespace yoke::cli
