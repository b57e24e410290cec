// Reads any bytes as the files of a process in /proc, and checks properties that every result must have.
//
// Input: stat, cgroup, environ, then each parent's name and arguments, separated by 0xF8, which is not in any UTF-8.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "yoke/base/text.h"
#include "yoke/device/json.h"
#include "yoke/device/process/info.h"
#include "yoke/device/process/origin.h"

namespace {

using namespace yoke::device;  // NOLINT(google-build-using-namespace): a program of one file

void check(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "does not hold: %s\n", what);
  std::abort();
}

std::string_view take(std::string_view& input) {
  const auto end = input.find('\xF8');
  const auto part = input.substr(0, end);
  input.remove_prefix(end == input.npos ? input.size() : end + 1);
  return part;
}

void check_stat(std::string_view text) {
  const auto stat = parse_process_stat(text);
  if (!stat) return;
  check(stat->start_ticks >= 0 && stat->cpu_ticks >= 0 && stat->resident_pages >= 0, "numbers are not negative");
  check(text.find("(" + stat->comm + ")") != text.npos, "the name is in the line");
}

void check_command(std::string_view cmdline) {
  const auto command = join_command(cmdline);
  check(command.size() <= cmdline.size() && command.find('\0') == command.npos, "a command is a line without NULs");
  const auto name = short_command(cmdline);
  check(cmdline.find(name) != cmdline.npos, "the short name is part of the command");
}

void check_origin(const Origin& origin) {
  const auto shown = yoke::printable(label(origin));
  for (const char c : shown) check(static_cast<unsigned char>(c) >= 0x20 && c != 0x7F, "a label is harmless");
  if (origin.slurm) check(origin.slurm->job_id > 0, "a job has a number");
  if (origin.torch_rank) check(origin.torch_rank->rank < origin.torch_rank->world_size, "a rank is one of its world");
  if (origin.container) check(!origin.container->runtime.empty(), "a container has a runtime");

  auto json = nlohmann::ordered_json::object();
  write_json(origin, json);
  Origin back;
  read_json(nlohmann::ordered_json::parse(json.dump()), back);
  auto again = nlohmann::ordered_json::object();
  write_json(back, again);
  // Texts are cut at a number of bytes. Reading replaces invalid UTF-8 by longer text, so a label that is read again
  // may be cut at a different place.
  json.erase("label");
  again.erase("label");
  check(json == again, "a recording says the same");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view input(reinterpret_cast<const char*>(data), size);
  check_stat(take(input));
  OriginSources sources{.cgroup = take(input)};
  if (!input.empty()) sources.environment = take(input);
  while (!input.empty() && sources.ancestors.size() < 8) {
    const auto comm = take(input);
    const auto cmdline = take(input);
    check_command(cmdline);
    sources.ancestors.push_back({std::string(comm), std::string(cmdline)});
  }
  check_origin(find_origin(sources));
  return 0;
}
