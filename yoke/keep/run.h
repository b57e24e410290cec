// yoke/keep/run.h -- runs a program that holds a claim.
#pragma once

#include <string>
#include <vector>

#include "yoke/base/environment.h"
#include "yoke/base/tell.h"
#include "yoke/keep/acquire.h"

namespace yoke::keep {

/// Runs a program that inherits the claim and sees its devices alone, passes signals on to it, and gives the devices
/// back when it ends. If this process is killed, the program gets SIGTERM, and keeps the devices until it has ended. At
/// Note::until the program and all of its descendants get SIGTERM, and ten seconds later SIGKILL, and the devices are
/// given back when all of them have ended. The same happens if the site ends idle claims, if the note has
/// Note::is_forced, and after SIGTERM to this process, once the program has ended. What a program leaves behind that
/// ends by itself does not keep the devices. `acquired` is used up.
/// Returns  its exit status; 128 plus the signal's number if a signal ended it, 127 or 126 if it could not be executed.
/// REQUIRES: `acquired` has a claim, this process has one thread, and no SignalMessages exists.
int run(Acquired& acquired, const std::vector<std::string>& argv, Environment environment, const Tell& tell);

}  // namespace yoke::keep
