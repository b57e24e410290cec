// One rank of a job, for the black-box tests of World.
//
//   rank_program sum [TIMEOUT_MS]       one all_reduce of rank + 1; prints it. Then the same in a second World
//   rank_program throw|kill|hang RANK [TIMEOUT_MS]   that rank fails between the first collective and the second
//   rank_program steps                  asks should_stop() after each collective; prints "stepping", and the step at
//   which
//                                       it stopped
//   rank_program no-step RANK [TIMEOUT_MS]   the same without collectives; that rank hangs after its third step
#include <ATen/ops/full.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <string_view>

#include "yoke/base/environment.h"
#include "yoke/base/error.h"
#include "yoke/dist/world.h"

namespace {

double sum_over_ranks(yoke::dist::World& world) {
  const auto tensor = at::full({1}, static_cast<double>(world.rank() + 1));
  world.all_reduce(tensor);
  return tensor.item<double>();
}

void fail(std::string_view how) {
  if (how == "throw") throw std::runtime_error("no more rice");
  if (how == "kill") kill(getpid(), SIGKILL);
  while (true) pause();
}

/// With `hanging`, should_stop() is all that the ranks do together.
void step_until_told(yoke::dist::World& world, int64_t hanging) {
  int64_t step = 0;
  while (!world.should_stop()) {
    if (++step == 3) fmt::print("stepping\n"), std::fflush(stdout);
    if (step == 3 && hanging == world.rank()) fail("hang");
    if (hanging < 0) sum_over_ranks(world);
  }
  fmt::print("rank {} stopped at step {}\n", world.rank(), step);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view mode = argv[1];
  const bool has_rank = mode != "sum" && mode != "steps";
  const int64_t failing = has_rank ? yoke::parse_int(argv[2]).value() : -1;
  const int timeout_at = has_rank ? 3 : 2;
  const int64_t timeout = argc > timeout_at ? yoke::parse_int(argv[timeout_at]).value() : 60'000;
  try {
    yoke::dist::World world({.timeout = std::chrono::milliseconds(timeout)});
    fmt::print("rank {} of {} local {} sum {}\n", world.rank(), world.size(), world.local_rank(),
               sum_over_ranks(world));
    std::fflush(stdout);
    if (mode == "steps" || mode == "no-step") {
      step_until_told(world, failing);
      world.shutdown();
      return 0;
    }
    if (world.rank() == failing) fail(mode);
    if (failing >= 0) sum_over_ranks(world);
    world.shutdown();
    if (mode == "sum") {
      yoke::dist::World second({.timeout = std::chrono::milliseconds(timeout)});
      if (sum_over_ranks(second) != static_cast<double>(second.size() * (second.size() + 1) / 2)) return 3;
      second.shutdown();
    }
  } catch (const yoke::Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return yoke::exit_status(error.code());
  } catch (const std::exception& error) {
    fmt::print(stderr, "unexpected: {}\n", error.what());
    return 1;
  }
}
