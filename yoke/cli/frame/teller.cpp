#include "yoke/cli/frame/teller.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <iostream>

#include "yoke/base/file.h"
#include "yoke/base/sysfs.h"
#include "yoke/base/text.h"
#include "yoke/cli/frame/attempt.h"

namespace yoke::cli {

Tell teller(const Context& context, Reasons reasons) {
  return [&context, reasons](Told what, const std::string& text) {
    switch (what) {
      case Told::kNews: std::cerr << speaker(context) << text << std::endl; break;
      case Told::kWarning: std::cerr << speaker(context) << "warning: " << text << std::endl; break;
      case Told::kReason:
        if (reasons != Reasons::kNowhere) (reasons == Reasons::kOutput ? context.out : std::cerr) << text << std::endl;
        break;
      case Told::kElsewhere: tell_terminals(speaker(context) + text, STDERR_FILENO); break;
      case Told::kOutput: std::cerr << text << std::flush; break;
    }
  };
}

int tell_terminals(const std::string& text, int except) {
  struct stat own {};
  const bool has_own = fstat(except, &own) == 0 && S_ISCHR(own.st_mode);
  const auto line = "\r\n" + printable(text) + "\r\n";
  int num_told = 0;
  for (const auto& terminal : entries_of("/dev/pts")) {
    const UniqueFd fd(open(terminal.c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC | O_NOFOLLOW));
    struct stat status {};
    if (!fd || fstat(fd.value(), &status) != 0 || !S_ISCHR(status.st_mode)) continue;
    const bool accepts = (status.st_mode & S_IWGRP) != 0;  // `mesg n` takes this right away
    if (status.st_uid != geteuid() || !accepts || isatty(fd.value()) == 0) continue;
    if (has_own && status.st_rdev == own.st_rdev) continue;
    num_told += write(fd.value(), line.data(), line.size()) > 0 ? 1 : 0;
  }
  return num_told;
}

}  // namespace yoke::cli
