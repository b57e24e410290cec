# Sourced by setup, demo and test: printing messages, and running a step with its output in a log.
# shellcheck shell=bash disable=SC2154  # log_dir is the caller's

say() { printf '%s: %s\n' "${0##*/}" "$*"; }

# die STATUS LINE...: the first line says what failed, the others what to do next.
die() {
  local status=$1
  shift
  printf '%s: %s\n' "${0##*/}" "$1" >&2
  shift
  [ $# -eq 0 ] || printf '  %s\n' "$@" >&2
  exit "$status"
}

# usage_of FILE: the comment block that follows its first line.
usage_of() { sed -n '2,/^[^#]/{s/^# \{0,1\}//p}' "$1"; }

seconds_since() { # a value of $EPOCHREALTIME, whose decimal sign the locale chooses
  local then=${1/[.,]/} now=${EPOCHREALTIME/[.,]/}
  local tenths=$(((now - then) / 100000))
  printf '%d.%d s' $((tenths / 10)) $((tenths % 10))
}

# step NAME COMMAND...: one line with the time it took; the output goes to $log_dir/NAME.log, shown when it fails. The
# command runs in a subshell: it may change the folder and the environment, and its caller keeps both.
step() {
  local name=$1 log="$log_dir/${1//[^a-zA-Z0-9]/-}.log" start=$EPOCHREALTIME
  shift
  mkdir -p "$log_dir"
  printf '%-42s ' "$name ..."
  if ("$@") >"$log" 2>&1 </dev/null; then
    printf 'ok, %s\n' "$(seconds_since "$start")"
    return 0
  fi
  printf 'FAILED, %s\n' "$(seconds_since "$start")"
  printf '%s\n' "--- the end of $log" >&2
  tail -n "${YOKE_LOG_LINES:-60}" "$log" >&2
  printf '%s\n' '---' >&2
  return 1
}
