// Reads any bytes as the kernel's files about AMD GPUs and processors.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "yoke/base/cpu_set.h"
#include "yoke/base/sysfs.h"
#include "yoke/base/text.h"
#include "yoke/device/amdgpu/detail/card.h"
#include "yoke/device/amdgpu/detail/kfd.h"
#include "yoke/device/cpu/detail/files.h"

namespace {

using namespace yoke::device;  // NOLINT(google-build-using-namespace): a program of one file

void check(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "does not hold: %s\n", what);
  std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);

  size_t num_bytes = 0;
  for (const auto line : yoke::lines_of(text)) {
    check(line.find('\n') == line.npos, "a line has no line feed");
    num_bytes += line.size();
  }
  check(num_bytes + static_cast<size_t>(std::count(text.begin(), text.end(), '\n')) == size,
        "lines are the whole text");

  for (const auto& [name, value] : yoke::parse_properties(text)) {
    check(!name.empty() && name.find_first_of(": \t\n") == name.npos, "names of properties are words");
    static_cast<void>(amdgpu::gfx_target(value));
    const auto share = yoke::percent(value, 100);
    check(share && *share >= 0 && *share <= 100, "a percentage is one");
  }
  if (const auto number = yoke::parse_number(text)) {
    check(yoke::parse_number(std::to_string(*number)) == number, "a number means the same when written anew");
  }

  if (const auto cpus = yoke::CpuSet::parse_list(text)) {
    check(yoke::CpuSet::parse_list(cpus->to_list()) == cpus, "a list of processors means the same when written anew");
  }

  if (const auto time = parse_cpu_time(text)) check(time->busy >= 0 && time->busy <= time->total, "busy is a part");
  if (const auto load = parse_load(text)) check(*load >= 0, "load is not negative");
  check(!cpu_name(text).empty(), "the processor has a name");

  const auto generation = amdgpu::pcie_generation(text);
  check(!generation || (*generation >= 1 && *generation <= 6), "generations of PCIe");
  static_cast<void>(amdgpu::highest_clock_mhz(text));
  if (const auto name = amdgpu::find_in_amdgpu_ids(text, 0x744c, 0xc8))
    check(!name->empty(), "a name that is found is one");
  return 0;
}
