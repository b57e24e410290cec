// yoke/launch/job/replace_rule.h -- decides whether a rank that has ended starts again alone, while the others run.
// Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace yoke::launch {

/// A rank that ended while others were to go on.
struct RankLoss {
  int64_t rank = 0;
  int wait_status = 0;
  /// The steps before the newest state that it has kept; nullopt: none yet, or none any more, after its training.
  std::optional<int64_t> step = {};
  bool has_survivors = true;    ///< Whether other ranks run, which have the state.
  bool some_have_left = false;  ///< Whether a rank has ended with status 0: the training is over there.
};

/// A host that was lost, with all its ranks.
struct HostLoss {
  int64_t num_ranks = 0;
  bool keep_state = true;  ///< Whether each of them kept a state of the training, when last heard of.
  bool has_survivors = true, some_have_left = false;
};

/// A rank is replaced if a signal killed it, as by the kernel's killer of processes, by an administrator or by a fault
/// of memory. A rank that ends by itself with another status than 0 has decided to fail: its program would do so again.
/// That includes ranks that cannot go on after the loss of another one. The same holds for a rank that the same signal
/// ends at the same step as before, unless it is SIGKILL, which comes from outside. A rank that keeps no state
/// cannot be replaced: its program may know nothing of replacements, or the others may still wait for it to join.
class ReplaceRule {
 public:
  /// `limit`: the number of replacements in all.
  explicit ReplaceRule(int64_t limit) : limit_(limit) {}

  struct Verdict {
    bool replaces = false;
    std::string why;  ///< Why not, as a clause; empty if nothing needs to be said.
  };
  /// If it replaces the rank, it counts.
  Verdict judge(const RankLoss& loss);
  /// Whether the ranks start again on another host; each of them counts.
  Verdict judge(const HostLoss& loss);

  /// The last ones did not start.
  void take_back(int64_t num_ranks) { num_replaced_ -= num_ranks; }

  int64_t num_replaced() const { return num_replaced_; }

 private:
  struct Failure {
    int64_t rank, step;
    int wait_status;
    bool operator==(const Failure&) const = default;
  };

  std::string why_none_is_left() const;

  int64_t limit_;
  int64_t num_replaced_ = 0;
  std::vector<Failure> failures_;  ///< By other signals than SIGKILL.
};

}  // namespace yoke::launch
