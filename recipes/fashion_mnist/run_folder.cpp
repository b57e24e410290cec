#include "recipes/fashion_mnist/run_folder.h"

#include <fmt/format.h>

#include "yoke/base/error.h"
#include "yoke/train/checkpoint/checkpoint.h"

namespace fashion_mnist {
namespace {

namespace fs = std::filesystem;

fs::path numbered(int number) {
  const fs::path base = "runs/fashion-mnist";
  return number == 1 ? base : fs::path(fmt::format("{}-{}", base.string(), number));
}

/// Making a folder is what two runs that start together cannot both do.
fs::path make_first_free() {
  fs::create_directories(numbered(1).parent_path());
  for (int number = 1;; ++number) {
    if (fs::create_directory(numbered(number))) return numbered(number);
  }
}

fs::path find_last() {
  int number = 1;
  while (fs::exists(numbered(number))) ++number;
  if (number > 1) return numbered(number - 1);
  throw yoke::Error(yoke::ErrorCode::kNotFound, "--resume: there is no {} here; name the run's folder with --out",
                    numbered(1).string());
}

}  // namespace

fs::path choose_run_folder(const std::string& wanted, bool resume) {
  using yoke::Error;
  using yoke::ErrorCode;
  if (wanted.empty()) return resume ? find_last() : make_first_free();
  const bool has_checkpoints = !yoke::train::CheckpointFolder(wanted).steps().empty();
  if (resume && !fs::exists(wanted)) {
    throw Error(ErrorCode::kNotFound, "--resume: there is no folder {}", wanted);
  }
  if (!resume && has_checkpoints) {
    throw Error(ErrorCode::kFailedPrecondition,
                "{} holds the checkpoints of another run; add --resume to go on with it, or choose another --out",
                wanted);
  }
  return wanted;
}

}  // namespace fashion_mnist
