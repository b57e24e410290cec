// yoke/claim/policy.h -- decides which devices a claim gets, and says why. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "yoke/device/device.h"

namespace yoke::claim {

/// Whether a device can be given, and if not, why.
enum class Standing {
  kFree,
  kClaimed,   ///< Somebody holds its lock.
  kInUse,     ///< A process computes on it without a claim.
  kSuspect,   ///< Memory is held, but by no process that can be seen: leaked, or of a container that hides it.
  kUnusable,  ///< The driver has lost it, does not answer, or does not let this user use it.
  kTooSmall,  ///< Less memory is free than the request needs.
  kExcluded,  ///< The request did not name it.
  kReserved,  ///< Somebody else has reserved it.
};

/// A device or MIG instance as the policy sees it.
struct Candidate {
  std::string id;   ///< As in `yoke devices`: "3", "0:1".
  std::string key;  ///< Identifies it on this machine; the name of its lock is derived from it.
  Standing standing = Standing::kFree;
  std::string reason;  ///< Of every standing but kFree, for people: "in use by ada (pid 4121)".
  std::optional<int64_t> temperature_celsius;
  std::optional<int64_t> memory_bytes = {};     ///< All of it; nullopt: the driver does not tell.
  std::map<int64_t, int64_t> used_by_uid = {};  ///< Memory by user, or one of the numbers below.
  /// Whether a process without a claim uses the device, or some of its memory is used but belongs to no process. Claims
  /// are not considered.
  bool is_used = false;
  std::string used_by = {};                 ///< "in use without a claim by ada (pid 4121)": the first such process.
  int64_t num_sharers = 0, room_bytes = 0;  ///< Of a device that can be shared (share.h).
  bool seems_busy = false;                  ///< The device computes, but no listed process does, so it is given last.
  std::string damage = {};                  ///< What its memory errors are, in a sentence; then it is given last, too.
  /// Of a MIG instance: the GPU instance to which it belongs, "0/3". CUDA shows one of those with the same.
  std::string gpu_instance = {};

  void mark(Standing as, std::string why) {
    standing = as;
    reason = std::move(why);
  }
};

/// Memory whose user is not known, and for unified memory what the rest of the machine uses.
inline constexpr int64_t kUnknownUser = -1, kRestOfMachine = -3;

struct Wish {
  int64_t num_devices = 1;
  std::optional<int64_t> memory_bytes;  ///< The memory that must be free on each device.
  bool is_share = false;                ///< Shares devices with others, and uses `memory_bytes` of each.
};

/// The devices and MIG instances of `snapshot` that programs can compute on, without regard to locks. The order is that
/// of `yoke devices`. A GPU in MIG mode is listed as its instances.
std::vector<Candidate> candidates_of(const device::Snapshot& snapshot, const Wish& wish);

/// How well two devices are connected: larger is better. The matrix has a row for each candidate.
using Closeness = std::vector<std::vector<int64_t>>;

/// From the links that drivers report, and the places on the PCI bus that sysfs shows. `bridges` has, for each device
/// of the snapshot that has a bus id, the path of PCI bridges to it; it may be empty.
struct BusPath {
  std::string pci_bus_id;
  std::vector<std::string> bridges;
};
Closeness closeness_of(const device::Snapshot& snapshot, const std::vector<Candidate>& candidates,
                       const std::vector<BusPath>& paths);

struct Pick {
  std::vector<size_t> chosen;          ///< Positions among the candidates, ascending; empty: there is no pick.
  std::vector<std::string> sentences;  ///< The reason, for `--explain`.
};

/// Whether it is only given if there are too few others: it seems busy, or has memory errors.
bool is_last(const Candidate& candidate);

/// The positions of those that are free. Adds a sentence about each of the others.
std::vector<size_t> free_among(const std::vector<Candidate>& candidates, std::vector<std::string>& sentences);

/// Of the positions `free`, those among which a claim of `wanted` devices chooses: see pick(). If they are fewer than
/// `wanted`, no `wanted` of `free` can be seen together by a program.
std::vector<size_t> preferred(const std::vector<Candidate>& candidates, std::vector<size_t> free, size_t wanted);

/// The devices that are connected best: the weakest connection among them counts first, then the sum. Among equals, the
/// set is taken that leaves the best connected devices to others, then the coolest, then the first. Devices that seem
/// busy or have memory errors are only taken if there are too few others. Several devices are whole GPUs or, if there
/// are too few of those, MIG instances, because CUDA_VISIBLE_DEVICES cannot name both; no two are of one GPU instance,
/// which no program sees together.
Pick pick(const std::vector<Candidate>& candidates, const Closeness& closeness, const Wish& wish);

}  // namespace yoke::claim
