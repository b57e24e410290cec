// yoke/launch/process/store_users.h -- which users of this host may use the store of a job.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

#include "yoke/base/clock.h"

namespace yoke::launch {

/// Whether the text of /etc/subuid gives `uid` to one of the users `names`, whose rootless containers then have
/// processes with it. Pure.
bool is_subordinate(uid_t uid, const std::vector<std::string>& names, std::string_view text);

/// Returns "ada (uid 1003)", or "uid 1003" if /etc/passwd does not know the user. A directory service is not asked,
/// because it may not answer.
std::string name_and_uid(uid_t uid);

/// The users that may use the store that this process serves: its own one, root, the own one's subordinate uids, and
/// those who have processes in the job, because a rank was started by sudo or in a container.
class StoreUsers {
 public:
  /// `job`: the process whose descendants are those of the job.
  explicit StoreUsers(pid_t job) : job_(job) {}
  bool may_use(uid_t uid);

 private:
  const pid_t job_;
  // The last one who was refused, and when: a user who connects again and again costs little.
  uid_t refused_ = 0;
  Clock::time_point refused_at_;
};

}  // namespace yoke::launch
