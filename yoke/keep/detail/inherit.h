// yoke/keep/detail/inherit.h -- takes devices of the claim under which this process runs.
#pragma once

#include "yoke/keep/acquire.h"

namespace yoke::keep {

/// Fills in the devices of `result`, whose snapshot is there, from those of `outer`.
/// Errors  kFailedPrecondition: the claim has ended, or this machine does not show its devices; those of
/// claim::choose_inherited() and of Ledger::share().
void inherit(claim::Claim outer, const AcquireOptions& options, const claim::Ledger& ledger, Acquired& result);

}  // namespace yoke::keep
