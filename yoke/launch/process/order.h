// yoke/launch/process/order.h -- the orders that the launcher gives to all ranks at once.
#pragma once

namespace yoke::launch {

enum class Order {
  kNone,
  kForward,   ///< Send a signal to the process group of every rank.
  kSignal,    ///< Like kForward, but the signal asks the ranks to end.
  kKill,      ///< Kill the ranks and everything that they started.
  kEndStore,  ///< End the program that serves the ranks' TCPStore.
};

}  // namespace yoke::launch
