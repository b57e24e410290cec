#include "yoke/cli/options/allocation.h"

#include <iostream>

#include "yoke/cli/frame/attempt.h"
#include "yoke/cli/options/value.h"

namespace yoke::cli {

CLI::Option* add_in_option(CLI::App& command, std::string& name) {
  return add_value(
      command, "--in", name, "JOB",
      "In an allocation that `yoke alloc` holds: its job's id, its name, or `last` for the only one; or in "
      "another running job of yours");
}

cluster::OpenAllocation open_allocation(const std::string& name, const Context& context) {
  auto result = cluster::open_allocation(name, context.installation.executable.string(), context.environment);
  if (!result.note.empty()) std::cerr << speaker(context) << result.note << std::endl;
  return result;
}

}  // namespace yoke::cli
