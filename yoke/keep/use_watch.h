// yoke/keep/use_watch.h -- looks from time to time whether the devices of a claim are used, for whoever keeps it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "yoke/base/clock.h"
#include "yoke/claim/idle.h"
#include "yoke/claim/ledger.h"
#include "yoke/program/device_reader.h"

namespace yoke::keep {

struct UseWatchOptions {
  std::vector<std::string> ids;  ///< Of the claim's devices, in the order of Note::keys.
  claim::IdleLimits limits;
  bool is_own_end = false;                                ///< SiteConfig::is_own_idle_end.
  std::function<std::unique_ptr<device::Source>()> open;  ///< A source of these devices alone.
};

/// Writes into the claim when its devices were used. Never waits for a driver. The drivers are opened at the first
/// look, so a short claim costs nothing.
class UseWatch {
 public:
  /// `claim` must outlive this object. REQUIRES: this process has one thread.
  UseWatch(claim::Claim& claim, UseWatchOptions options);

  int fd() const { return reader_ ? reader_->fd() : -1; }         ///< For poll(); -1 is ignored there.
  pid_t reader() const { return reader_ ? reader_->pid() : -1; }  ///< The child that reads the devices.
  std::string devices() const;                                    ///< "device 0", "devices 0, 1".
  int milliseconds_left() const;                                  ///< Until the next look; for poll().

  /// Looks if it is time, and takes the answer if there is one. Returns what the limits say.
  claim::IdleStep look();

  /// "devices 2, 3 have not been used for 40 min (python train.py); yoke ends the claim in 1 h 20 min unless ..."
  std::string warning() const;
  std::string farewell() const;  ///< The same for the end of the claim.

 private:
  void record(const std::vector<std::optional<bool>>& used);
  std::string beginning() const;

  claim::Claim& claim_;
  const UseWatchOptions options_;
  claim::IdleWatch watch_;
  std::unique_ptr<program::DeviceReader> reader_;
  Clock::time_point next_;
};

}  // namespace yoke::keep
