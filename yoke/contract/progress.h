// yoke/contract/progress.h -- how a rank tells its launcher how many steps of the training it has made.
//
// `yoke run --max-restarts 3/1000steps` names a file in variable::kProgress, which the rank makes: a number of eight
// bytes in the machine's order, one more than the steps, so that 0 is none. It survives the rank, however that ends. In
// Python, yoke.progress() writes it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace yoke {

/// Tells the launcher that `num_steps` steps were made since the training began; those before a restart count, too.
/// train::Run calls it at the end of each step. It takes nanoseconds. It does nothing if the launcher did not ask. If
/// the file cannot be made, it says so once on standard error. A negative number is none. May be called on any thread.
void report_progress(int64_t num_steps) noexcept;

/// Returns the number that a rank last reported in its file; nullopt if there is none.
std::optional<int64_t> read_progress(const std::filesystem::path& path) noexcept;

/// Returns how many steps were made before the newest state that a rank keeps for `yoke run --replace`; nullopt if it
/// keeps none. `path` is that in variable::kRankState: the files PATH.0 and PATH.1 begin with such a number, too.
std::optional<int64_t> read_kept_step(const std::string& path) noexcept;

/// Says that the rank needs no process in its place any more, whatever it has kept.
void forget_kept_steps(const std::string& path) noexcept;

}  // namespace yoke
