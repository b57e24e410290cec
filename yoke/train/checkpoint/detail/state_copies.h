// yoke/train/checkpoint/detail/state_copies.h -- copies of what each rank alone has of a training's state, in the
// memory of a rank of the next host. A host that is lost takes the files of its ranks (rank_record.h) with it.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "yoke/dist/group.h"

namespace yoke::dist {
class World;
}

namespace yoke::train::detail {

/// Pure. For each rank the rank that holds its copies: one of the next node, with the same place there, modulo the
/// ranks of that node. `nodes`: of each rank.
std::vector<int64_t> holders_of(const std::vector<int64_t>& nodes);

/// What a rank alone has after so many steps.
struct StateRecord {
  int64_t step = -1;
  std::string_view bytes = {};
};

/// A copy is under way while the ranks compute: begin() starts to send it, and the next agree() waits until it has
/// come. So when agree() returns true on any rank, all copies of the last state are complete, and the ranks may forget
/// the state before that one.
///
/// Each message has a size on which sender and receiver have agreed by the message before: a little more than that of
/// its record. If a record has become larger, the message only says so, and agree() sends the record.
class StateCopies {
 public:
  /// Collective, also of a process that takes the place of a lost one before it has joined.
  explicit StateCopies(dist::World& world);

  /// Whether a World has such copies.
  static bool are_wanted(const dist::World& world);

  static constexpr int64_t kNoStep = -1;
  /// Collective. Whether all ranks are to keep the state of `step` now: false if one passes kNoStep, or has been lost.
  /// `last`: of the newest state that they keep.
  /// Errors  RanksLost, unless losses are forgiven; kInternal: ranks are at other steps.
  bool agree(int64_t step, const StateRecord& last);
  /// Collective. Begins to send this rank's record, which is copied.
  void begin(const StateRecord& record);

  /// Collective, after World::recover(): keeps what had arrived, and gives up what was under way.
  void begin_again();
  /// Collective, after begin_again(): sends the record, and waits until all have come.
  void send_now(const StateRecord& record);
  /// Forgets the copies of later steps.
  void forget_after(int64_t step);

  /// What this rank holds: the steps of two copies for each rank of the World, or kNoStep.
  std::vector<int64_t> steps() const;
  /// The copy of that rank's record. REQUIRES: steps() has it.
  at::Tensor find(int64_t rank, int64_t step) const;

 private:
  struct Copy {
    int64_t step = kNoStep;
    int64_t bytes = 0;
    at::Tensor memory;  ///< A message.
  };
  /// A rank whose copies this one holds.
  struct Ward {
    int64_t rank = 0;
    int64_t capacity = 0;  ///< The bytes of its next message.
    std::array<Copy, 2> held = {};
    Copy incoming = {};
    dist::PendingCollective pending = {};
  };
  void find_partners();
  bool is_complete(int64_t step) const;
  void complete();
  void take(Ward& ward);

  dist::World& world_;
  dist::Group group_;  ///< Of its own, so that the messages of others do not wait for these.
  int64_t holder_ = -1;
  std::vector<Ward> wards_;
  int64_t capacity_ = 0;
  at::Tensor outgoing_;
  dist::PendingCollective sent_;
};

}  // namespace yoke::train::detail
