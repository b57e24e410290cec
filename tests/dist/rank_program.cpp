// One rank of a job, for the tests of World in dist_test.cpp.
//
//   rank_program sum [TIMEOUT_MS]       prints an all_reduce of rank + 1; then repeats this in a second World
//   rank_program groups [TIMEOUT_MS]    sums of the ranks along both axes of a mesh of two rows, and on this host
//   rank_program throw|kill|hang RANK [TIMEOUT_MS]   rank RANK fails between the first collective and the second
//   rank_program heeds RANK             rank RANK throws between two collectives, and SIGTERM alone ends no rank
//   rank_program returns|exits0|exits5 RANK [TIMEOUT_MS]   the same, but rank RANK leaves main(), or calls exit(0) or
//                                       exit(5), after the last collective and before shutdown()
//   rank_program forks RANK             rank RANK forks a process that asks for a collective, and leaves main(), and
//   the
//                                       ranks go on
//   rank_program mismatch               rank 0 reduces more numbers than the others
//   rank_program alone                  rank 0 exchanges texts while the others reduce
//   rank_program caught                 the same, and each rank catches the error and ends with status 0
//   rank_program steps                  asks should_stop() after each collective; prints "stepping", and the number
//                                       of the step at which it stopped
//   rank_program churn [TIMEOUT_MS]     prints what carries CPU tensors, then "churning", and communicates until it
//   ends rank_program no-step RANK [TIMEOUT_MS]   like steps, without collectives; rank RANK hangs after its third step
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "yoke/base/environment.h"
#include "yoke/base/error.h"
#include "yoke/dist/mesh.h"
#include "yoke/dist/world.h"

namespace {

/// Returns the sum over the group's ranks of (the rank's number in the World + 1).
double sum_over_ranks(yoke::dist::Group& group) {
  const auto tensor = at::full({1}, static_cast<double>(group.ranks()[static_cast<size_t>(group.rank())] + 1));
  group.all_reduce(tensor);
  return tensor.item<double>();
}

void print_sums_of_groups(yoke::dist::World& world) {
  yoke::dist::Mesh mesh(world, {{"replicate", 2}, {"shard", world.size() / 2}});
  auto here = world.of_this_host();
  for (int i = 0; i < 20; ++i) {                  // lets ranks reach each sum at different times
    if (world.rank() % 3 == i % 3) usleep(1000);  // clock: the work of a step
    sum_over_ranks(mesh["shard"]);
    if (sum_over_ranks(mesh["replicate"]) != sum_over_ranks(mesh["replicate"])) throw std::runtime_error("mixed");
  }
  fmt::print("rank {}: shard {} replicate {} host {}\n", world.rank(), sum_over_ranks(mesh["shard"]),
             sum_over_ranks(mesh["replicate"]), sum_over_ranks(here));
  std::fflush(stdout);
}

void check(const char* what, const at::Tensor& result, const at::Tensor& wanted) {
  if (!at::equal(result, wanted.expand_as(result))) throw std::runtime_error(fmt::format("a wrong result of {}", what));
}

/// Collectives of all kinds and sizes in two groups, waited for or in flight, of ordinary tensors and of one that lies
/// where the buckets of DistributedDataParallel do. Each result is checked.
void churn(yoke::dist::World& world) {
  auto& backend = *world.process_group().getBackend(c10::DeviceType::CPU);
  auto second = world.split(0);
  fmt::print("rank {} uses {}\nchurning\n", world.rank(), backend.getBackendName());
  std::fflush(stdout);
  const auto mark = static_cast<float>(world.rank() + 1);
  const auto marks = at::arange(1, world.size() + 1, at::kFloat), sum = marks.sum();
  const auto bucket = backend.supportsTensorAlloc(0) ? backend.allocateTensor(300'000, at::kFloat) : at::empty(300'000);
  for (int64_t i = 0;; ++i) {
    const int64_t size = 1 + i * i * 37 % 90'001, root = i % world.size();
    const auto own = at::full({1 + i * 13 % 9'000}, mark), in_flight = at::full({size}, mark),
               of_second = at::full({size / 3 + 1}, mark);
    auto first_pending = world.start_all_reduce(in_flight);
    auto second_pending = second.start_all_reduce(of_second);
    auto bucket_pending = world.start_all_reduce(bucket.fill_(mark));
    const auto sent = own.clone(), part = at::empty_like(own), rows = own.repeat({world.size(), 1});
    world.broadcast(sent, root);
    check("broadcast", sent, marks[root]);
    check("all_gather", world.all_gather(own), marks.unsqueeze(1));
    if (const auto gathered = world.gather(own, root); gathered.defined()) {
      check("gather", gathered, marks.unsqueeze(1));
    }
    world.scatter(part, world.rank() == root ? rows : at::Tensor(), root);
    check("scatter", part, marks[root]);
    world.reduce_scatter(part, rows.flatten());
    check("reduce_scatter", part, sum);
    const auto exchanged = at::empty_like(rows);
    world.all_to_all(exchanged, rows);
    check("all_to_all", exchanged, marks.unsqueeze(1));
    second.barrier();
    second_pending.wait();
    first_pending.wait();
    bucket_pending.wait();
    check("all_reduce", in_flight, sum);
    check("all_reduce of the second group", of_second, sum);
    check("all_reduce of a bucket", bucket, sum);
  }
}

void fail(std::string_view how) {
  if (how == "throw") throw std::runtime_error("no more rice");
  if (how == "kill") kill(getpid(), SIGKILL);
  while (true) pause();
}

/// Runs steps until should_stop(). If `hanging` is a rank, that rank hangs, and ranks communicate only in
/// should_stop().
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
  const bool has_rank = mode != "sum" && mode != "steps" && mode != "groups" && mode != "mismatch" && mode != "alone" &&
                        mode != "caught" && mode != "churn";
  const int64_t failing = has_rank ? yoke::parse_int(argv[2]).value() : -1;
  const int timeout_at = has_rank ? 3 : 2;
  const int64_t timeout = argc > timeout_at ? yoke::parse_int(argv[timeout_at]).value() : 60'000;
  try {
    yoke::dist::World world({.timeout = std::chrono::milliseconds(timeout)});
    fmt::print("rank {} of {} local {} sum {}\n", world.rank(), world.size(), world.local_rank(),
               sum_over_ranks(world));
    std::fflush(stdout);
    if (mode == "churn") churn(world);
    if (mode == "groups") {
      print_sums_of_groups(world);
      world.shutdown();
      return 0;
    }
    if (mode == "mismatch") {
      world.barrier();
      const auto tensor = at::full({world.rank() == 0 ? 4000 : 1}, 1.0);
      while (true) world.all_reduce(tensor);
    }
    if (mode == "alone" || mode == "caught") {
      if (world.rank() == 0) world.all_gather_text("as if it saved");
      sum_over_ranks(world);
    }
    if (mode == "steps" || mode == "no-step") {
      step_until_told(world, failing);
      world.shutdown();
      return 0;
    }
    if (mode == "forks") {
      if (world.rank() == failing) {
        const auto child = fork();
        if (child == 0) {
          try {
            sum_over_ranks(world);
          } catch (const yoke::Error& error) {
            fmt::print("child: {}\n", error.what());
          }
          world.shutdown();
          return 0;
        }
        int status = -1;
        waitpid(child, &status, 0);
        fmt::print("the child has ended with {}\n", status);
      }
      for (int i = 0; i < 100; ++i) sum_over_ranks(world);
      fmt::print("rank {} goes on: {}\n", world.rank(), sum_over_ranks(world));
      world.shutdown();
      return 0;
    }
    if (mode == "heeds" || mode == "returns" || mode == "exits0" || mode == "exits5") {
      world.should_stop();
      if (mode == "heeds" && world.rank() == failing) fail("throw");
      sum_over_ranks(world);
      if (mode == "returns" && world.rank() == failing) return 0;
      if (world.rank() == failing) std::exit(mode == "exits0" ? 0 : 5);
      world.shutdown();
      fmt::print("rank {} has shut down\n", world.rank());
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
    return mode == "caught" ? 0 : yoke::exit_status(error.code());
  } catch (const std::exception& error) {
    fmt::print(stderr, "unexpected: {}\n", error.what());
    return 1;
  }
}
