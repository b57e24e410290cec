// yoke/dist/detail/gloo.h -- makes c10d's Gloo backend. Only gloo.cpp includes the headers of Gloo.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <cstdint>
#include <string>

#include "yoke/contract/rank_env.h"

namespace c10d {
class Backend;
class Store;
}  // namespace c10d

namespace yoke::dist {

/// Returns the address at which Gloo listens for other ranks: loopback if all ranks are on this host, otherwise the
/// address from which this host reaches MASTER_ADDR. If the result is empty, Gloo chooses an address (by
/// GLOO_SOCKET_IFNAME, if set).
std::string gloo_address(const RankEnv& rank);

/// Returns the address, in digits, at which ranks of other hosts reach this rank, on the interface that Gloo uses.
/// Empty if it is unknown.
std::string link_address(const RankEnv& rank);

struct GlooOptions {
  int64_t rank = 0;
  int64_t size = 1;
  std::string address;  ///< The result of gloo_address().
  std::chrono::milliseconds timeout{};
};

/// Collective. Connects all ranks to each other over TCP.
c10::intrusive_ptr<c10d::Backend> make_gloo(c10::intrusive_ptr<c10d::Store> store, const GlooOptions& options);

}  // namespace yoke::dist
