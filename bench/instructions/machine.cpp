// Hot paths without libtorch: see bench/instructions/run.
#include <array>
#include <memory>
#include <string>
#include <vector>

#include "bench/instructions/count.h"
#include "yoke/base/cpu_set.h"
#include "yoke/base/error.h"
#include "yoke/claim/policy.h"
#include "yoke/contract/rank_env.h"
#include "yoke/contract/step_times.h"
#include "yoke/dist/shared/engine.h"
#include "yoke/launch/output/line_assembler.h"
#include "yoke/launch/plan/plan.h"
#include "yoke/profile/trace_reader.h"
#include "yoke/slurm/check/rules.h"

namespace {

using namespace yoke;
using bench::count;

/// Fails if the compiler could have left something out.
void require(bool is_right, const char* what) {
  if (!is_right) throw Error(ErrorCode::kInternal, std::string(what) + " is wrong");
}

/// `yoke slurm check`: reads a script with directives, a loop and steps, and applies all rules.
void check_script() {
  std::string text =
      "#!/bin/bash\n#SBATCH --job-name=train --account=project_1 --partition=gpu\n#SBATCH --nodes=4\n"
      "#SBATCH --ntasks-per-node=8 --gpus-per-node=8 --cpus-per-task=7\n#SBATCH --time=1:00:00 --mem=480G\n"
      "#SBATCH --output=%x-%j.out\nset -euo pipefail\nmodule load LUMI partition/G\n";
  for (int i = 0; i < 40; ++i) {
    text += "export OPTION_" + std::to_string(i) + "=\"$(basename \"$PWD\")-${SLURM_JOB_ID}\"\n";
  }
  text += "for seed in 1 2 3; do\n  srun --cpu-bind=cores ./train --seed \"$seed\" | tee \"log.$seed\"\ndone\n";
  count("slurm.check/5", 5, [&] {
    const auto script = slurm::check::read_script("job.sh", text);
    slurm::check::check({.script = script, .version = {}});
  });
}

/// `yoke run -n 64`: the plan of each process, whose environment rank 63 reads.
void plan_ranks() {
  launch::LaunchSpec spec;
  spec.argv = {"./train", "--gpu=${local_rank}"};
  for (int i = 0; i < 60; ++i) spec.environment.set("VARIABLE_" + std::to_string(i), std::string(40, 'x'));
  spec.num_ranks = 64;
  launch::NodeFacts facts{.place = {.world_size = 64, .master_port = 1234}};
  facts.binding.ranks.resize(64);
  for (auto& rank : facts.binding.ranks) rank.num_threads = 1;
  count("launch.plan/3", 3, [&] {
    const auto plans = launch::plan(spec, facts);
    Environment environment;
    for (const auto& variable : plans.back().environment) {
      const auto equals = variable.find('=');
      environment.set(variable.substr(0, equals), variable.substr(equals + 1));
    }
    require(read_rank_env(environment).rank == 63, "the rank");
  });
}

/// `yoke run`: a megabyte of a rank's output, as it comes through a pipe, becomes lines with the rank's prefix.
void assemble_lines() {
  std::string bytes;
  while (bytes.size() < 1 << 20) bytes += "epoch 3, step 4711: loss 0.2231, 1,204 samples/s, learning rate 1.0e-04\n";
  count("launch.lines/3", 3, [&] {
    launch::LineAssembler assembler("[rank 12] ");
    size_t size = 0;
    for (size_t first = 0; first < bytes.size(); first += 4096) {
      std::string lines;
      assembler.feed(std::string_view(bytes).substr(first, 4096), lines);
      size += lines.size();
    }
    require(size > bytes.size(), "the size of the lines");
  });
}

/// `yoke claim -n 4`: four of 16 devices, of which three are in use, by the links between them.
void pick_devices() {
  std::vector<claim::Candidate> candidates(16);
  for (size_t i = 0; i < candidates.size(); ++i) candidates[i].id = candidates[i].key = std::to_string(i);
  for (const size_t i : {2, 7, 11}) candidates[i].mark(claim::Standing::kInUse, "in use by ada (pid 4121)");
  claim::Closeness closeness(16, std::vector<int64_t>(16, 1));
  for (size_t i = 0; i < 16; ++i) {
    for (size_t j = 0; j < 16; ++j) closeness[i][j] = i / 4 == j / 4 ? 5 : i / 8 == j / 8 ? 3 : 1;
  }
  count("claim.pick/5", 5, [&] {
    require(claim::pick(candidates, closeness, {.num_devices = 4}).chosen == std::vector<size_t>{12, 13, 14, 15},
            "the choice");
  });
}

/// `yoke profile`: a trace of 2,000 events.
void read_trace() {
  std::string text =
      R"({"schemaVersion": 1, "traceEvents": [{"ph": "X", "name": "ProfilerStep#0", "ts": 0, "dur": 90000,)"
      R"( "cat": "user_annotation", "pid": 1, "tid": 1})";
  for (int i = 0; i < 2'000; ++i) {
    text += R"(, {"ph": "X", "cat": "cpu_op", "name": "aten::addmm", "pid": 1, "tid": 1, "dur": 25.5, "args": {)"
            R"("External id": 2049, "Sequence number": 14, "Fwd thread id": 0}, "ts": )" +
            std::to_string(40 * i) + ".25}";
  }
  text += "]}";
  count("profile.read_trace/2", 2, [&] {
    size_t position = 0;
    profile::read_trace(
        [&](std::span<char> buffer) {
          const auto size = text.copy(buffer.data(), buffer.size(), position);
          position += size;
          return size;
        },
        "trace.json");
    require(position == text.size(), "the end of the trace");
  });
}

/// What `yoke tune` and `yoke plan` read, for each step of a program.
void read_step_times() {
  count("contract.step_times/1000", 1'000, [] {
    const auto line =
        to_line(StepTime{.step = 4'711, .time_ns = 81'250'000'000, .memory = {.resident_peak_bytes = 1 << 30}});
    require(std::get<StepTime>(parse_step_times(line)).step == 4'711, "the step");
  });
}

void read_cpus() {
  count("base.cpu_set/100", 100, [] {
    require(CpuSet::parse_list("0-15,64-79,128-143,192-207")->to_list() == "0-15,64-79,128-143,192-207", "the set");
  });
}

/// An all-reduce of two ranks. Both are polled by one thread, so that nobody waits.
class TwoRanks {
 public:
  void all_reduce(std::array<std::vector<float>, 2>& numbers) {
    namespace shared = dist::shared;
    std::array<std::shared_ptr<shared::Transfer>, 2> transfers;
    int num_ended = 0;
    for (size_t rank = 0; rank < 2; ++rank) {
      auto* const memory = reinterpret_cast<std::byte*>(numbers[rank].data());
      transfers[rank] = std::make_shared<shared::Transfer>();
      transfers[rank]->exchange = shared::make_reduction(
          segment_->layout(), static_cast<int64_t>(rank),
          {.type = shared::Type::kF32, .input = memory, .output = memory, .num_elements = std::ssize(numbers[rank])});
      transfers[rank]->on_end = [&](const std::exception_ptr& error) { num_ended += error == nullptr ? 1 : 0; };
      transfers[rank]->deadline = Clock::time_point::max();
      engines_[rank]->start(transfers[rank], shared::Driver::kWaiter);
    }
    while (num_ended < 2) {
      for (size_t rank = 0; rank < 2; ++rank) engines_[rank]->poll(transfers[rank]);
    }
  }

 private:
  UniqueFd file_;
  const std::shared_ptr<dist::shared::Segment> segment_ =
      dist::shared::Segment::create(dist::shared::layout_of(2), file_);
  std::array<std::unique_ptr<dist::shared::Engine>, 2> engines_ = {
      std::make_unique<dist::shared::Engine>(segment_, dist::shared::Engine::Options{.rank = 0}),
      std::make_unique<dist::shared::Engine>(segment_, dist::shared::Engine::Options{.rank = 1})};
};

/// Larger ones mostly copy, by instructions of the C library that differ between processors.
void all_reduce() {
  TwoRanks ranks;
  std::array<std::vector<float>, 2> numbers = {std::vector<float>(4, 1), std::vector<float>(4, 1)};
  count("shared.all_reduce_16_bytes/100", 100, [&] { ranks.all_reduce(numbers); });
  require(numbers[0] == numbers[1] && numbers[0][0] >= 8, "the sum");
}

}  // namespace

int main() {
  check_script();
  plan_ranks();
  assemble_lines();
  pick_devices();
  read_trace();
  read_step_times();
  read_cpus();
  all_reduce();
}
