// `yoke metrics`: print or serve the state of the devices and their processes, for Prometheus.
#include <nlohmann/json.hpp>

#include "yoke/cli/command.h"
#include "yoke/cli/options/claim.h"
#include "yoke/cli/options/device.h"
#include "yoke/cli/options/value.h"
#include "yoke/cli/options/web.h"
#include "yoke/web/prometheus.h"

namespace yoke::cli {
namespace {

struct MetricsArgs {
  DeviceOptions device;
  CLI::Option* serve = nullptr;
  CLI::Option* max_age = nullptr;
  std::string address;
  double max_age_s = 1;
};

int run_metrics(const MetricsArgs& args, Context& context) {
  if (args.max_age->count() > 0 && args.serve->count() == 0) {
    refuse("--max-age is for --serve; a page that is printed is always new");
  }
  const auto address = web::parse_address(args.address);
  return with_source(args.device, context, [&](device::Source& source) {
    if (args.serve->count() > 0) {
      web::ServerOptions options{.address = address};
      options.max_age = std::chrono::round<std::chrono::milliseconds>(std::chrono::duration<double>(args.max_age_s));
      serve(options, "/metrics", args.device, source, context);
    } else {
      const auto snapshot = source.sample(kServedWant);
      const auto claims = args.device.replay.empty() ? view_claims(snapshot, context).to_json() : nullptr;
      context.out << web::to_prometheus(snapshot, claims);
    }
    return kExitOk;
  });
}

}  // namespace

void add_metrics(CLI::App& cmd, Context& context) {
  auto& args = add_args<MetricsArgs>(cmd, context, run_metrics);
  args.serve = add_value(cmd, "--serve", args.address, "ADDR:PORT",
                         "Serve /metrics, the page of `yoke top --web` and JSON until stopped; unless given at "
                         "127.0.0.1:19477, where only this machine can read them. Port 0: any free one")
                   ->expected(0, 1);
  args.max_age = add_number(cmd, "--max-age", args.max_age_s, {"SECONDS", 0, 3600},
                            "Answer with a sample that is no older; else take a new one");
  add_device_options(cmd, args.device);
  cmd.footer(
      examples("  yoke metrics                        once\n"
               "  yoke metrics --serve                for a Prometheus on this machine\n"
               "  yoke metrics --serve 10.1.2.3:9400  for others, too: without a password\n"
               "  curl -s 127.0.0.1:19477/devices.json\n"
               "\n"
               "Exit status: 0; the server ends with it on SIGTERM and Ctrl-C."));
}

}  // namespace yoke::cli
