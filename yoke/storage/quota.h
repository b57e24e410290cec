// yoke/storage/quota.h -- how much a user, a group or a project may store: what the kernel or a server says.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "yoke/base/fields.h"

namespace yoke::storage {

enum class QuotaOf { kUser, kGroup, kProject };
std::string_view name(QuotaOf of);  ///< "user", "group", "project"

/// Bytes or files. 0: there is no such limit.
struct Allowance {
  int64_t used = 0;
  int64_t soft = 0;   ///< May be passed until `until`.
  int64_t hard = 0;   ///< Cannot be passed.
  int64_t until = 0;  ///< Unix time; 0: the soft limit is not passed.

  bool is_limited() const { return soft != 0 || hard != 0; }
  int64_t left(int64_t now) const;  ///< INT64_MAX if there is no limit.

  bool operator==(const Allowance&) const = default;
};

struct Quota {
  QuotaOf of = QuotaOf::kUser;
  int64_t id = 0;
  Allowance bytes = {}, files = {};

  bool operator==(const Quota&) const = default;
};

struct Quotas {
  std::vector<Quota> list;  ///< Those with a limit.
  std::string unknown;      ///< Why quotas may be missing in `list`, and what to do; empty: `list` is complete.

  /// The bytes that may still be written.
  int64_t left_bytes(int64_t now) const;
};

/// Asks about files that this user makes in a folder: the user's own quota, that of the group which the files get, and
/// that of the folder's project. The kernel knows those of ext4, XFS and other local file systems; servers of NFS and
/// Lustre are asked by the programs quota and lfs, for at most 2 s.
/// REQUIRES: `folder` exists, and its path has no links. Runs in a child, because the file system may not answer.
Quotas quotas_of(const std::filesystem::path& folder);

/// The same for messages between processes.
std::string to_bytes(const Quotas& quotas);
Quotas read_quotas(FieldReader& fields);

/// Reads what quota (`quota -w -p -v -f POINT`) or lfs (`lfs quota -q -u USER POINT`) has printed; nullopt: no quota is
/// in it. Pure.
std::optional<Quota> parse_quota(std::string_view output, QuotaOf of, int64_t id);

/// "user ada: 80.0 GiB of 100.0 GiB, 20.0 GiB left; 1200 of 5000 files". `whose` is the name. Pure.
std::string quota_text(const Quota& quota, const std::string& whose, int64_t now);

}  // namespace yoke::storage
