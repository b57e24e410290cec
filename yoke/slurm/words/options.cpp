#include "yoke/slurm/words/options.h"

#include <fmt/format.h>

#include <array>
#include <cctype>
#include <iterator>

#include "yoke/base/spelling.h"

namespace yoke::slurm::check {
namespace {

// Options with a letter, and those that a release brought or dropped.
constexpr OptionSpec kOptions[] = {
    {"account", 'A', Value::kRequired, kAll},
    {"array", 'a', Value::kRequired, kSbatch},
    {"async", 0, Value::kNone, kSrun, "26.05"},
    {"begin", 'b', Value::kRequired, kAll},
    {"chdir", 'D', Value::kRequired, kAll},
    {"clusters", 'M', Value::kRequired, kAll},
    {"consolidate-segments", 0, Value::kNone, kAll, "25.11"},
    {"constraint", 'C', Value::kRequired, kAll},
    {"container-id", 0, Value::kRequired, kAll, "23.02"},
    {"container-type", 0, Value::kRequired, kAll, "26.05"},
    {"core-spec", 'S', Value::kRequired, kAll},
    {"cpus-per-task", 'c', Value::kRequired, kAll},
    {"dependency", 'd', Value::kRequired, kAll},
    {"disable-status", 'X', Value::kNone, kSrun},
    {"distribution", 'm', Value::kRequired, kAll},
    {"error", 'e', Value::kRequired, kSbatch | kSrun},
    {"exclude", 'x', Value::kRequired, kAll},
    {"external", 0, Value::kNone, kSbatch, "25.05"},
    {"external-launcher", 0, Value::kOptional, kSrun, "23.11"},
    {"extra", 0, Value::kRequired, kAll, "23.02"},
    {"extra-node-info", 'B', Value::kRequired, kAll},
    {"gpus", 'G', Value::kRequired, kAll},
    {"help", 'h', Value::kNone, kAll},
    {"hold", 'H', Value::kNone, kAll},
    {"ignore-signals", 0, Value::kRequired, kSrun, "26.05"},
    {"immediate", 'I', Value::kOptional, kSrun | kSalloc},
    {"input", 'i', Value::kRequired, kSbatch | kSrun},
    {"job-name", 'J', Value::kRequired, kAll},
    {"kill-command", 'K', Value::kOptional, kSalloc},
    {"kill-on-bad-exit", 'K', Value::kOptional, kSrun},
    {"label", 'l', Value::kNone, kSrun},
    {"licenses", 'L', Value::kRequired, kAll},
    {"mem-update", 0, Value::kRequired, kAll, "26.05"},
    {"no-allocate", 'Z', Value::kNone, kSrun},
    {"no-kill", 'k', Value::kOptional, kAll},
    {"nodefile", 'F', Value::kRequired, kAll},
    {"nodelist", 'w', Value::kRequired, kAll},
    {"nodes", 'N', Value::kRequired, kAll},
    {"ntasks", 'n', Value::kRequired, kAll},
    {"oom-kill-step", 0, Value::kOptional, kAll, "24.11"},
    {"output", 'o', Value::kRequired, kSbatch | kSrun},
    {"overcommit", 'O', Value::kNone, kAll},
    {"oversubscribe", 's', Value::kNone, kAll},
    {"parsable", 0, Value::kNone, kSrun, "26.05"},
    {"partition", 'p', Value::kRequired, kAll},
    {"power", 0, Value::kRequired, kAll, "", "23.11"},
    {"preserve-env", 'E', Value::kNone, kSrun},
    {"qos", 'q', Value::kRequired, kAll},
    {"quiet", 'Q', Value::kNone, kAll},
    {"relative", 'r', Value::kRequired, kSrun},
    {"resources", 0, Value::kRequired, kAll, "25.11"},
    {"segment", 0, Value::kRequired, kAll, "24.05"},
    {"spread-segments", 0, Value::kNone, kAll, "25.11"},
    {"stepmgr", 0, Value::kNone, kAll, "24.05"},
    {"threads", 'T', Value::kRequired, kSrun},
    {"time", 't', Value::kRequired, kAll},
    {"treewidth", 0, Value::kRequired, kSrun, "23.11"},
    {"tres-bind", 0, Value::kRequired, kAll, "23.11"},
    {"tres-per-task", 0, Value::kRequired, kAll, "23.02"},
    {"unbuffered", 'u', Value::kNone, kSrun},
    {"verbose", 'v', Value::kNone, kAll},
    {"version", 'V', Value::kNone, kAll},
    {"wait", 'W', Value::kRequired, kSrun},
    {"wait", 'W', Value::kNone, kSbatch},
    {"wait-for-children", 0, Value::kNone, kSrun, "25.05"},
};

/// Other options that take the same kind of value and belong to the same programs. Spaces separate their names.
struct OptionGroup {
  std::string_view names;
  Value value;
  unsigned programs;
};
constexpr OptionGroup kGroups[] = {
    {"acctg-freq bb bbf cluster cluster-constraint comment container context cores-per-socket cpu-freq "
     "cpus-per-gpu deadline delay-boot gid gpu-bind gpu-freq gpus-per-node gpus-per-socket gpus-per-task gres "
     "gres-flags hint mail-type mail-user mcs-label mem mem-bind mem-per-cpu mem-per-gpu mincpus network "
     "ntasks-per-core ntasks-per-gpu ntasks-per-node ntasks-per-socket ntasks-per-tres prefer priority profile "
     "reservation signal sockets-per-node switches tasks-per-node thread-spec threads-per-core time-min tmp uid "
     "wckey",
     Value::kRequired, kAll},
    {"export open-mode", Value::kRequired, kSbatch | kSrun},
    {"wait-all-nodes", Value::kRequired, kSbatch | kSalloc},
    {"batch export-file kill-on-invalid-dep wrap", Value::kRequired, kSbatch},
    {"accel-bind bcast-exclude cpu-bind epilog het-group jobid mpi msg-timeout pack-group prolog slurmd-debug "
     "task-epilog task-prolog",
     Value::kRequired, kSrun},
    {"exclusive nice", Value::kOptional, kAll},
    {"propagate", Value::kOptional, kSbatch | kSrun},
    {"get-user-env", Value::kOptional, kSbatch | kSalloc},
    {"x11", Value::kOptional, kSrun | kSalloc},
    {"requeue", Value::kOptional, kSbatch},
    {"bcast compress overlap pty resv-ports send-libs", Value::kOptional, kSrun},
    {"contiguous reboot spread-job usage use-min-nodes", Value::kNone, kAll},
    {"test-only", Value::kNone, kSbatch | kSrun},
    {"ignore-pbs no-requeue parsable", Value::kNone, kSbatch},
    {"debugger-test exact interactive multi-prog quit-on-interrupt whole", Value::kNone, kSrun},
    {"bell no-bell no-shell", Value::kNone, kSalloc},
};

constexpr size_t kNumGrouped = [] {
  size_t num_names = 0;
  for (const auto& group : kGroups) num_names += static_cast<size_t>(std::ranges::count(group.names, ' ')) + 1;
  return num_names;
}();

/// All options, in alphabetical order.
constexpr auto kAllOptions = [] {
  std::array<OptionSpec, std::size(kOptions) + kNumGrouped> result{};
  auto* next = std::ranges::copy(kOptions, result.begin()).out;
  for (auto [names, value, programs] : kGroups) {
    while (!names.empty()) *next++ = {next_word(names), 0, value, programs};
  }
  std::ranges::sort(result, {}, &OptionSpec::name);
  return result;
}();

// Options of SPANK plugins that are documented by their sites: pyxis, shifter (NERSC), uenv and environment (CSCS),
// EAR, mpibind (LLNL), and some that many sites have.
constexpr std::string_view kPluginOptions =
    "auks clearenv container-entrypoint container-entrypoint-log container-mount-home container-readonly "
    "container-remap-root container-writable disable-dcgm ear ear-verbose gpu-cmode gpu_cmode gpumpi hugepages "
    "mpibind no-container-entrypoint no-container-mount-home no-container-remap-root perf";
/// More options of plugins; their value may be the next word.
constexpr std::string_view kPluginValues =
    "container-env container-image container-mounts container-name container-save container-workdir ear-policy "
    "environment gpu-srange image module repo tmpfs uenv view volume";

const OptionSpec* find_short(Program program, char letter) {
  for (const auto& option : kAllOptions) {
    if (option.short_name == letter && (option.programs & program) != 0) return &option;
  }
  return nullptr;
}

std::string nearest_name(Program program, std::string_view name) {
  std::string best;
  size_t distance = name.size() < 5 ? 1 : 2;
  for (const auto& option : kAllOptions) {
    if ((option.programs & program) == 0) continue;
    const auto d = edit_distance(name, option.name);
    if (d <= distance && d > 0) {
      if (d == distance && !best.empty()) continue;
      best = option.name;
      distance = d;
    }
  }
  return best;
}

std::string underscores_as_dashes(std::string_view name) {
  std::string result(name);
  std::ranges::replace(result, '_', '-');
  return result;
}

class Parser {
 public:
  Parser(Program program, const std::vector<OptionWord>& words) : program_(program), words_(words) {}

  ParsedOptions parse() {
    while (at_ < words_.size()) {
      const auto& word = words_[at_];
      if (!word.is_known() && (word.text.empty() || word.text[0] == '$')) {
        result_.has_unknown = true;
        if (word.text.find("[@]") == word.text.npos && word.text.find("[*]") == word.text.npos) break;
        ++at_;
        continue;
      }
      if (word.text == "--") {
        ++at_;
        break;
      }
      if (word.text.size() < 2 || word.text[0] != '-') break;
      ++at_;
      word.text[1] == '-' ? parse_long(word) : parse_short(word);
    }
    result_.num_used = at_;
    return std::move(result_);
  }

 private:
  void problem(OptionProblemKind kind, const OptionWord& word, std::string written, std::string hint = {}) {
    result_.problems.push_back({kind, word.line, std::move(written), std::move(hint)});
  }

  void add(const OptionSpec& spec, const OptionWord& word, std::string written, std::optional<std::string> value,
           bool is_known) {
    if (!value && spec.value == Value::kRequired) {
      if (at_ >= words_.size()) return problem(OptionProblemKind::kMissingValue, word, written);
      const auto& next = words_[at_];
      // getopt would take the next option as the value.
      const bool is_option =
          next.text.size() > 1 && next.text[0] == '-' && std::isdigit(static_cast<unsigned char>(next.text[1])) == 0;
      if (next.is_known() && is_option && next.line != word.line) {
        return problem(OptionProblemKind::kMissingValue, word, written, next.text);
      }
      value = next.text;
      is_known = next.is_known();
      ++at_;
    }
    if (value && spec.value == Value::kNone) return problem(OptionProblemKind::kUnwantedValue, word, written);
    const bool has_value = value.has_value();
    result_.given.push_back({&spec, value.value_or(std::string()), word.line, has_value, is_known, std::move(written)});
  }

  void parse_long(const OptionWord& word) {
    const auto equals = word.text.find('=');
    const auto full = word.text.substr(2, equals == word.text.npos ? word.text.npos : equals - 2);
    std::optional<std::string> value;
    if (equals != word.text.npos) value = word.text.substr(equals + 1);
    if (full.find('$') != full.npos) {
      result_.has_unknown = true;
      return;
    }
    // srun has --cpu_bind as a hidden name of --cpu-bind.
    const auto typed = full == "cpu_bind" ? underscores_as_dashes(full) : full;
    const auto* spec = find_option(program_, typed);
    if (spec == nullptr) {
      std::vector<const OptionSpec*> fitting;
      for (const auto& option : kAllOptions) {
        if ((option.programs & program_) != 0 && option.name.starts_with(typed)) {
          fitting.push_back(&option);
        }
      }
      if (fitting.size() == 1 && !is_plugin_option(typed)) spec = fitting[0];
      if (fitting.size() > 1 && !is_plugin_option(typed)) {
        std::string names;
        for (const auto* option : fitting) names += fmt::format("{}--{}", names.empty() ? "" : ", ", option->name);
        return problem(OptionProblemKind::kAmbiguous, word, "--" + full, names);
      }
    }
    if (spec == nullptr) {
      if (is_plugin_option(typed)) {
        const bool takes_next = !value && has_word(kPluginValues, typed);
        if (takes_next && at_ < words_.size() && !words_[at_].text.starts_with("-")) ++at_;
        return;
      }
      for (const auto other : {kSbatch, kSrun, kSalloc}) {
        if (other != program_ && find_option(other, typed) != nullptr) {
          return problem(OptionProblemKind::kOtherProgram, word, "--" + full, std::string(name(other)));
        }
      }
      const auto dashed = underscores_as_dashes(typed);
      return problem(
          OptionProblemKind::kUnknown, word, "--" + full,
          dashed != typed && find_option(program_, dashed) != nullptr ? dashed : nearest_name(program_, typed));
    }
    add(*spec, word, "--" + full, std::move(value), word.is_known());
  }

  void parse_short(const OptionWord& word) {
    for (size_t i = 1; i < word.text.size(); ++i) {
      const auto letter = word.text[i];
      const auto written = std::string("-") + letter;
      const auto* spec = find_short(program_, letter);
      if (spec == nullptr) {
        // "-nodes=2" is read as -n "odes=2"; a word of letters is a long option with one dash.
        for (const auto other : {kSbatch, kSrun}) {
          if (other != program_ && find_short(other, letter) != nullptr) {
            return problem(OptionProblemKind::kOtherProgram, word, written, std::string(name(other)));
          }
        }
        const auto whole =
            word.text.substr(1, word.text.find('=') == word.text.npos ? word.text.npos : word.text.find('=') - 1);
        return problem(OptionProblemKind::kUnknown, word, i == 1 && whole.size() > 2 ? "-" + whole : written,
                       find_option(program_, whole) != nullptr ? whole : "");
      }
      if (spec->value == Value::kNone) {
        result_.given.push_back({spec, "", word.line, false, true, written});
        continue;
      }
      std::optional<std::string> value;
      if (i + 1 < word.text.size()) value = word.text.substr(i + 1);
      if (!value && spec->value == Value::kOptional) {
        result_.given.push_back({spec, "", word.line, false, true, written});
        return;
      }
      return add(*spec, word, written, std::move(value), word.is_known());
    }
  }

  Program program_;
  const std::vector<OptionWord>& words_;
  size_t at_ = 0;
  ParsedOptions result_;
};

}  // namespace

std::string_view name(Program program) { return program == kSrun ? "srun" : program == kSalloc ? "salloc" : "sbatch"; }

bool OptionWord::is_literal(size_t at) const {
  const auto next = std::ranges::upper_bound(expansions, at, {}, &Part::begin);
  return next == expansions.begin() || std::prev(next)->end <= at;
}

void OptionWord::drop_front(size_t num_characters) {
  text.erase(0, num_characters);
  std::erase_if(expansions, [&](const Part& part) { return part.end <= num_characters; });
  for (auto& part : expansions)
    part = {std::max(part.begin, num_characters) - num_characters, part.end - num_characters};
}

const OptionSpec* find_option(Program program, std::string_view wanted) {
  for (const auto& option : kAllOptions) {
    if ((option.programs & program) != 0 && wanted == option.name) return &option;
  }
  return nullptr;
}

bool is_plugin_option(std::string_view wanted) {
  return has_word(kPluginOptions, wanted) || has_word(kPluginValues, wanted) || wanted.starts_with("ear-");
}

bool has_word(std::string_view list, std::string_view word) {
  if (word.empty() || word.find(' ') != word.npos) return false;
  for (auto at = list.find(word); at != list.npos; at = list.find(word, at + 1)) {  // rules ask it of every word
    const auto end = at + word.size();
    if ((at == 0 || list[at - 1] == ' ') && (end == list.size() || list[end] == ' ')) return true;
  }
  return false;
}

bool has_option(const OptionSpec& spec, const Version& version) {
  const auto release = Version{version.year, version.month, 0};
  if (*spec.since != 0 && release < parse_version(spec.since).value_or(Version{})) return false;
  return *spec.until == 0 || release <= parse_version(spec.until).value_or(Version{});
}

ParsedOptions parse_options(Program program, const std::vector<OptionWord>& words) {
  return Parser(program, words).parse();
}

}  // namespace yoke::slurm::check
