#include "yoke/slurm/job/newest_checkpoint.h"

#include <fmt/format.h>

#include <chrono>
#include <system_error>

#include "yoke/base/moment.h"
#include "yoke/base/text.h"

namespace yoke::slurm {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMostFiles = 20'000;

bool is_checkpoint_name(const std::string& name) {
  for (const char* const end : {".pt", ".pth", ".ckpt", ".safetensors"}) {
    if (name.ends_with(end)) return true;
  }
  return name.starts_with("checkpoint") || name.starts_with("step-") || name.starts_with("step_") ||
         name.starts_with("global_step");
}

}  // namespace

CheckpointSearch find_checkpoint(const std::string& folder, int64_t most_files) {
  std::optional<NewestCheckpoint> newest;
  std::error_code error;
  int64_t num_seen = 0;
  for (fs::recursive_directory_iterator at(folder, fs::directory_options::skip_permission_denied, error), end;
       !error && at != end; at.increment(error), ++num_seen) {
    if (num_seen == most_files) return {newest, false};
    if (at.depth() >= 4) at.disable_recursion_pending();
    const auto name = at->path().filename().string();
    if (name.starts_with('.')) at.disable_recursion_pending();
    if (!is_checkpoint_name(name) || name.ends_with(".tmp")) continue;
    std::error_code ignored;
    const auto time = at->last_write_time(ignored);
    if (!newest || time >= newest->time) newest = NewestCheckpoint{at->path().string(), time};
  }
  return {newest, true};
}

std::string checkpoint_text(const std::string& folder) {
  const auto [found, is_complete] = find_checkpoint(folder, kMostFiles);
  const auto extent = is_complete ? "" : fmt::format(" among the first {} files there", kMostFiles);
  if (!found) {
    return fmt::format("no checkpoint was found below {}{}; if the program keeps none elsewhere, it begins anew",
                       printable(folder), extent);
  }
  const auto time = std::chrono::file_clock::to_sys(found->time);
  return fmt::format("the newest checkpoint{} is {}, of {}", extent, printable(found->path),
                     moment_text(std::chrono::time_point_cast<std::chrono::system_clock::duration>(time)));
}

}  // namespace yoke::slurm
