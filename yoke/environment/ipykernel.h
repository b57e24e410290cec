// yoke/environment/ipykernel.h -- prepares what runs the cells of a kernel: the package ipykernel, or a compiled
// header.
#pragma once

#include "yoke/base/tell.h"
#include "yoke/environment/kernel_spec.h"
#include "yoke/environment/step.h"

namespace yoke::environment {

/// Imports ipykernel in this Python. `installs`: pip installs it if it is missing.
/// Errors  kFailedPrecondition: it is missing or broken; the message has the command that installs it.
void require_ipykernel(const PythonToAsk& asked, bool installs);

/// The same in a container that is started as the kernel of `request` will be, which shows the reason on standard
/// error. `name`: of its image, or of what extends it.
void require_ipykernel_in_image(const KernelRequest& request, const std::string& name, const Environment& environment);

/// Compiles what a C++ kernel needs, so that it starts at once, and sets `request.cpp_folder`.
/// Errors  as errno says: no folder can be made; kFailedPrecondition: it does not compile.
void prepare_cpp(KernelRequest& request, const Environment& environment, const Tell& tell);

}  // namespace yoke::environment
