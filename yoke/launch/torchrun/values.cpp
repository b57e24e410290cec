#include "yoke/launch/torchrun/values.h"

#include <algorithm>
#include <cctype>

#include "yoke/base/environment.h"
#include "yoke/base/error.h"
#include "yoke/base/text.h"

namespace yoke::launch {
namespace {

/// More ranks than any node can hold, but few enough that nothing overflows.
constexpr int64_t kMaxRanks = 1'000'000;

}  // namespace

std::vector<std::string> split_at_commas(const std::string& text) {
  const auto parts = split(text, ',');
  return {parts.begin(), parts.end()};
}

int64_t to_number(const std::string& text, const char* option) {
  const auto number = parse_int(text);
  if (number) return *number;
  throw Error(ErrorCode::kInvalidArgument, "{} {}: this is not a number", option, text);
}

std::chrono::milliseconds to_time(double seconds) {
  return std::chrono::round<std::chrono::milliseconds>(std::chrono::duration<double>(seconds));
}

std::string variable_of_option(std::string name) {
  std::ranges::transform(name, name.begin(),
                         [](unsigned char c) { return c == '-' ? '_' : static_cast<char>(std::toupper(c)); });
  return "PET_" + name;
}

int64_t parse_num_ranks(std::string_view text, const device::CpuCount& cpus, const CountGpus& count_gpus) {
  if (text == "cpu") return cpus.num_cpus;
  if (text == "auto" || text == "gpu") {
    const auto gpus = count_gpus();
    if (gpus.num_gpus > 0) return gpus.num_gpus;
    if (text == "auto") return cpus.num_cpus;
    throw Error(ErrorCode::kFailedPrecondition, "-n gpu: no GPU is usable: {}; give a number, or `-n cpu`",
                gpus.reason);
  }
  const auto number = parse_int(text);
  if (number && *number >= 1 && *number <= kMaxRanks) return *number;
  const auto why = !number ? "not a number of ranks" : *number < 1 ? "at least one rank is needed" : "too many ranks";
  throw Error(ErrorCode::kInvalidArgument, "-n {}: {}; give a number from 1, or auto, gpu or cpu", text, why);
}

int64_t default_num_ranks(const device::CpuCount& cpus, const CountGpus& count_gpus) {
  const auto gpus = count_gpus();
  if (gpus.num_gpus > 0) return gpus.num_gpus;
  return std::max(cpus.num_numa_nodes, std::min<int64_t>(2, cpus.num_cpus));
}

}  // namespace yoke::launch
