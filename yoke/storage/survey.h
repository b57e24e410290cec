// yoke/storage/survey.h -- the roots of a user as they are: present, free space, kind of disk, measured speed.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "yoke/storage/disk.h"
#include "yoke/storage/in_children.h"
#include "yoke/storage/quota.h"
#include "yoke/storage/roots.h"

namespace yoke::storage {

enum class RootCondition { kThere, kAbsent, kForeign, kNotAFolder, kNoAnswer, kFailed };
std::string_view name(RootCondition condition);  ///< "there", "absent", "not yours", "no folder", "no answer", "failed"

struct Speed {
  double write_bytes_per_s = 0, read_bytes_per_s = 0;
  bool is_direct = true;  ///< Past the page cache; otherwise memory may have helped.
};

struct RootReport {
  Root root;
  std::string path;
  RootCondition condition = RootCondition::kNoAnswer;
  std::string reason;                              ///< Why the condition is kNoAnswer or kFailed.
  std::optional<int64_t> free_bytes, total_bytes;  ///< Of the file system on which the folder is, or would be.
  Quotas quotas;                                   ///< This user's quotas on that file system.
  std::optional<Mount> mount;
  Disk disk;
  std::optional<Speed> speed;
  std::string speed_reason;  ///< Why it was not measured.
  bool is_fastest = false;

  /// What this user may still write: what is free, or what the quotas leave. nullopt: not known.
  std::optional<int64_t> usable_bytes() const;
};

/// Looks at all roots at the same time. One that does not answer is reported as such.
std::vector<RootReport> survey(const std::vector<Root>& roots, const std::string& user, const Deadline& deadline);

/// Writes and reads a file without a name in each folder that is there, one after the other, for about a second each.
/// `on_root` is called before each. `limit` is the longest time for each.
void measure(std::vector<RootReport>& reports, Seconds limit, const std::function<void(const RootReport&)>& on_root);

/// Marks the fastest disks: by the slower of both measured speeds, or by their kinds if nothing was measured. Memory
/// does not count, because what is in it is lost when the machine stops; nor do roots that do not exist, unless users
/// can make them. Pure.
void mark_fastest(std::vector<RootReport>& reports);

}  // namespace yoke::storage
