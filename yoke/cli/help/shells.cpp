// Completion scripts. They contain only what differs between shells: splitting words, quoting them, and completing
// files and other commands. They ask the `yoke` on the command line which words may follow, so a script also works with
// later versions.
#include "yoke/cli/help/complete.h"

namespace yoke::cli {
namespace {

// Bash also splits words at = and :, and replaces only the last piece. The script joins the pieces again in `words`.
std::string bash_completion() {
  return R"bash(# bash completion for yoke; load with: source <(yoke completion bash)
_yoke() {
  local yoke=${COMP_WORDS[0]/#\~\//$HOME/} piece=${COMP_WORDS[COMP_CWORD]} word quoted glue='' i
  local -a words=() starts=() lines=()
  type -P -- "$yoke" >/dev/null || yoke=yoke
  for ((i = 1; i <= COMP_CWORD; i++)); do
    word=${COMP_WORDS[i]}
    if [[ ${#words[@]} -gt 0 && ($word == [=:]* || (-n $glue && -n $word)) ]]; then
      words[${#words[@]}-1]+=$word
    else
      words+=("$word") starts+=("$i")
    fi
    if [[ -n $word && -z ${word//[=:]/} ]]; then glue=1; else glue=''; fi
  done
  local cur=${words[${#words[@]}-1]} # whole; what bash replaces of it is the piece
  if [[ $piece == [=:]* ]]; then piece=''; fi
  local kept=${cur%"$piece"}

  COMPREPLY=()
  mapfile -t lines < <("$yoke" complete -- "${words[@]}" 2>/dev/null)
  case ${lines[0]-} in
    words)
      for word in "${lines[@]:1}"; do
        word=${word%%$'\t'*}
        printf -v quoted %q "$word"
        case $cur in
          [\'\"]*) if [[ $word == "${cur:1}"* ]]; then COMPREPLY+=("$word"); fi ;;
          *) if [[ $quoted == "$cur"* || $word == "$cur"* ]]; then COMPREPLY+=("${quoted#"$kept"}"); fi ;;
        esac
      done ;;
    files | folders)
      local before='' action=-f
      if [[ $cur == --*=* ]]; then before=${cur%%=*}=; fi
      if [[ ${lines[0]} == folders ]]; then action=-d; fi
      _yoke_files "$action" "${cur#"$before"}"
      for i in "${!COMPREPLY[@]}"; do
        word=$before${COMPREPLY[i]}
        COMPREPLY[i]=${word#"$kept"}
      done ;;
    program*)
      i=${lines[0]#program }
      if ((i + 1 == ${#words[@]})); then
        _yoke_files -f "$cur"
        if [[ -n $cur && $cur != */* ]]; then mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -c -- "$cur"); fi
      elif declare -F _command_offset >/dev/null; then # of the package bash-completion
        _command_offset "${starts[i]}"
      else
        _yoke_files -f "$cur"
      fi ;;
  esac
}
_yoke_files() { # _yoke_files -f|-d WORD: sets COMPREPLY to names, which readline then quotes
  local name=$2
  case $name in
    [\'\"]*) name=${name:1} ;;
    *) name=${name//\\/} ;;
  esac
  compopt -o filenames 2>/dev/null
  mapfile -t COMPREPLY < <(compgen "$1" -- "$name")
}
complete -F _yoke yoke
)bash";
}

std::string zsh_completion() {
  return R"zsh(#compdef yoke
# zsh completion for yoke; put it into a folder of $fpath as _yoke
_yoke() {
  local yoke=${~words[1]} line
  local -a lines names
  (( $+commands[$yoke] )) || [[ -x $yoke ]] || yoke=yoke
  lines=("${(@f)$("$yoke" complete -- "${(@Q)words[2,CURRENT-1]}" "${(Q)PREFIX}" 2>/dev/null)}")
  case $lines[1] in
    words)
      for line in "${(@)lines[2,-1]}"; do
        names+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}")
      done
      _describe -t values value names ;;
    files)
      [[ $PREFIX == --*=* ]] && compset -P 1 '*='
      _files ;;
    folders)
      [[ $PREFIX == --*=* ]] && compset -P 1 '*='
      _files -/ ;;
    program*)
      shift $(( ${lines[1]#program } + 1 )) words
      (( CURRENT -= ${lines[1]#program } + 1 ))
      if (( CURRENT == 1 )); then
        _alternative 'files:file:_files' 'commands:command:_command_names -e'
      else
        _normal
      fi ;;
  esac
}
if [[ $funcstack[1] == _yoke ]]; then _yoke "$@"; else compdef _yoke yoke; fi
)zsh";
}

std::string fish_completion() {
  return R"fish(# fish completion for yoke; put it into ~/.config/fish/completions/yoke.fish
function __yoke_complete
    set -l typed (commandline -opc)
    set -l current (commandline -ct)
    set -l yoke (string replace -r '^~/' "$HOME/" -- $typed[1])
    type -q -- $yoke; or set yoke yoke
    set -l lines (command $yoke complete -- $typed[2..] "$current" 2>/dev/null)
    set -l option (string match -r -- '^--[^=]*=' "$current")
    switch "$lines[1]"
        case words
            test (count $lines) -gt 1; and printf '%s\n' $lines[2..]
        case files
            __fish_complete_path (string replace -- "$option" '' "$current") | string replace -r '^' -- "$option"
        case folders
            __fish_complete_directories (string replace -- "$option" '' "$current") | string replace -r '^' -- "$option"
        case 'program *'
            set -l first (math (string replace 'program ' '' -- $lines[1]) + 2)
            if test $first -gt (count $typed)
                __fish_complete_path "$current"
            end
            complete -C (string join -- ' ' (string escape -- $typed[$first..]) "$current")
    end
end
complete -c yoke -f -a '(__yoke_complete)'
)fish";
}

}  // namespace

std::string completion_script(std::string_view shell) {
  if (shell == "bash") return bash_completion();
  return shell == "zsh" ? zsh_completion() : fish_completion();
}

}  // namespace yoke::cli
