#include "yoke/scaling/meter.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <nlohmann/json.hpp>

#include "yoke/base/clock.h"
#include "yoke/base/command_output.h"
#include "yoke/base/error.h"
#include "yoke/base/signal_name.h"
#include "yoke/base/text.h"
#include "yoke/contract/variables.h"
#include "yoke/launch/process/descendants.h"
#include "yoke/profile/trace_file.h"
#include "yoke/program/measured_program.h"
#include "yoke/program/private_folder.h"
#include "yoke/tune/program.h"
#include "yoke/tune/step_times.h"

namespace yoke::scaling {
namespace {

namespace fs = std::filesystem;

using Words = std::vector<std::string>;

/// One of several copies of a program that run at once, and what its steps have shown.
struct Copy {
  Words argv;
  std::vector<std::string> environment;
  tune::StepTimeFolder times;
  pid_t pid = -1;          ///< -1: MeasuredProgram has it.
  bool has_ended = false;  ///< Not known of the one that MeasuredProgram has.
  int64_t num_steps = 0;
  Clock::time_point last_progress = Clock::now();
  std::optional<tune::Pace> pace = std::nullopt;
  tune::Memory memory = {};

  bool is_done() const { return pace && (pace->is_enough || has_ended); }
  std::string problem(double timeout_s) const {
    return has_ended ? fmt::format("ended after {} steps, which are too few to measure", num_steps)
                     : fmt::format("made no step for {:g} s (--timeout)", timeout_s);
  }
};

class TrainingMeter {
 public:
  TrainingMeter(const MeterOptions& options, int& interruption)
      : options_(options),
        folder_(options.environment.value_or("TMPDIR", "/tmp"), "plan"),
        interruption_(interruption) {
    interruption_ = 0;
  }

  std::optional<MeasuredTraining> measure() {
    MeasuredTraining measured;
    const auto alone = time_steps({options_.argv}, "timing steps");
    if (alone.empty()) return std::nullopt;
    measured.step_seconds = alone[0].pace->step_seconds;
    measured.spread_percent = alone[0].pace->spread_percent;
    measured.num_steps = alone[0].pace->num_steps;
    measured.device_peak_bytes = alone[0].memory[static_cast<size_t>(tune::Resource::kDevice)].peak_bytes;
    if (options_.num_neighbours) {
      const auto copies = time_steps(commands_of_copies(*options_.num_neighbours, measured.device_peak_bytes > 0),
                                     "timing steps of several copies");
      if (copies.empty()) return std::nullopt;
      double sum = 0;
      for (const auto& copy : copies) sum += copy.pace->step_seconds;
      measured.neighbour_step_seconds = sum / static_cast<double>(copies.size());
    }
    if (!record(measured)) return std::nullopt;
    return measured;
  }

 private:
  fs::path new_folder() {
    auto path = folder_.path() / std::to_string(num_folders_++);
    fs::create_directory(path);
    return path;
  }

  Error failure(const program::MeasuredProgram& program, const std::string& what) const {
    return {ErrorCode::kFailedPrecondition, "{}{}", what, tune::end_of_output(options_.argv[0], program.output())};
  }

  /// Without a GPU of its own, each copy of a program that uses GPUs would use the first one.
  std::vector<Words> commands_of_copies(int64_t num_copies, bool uses_gpus) const {
    if (!uses_gpus) return std::vector<Words>(static_cast<size_t>(num_copies), options_.argv);
    const auto output = run_quietly({options_.yoke, "visible", "--json"}, options_.environment);
    if (output.status != 0) {
      throw Error(ErrorCode::kUnavailable, "`yoke visible` did not tell which GPUs the copies can have: {}",
                  printable(output.err));
    }
    return commands_with_gpus(options_, num_copies, output.out);
  }

  /// A FIFO for each copy, by which they wait for each other after each step.
  std::vector<std::string> new_fifos(size_t num_copies) {
    const auto folder = new_folder();
    std::vector<std::string> paths;
    for (size_t i = 0; i < num_copies; ++i) {
      paths.push_back(folder / std::to_string(i));
      if (mkfifo(paths.back().c_str(), 0600) != 0) throw system_error(errno, paths.back());
    }
    return paths;
  }

  /// Runs all commands at once, which are copies of one program. Empty: interrupted.
  std::vector<Copy> time_steps(const std::vector<Words>& commands, const char* purpose) {
    launch::become_subreaper();
    std::vector<Copy> copies;
    const auto fifos = commands.size() > 1 ? new_fifos(commands.size()) : std::vector<std::string>();
    for (size_t i = 0; i < commands.size(); ++i) {
      const auto folder = new_folder();
      auto environment = options_.environment;
      environment.set(variable::kStepTimes, folder.string());
      if (!fifos.empty()) environment.set(variable::kLockStep, fifos[i]);
      copies.push_back(
          {.argv = commands[i], .environment = environment.to_strings(), .times = tune::StepTimeFolder(folder)});
    }
    // The end of the measured program ends the copies too, because all of them are descendants of this process.
    for (size_t i = 1; i < copies.size(); ++i) start(copies[i]);
    program::MeasuredProgram program(
        {.argv = copies[0].argv, .environment = copies[0].environment, .copy_to = options_.copy_to});
    const auto begin = Clock::now();
    while (!program.status() && !program.interruption() && !have_enough(copies)) {
      program.wait(messages_, std::chrono::milliseconds(100));
      int64_t num_steps = 0;
      for (auto& copy : copies) {
        read_steps(copy);
        num_steps += copy.num_steps;
      }
      if (!program.status() && !program.interruption()) require_progress(copies, program);
      options_.on_progress(fmt::format("{}: {} steps, {:.0f} s", purpose, num_steps,
                                       std::chrono::duration<double>(Clock::now() - begin).count()));
    }
    const auto status = program.status();
    if (!end(program)) return {};
    if (!std::ranges::all_of(copies, [](const Copy& copy) { return copy.pace.has_value(); })) {
      throw end_without_steps(program, status.value_or(0), copies[0].num_steps);
    }
    return copies;
  }

  /// Returns false if a signal has interrupted the program.
  bool end(program::MeasuredProgram& program) {
    options_.on_progress("");
    program.end(messages_, std::chrono::seconds(3));
    interruption_ = program.interruption().value_or(0);
    return !program.interruption();
  }

  static void start(Copy& copy) {
    copy.pid = spawn({.argv = copy.argv,
                      .environment = copy.environment,
                      .in = kNullStream,
                      .out = kNullStream,
                      .err = kNullStream,
                      .new_session = true,
                      .death_signal = SIGKILL});
    if (copy.pid < 0) throw system_error(errno, "starting a process for " + copy.argv[0]);
  }

  void read_steps(Copy& copy) const {
    copy.has_ended = copy.pid > 0 && kill(copy.pid, 0) != 0;  // MeasuredProgram reaps all children
    const auto ranks = copy.times.read();
    if (ranks.empty()) return;
    require_one_rank(ranks.front());
    if (ranks.front().num_steps() > copy.num_steps) copy.last_progress = Clock::now();
    copy.num_steps = ranks.front().num_steps();
    copy.pace = tune::pace_of(ranks, {.min_seconds = options_.seconds, .max_seconds = options_.seconds});
    copy.memory = tune::memory_of(ranks);
  }

  /// When a copy has ended, the others wait for it in vain, and are as measured as they will ever be.
  static bool have_enough(const std::vector<Copy>& copies) {
    return std::ranges::all_of(copies, &Copy::is_done) ||
           (std::ranges::any_of(copies, &Copy::has_ended) &&
            std::ranges::all_of(copies, [](const Copy& copy) { return copy.pace.has_value(); }));
  }

  void require_progress(const std::vector<Copy>& copies, const program::MeasuredProgram& program) const {
    if (have_enough(copies)) return;
    const auto has_failed = [&](const Copy& copy) {
      return copy.has_ended ||
             (!copy.is_done() && Clock::now() - copy.last_progress > std::chrono::duration<double>(options_.timeout_s));
    };
    if (std::ranges::none_of(copies, has_failed)) return;
    // The others wait for the copy that has ended, or that has made the fewest steps.
    const auto& behind = *std::ranges::min_element(
        copies, {}, [](const Copy& copy) { return std::pair(!copy.has_ended, copy.num_steps); });
    if (&behind == copies.data()) {
      throw failure(program, fmt::format("no step ended for {:g} s (--timeout)", options_.timeout_s));
    }
    throw Error(ErrorCode::kFailedPrecondition,
                "copy {} of {} {}, and its output is not kept; start {} at once to see what it says",
                &behind - copies.data() + 1, printable(options_.argv[0]), behind.problem(options_.timeout_s),
                copies.size());
  }

  /// Why a program that has ended cannot be measured.
  Error end_without_steps(const program::MeasuredProgram& program, int status, int64_t num_steps) const {
    constexpr int kNotFound = 127, kCannotRun = 126;  // as MeasuredProgram has it, if the program has not begun
    if (program.output().empty() && (status == kNotFound || status == kCannotRun)) {
      return {ErrorCode::kFailedPrecondition, "{}: the program {}", printable(options_.argv[0]),
              status == kNotFound ? "was not found" : "cannot be executed"};
    }
    if (status != 0) return failure(program, describe_end(status));
    return failure(program, fmt::format("the program ended after {} steps, which are too few to measure; let it train "
                                        "longer",
                                        num_steps));
  }

  static void require_one_rank(const tune::RankSteps& rank) {
    if (rank.world_size == 1) return;
    throw Error(ErrorCode::kInvalidArgument,
                "the program is a job of {} ranks, and a prediction begins with one; start it with `yoke run -n 1`",
                rank.world_size);
  }

  /// Has `yoke profile` record some steps. Returns false if it was interrupted.
  bool record(MeasuredTraining& measured) {
    const auto folder = new_folder();
    Words argv = {options_.yoke, "profile", "--shapes", "--stop", "--steps", "8", "--out", folder.string(), "--"};
    argv.insert(argv.end(), options_.argv.begin(), options_.argv.end());
    program::MeasuredProgram program(
        {.argv = argv, .environment = options_.environment.to_strings(), .copy_to = options_.copy_to});
    const auto begin = Clock::now();
    while (!program.status() && !program.interruption()) {
      program.wait(messages_, std::chrono::milliseconds(200));
      const auto seconds = std::chrono::duration<double>(Clock::now() - begin).count();
      if (seconds > 2 * options_.timeout_s) throw failure(program, "the recording of steps did not end");
      options_.on_progress(fmt::format("recording steps: {:.0f} s", seconds));
    }
    const auto status = program.status();
    if (!end(program)) return false;
    const auto trace = folder / "rank0.json";
    if (!fs::exists(trace)) throw failure(program, fmt::format("no trace was recorded ({})", describe_end(*status)));
    measured.trace = profile::read_trace_file(trace);
    measured.trace.path = "rank0.json";  // the file is removed
    return true;
  }

  const MeterOptions& options_;
  program::SignalMessages messages_;  // before the folder, so that a signal cannot end this process without removing it
  program::PrivateFolder folder_;
  int num_folders_ = 0;
  int& interruption_;
};

}  // namespace

std::optional<MeasuredTraining> measure_training(const MeterOptions& options, int& interruption) {
  return TrainingMeter(options, interruption).measure();
}

std::vector<std::vector<std::string>> commands_with_gpus(const MeterOptions& options, int64_t num_copies,
                                                         const std::string& visible) {
  const auto devices = nlohmann::json::parse(visible).at("devices");  // in the order of programs
  std::vector<std::string> ids;
  for (const auto& device : devices) {
    if (!device.at("visible").get<bool>() || device.at("vendor") != devices[0].at("vendor")) continue;
    const auto& instance = device.at("instance");
    ids.push_back(device.at("index").dump() + (instance.is_null() ? "" : ":" + instance.dump()));
  }
  std::vector<Words> commands(static_cast<size_t>(num_copies), options.argv);
  if (ids.size() < commands.size()) {
    throw Error(ErrorCode::kFailedPrecondition,
                "--neighbours {}: each copy of {} needs a GPU of its own, and programs see {} here; see `yoke visible`",
                num_copies, printable(options.argv[0]), ids.size());
  }
  for (size_t i = 0; i < commands.size(); ++i) {
    const Words pinned = {options.yoke, "visible", "--set", ids[i], "--"};
    commands[i].insert(commands[i].begin(), pinned.begin(), pinned.end());
  }
  return commands;
}

}  // namespace yoke::scaling
