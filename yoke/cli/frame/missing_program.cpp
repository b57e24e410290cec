#include "yoke/cli/frame/missing_program.h"

#include <fmt/format.h>

#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/shell.h"

namespace yoke::cli {
std::string why_missing(const Installation& installation, const std::filesystem::path& program,
                        const std::string& target) {
  const auto root = installation.executable.parent_path().parent_path();
  std::string cache;  // of cmake, which only a build tree has
  try {
    cache = read_file(root / "CMakeCache.txt");
  } catch (const Error&) {
    return fmt::format(
        "there is no program {}: this yoke was built without libtorch (YOKE_TORCH=OFF); where it came by pip, "
        "`pip install yoke-torch`, otherwise install a build with libtorch",
        program.string());
  }
  if (cache.find("\nYOKE_TORCH:BOOL=OFF") != cache.npos) {
    return fmt::format(
        "there is no program {}: {} is a build without libtorch (YOKE_TORCH=OFF); make one with libtorch: "
        "scripts/setup && cmake --preset release && cmake --build --preset release --target yoke {}",
        program.string(), root.string(), target);
  }
  return fmt::format("{} is not built yet; cmake --build {} --target {}", program.string(), shell_word(root.string()),
                     target);
}

}  // namespace yoke::cli
