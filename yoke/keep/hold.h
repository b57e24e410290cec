// yoke/keep/hold.h -- a process in the background that holds devices, for a time or while another process lives.
#pragma once

#include <functional>
#include <string>

#include "yoke/base/file.h"
#include "yoke/base/tell.h"
#include "yoke/keep/acquire.h"
#include "yoke/program/watched_program.h"

namespace yoke::keep {

/// Returns at Note::until, when `process` (a pidfd, if there is one) ends, at a signal that ends processes, or if the
/// site ends claims that are idle. Then the devices have been given back. `messages` are made before anybody can know
/// of the claim and release it. REQUIRES: `acquired` has a claim, and this process has one thread.
void hold(Acquired& acquired, program::SignalMessages& messages, const UniqueFd& process, const Tell& tell);

/// What came of starting a holder.
struct Holder {
  /// What `report` returned in the holder; "" if nothing was taken.
  std::string report = {};
  /// Not 0: a signal ended the wait, and nothing was taken. It is 128 plus the signal's number.
  int status = 0;
  UniqueFd answer = {};  ///< If it is closed before confirm(), the holder gives the devices back and ends.

  /// Lets the holder live on without this process.
  void confirm();
};

/// Starts a process that takes devices and holds them: until AcquireOptions::adopted_pid ends, if there is one, or
/// until hold() returns. The holder itself takes the locks, so that /proc/locks names it and
/// not this process. `report`: called in it when it
/// has the devices. Until confirm() it ends with this process.
/// Errors  those of acquire(); with adopted_pid: kNotFound: there is no such process; kPermissionDenied: it is another
/// user's. REQUIRES: this process has one thread, and nothing is in the buffers of its streams.
Holder start_holder(AcquireOptions options, const ClaimSite& site, const Environment& environment, const Tell& tell,
                    const std::function<std::string(const Acquired&)>& report);

/// What a claim is for, unless its user said it: the words before the first option. Everybody may read it, and a
/// command line may be private (hidepid).
std::string purpose_of(const std::vector<std::string>& command);

}  // namespace yoke::keep
