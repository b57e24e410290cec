#include "yoke/dist/gloo.h"

#include <cstdlib>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

namespace yoke::dist {

c10::intrusive_ptr<c10d::Backend> make_gloo(c10::intrusive_ptr<c10d::Store> store, const RankEnv& rank,
                                            std::chrono::milliseconds timeout) {
  using c10d::ProcessGroupGloo;
  c10::intrusive_ptr<ProcessGroupGloo::Options> options;
  if (rank.local_world_size == rank.world_size && std::getenv("GLOO_SOCKET_IFNAME") == nullptr) {
    // A host name that resolves to nothing, or to an address of another interface, must not matter on one host.
    options = ProcessGroupGloo::Options::create(timeout);
    options->devices.push_back(ProcessGroupGloo::createDeviceForHostname("127.0.0.1"));
  } else {
    options = ProcessGroupGloo::Options::create_default(timeout);
  }
  return c10::make_intrusive<ProcessGroupGloo>(std::move(store), static_cast<int>(rank.rank),
                                               static_cast<int>(rank.world_size), std::move(options));
}

}  // namespace yoke::dist
