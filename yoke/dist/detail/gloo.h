// yoke/dist/detail/gloo.h -- makes c10d's Gloo backend; the one place that sees its header.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <cstdint>
#include <string>

#include "yoke/base/rank_env.h"

namespace c10d {
class Backend;
class Store;
}  // namespace c10d

namespace yoke::dist {

/// The address through which Gloo reaches other ranks: loopback when all are on this host, else the one from which this
/// host reaches MASTER_ADDR. Empty: Gloo's own choice, by the interface of GLOO_SOCKET_IFNAME where that is set.
std::string gloo_address(const RankEnv& rank);

struct GlooOptions {
  int64_t rank = 0;
  int64_t size = 1;
  std::string address;  ///< As gloo_address gives it.
  std::chrono::milliseconds timeout{};
};

/// Collective. Connects all ranks to each other over TCP.
c10::intrusive_ptr<c10d::Backend> make_gloo(c10::intrusive_ptr<c10d::Store> store, const GlooOptions& options);

}  // namespace yoke::dist
