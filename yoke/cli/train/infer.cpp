// `yoke infer`: predict all samples of an input with a trained model, on every device of this machine.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <optional>

#include "yoke/base/error.h"
#include "yoke/base/process.h"
#include "yoke/base/shell.h"
#include "yoke/base/text.h"
#include "yoke/cli/command.h"
#include "yoke/cli/frame/missing_program.h"
#include "yoke/cli/options/device.h"
#include "yoke/cli/options/value.h"
#include "yoke/launch/job/supervisor.h"
#include "yoke/launch/torchrun/values.h"

namespace yoke::cli {
namespace {

namespace fs = std::filesystem;

struct InferArgs {
  std::string model, input, out;
  std::optional<std::string> num_ranks;
  std::vector<std::string> devices;
  bool claims = false;
  std::string length, wait;  ///< Of the claim.
  std::optional<int64_t> batch_size, size, max_length, top, workers;
  std::string precision, normalize, tokenizer, token_dtype, recipe;
  std::string typed;  ///< The user's command, if `yoke claim` or `yoke visible` has started this one again.
  bool resume = false, force = false, json = false;
};

/// The options that the ranks' program has, too, as --name=value.
std::vector<std::string> option_words(const InferArgs& args) {
  std::vector<std::string> words = {"--input=" + args.input, "--out=" + args.out};
  const auto add = [&](const char* name, const auto& value) {
    if constexpr (requires { value.has_value(); }) {
      if (value) words.push_back(fmt::format("--{}={}", name, *value));
    } else {
      if (!value.empty()) words.push_back(fmt::format("--{}={}", name, value));
    }
  };
  add("batch-size", args.batch_size);
  add("precision", args.precision);
  add("size", args.size);
  add("normalize", args.normalize);
  add("tokenizer", args.tokenizer);
  add("max-length", args.max_length);
  add("token-dtype", args.token_dtype);
  add("top", args.top);
  add("workers", args.workers);
  add("recipe", args.recipe);
  if (args.json) words.emplace_back("--json");
  return words;
}

/// The command line without --resume and --force, for people to repeat.
std::string typed_command(const InferArgs& args) {
  if (!args.typed.empty()) return args.typed;
  auto text = "yoke infer " + shell_word(args.model);
  for (const auto& word : option_words(args)) {
    const auto equals = word.find('=');
    text += ' ' + word.substr(0, equals);
    if (equals != word.npos) text += ' ' + shell_word(word.substr(equals + 1));
  }
  if (args.num_ranks) text += " -n " + shell_word(*args.num_ranks);
  if (!args.devices.empty()) text += fmt::format(" -d {}", fmt::join(args.devices, ","));
  if (!args.claims) return text;
  text += " --claim";
  if (!args.length.empty()) text += " --for " + shell_word(args.length);
  if (!args.wait.empty()) text += " --wait=" + shell_word(args.wait);
  return text;
}

bool path_is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

/// Finds mistakes that need no libtorch, before any rank starts.
void check_infer(const InferArgs& args) {
  if (args.input == "-") refuse("--input -: ranks cannot share standard input; write it to a file first");
  for (const auto& [what, path] : {std::pair("MODEL", args.model), std::pair("--input", args.input)}) {
    if (!path_is_there(path)) throw Error(ErrorCode::kNotFound, "{}: there is no {}", what, printable(path));
    if (access(path.c_str(), R_OK) != 0)
      throw system_error(errno, fmt::format("{}: reading {}", what, printable(path)));
  }
  const fs::path out = args.out;
  const auto extension = out.extension().string();
  if (extension != ".jsonl" && extension != ".csv" && extension != ".npy" && extension != ".safetensors") {
    refuse("--out {}: its name ends in .jsonl or .csv for text, .npy for one array, or .safetensors for several",
           printable(args.out));
  }
  std::error_code ignored;
  if (fs::is_directory(out, ignored)) refuse("--out {} is a folder; give the name of a file", printable(args.out));
  auto folder = fs::absolute(out).parent_path();
  while (!path_is_there(folder) && folder.has_relative_path()) folder = folder.parent_path();
  if (access(folder.c_str(), W_OK) != 0) {
    throw system_error(errno, fmt::format("--out {}: writing in {}", printable(args.out), printable(folder.string())));
  }
  if (!args.precision.empty() && args.precision != "fp32" && args.precision != "bf16") {
    refuse("--precision {}: give fp32 or bf16", printable(args.precision));
  }
  if (!args.token_dtype.empty() && args.token_dtype != "uint16" && args.token_dtype != "uint32") {
    refuse("--token-dtype {}: give uint16 or uint32", printable(args.token_dtype));
  }
  if (args.resume && args.force) refuse("--resume goes on with an earlier run, and --force drops it: choose one");
  if (args.resume || args.force) return;
  if (path_is_there(out)) {
    throw Error(ErrorCode::kFailedPrecondition, "--out {} is there already; --force replaces it", printable(args.out));
  }
  if (path_is_there(args.out + ".partial")) {
    throw Error(ErrorCode::kFailedPrecondition,
                "an earlier run has left {}.partial; --resume goes on with it, and --force begins again",
                printable(args.out));
  }
}

/// Becomes another command of yoke, which starts this one again: `yoke claim` or `yoke visible` with its options.
[[noreturn]] void become_within(std::vector<std::string> words, const InferArgs& args, const Context& context) {
  const auto executable = context.installation.executable.string();
  words.insert(words.begin(), executable);
  words.insert(words.end(), {"--", executable, "infer", args.model, "--typed=" + typed_command(args)});
  for (const auto& word : option_words(args)) words.push_back(word);
  if (args.resume) words.emplace_back("--resume");
  if (args.force) words.emplace_back("--force");
  if (args.num_ranks) words.insert(words.end(), {"-n", *args.num_ranks});
  execv(words[0].c_str(), exec_pointers(words).data());
  throw system_error(errno, "starting " + words[0]);
}

void become_claim_or_choice(const InferArgs& args, const Context& context) {
  const auto chosen = fmt::format("{}", fmt::join(args.devices, ","));
  if (args.claims) {
    const auto num_ranks = args.num_ranks ? parse_int(*args.num_ranks) : std::nullopt;
    if (chosen.empty() && (!num_ranks || *num_ranks < 1)) {
      refuse("--claim claims a device for each rank, so give their number, as in -n 2");
    }
    std::vector<std::string> words = {"claim", "--name", "yoke infer " + std::string(base_name(args.model))};
    if (num_ranks) words.insert(words.end(), {"-n", std::to_string(*num_ranks)});
    if (!chosen.empty()) words.insert(words.end(), {"-d", chosen});
    if (!args.length.empty()) words.insert(words.end(), {"--for", args.length});
    if (!args.wait.empty()) words.push_back("--wait=" + args.wait);
    become_within(std::move(words), args, context);
  }
  if (!args.length.empty() || !args.wait.empty()) refuse("--for and --wait are for a claim; give --claim, too");
  if (!chosen.empty()) become_within({"visible", "--set", chosen}, args, context);
}

int run_infer(const InferArgs& args, Context& context) {
  check_infer(args);
  const auto program = context.installation.libexec / "yoke-infer";
  if (!is_program(program)) {
    throw Error(ErrorCode::kNotFound, "{}", why_missing(context.installation, program, "yoke_tool_infer"));
  }
  become_claim_or_choice(args, context);
  const auto count_gpus = [] { return device::count_gpus(); };
  launch::Launch job;
  auto& spec = job.spec;
  spec.name = "yoke infer";
  spec.argv = {program.string(), "--model=" + args.model, "--command=" + typed_command(args)};
  for (auto& word : option_words(args)) spec.argv.push_back(std::move(word));
  if (args.resume) spec.argv.emplace_back("--resume");
  spec.environment = context.environment;
  spec.num_ranks = args.num_ranks ? launch::parse_num_ranks(*args.num_ranks, device::count_cpus(), count_gpus)
                                  : launch::default_num_ranks(device::count_cpus(), count_gpus);
  spec.prefix = launch::Prefix::kAllButRankZero;
  return run_job(job, nlohmann::json());
}

}  // namespace

void add_infer(CLI::App& cmd, Context& context) {
  auto& args = add_args<InferArgs>(cmd, context, run_infer);
  add_value(cmd, "MODEL", args.model, "",
            "TorchScript; a package of AOTInductor (.pt2); a run folder or checkpoint of a recipe; or a folder of "
            "Hugging Face's BERT, for embeddings of sentences, or GPT-2, for the loss of texts")
      ->required();
  add_value(cmd, "--input", args.input, "PATH",
            "Arrays (.npy, .safetensors), images (.jpg, .png, .tar, or a folder of them), lines of text, or tokens "
            "(.bin)")
      ->required();
  add_value(cmd, "--out", args.out, "FILE", "What is predicted: .jsonl, .csv, .npy or .safetensors")->required();
  add_value(cmd, "-n,--nproc-per-node", args.num_ranks, "auto|gpu|cpu|N",
            "Ranks, as in `yoke run`; otherwise one for each GPU, or without any one for each memory node and at "
            "least two");
  add_device_choice(cmd, args.devices, "-d,--device", "Devices to use, as in `yoke devices`: 0,2 or UUIDs",
                    ChoiceForm::kOneWord);
  cmd.add_flag("--claim", args.claims, "Claim a device for each rank while it works; see `yoke claim`");
  add_value(cmd, "--for", args.length, "TIME", "With --claim: how long, such as 4h");
  add_value(cmd, "--wait", args.wait, "[TIMEOUT]", "With --claim: queue until devices are free, for at most TIMEOUT");
  add_number(cmd, "--batch-size", args.batch_size, {"N", 1, 1 << 20},
             "Samples of a batch of one rank; otherwise found by trying on the first samples");
  add_value(cmd, "--precision", args.precision, "fp32|bf16", "bf16: compute in bfloat16 where that is safe (autocast)");
  add_number(cmd, "--workers", args.workers, {"N", 0, 1024}, "Threads of each rank that read samples");
  add_number(cmd, "--size", args.size, {"N", 1, 65536},
             "Height and width of images: the shorter side is made 256/224 of it, and the centre is taken; otherwise "
             "those of the recipe, or 224");
  add_value(cmd, "--normalize", args.normalize, "MEAN/STD",
            "How images become numbers: imagenet, none (from 0 to 1), or values such as 0.5/0.25; otherwise the "
            "recipe's, or ImageNet's");
  add_value(cmd, "--tokenizer", args.tokenizer, "DIR",
            "Folder with tokenizer.json or vocab.txt, or `bytes`; otherwise that of the model");
  add_number(cmd, "--max-length", args.max_length, {"N", 1, 1 << 24},
             "Tokens of a line, of which the rest is left out; for .bin, tokens of each sequence");
  add_value(cmd, "--token-dtype", args.token_dtype, "uint16|uint32", "Type of the tokens in .bin; otherwise uint16");
  add_number(cmd, "--top", args.top, {"N", 1, 1 << 20},
             "Write the N most likely classes and their probabilities instead of the output");
  add_value(cmd, "--recipe", args.recipe, "RECIPE", "The recipe of a checkpoint that does not name it");
  add_value(cmd, "--typed", args.typed, "COMMAND", "")->group("");  // see become_within()
  cmd.add_flag("--resume", args.resume, "Go on with an earlier run into the same file, on any number of ranks");
  cmd.add_flag("--force", args.force, "Begin again, and replace the file when the new one is complete");
  cmd.add_flag("--json", args.json, "Print the summary as JSON, with all bad samples");
  cmd.footer(
      examples("  yoke infer m.pt --input x.npy --out y.npy -n 2      TorchScript on two ranks\n"
               "  yoke infer m.pt --input photos/ --out classes.csv --top 3\n"
               "  yoke infer runs/images --input photos/ --out logits.npy    a training by `yoke train images`\n"
               "  yoke infer minilm/ --input lines.txt --out vectors.npy     embeddings of sentences\n"
               "  yoke infer m.pt --input x.npy --out y.npy -n 4 --resume    goes on after a kill\n"
               "\n"
               "Exit status: 0; 65 if samples could not be read, which are named and left out; 130 after Ctrl-C,\n"
               "with what is done kept for --resume; or that of an error as `yoke --help` lists them."));
}

}  // namespace yoke::cli
