# Functions that the other scripts source: printing messages, and running a step with its output in a log.
# shellcheck shell=bash disable=SC2154  # log_dir is the caller's

# What messages begin with. Each package has a `build` and a `test`, so theirs begin with the folder, too.
said_by=${0##*/}
case /$0 in */packaging/*) said_by=packaging/${0##*packaging/} ;; esac

say() { printf '%s: %s\n' "$said_by" "$*"; }

# die STATUS LINE...: prints a message and exits. The first LINE says what failed, the others say what to do next.
die() {
  local status=$1
  shift
  printf '%s: %s\n' "$said_by" "$1" >&2
  shift
  [ $# -eq 0 ] || printf '  %s\n' "$@" >&2
  exit "$status"
}

# usage_of FILE: prints the comment block that follows the file's first line.
usage_of() { sed -n '2,/^[^#]/{s/^# \{0,1\}//p}' "$1"; }

seconds_since() { # seconds_since TIME: TIME is a value of $EPOCHREALTIME, whose decimal sign depends on the locale
  local then=${1/[.,]/} now=${EPOCHREALTIME/[.,]/}
  local tenths=$(((now - then) / 100000))
  printf '%d.%d s' $((tenths / 10)) $((tenths % 10))
}

# processor_seconds: puts into REPLY the processor time, in seconds, of the child processes that this shell has waited for,
# and of theirs. Unlike the time that passes, it hardly depends on what else the machine does.
processor_seconds() {
  local fields
  read -r fields </proc/$BASHPID/stat
  read -r -a fields <<<"${fields##*) }"
  REPLY=$(((fields[13] + fields[14]) / 100)) # cutime and cstime, in hundredths of a second
}

# step NAME COMMAND...: runs COMMAND and prints one line with its time and that of the processors, which is in step_time
# afterwards. The output goes to $log_dir/NAME.log; the end is shown if COMMAND fails. COMMAND runs in a subshell, so it
# cannot change the caller's folder and environment.
step() {
  local name=$1 log="$log_dir/${1//[^a-zA-Z0-9]/-}.log" start=$EPOCHREALTIME status=ok REPLY
  shift
  mkdir -p "$log_dir"
  rm -f "$log.processors"
  printf '%-42s ' "$name ..."
  (trap 'processor_seconds && echo "$REPLY" >"$log.processors"' EXIT && "$@") >"$log" 2>&1 </dev/null || status=FAILED
  read -r REPLY 2>/dev/null <"$log.processors" || REPLY='?'
  step_time="$(seconds_since "$start") (processors: $REPLY s)"
  printf '%s, %s\n' "$status" "$step_time"
  [ "$status" = FAILED ] || return 0
  printf '%s\n' "--- the end of $log" >&2
  tail -n "${YOKE_LOG_LINES:-60}" "$log" >&2
  printf '%s\n' '---' >&2
  return 1
}

# torch_requirements GPU TEXT: prints the dependencies that libtorch itself needs. TEXT is the METADATA of torch's wheel.
# With the GPU nvidia these are all of NVIDIA's, otherwise the two small ones that libtorch_cpu.so is linked with. Newer
# wheels name one package with extras ("cuda-toolkit[cublas,cudart,...]==13.0.2"), older ones each library
# ("nvidia-cuda-runtime-cu12==...").
torch_requirements() {
  local lines
  lines=$(sed -nE 's/^Requires-Dist: ((cuda-toolkit|nvidia-)[^;]*[^; ]) *(;.*)?$/\1/p' <<<"$2" | tr -d ' ')
  if [ "$1" = nvidia ]; then
    echo "$lines"
  else
    sed -nE -e 's/^cuda-toolkit\[.*\](.*)/cuda-toolkit[cudart,cupti]\1/p' \
      -e '/^nvidia-cuda-(runtime|cupti)/p' <<<"$lines"
  fi
}
