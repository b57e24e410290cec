#include "yoke/launch/job/suspend.h"

namespace yoke::launch {

void suspend(const Signal& signal, LocalNode* node, Screen* screen) {
  if (screen != nullptr) screen->hide_progress(true);  // the shell's prompt comes there
  if (node != nullptr) node->pause(signal);
  stop_by(signal.number);
  if (node != nullptr) node->resume();
  if (screen != nullptr) screen->hide_progress(false);
}

}  // namespace yoke::launch
