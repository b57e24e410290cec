// yoke/environment/kernel_process.h -- what a process that starts a kernel of Jupyter does besides its claim.
#pragma once

#include <string>
#include <vector>

#include "yoke/base/environment.h"

namespace yoke::environment {

/// The program, in share/yoke/python/kernels, that answers every cell with a reason.
inline constexpr const char* kRefusalScript = "yoke_refusal_kernel.py";

/// The file of ports and the key, which Jupyter writes and names by -f; nullptr: the command line names none. Pure.
const std::string* connection_file(const std::vector<std::string>& kernel);

/// The command line that answers every cell with `reason`, in place of the command line `kernel`. Without this, Jupyter
/// would only say that a kernel died. `script` is the path of kRefusalScript. Pure.
std::vector<std::string> refusal_command(const std::vector<std::string>& kernel, const std::string& script,
                                         const std::string& reason);

/// Starts a process that ends this one when the Jupyter server is gone, of which `environment` has the PID. A kernel
/// looks for the end of the server by itself, but this process is its parent and hides it.
void end_with_server(const Environment& environment);

}  // namespace yoke::environment
