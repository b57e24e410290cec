// yoke/launch/process/order.h -- what ranks can be told, all at once.
#pragma once

namespace yoke::launch {

enum class Order {
  kNone,
  kForward,   ///< A signal, to the process group of every rank.
  kSignal,    ///< The same, and they are to end.
  kKill,      ///< They end now, and whatever they started.
  kEndStore,  ///< Not to ranks: the program that serves their store may end.
};

}  // namespace yoke::launch
