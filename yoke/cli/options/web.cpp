#include "yoke/cli/options/web.h"

#include <iostream>

#include "yoke/base/error.h"
#include "yoke/cli/frame/attempt.h"
#include "yoke/cli/frame/output.h"
#include "yoke/cli/options/claim.h"

namespace yoke::cli {

void serve(const web::ServerOptions& options, std::string_view path, const DeviceOptions& device,
           device::Source& source, Context& context) {
  const bool is_this_machine = device.replay.empty() && device.sysroot.empty();
  web::Server server(options, [&, is_this_machine] {
    web::Machine state{.snapshot = source.sample(kServedWant)};
    if (is_this_machine) {
      const auto claims = view_claims(state.snapshot, context);
      state.claims = claims.to_json();
      state.claims_problem = claims.problem;
    } else {
      state.claims_problem = "the devices are not those of this machine";
    }
    return state;
  });
  context.out << server.url(path) << std::endl;
  if (!context.out) throw system_error(error_of(context.out), "writing the URL, which nobody would learn otherwise");
  if (!options.address.is_loopback()) {
    std::cerr << speaker(context) << "other machines can read this: there is no password and no encryption"
              << std::endl;
  }
  server.run();
}

}  // namespace yoke::cli
