#include "yoke/train/run/detail/run_folder.h"

#include "yoke/base/error.h"
#include "yoke/train/checkpoint/step_folder.h"

namespace yoke::train {
namespace {

namespace fs = std::filesystem;

fs::path numbered(const std::string& name, int number) {
  return fs::path("runs") / (number == 1 ? name : fmt::format("{}-{}", name, number));
}

/// Safe if two runs start together: only one of them can create a given folder.
fs::path make_first_free(const std::string& name) {
  make_folder("runs");
  for (int number = 1;; ++number) {
    std::error_code error;
    if (fs::create_directory(numbered(name, number), error)) return numbered(name, number);
    if (error) throw system_error(error.value(), "making the folder " + numbered(name, number).string());
  }
}

fs::path find_last(const std::string& name) {
  int number = 1;
  while (fs::exists(numbered(name, number))) ++number;
  return number > 1 ? numbered(name, number - 1) : make_first_free(name);
}

}  // namespace

fs::path choose_run_folder(const std::string& name, const fs::path& wanted, bool resume) {
  if (wanted.empty()) return resume ? find_last(name) : make_first_free(name);
  if (!resume && !StepFolder(wanted, {}).steps().empty()) {
    throw Error(ErrorCode::kFailedPrecondition,
                "{} holds checkpoints, of another run or of this one before a restart; go on from them (--resume), or "
                "choose another folder",
                wanted.string());
  }
  return wanted;
}

}  // namespace yoke::train
