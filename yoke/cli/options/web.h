// yoke/cli/options/web.h -- what the commands that serve the page share.
#pragma once

#include <string_view>

#include "yoke/cli/command.h"
#include "yoke/cli/options/device.h"
#include "yoke/web/server.h"

namespace yoke::cli {

/// What the server reads. `yoke topo` shows links. `yoke devices -i` shows PCIe traffic, which takes NVML 40 ms to
/// measure.
inline constexpr device::Want kServedWant{.details = true, .process_utilization = true, .origins = true};

/// Serves until SIGTERM or SIGINT. Prints the URL of `path` when the server is ready. Claims are shown unless the
/// devices are those of a recording or of another machine.
/// Errors  those of web::Server.
void serve(const web::ServerOptions& options, std::string_view path, const DeviceOptions& device,
           device::Source& source, Context& context);

}  // namespace yoke::cli
