// `yoke plan`: predicts how a training scales, from a step of one device and the links of a site.
#include "yoke/scaling/plan.h"

#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>

#include "yoke/base/quantity.h"
#include "yoke/base/terminal.h"
#include "yoke/base/text.h"
#include "yoke/cli/command.h"
#include "yoke/cli/frame/attempt.h"
#include "yoke/cli/frame/drawing.h"
#include "yoke/cli/frame/input.h"
#include "yoke/cli/frame/output.h"
#include "yoke/cli/frame/progress_line.h"
#include "yoke/cli/help/help.h"
#include "yoke/cli/options/value.h"
#include "yoke/profile/trace_file.h"
#include "yoke/scaling/input.h"
#include "yoke/tui/terminal.h"

namespace yoke::cli {
namespace {

struct PlanArgs {
  std::string profile, link, intra, inter, strategy = "ddp";
  std::string dtype, optimizer;  // empty: of the trace, or float32 and adam
  std::string other_memory, svg, png;
  scaling::GivenTraining given;  // precision, optimizer and other_bytes follow from the words
  std::optional<double> steps, epochs, dataset_size, batch_size;
  std::optional<double> time, timeout;  // of the measurement
  int64_t max_devices = 4096, gpus_per_node = 8, units = 24, bucket_mib = 25;
  bool divides_batch = false, json = false;
  bool shows_output = false;
};

struct NumberUnit {
  std::string_view name;
  double factor;
};
constexpr NumberUnit kTimeUnits[] = {{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"min", 60}, {"s", 1}};
constexpr NumberUnit kCountUnits[] = {{"k", 1e3}, {"K", 1e3}, {"M", 1e6}, {"G", 1e9},
                                      {"B", 1e9}, {"b", 1e9}, {"T", 1e12}};

/// "100ms" in seconds, "1.2M" as a number. Any other text stays, and the check of its option refuses it.
std::string without_unit(std::string text, std::span<const NumberUnit> units) {
  for (const auto& [name, factor] : units) {
    if (!text.ends_with(name)) continue;
    const auto* const begin = text.data();
    const auto* const end = begin + text.size() - name.size();
    double number = 0;
    const auto [stop, error] = std::from_chars(begin, end, number);
    if (error == std::errc() && stop == end) return fmt::format("{}", number * factor);
  }
  return text;
}

/// A length of time, "0.1" or "100ms".
template <typename T>
void add_time(CLI::App& cmd, const char* names, T& target, double min, double max, const std::string& text) {
  add_number(cmd, names, target, {"SECONDS", min, max}, text)->transform([](std::string value) {
    return without_unit(std::move(value), kTimeUnits);
  });
}

/// A number of things, "25600000" or "25.6M".
void add_count(CLI::App& cmd, const char* names, std::optional<double>& target, double max, const std::string& text) {
  add_number(cmd, names, target, {"NUMBER", 1, max}, text)->transform([](std::string value) {
    return without_unit(std::move(value), kCountUnits);
  });
}

scaling::MeasuredLink measured_link_of(const std::string& path) {
  const auto json = nlohmann::json::parse(read_input(path, "the JSON of a measurement"), nullptr, false);
  return scaling::parse_measured_link(json, path);
}

/// Whether the value of an option is meant as figures, such as "4,230", and is not a file.
bool are_figures(const std::string& text) {
  return text.find_first_not_of("0123456789.,eE+-") == text.npos ||
         (text.find(',') != text.npos && !std::filesystem::exists(text));
}

scaling::Level level_inside(std::string_view option, const std::string& text) {
  if (are_figures(text)) return scaling::parse_level(option, text);
  const auto measured = measured_link_of(text);
  if (measured.num_nodes.value_or(1) > 1 && measured.num_nodes != measured.num_ranks) {
    refuse("{} {}: its {} ranks were on {} nodes; give it as --inter, and one of a single node as --intra", option,
           printable(text), measured.num_ranks, *measured.num_nodes);
  }
  return scaling::level_of(measured);
}

scaling::Topology topology_of(const PlanArgs& args) {
  if (!args.link.empty() && !args.intra.empty()) refuse("--link and --intra both give the links inside a node");
  scaling::Topology topology{.intra = {}, .inter = {}, .devices_per_node = args.gpus_per_node};
  if (!args.link.empty()) topology.intra = level_inside("--link", args.link);
  if (!args.intra.empty()) topology.intra = level_inside("--intra", args.intra);
  const bool has_intra = !args.link.empty() || !args.intra.empty();
  if (!has_intra && (args.gpus_per_node > 1 || args.inter.empty())) {
    refuse(
        "say how fast devices communicate: --link FILE with what `yoke bench all-reduce --json` printed, or --intra "
        "and --inter with microseconds and GB/s, such as --intra 4,230 --inter 8,90");
  }
  if (!args.inter.empty()) {
    topology.inter = are_figures(args.inter) ? scaling::parse_level("--inter", args.inter)
                                             : scaling::level_between_nodes(measured_link_of(args.inter),
                                                                            topology.intra, args.gpus_per_node);
  } else {
    topology.inter = topology.intra;
    if (args.max_devices > args.gpus_per_node)
      topology.inter.source += ", as inside a node, since --inter was not given";
  }
  return topology;
}

void check_plan_args(const PlanArgs& args, const Context& context) {
  const int num_ways = (args.profile.empty() ? 0 : 1) + (context.rest.empty() ? 0 : 1);
  if (num_ways > 1) refuse("give a program or --profile, since each is a source of the measured step");
  if (num_ways == 0 && (!args.given.step_seconds || !args.given.num_parameters)) {
    refuse(
        "say what a step of one device is: a program, as in `yoke plan -- yoke run -n 1 ./train`; --profile FOLDER; or "
        "--step and --parameters");
  }
  if (!context.rest.empty() && args.given.step_seconds) {
    refuse(
        "--step is measured from the program {}; leave one of them out (a number and its unit are one "
        "word, as in 120ms)",
        printable(context.rest.front()));
  }
  if (num_ways == 1 && args.given.num_parameters) {
    refuse("a program or --profile shows how many parameters the network has; leave --parameters out");
  }
  if (context.rest.empty() && (args.time || args.timeout || args.shows_output)) {
    refuse("--time, --timeout and -v are for a program that is measured; give one, or leave them out");
  }
  if (context.rest.empty() && args.given.num_neighbours) {
    refuse("--neighbours runs copies of a program; give one, as in `yoke plan --neighbours 2 -- python train.py`");
  }
  if (args.given.slowdown && args.given.num_neighbours) {
    refuse("--neighbours measures what --slowdown gives; leave one of them out");
  }
  if ((args.given.backward_share || args.given.optimizer_share) && (!context.rest.empty() || !args.profile.empty())) {
    refuse(
        "--backward-share and --optimizer-share divide the step of --step and --parameters; a program or "
        "--profile shows the parts of its step");
  }
  const int num_of_epochs = (args.epochs ? 1 : 0) + (args.dataset_size ? 1 : 0) + (args.batch_size ? 1 : 0);
  const bool is_batch_alone = num_of_epochs == 1 && args.batch_size && args.divides_batch;
  if (num_of_epochs != 0 && num_of_epochs != 3 && !is_batch_alone)
    refuse(
        "--epochs, --dataset-size and --batch-size together give the length of the training; give all three, or "
        "--steps");
  if (args.steps && args.epochs) refuse("--steps and --epochs both give the length of the training");
  check_drawings(args.svg, args.png);
}

double num_steps_of(const PlanArgs& args) {
  if (args.epochs) return std::ceil(*args.epochs * *args.dataset_size / *args.batch_size);
  return args.steps.value_or(100'000);
}

/// A batch that is divided has no work for more devices than it has samples.
int64_t num_devices_of(const PlanArgs& args) {
  if (!args.divides_batch || !args.batch_size) return args.max_devices;
  return std::min(args.max_devices, static_cast<int64_t>(*args.batch_size));
}

/// Also completes PlanArgs::given.
scaling::PlanOptions options_of(PlanArgs& args) {
  scaling::PlanOptions options;
  options.strategies.clear();
  for (const auto strategy : {scaling::Strategy::kDdp, scaling::Strategy::kZero1, scaling::Strategy::kFsdp}) {
    if (args.strategy == "all" || args.strategy == scaling::name(strategy)) options.strategies.push_back(strategy);
  }
  if (options.strategies.empty()) refuse("--strategy {}: give ddp, zero1, fsdp or all", printable(args.strategy));
  if (!args.dtype.empty() && args.dtype != "float32" && args.dtype != "mixed") {
    refuse("--dtype {}: give float32 or mixed", printable(args.dtype));
  }
  options.max_devices = num_devices_of(args);
  options.divides_batch = args.divides_batch;
  options.num_steps = num_steps_of(args);
  options.topology = topology_of(args);
  options.model = {.bucket_bytes = args.bucket_mib << 20,
                   .first_bucket_bytes = std::min<int64_t>(1, args.bucket_mib) << 20,
                   .num_units = args.units};
  auto& given = args.given;
  if (args.dtype == "float32") given.precision = scaling::Precision::kFloat32;
  if (args.dtype == "mixed") given.precision = scaling::Precision::kMixed;
  given.optimizer = scaling::parse_optimizer(args.optimizer);
  if (!given.optimizer && !args.optimizer.empty()) {
    refuse("--optimizer {}: give adam, momentum or sgd", printable(args.optimizer));
  }
  given.other_bytes = parse_memory(args.other_memory);
  if (!given.other_bytes && !args.other_memory.empty()) {
    refuse("--activations {}: give a size in KiB, MiB, GiB or TiB, such as 12GiB", printable(args.other_memory));
  }
  return options;
}

/// nullopt: a signal ended the measurement.
std::optional<scaling::PlanInput> find_input(const PlanArgs& args, const Context& context,
                                             scaling::PlanOptions& options, int& interruption) {
  if (!context.rest.empty()) {
    ProgressLine progress(context.environment);
    scaling::MeterOptions how{.argv = context.rest,
                              .environment = with_python_hooks(context.environment, context.installation),
                              .yoke = context.installation.executable.string(),
                              .num_neighbours = args.given.num_neighbours,
                              .copy_to = args.shows_output ? STDERR_FILENO : kNullStream,
                              .on_progress = progress.teller()};
    how.seconds = args.time.value_or(how.seconds);
    how.timeout_s = args.timeout.value_or(how.timeout_s);
    const auto measured = measure_training(how, interruption);
    return measured ? std::optional(input_of(args.given, *measured, options)) : std::nullopt;
  }
  if (args.profile.empty()) return input_of(args.given, options);
  const auto paths = profile::find_traces(args.profile);
  if (paths.size() != 1) {
    refuse("--profile {}: there are {} traces in it; a prediction begins with the trace of one rank",
           printable(args.profile), paths.size());
  }
  return input_of(args.given, profile::read_trace_file(paths.front()), options);
}

std::string page_of(const scaling::Plan& plan, const Context& context) {
  const auto width = output_width(context);
  const bool is_ascii = tui::prepare_locale(context.environment) == tui::Glyphs::kAscii;
  const bool is_colored = wants_color(ColorMode::kAuto, context.environment, isatty(STDOUT_FILENO) != 0);
  auto text = to_text(to_table(plan), width) + "\n";
  if (const auto sentence = to_sentence(plan); !sentence.empty()) text += wrapped(sentence, width) + "\n";
  text += view::chart_text(
      to_chart(plan),
      {.width = std::min<int64_t>(width, 80), .height = 8, .is_ascii = is_ascii, .is_colored = is_colored});
  text += "\nAssumptions:\n";
  for (const auto& sentence : plan.assumptions) text += wrapped("- " + sentence, width) + "\n";
  return text;
}

int plan_training(PlanArgs args, Context& context) {
  auto options = options_of(args);
  int interruption = 0;
  const auto input = find_input(args, context, options, interruption);
  if (!input) return 128 + interruption;
  auto plan = make_plan(input->workload, input->origin, options);
  if (options.max_devices < args.max_devices) {
    plan.assumptions.push_back(
        fmt::format("Samples of the batch: {}; more devices would have nothing to compute.", options.max_devices));
  }
  if (!args.svg.empty()) write_drawing(args.svg, view::chart_svg(to_chart(plan), {}), Drawing::kSvg);
  if (!args.png.empty()) write_drawing(args.png, view::chart_png(to_chart(plan), {}), Drawing::kPng);
  context.out << (args.json ? json_page(to_json(plan)) : page_of(plan, context));
  return kExitOk;
}

int run_plan(const PlanArgs& args, Context& context) {
  check_plan_args(args, context);
  if (context.rest.empty()) return plan_training(args, context);
  return attempt_in_child(context, [&](const auto& /*finish*/) { return plan_training(args, context); });
}

void add_step_options(CLI::App& cmd, PlanArgs& args) {
  add_value(cmd, "--profile", args.profile, "PATH", "Read the trace of one rank, of `yoke profile --shapes --out`");
  add_time(cmd, "--step", args.given.step_seconds, 1e-9, 1e6,
           "How long a step of one device takes, 0.12 or 120ms; with --profile: without recording");
  add_count(cmd, "--parameters", args.given.num_parameters, 1e15, "How many parameters the network has: 25.6M, 7B");
  add_number(cmd, "--backward-share", args.given.backward_share, {"SHARE", 0, 1},
             "With --step and --parameters: the share of backward in the time without the optimizer; else two thirds");
  add_number(cmd, "--optimizer-share", args.given.optimizer_share, {"SHARE", 0, 1},
             "With --step and --parameters: the optimizer's share; else 0");
  add_time(cmd, "--loader", args.given.loader_seconds, 0, 1e6, "How long the loader of a device needs for a batch");
  add_value(cmd, "--dtype", args.dtype, "float32|mixed",
            "Of parameters and gradients; mixed: 16 bits, and a float32 copy; else as the trace shows, or float32");
  add_value(cmd, "--optimizer", args.optimizer, "adam|momentum|sgd",
            "For its state in memory; else as the trace shows, or adam");
  add_value(cmd, "--activations", args.other_memory, "SIZE", "Memory of activations and all else, such as 12GiB");
  add_time(cmd, "--time", args.time, 0.1, 3600, "With a program: how long steps are timed; else 10");
  add_number(
      cmd, "--neighbours", args.given.num_neighbours, {"N", 2, 1024},
      "With a program: also run N copies at once that wait for each other after each step, to measure how much they "
      "slow each other down and what the slowest one costs; on GPUs, each has one of its own");
  add_time(cmd, "--timeout", args.timeout, 1, 86'400,
           "With a program: if it makes no step for so long, it has failed; else 300");
  cmd.add_flag("-v,--verbose", args.shows_output, "Show the program's output");
}

void add_site_options(CLI::App& cmd, PlanArgs& args) {
  add_value(cmd, "--link", args.link, "LINK",
            "The links between devices: the JSON of `yoke bench all-reduce`, or microseconds and GB/s");
  add_value(cmd, "--intra", args.intra, "LINK", "The links inside a node, as --link");
  add_value(cmd, "--inter", args.inter, "LINK",
            "The links of a node to others, as --link; GB/s of all its network cards together");
  add_number(cmd, "--gpus-per-node", args.gpus_per_node, {"N", 1, 1 << 20}, "Devices of a node");
  add_number(
      cmd, "--contention", args.given.contention, {"SHARE", 0, 1},
      "How much slower a device computes while it communicates; else what the file of --link has, or 0, or 1 for "
      "a trace of processors");
  add_number(cmd, "--slowdown", args.given.slowdown, {"FACTOR", 1, 100},
             "How much longer a step's computing takes on the slowest of all devices that compute at once; else 1, or "
             "measured with --neighbours");
}

void add_training_options(CLI::App& cmd, PlanArgs& args) {
  add_value(cmd, "--strategy", args.strategy, "ddp|zero1|fsdp|all", "How the training is divided among devices")
      ->capture_default_str();
  add_number(cmd, "--max-devices", args.max_devices, {"N", 1, 1 << 20}, "Predict for 1, 2, 4, ... N devices");
  cmd.add_flag("--global-batch", args.divides_batch,
               "Divide the batch of one device among all (strong scaling); else each device has it (weak scaling)");
  add_count(cmd, "--steps", args.steps, 1e15, "Steps of the training on one device, for GPU-hours; else 100000");
  add_number(cmd, "--epochs", args.epochs, {"NUMBER", 0.001, 1e9}, "Instead of --steps");
  add_count(cmd, "--dataset-size", args.dataset_size, 1e15, "Samples of an epoch: 50000, 1.2M");
  add_count(cmd, "--batch-size", args.batch_size, 1e9,
            "Samples of the measured step; with --global-batch, the most devices");
  add_number(cmd, "--bucket", args.bucket_mib, {"N", 1, 4096}, "MiB of DistributedDataParallel's buckets");
  add_number(cmd, "--units", args.units, {"N", 1, 100'000}, "Units of FSDP");
}

}  // namespace

void add_plan(CLI::App& cmd, Context& context) {
  auto& args = add_args<PlanArgs>(cmd, context, run_plan);
  add_step_options(cmd, args);
  add_site_options(cmd, args);
  add_training_options(cmd, args);
  add_value(cmd, "--svg", args.svg, "FILE", "Also draw the plot into FILE");
  add_value(cmd, "--png", args.png, "FILE", "Also draw the plot into FILE");
  cmd.add_flag("--json", args.json, "Print JSON");
  add_program(cmd, "PROGRAM", "What to measure, a training of one rank; every word from here on is its own");
  cmd.footer(examples(
      "  yoke bench all-reduce --json > link.json\n"
      "  yoke plan --link link.json -- yoke run -n 1 ./train   measures the program, and predicts\n"
      "  yoke plan --link link.json --neighbours 2 --max-devices 2 -- python train.py\n"
      "  yoke profile --shapes --out traces --stop -- python train.py\n"
      "  yoke plan --profile traces --intra 4,230 --inter 8,90 --strategy all\n"
      "  yoke plan --step 0.120 --parameters 340M --intra 4,230 --inter 8,90 --svg plan.svg\n"
      "  yoke plan --step 0.120 --parameters 7B --dtype mixed --strategy fsdp --intra 4,230 --inter 8,90 --json\n"
      "\n"
      "Everything beside the step of one device is a prediction, and is labelled so.\n"
      "\n"
      "Exit status: 0; 69 if the program cannot be measured; 128 and the signal's number after Ctrl-C; or that of an "
      "error as `yoke --help` lists them."));
}

}  // namespace yoke::cli
