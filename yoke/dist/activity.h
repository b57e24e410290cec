// yoke/dist/activity.h -- gives collectives a name that users know, such as "saving a checkpoint".
#pragma once

#include <ATen/core/ivalue.h>

#include <memory>

#include "yoke/dist/group.h"

namespace yoke::dist {

/// During its lifetime, the collectives of the group have this name in messages about ranks that wait in different
/// ones. Within another activity it has no effect. All ranks enter activities of the same name for the same
/// collectives.
class Activity {
 public:
  /// `name` lives until the process ends.
  Activity(const Group& group, const char* name);
  ~Activity();
  Activity(const Activity&) = delete;
  Activity& operator=(const Activity&) = delete;

 private:
  std::shared_ptr<Group::Impl> impl_;  ///< Null if it has no effect.
};

/// Waits for a collective that was started through Group::process_group().
/// Errors  those of the collective; kFailedPrecondition: the ranks wait in different collectives.
void wait_for(const Group& group, c10::ivalue::Future& future);

}  // namespace yoke::dist
