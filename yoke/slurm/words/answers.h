// yoke/slurm/words/answers.h -- reads what scontrol prints. Pure.
#pragma once

#include <string>
#include <string_view>

namespace yoke::slurm {

/// The value of `name` in a line of NAME=VALUE words, as of `scontrol show node --oneliner`; empty if it has none.
std::string_view field_of(std::string_view line, std::string_view name);

/// The value of `name` in the lines "NAME   = VALUE" of `scontrol show config`; empty if there is none.
std::string_view setting_of(std::string_view config, std::string_view name);

/// "gpu:a100:4(S:0,2),nvme:1" without what is in parentheses, which may have commas.
std::string without_sockets(std::string_view gres);

}  // namespace yoke::slurm
