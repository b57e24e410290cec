// `yoke bench`: small measurements of this machine, and what they show.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "yoke/base/error.h"
#include "yoke/base/process.h"
#include "yoke/base/spelling.h"
#include "yoke/base/terminal.h"
#include "yoke/base/text.h"
#include "yoke/bench/measurement.h"
#include "yoke/bench/report.h"
#include "yoke/cli/command.h"
#include "yoke/cli/frame/drawing.h"
#include "yoke/cli/frame/missing_program.h"
#include "yoke/cli/frame/output.h"
#include "yoke/cli/frame/progress_line.h"
#include "yoke/cli/help/help.h"
#include "yoke/cli/help/values.h"
#include "yoke/cli/options/value.h"
#include "yoke/contract/variables.h"
#include "yoke/device/gpu_count.h"
#include "yoke/launch/torchrun/values.h"
#include "yoke/tui/terminal.h"

namespace yoke::cli {
namespace {

using Figures = nlohmann::ordered_json;

struct BenchArgs {
  std::string name;
  bool list = false, json = false, quick = false;
  double seconds = 10;
  std::vector<std::string> sizes, dtypes, models;
  std::vector<int64_t> batch_sizes, workers;
  std::string data, svg, png;
  std::optional<int64_t> num_ranks;
};

void list_exercises(const BenchArgs& args, Context& context) {
  auto json = Figures::array();
  std::string text;
  for (const auto& exercise : bench::exercises()) {
    json.push_back({{"name", exercise.name}, {"summary", exercise.summary}});
    text += fmt::format("{:<11}  {}\n", exercise.name, exercise.summary);
  }
  context.out << (args.json ? json_page(json) : text);
}

/// Throws if an option was given that the exercise does not have.
void check_options(const CLI::App& command, const bench::Exercise& exercise) {
  const auto own = words_of(exercise.options);
  for (const std::string_view option : {"sizes", "dtype", "n", "batch-size", "model", "data", "workers"}) {
    const auto name = (option == "n" ? "-" : "--") + std::string(option);
    if (command.get_option(name)->count() == 0 || std::ranges::find(own, option) != own.end()) continue;
    std::vector<std::string_view> takers;
    for (const auto& other : bench::exercises()) {
      const auto options = words_of(other.options);
      if (std::ranges::find(options, option) != options.end()) takers.push_back(other.name);
    }
    refuse("{} is for {}, and {} has no such option", name, fmt::join(takers, ", "), exercise.name);
  }
}

void check_dtypes(const std::vector<std::string>& dtypes) {
  const std::vector<std::string> known = {"float32", "bfloat16", "float16", "float64"};
  for (const auto& dtype : dtypes) {
    if (std::ranges::find(known, dtype) != known.end()) continue;
    refuse("--dtype {}: give one or more of {}{}", printable(dtype), fmt::join(known, ","), did_you_mean(dtype, known));
  }
}

/// "64", "64K", "4M", "1G": a number, with units of 1024.
int64_t parse_size(const std::string& word) {
  constexpr std::string_view kUnits = "KMG";
  std::string_view digits = word;
  int64_t unit = 1;
  for (const std::string_view end : {"iB", "B"}) {
    if (digits.size() > end.size() + 1 && digits.ends_with(end)) digits.remove_suffix(end.size());
  }
  if (const auto place = digits.empty() ? kUnits.npos : kUnits.find(digits.back()); place != kUnits.npos) {
    unit = int64_t{1} << (10 * (place + 1));
    digits.remove_suffix(1);
  }
  const auto number = parse_int(digits);
  constexpr int64_t kMax = int64_t{1} << 36;
  if (!number || *number < 1 || *number > kMax / unit) {
    refuse("--sizes {}: give numbers from 1 to 64G, such as 64,1K,4M", printable(word));
  }
  return *number * unit;
}

/// `values` in their order, each once.
template <class Value>
std::vector<Value> without_repetitions(const std::vector<Value>& values) {
  std::vector<Value> result;
  for (const auto& value : values) {
    if (std::ranges::find(result, value) == result.end()) result.push_back(value);
  }
  return result;
}

/// The task of libexec/yoke/yoke-bench, as its one argument.
Figures task_of(const BenchArgs& args) {
  Figures task{{"name", args.name}, {"seconds", args.quick ? 0.3 : args.seconds}, {"is_quick", args.quick}};
  std::vector<int64_t> sizes;
  for (const auto& word : args.sizes) sizes.push_back(parse_size(word));
  task["sizes"] = without_repetitions(sizes);
  task["dtypes"] = without_repetitions(args.dtypes);
  task["models"] = without_repetitions(args.models);
  task["batch_sizes"] = without_repetitions(args.batch_sizes);
  task["workers"] = without_repetitions(args.workers);
  task["data"] = args.data;
  return task;
}

std::string find_bench_program(const Installation& installation) {
  auto program = installation.libexec / "yoke-bench";
  if (is_program(program)) return program.string();
  throw Error(ErrorCode::kNotFound, "{}", why_missing(installation, program, "yoke_tool_bench"));
}

/// The program itself, or for all-reduce its ranks under `yoke run`.
bench::Measurement measurement_for(const BenchArgs& args, const Context& context) {
  const auto program = find_bench_program(context.installation);
  // The text of JSON keeps bytes that are not UTF-8 out; a path with such bytes is passed beside it.
  auto task = task_of(args);
  task["data"] = "";
  std::vector<std::string> argv = {program, task.dump(), args.data};
  auto environment = context.environment;
  if (args.name != "all-reduce") return {argv, environment};
  const auto gpus = device::count_gpus();
  const auto num_ranks = args.num_ranks.value_or(
      std::max<int64_t>(2, launch::default_num_ranks(device::count_cpus(), [&] { return gpus; })));
  if (num_ranks < 2) refuse("-n {}: an all-reduce needs two ranks or more", num_ranks);
  if (gpus.num_gpus < num_ranks) environment.set(variable::kDevice, "cpu");  // NCCL needs a GPU for each rank
  const std::vector<std::string> launcher = {context.installation.executable.string(),
                                             "run",
                                             "--quiet",
                                             "--no-prefix",
                                             "-n",
                                             fmt::format("{}", num_ranks),
                                             "--"};
  argv.insert(argv.begin(), launcher.begin(), launcher.end());
  return {argv, environment};
}

std::string page_of(const Figures& measured, const bench::Report& report, const Context& context) {
  const auto width = output_width(context);
  const bool is_ascii = tui::prepare_locale(context.environment) == tui::Glyphs::kAscii;
  const bool is_colored = wants_color(ColorMode::kAuto, context.environment, isatty(STDOUT_FILENO) != 0);
  const auto num_threads = measured.value("num_threads", 0);
  auto text = fmt::format("{} on {}, {} thread{}", measured.value("name", ""), measured.value("processor", ""),
                          num_threads, num_threads == 1 ? "" : "s");
  for (const auto& gpu : measured.value("gpus", Figures::array())) text += ", " + gpu.get<std::string>();
  text = wrapped(fmt::format("{}, torch {}", text, measured.value("torch", "")), width) + "\n\n";
  text += to_text(report.table, width) + "\n";
  text += wrapped(report.sentence, width) + "\n";
  for (const auto& note : measured.value("notes", Figures::array())) {
    text += wrapped("note: " + note.get<std::string>(), width) + "\n";
  }
  return text + "\n" +
         view::chart_text(report.chart, {.width = width, .height = 12, .is_ascii = is_ascii, .is_colored = is_colored});
}

int run_bench(const BenchArgs& args, const CLI::App& command, Context& context) {
  if (args.list || args.name.empty()) {
    list_exercises(args, context);
    return kExitOk;
  }
  check_options(command, *bench::find_exercise(args.name));
  check_dtypes(args.dtypes);
  check_drawings(args.svg, args.png);
  ProgressLine progress(context.environment);
  const auto output = bench::run(measurement_for(args, context), [&](const std::string& line) {
    progress.show_now(fit(printable(line), output_width(context) - 1));
  });
  progress.clear();
  if (output.status != 0) return output.status;  // the program has said why
  auto measured = Figures::parse(output.object, nullptr, false);
  if (!measured.is_object()) throw Error(ErrorCode::kInternal, "yoke-bench ended without results");
  const auto report = bench::report(measured);
  if (!args.svg.empty()) write_drawing(args.svg, view::chart_svg(report.chart, {}), Drawing::kSvg);
  if (!args.png.empty()) write_drawing(args.png, view::chart_png(report.chart, {}), Drawing::kPng);
  if (args.json) {
    auto results = std::move(measured["results"]);
    measured.erase("results");
    measured["sentence"] = report.sentence;
    measured["results"] = std::move(results);
    print_json(measured, context);
  } else {
    context.out << page_of(measured, report, context);
  }
  return kExitOk;
}

}  // namespace

void add_bench(CLI::App& cmd, Context& context) {
  auto args = std::make_shared<BenchArgs>();  // CLI11 keeps references to it; the callback owns it
  const auto add_list = [&cmd](const char* name, auto& values, const char* type, const char* text) {
    return add_values(cmd, name, values, type, text)->delimiter(',');
  };
  std::vector<std::string_view> names;
  for (const auto& exercise : bench::exercises()) names.push_back(exercise.name);
  add_value(cmd, "NAME", args->name, fmt::format("{}", fmt::join(names, "|")),
            "What to measure; without a name, all are listed");
  cmd.add_flag("--list", args->list, "List the names");
  cmd.add_flag("--quick", args->quick, "Measure for about a second, at few sizes: rough figures");
  add_number(cmd, "--time", args->seconds, {"SECONDS", 0.1, 3600}, "Time for the repetitions of all cases together")
      ->excludes("--quick");
  add_list("--sizes", args->sizes, "LIST", "Sides of matrices, or bytes: 64,1K,4M");
  add_list("--dtype", args->dtypes, "LIST", "Types of numbers: float32,bfloat16,float16,float64");
  add_list("--batch-size", args->batch_sizes, "N", "Batch sizes, separated by commas; one for the loader")
      ->check(in_range(1, 1 << 20));
  add_list("--model", args->models, "mlp|cnn|small", "Networks to train, separated by commas; one for the loader");
  add_value(cmd, "--data", args->data, "PATH",
            "Data set of the loader: a folder of images, tar shards, CIFAR's or IDX files, or a file of tokens; else "
            "Fashion-MNIST");
  add_list("--workers", args->workers, "N",
           "Numbers of workers, separated by commas; else from 0 to the number of CPUs")
      ->check(in_range(0, 1024));
  add_number(cmd, "-n,--nproc-per-node", args->num_ranks, {"N", 1, 1024},
             "Ranks of the all-reduce; else one for each GPU, and at least two");
  add_value(cmd, "--svg", args->svg, "FILE", "Also draw the plot into FILE");
  add_value(cmd, "--png", args->png, "FILE", "Also draw the plot into FILE");
  cmd.add_flag("--json", args->json, "Print the figures as JSON");
  cmd.footer(
      examples("  yoke bench                                    the names\n"
               "  yoke bench matmul --dtype float32,bfloat16    products of matrices of many sizes\n"
               "  yoke bench sync --svg sync.svg --png sync.png table, sentence and plot, and the plot as files\n"
               "  yoke bench all-reduce -n 4 --sizes 1K,1M,64M\n"
               "  yoke bench loader --data images/ --model cnn  does the loader hold the training back?\n"
               "  yoke bench loader --workers 0,2,4 --json | jq .sentence\n"
               "  YOKE_DEVICE=cpu yoke bench batch              on the CPU although there is a GPU"));
  cmd.callback([args, &cmd, &context] { context.exit_code = run_bench(*args, cmd, context); });
}

}  // namespace yoke::cli
