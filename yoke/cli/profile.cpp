// `yoke profile`: names the bottleneck of a training from the traces of its ranks.
#include <unistd.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <chrono>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "yoke/base/error.h"
#include "yoke/base/format.h"
#include "yoke/base/terminal.h"
#include "yoke/base/text.h"
#include "yoke/cli/command.h"
#include "yoke/cli/frame/output.h"
#include "yoke/profile/judge.h"
#include "yoke/profile/report.h"
#include "yoke/profile/trace_file.h"

namespace yoke::cli {
namespace {

struct ProfileArgs {
  std::vector<std::string> traces;
  bool json = false;
};

/// One line of a terminal that says what is being read, if that takes longer than half a second.
class ReadingProgress {
 public:
  explicit ReadingProgress(const Environment& environment)
      : is_shown_(isatty(STDERR_FILENO) != 0 && has_escape_sequences(environment)) {}
  ~ReadingProgress() {
    if (has_shown_) std::cerr << "\r\x1b[K" << std::flush;
  }

  void show(const std::filesystem::path& path, int64_t num_bytes) {
    const auto now = std::chrono::steady_clock::now();
    if (!is_shown_ || now < next_) return;
    next_ = now + std::chrono::milliseconds(200);
    has_shown_ = true;
    std::error_code error;
    const auto size = std::filesystem::file_size(path, error);
    std::cerr << fmt::format("\r{}: {}{}\x1b[K", fit(printable(path.filename().string()), 40), format_bytes(num_bytes),
                             error ? "" : " of " + format_bytes(static_cast<int64_t>(size)))
              << std::flush;
  }

 private:
  bool is_shown_, has_shown_ = false;
  std::chrono::steady_clock::time_point next_ = std::chrono::steady_clock::now() + std::chrono::milliseconds(500);
};

std::vector<profile::RankAccount> account_for(const ProfileArgs& args, const Context& context) {
  std::vector<profile::RankAccount> accounts;
  ReadingProgress progress(context.environment);
  for (const auto& word : args.traces) {
    for (const auto& path : profile::find_traces(word)) {  // one trace at a time is in memory
      const auto show = [&](int64_t num_bytes) { progress.show(path, num_bytes); };
      accounts.push_back(profile::account_for(profile::read_trace_file(path, show)));
    }
  }
  return accounts;
}

int run_profile(const ProfileArgs& args, Context& context) {
  if (args.traces.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                "name the traces of PyTorch's profiler: --trace FOLDER, or one file for each rank; `yoke profile "
                "--help` shows how to record them");
  }
  const auto report = profile::judge(account_for(args, context));
  if (args.json) {
    context.out << profile::to_json(report).dump(2) << '\n';
  } else {
    context.out << profile::to_text(report, output_width(context));
  }
  return kExitOk;
}

}  // namespace

void add_profile(CLI::App& cmd, Context& context) {
  auto args = std::make_shared<ProfileArgs>();  // CLI11 keeps references to it; the callback owns it
  cmd.add_option("--trace", args->traces,
                 "Traces of PyTorch's profiler, one for each rank, plain or gzipped; or their folder")
      ->type_name("PATH...")
      ->take_all();
  cmd.add_flag("--json", args->json, "Print JSON");
  cmd.footer(examples(
      "  yoke profile --trace log/                        all ranks, as tensorboard_trace_handler writes them\n"
      "  yoke profile --trace rank0.json rank1.json.gz    as export_chrome_trace writes them\n"
      "  yoke profile --trace log/ --json | jq -r .bottleneck\n"
      "\n"
      "To record them, wrap the training in torch.profiler.profile(on_trace_ready=tensorboard_trace_handler(\"log\")), "
      "and call its step() after each step of the training; docs/profile.md has a program."));
  cmd.callback([args, &context] { context.exit_code = run_profile(*args, context); });
}

}  // namespace yoke::cli
