// yoke/dist/detail/losses.h -- which ranks of a job have been lost since its groups were formed, and whether
// collectives that meet a loss end with an error.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

namespace yoke::dist {

/// Of a World whose lost ranks are replaced. Threads  any.
class Losses {
 public:
  /// With true, a collective that meets a loss ends as if it had succeeded, with values that have no meaning: the step
  /// that it belongs to will be repeated.
  void set_forgives(bool forgives) { forgives_ = forgives; }
  bool forgives() const { return forgives_; }

  void note(const std::vector<int64_t>& ranks);
  bool any() const { return any_; }
  bool are_forgiven() const { return any_ && forgives_; }
  std::vector<int64_t> ranks() const;
  void clear();

  /// The groups are formed again by others. Connections to a lost host may not end by themselves, so collectives that
  /// wait look whether this is so.
  void set_superseded() { is_superseded_ = true; }
  bool is_superseded() const { return is_superseded_; }

 private:
  std::atomic<bool> forgives_ = false, any_ = false, is_superseded_ = false;
  mutable std::mutex mutex_;
  std::set<int64_t> ranks_;
};

/// The same for the collectives of one group.
struct GroupLosses {
  std::shared_ptr<Losses> losses;
  std::vector<int64_t> ranks;  ///< The members as ranks of the World.

  /// Notes the loss if `error` is one. Returns whether it is forgiven.
  bool forgives(const std::exception_ptr& error) const;
};

}  // namespace yoke::dist
