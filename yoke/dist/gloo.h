// yoke/dist/gloo.h -- makes c10d's Gloo backend; the one place that sees its header.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <chrono>

#include "yoke/base/rank_env.h"

namespace c10d {
class Backend;
class Store;
}  // namespace c10d

namespace yoke::dist {

/// Collective. Connects all ranks to each other over TCP: by the interface of GLOO_SOCKET_IFNAME where that is set, by
/// loopback when all are on this host, else by the address from which this host reaches MASTER_ADDR.
c10::intrusive_ptr<c10d::Backend> make_gloo(c10::intrusive_ptr<c10d::Store> store, const RankEnv& rank,
                                            std::chrono::milliseconds timeout);

}  // namespace yoke::dist
