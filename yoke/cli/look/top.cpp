// `yoke top`: show devices, the machine and its processes on a live page of the terminal.
#include <unistd.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "yoke/cli/command.h"
#include "yoke/cli/frame/output.h"
#include "yoke/cli/options/claim.h"
#include "yoke/cli/options/color.h"
#include "yoke/cli/options/device.h"
#include "yoke/cli/options/value.h"
#include "yoke/cli/options/web.h"
#include "yoke/device/json.h"
#include "yoke/tui/app.h"

namespace yoke::cli {
namespace {

struct TopArgs {
  DeviceOptions device;
  double interval_s = 1;
  CLI::Option* interval = nullptr;
  bool once = false;
  bool json = false;
  bool readonly = false;
  bool web = false;
  std::string listen;
  ColorMode color = ColorMode::kAuto;
};

tui::AppOptions to_options(const TopArgs& args, const Context& context) {
  if (args.interval->count() > 0 && (args.json || args.once)) {
    refuse("{} prints once, and --interval is for a page that changes; `yoke devices{} --watch {}` repeats",
           args.json ? "--json" : "--once", args.json ? " --json" : "", args.interval_s);
  }
  tui::AppOptions options;
  options.sampling.interval =
      std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::duration<double>(args.interval_s));
  if (!args.device.sysroot.empty()) options.sampling.sysroot = args.device.sysroot;
  if (args.device.sysroot.empty() && args.device.replay.empty()) {
    options.sampling.read_claims = [&context](const auto& snapshot) { return view_claims(snapshot, context).rows; };
  }
  options.sampling.is_recording = !args.device.replay.empty();
  // Processes in a recording or below a --sysroot cannot be signalled from here.
  options.is_readonly = args.readonly || !args.device.sysroot.empty();
  return options;
}

int print_state(const TopArgs& args, device::Source& source, Context& context) {
  device::Want want = device::Want::everything();
  want.pcie_throughput = false;
  const auto snapshot = source.sample(want);
  const auto claims = args.device.replay.empty() ? view_claims(snapshot, context) : ClaimsView{.problem = "recorded"};
  auto json = device::to_json(snapshot);
  add_claims(json, device::DeviceSelection().resolve(snapshot), claims.problem.empty() ? &claims.rows : nullptr);
  print_json(json, context);
  std::cerr << mistake_line(claims, context);
  return kExitOk;
}

int serve_page(const TopArgs& args, Context& context) {
  if (args.json || args.once || args.interval->count() > 0) {
    refuse("--web serves a page that changes every 2 s; {} is not for it", args.json   ? "--json"
                                                                           : args.once ? "--once"
                                                                                       : "--interval");
  }
  const web::ServerOptions options{.address = web::parse_address(args.listen)};
  return with_source(args.device, context, [&](device::Source& source) {
    serve(options, "/", args.device, source, context);
    return kExitOk;
  });
}

int run_top(const TopArgs& args, Context& context) {
  if (args.web) return serve_page(args, context);
  const auto options = to_options(args, context);
  return with_source(args.device, context, [&](device::Source& source) {
    if (args.json) return print_state(args, source, context);
    const auto glyphs = tui::prepare_locale(context.environment);
    if (!args.once && isatty(STDIN_FILENO) != 0 && isatty(STDOUT_FILENO) != 0) {
      if (auto terminal = tui::Terminal::open(wants_color(args.color, context.environment, true))) {
        return tui::run(source, std::move(terminal), glyphs, options);
      }
      std::cerr << "yoke top: this terminal (TERM=" << printable(context.environment.value_or("TERM", ""))
                << ") cannot show a page that changes; printing it once\n";
    }
    context.out << tui::print_once(source, options.sampling, glyphs, output_width(context));
    return kExitOk;
  });
}

}  // namespace

void add_top(CLI::App& cmd, Context& context) {
  auto& args = add_args<TopArgs>(cmd, context, run_top);
  args.interval = add_number(cmd, "--interval", args.interval_s, {"SECONDS", 0.1, 86'400}, "Between two samples");
  cmd.add_flag("--once", args.once, "Print one page as plain text; so is done where there is no terminal");
  cmd.add_flag("--json", args.json, "Print one sample as JSON, as `yoke devices --json` does");
  cmd.add_flag("--readonly", args.readonly, "End no processes");
  auto* const web = cmd.add_flag("--web", args.web, "Serve the page for browsers until stopped, and print its URL");
  add_value(cmd, "--listen", args.listen, "ADDR:PORT",
            "With --web: where; unless given 127.0.0.1:19477, where only this machine can read it. Port 0: any "
            "free one")
      ->needs(web);
  add_color_option(cmd, args.color);
  add_device_options(cmd, args.device);
  cmd.footer(
      examples("  yoke top                        ? shows the keys, q leaves\n"
               "  yoke top --readonly             for a screen that others can touch\n"
               "  yoke top --once                 one page, for a mail or a log\n"
               "  yoke top --web                  the same in a browser, with claims and 24 hours of history\n"
               "  yoke top --replay bug.jsonl     what `yoke devices --record bug.jsonl --watch` has recorded"));
}

}  // namespace yoke::cli
