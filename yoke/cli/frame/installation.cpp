#include <fmt/format.h>

#include "yoke/cli/command.h"

namespace yoke::cli {

Installation find_installation() {
  std::error_code error;
  auto executable = std::filesystem::read_symlink("/proc/self/exe", error);
  const auto folder = executable.parent_path();
  // These relative paths are valid in the build tree too, because it has the same layout.
  return {executable, (folder / YOKE_BIN_TO_LIBEXEC / "yoke").lexically_normal(),
          (folder / YOKE_BIN_TO_SHARE / "yoke").lexically_normal()};
}

Environment with_python_hooks(Environment environment, const Installation& installation) {
  const auto hooks = (installation.share / "python").native();
  const auto others = environment.value_or("PYTHONPATH", "");
  environment.set("PYTHONPATH", others.empty() ? hooks : hooks + ':' + others);
  return environment;
}

std::string examples(std::string_view text) { return fmt::format("Examples:\n{}", text); }

}  // namespace yoke::cli
