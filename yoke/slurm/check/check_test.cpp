// Each rule finds its mistake, on its line, and not in the neighbour that is right.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "yoke/slurm/check/report.h"

namespace yoke::slurm::check {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

std::vector<Finding> findings_in(const std::string& text, const char* version = "") {
  const auto script = read_script("job.sh", text);
  const auto missing = [](const std::string& pattern, const std::string& chdir) -> std::optional<std::string> {
    const bool is_here = chdir.empty() || chdir == "sub";
    return pattern.starts_with("nowhere/") && is_here ? std::optional<std::string>("nowhere") : std::nullopt;
  };
  return check({.script = script, .version = parse_version(version), .site = nullptr, .missing_folder = missing});
}

std::string shown(const std::vector<Finding>& findings) { return to_text({{"job.sh", findings}}); }

constexpr const char* kHead = "#!/bin/bash\n#SBATCH --time=10:00 --mem=1G\n";  // so line 3 is the first of a case

struct Case {
  const char* rule;
  int64_t line;
  const char* bad;  ///< After kHead, unless it begins with "=".
  const char* good;
  const char* version = "";
};

std::string script_of(const std::string& text) { return text.starts_with("=") ? text.substr(1) : kHead + text; }

const std::vector<Case>& cases() {
  static const std::vector<Case> kCases = {
      {"empty-script", 1, "= \n", "=#!/bin/sh\n"},
      {"byte-order-mark", 1, "=\xef\xbb\xbf#!/bin/sh\n", "=#!/bin/sh\n"},
      {"no-shebang", 1, "=#SBATCH -n1\n", "=#!/bin/sh\n#SBATCH -n1\n"},
      {"crlf", 1, "=#!/bin/sh\r\n", "=#!/bin/sh\n"},
      {"secret-in-clear", 3, "export HF_TOKEN=hf_abcdefghijklmnopqrstuvwx12\n", "export HF_TOKEN=$(cat ~/.hf)\n"},
      {"secret-in-clear", 3, "mysql --password=h7Gq2mmX\n",
       "mysql --password=\"$PASSWORD_OF_DB\"\nPASSWORD_OF_DB=$(cat p)\n"},
      {"secret-in-clear", 3, "echo hf_abcdefghijklmnopqrstuvwxyzABCDEFGH\n",
       "python hf_my_long_module_name_for_training.py\n"},
      {"secret-in-clear", 3, "curl -H \"Authorization: Bearer sk-abcdEFGHijkl\" https://x\n",
       "curl -H \"Authorization: Bearer $TOKEN_OF_X\" https://x\nTOKEN_OF_X=$(cat t)\n"},
      {"secret-in-clear", 3, "srun bash -c 'WANDB_API_KEY=0123456789abcdef0123456789abcdef01234567 ./a'\n",
       "srun bash -c 'WANDB_API_KEY=$(cat ~/.wandb) ./a'\n"},
      {"secret-in-clear", 3, "mysql -u me -ph7Gq2 db\n", "mysql -u me -p db\n"},
      {"secret-in-clear", 3, "sshpass -p h7Gq2 ssh -p 2222 host\n", "sshpass -f file ssh -p 2222 host\n"},
      {"pbs-directive", 3, "#PBS -l nodes=2\n", "#SBATCH --ignore-pbs\n#PBS -l nodes=2\n"},
      {"pbs-directive", 4, "hostname\n#PBS -N x\n", "hostname\n# PBS was here\n"},
      {"pbs-directive", 4, "#BSUB -n 1\n#BSUB -W 10:00\n", "#SBATCH --ignore-pbs\n#BSUB -W 10:00\n"},
      {"sge-directive", 3, "#$ -N x\n", "#$HOME is a comment\n"},
      {"log-folder-late", 3, "#SBATCH -o logs/%j.out\nmkdir -p logs\n", "#SBATCH -o logs/%j.out\nmkdir -p other\n",
       "22.05"},
      {"log-folder-late", 3, "#SBATCH -e ./logs/%j.err\nmkdir -p logs/tensorboard\n", "#SBATCH -e %j.err\nmkdir logs\n",
       "22.05"},
      {"log-folder-missing", 3, "#SBATCH -o nowhere/%j.out\n", "#SBATCH -o logs/%j.out\n", "22.05"},
      {"log-folder-missing", 4, "#SBATCH -N1\n#SBATCH -e nowhere/e\n", "#SBATCH -e nowhere/e -D /data\n", "22.05"},
      {"option-after-script", 3, "sbatch late.sh --nodes=2\n", "sbatch --nodes=2 late.sh --lr=2\n"},
      {"standalone-on-nodes", 4, "#SBATCH -N2\nsrun torchrun --standalone t.py\n",
       "#SBATCH -N1\nsrun torchrun --standalone t.py\n"},
      {"launcher-per-task", 4, "#SBATCH -N1 --ntasks-per-node=4\nsrun torchrun t.py\n",
       "#SBATCH -N1 --ntasks-per-node=4\nsrun torchrun --nnodes=4 --rdzv-backend=c10d --rdzv-endpoint=n1:1 t.py\n"},
      {"launcher-on-one-node", 4, "#SBATCH -N2\naccelerate launch --num_machines 2 t.py\n",
       "#SBATCH -N2\naccelerate launch --num_machines 2 --deepspeed_multinode_launcher pdsh t.py\n"},
      {"nnodes-mismatch", 4, "#SBATCH -N2\nsrun torchrun --nnodes=4 --rdzv-backend=c10d --rdzv-endpoint=n1:1 t.py\n",
       "#SBATCH -N2\nsrun torchrun --nnodes=$SLURM_NNODES t.py\n"},
      {"nnodes-mismatch", 4, "#SBATCH -N2\nsrun accelerate launch --num_machines 1 t.py\n",
       "#SBATCH -N2\nsrun accelerate launch --num_machines 2 t.py\n"},
      {"nnodes-mismatch", 4, "#SBATCH -N1\ntorchrun --nnodes 2 t.py\n", "#SBATCH -N1\ntorchrun --nnodes 1 t.py\n"},
      {"nnodes-mismatch", 4,
       "#SBATCH -N2 --ntasks-per-node=2\nsrun torchrun --nnodes=8 --nproc-per-node=1 --rdzv-backend=c10d "
       "--rdzv-endpoint=n1:1 t.py\n",
       "#SBATCH -N2 --ntasks-per-node=4\nsrun torchrun --nnodes=8 --nproc-per-node=1 --rdzv-backend=c10d "
       "--rdzv-endpoint=n1:1 t.py\n"},
      {"master-addr-localhost", 4,
       "#SBATCH -N2\nsrun torchrun --nnodes=2 --rdzv-backend=c10d --rdzv-endpoint=localhost:29500 t.py\n",
       "#SBATCH -N2\nsrun torchrun --nnodes=2 --rdzv-endpoint=$H:29500 t.py\nH=$(hostname)\n"},
      {"world-size-mismatch", 4, "#SBATCH -n4\nexport WORLD_SIZE=8\nsrun ./t\n",
       "#SBATCH -n4\nexport WORLD_SIZE=4\nsrun ./t\n"},
      {"world-size-mismatch", 4,
       "#SBATCH -N2 --ntasks-per-node=1 --gpus-per-node=4 -c8\nexport WORLD_SIZE=4\nsrun -c8 python t.py\n",
       "#SBATCH -N2 --ntasks-per-node=1 --gpus-per-node=4 -c8\nexport WORLD_SIZE=8\nsrun -c8 python t.py\n"},
      {"world-size-mismatch", 4, "#SBATCH -n4\nexport WORLD_SIZE=8\nsrun -n2 ./t\n",
       "#SBATCH -n4\nexport WORLD_SIZE=4\nstep=(srun)\n\"${step[@]}\" ./t\nsrun -n1 rm -rf x\n"},
      {"loopback-interface", 4, "#SBATCH -N2\nexport NCCL_SOCKET_IFNAME=lo\nsrun ./t\n",
       "#SBATCH -N1\nexport NCCL_SOCKET_IFNAME=lo\nsrun ./t\n"},
      {"mpirun-count", 4, "#SBATCH -n4\nmpirun -np 8 ./t\n", "#SBATCH -n4\nmpirun -np $SLURM_NTASKS ./t\n"},
      {"late-directive", 4, "hostname\n#SBATCH -n2\n", "#SBATCH -n1\nhostname\n"},
      {"late-directive", 4, "hostname\n#SBATCH -n2\n", "cat >x <<E\n#SBATCH -n2\nE\n"},
      {"misspelt-directive", 3, "#SBTACH -n2\n", "##SBATCH -n2\n# sbatch is run by hand\n"},
      {"misspelt-directive", 3, " #SBATCH -n2\n", "#SBATCH -n1\n"},
      {"slurm-directive", 3, "#SLURM -n2\n", "#SLURM_THING\n"},
      {"typographic-dash", 3, "#SBATCH \xe2\x80\x93nodes=2\n", "#SBATCH --nodes=1\n"},
      {"directive-word", 3, "#SBATCH nodes=2\n", "#SBATCH --nodes 1 # one\n"},
      {"space-at-equals", 3, "#SBATCH --job-name =x\n", "#SBATCH --job-name=x\n"},
      {"directive-continuation", 3, "#SBATCH -n1 \\\n  --job-name=x\n", "#SBATCH -n1 \\\n#SBATCH -J x # a \\\n"},
      {"directive-word", 3, "#SBATCH -n1 x\n", "#SBATCH --container-image /x.sqsh -n1\n"},
      {"unmatched-quote", 3, "#SBATCH -J \"a b\n", "#SBATCH -J \"a b\"\n"},
      {"directive-variable", 3, "#SBATCH -o $HOME/x\n", "#SBATCH -o log/%j.out\n"},
      {"directive-tilde", 3, "#SBATCH -o ~/x\n", "#SBATCH -o log/x\n"},
      {"directive-hash", 3, "#SBATCH -J a#b\n", "#SBATCH -J a # b\n"},
      {"directive-hash", 3, "#SBATCH -N 1 #SBATCH -n 4\n", "#SBATCH -N 1\n#SBATCH -n 1\n"},
      {"space-at-equals", 3, "#SBATCH --account=\n", "#SBATCH --output= --job-name=\n"},
      {"unknown-option", 3, "#SBATCH --nodse=2\n", "#SBATCH --container-image=x\n"},
      {"option-of-other-program", 3, "#SBATCH --cpu-bind=none\n", "srun --cpu-bind=none ./x\n"},
      {"ambiguous-option", 3, "#SBATCH --ntasks-per=2\n", "#SBATCH --parti=main\n"},
      {"missing-value", 3, "#SBATCH --nodes\n#SBATCH --job-name=x\n", "#SBATCH --nodes 1\n"},
      {"unwanted-value", 3, "#SBATCH --hold=yes\n", "#SBATCH --hold\n"},
      {"option-not-in-version", 3, "#SBATCH --segment=2\n", "#SBATCH --segment=2\n#SBATCH -N2\nsrun ./x\n", "23.11"},
      {"duplicate-option", 4, "#SBATCH -J a\n#SBATCH --job-name=b\n", "#SBATCH -J a\n"},
      {"bad-value", 3, "#SBATCH -n two\n", "#SBATCH -n 1\n"},
      {"bad-value", 3, "#SBATCH --signal=FOO@3\n", "#SBATCH --signal=B:USR1@60\n"},
      {"bad-value", 3, "#SBATCH --array=10-1\n", "#SBATCH --array=1-10%2\n"},
      {"bad-value", 3, "#SBATCH --begin=tomorow\n", "#SBATCH --begin=tomorrow\n"},
      {"bad-value", 3, "#SBATCH --nodelist=n[1-\n", "#SBATCH --nodelist=n[1-2]\nsrun x\n"},
      {"bad-value", 3, "srun --kill-on-bad-exit=x ./a\n", "srun --kill-on-bad-exit=1 ./a\n"},
      {"bad-value", 3, "srun --mem-bind=x ./a\n", "srun --mem-bind=local ./a\n"},
      {"bad-value", 3, "#SBATCH --dependency=afterokk:1\n", "srun --dependency=afterokk:1 ./a\n"},
      {"ignored-value", 3, "#SBATCH --array=1-10%x\n", "#SBATCH --array=1-10%2\n"},
      {"ignored-value", 3, "#SBATCH --mail-type=END,FAILL\n", "#SBATCH --mail-type=END,FAIL\n"},
      {"root-option", 3, "#SBATCH --uid=bob\n", "#SBATCH -n1\n"},
      {"missing-value", 3, "#SBATCH --export-file\n#SBATCH -J x\n", "#SBATCH --export-file=/etc/environment\n"},
      {"space-at-equals", 3, "srun --deadline= ./a\n", "srun --nice= ./a\n"},
      {"memory-without-unit", 2, "=#!/bin/sh\n#SBATCH --time=10:00 --mem=64\n",
       "=#!/bin/sh\n#SBATCH --time=10:00 --mem=64000\n"},
      {"memory-without-unit", 2, "=#!/bin/sh\n#SBATCH --time=10:00 --mem=16\n",
       "=#!/bin/sh\n#SBATCH --time=10:00 --mem=100\n"},
      {"memory-options-conflict", 3, "#SBATCH --mem-per-cpu=1G\n", "#SBATCH -n1\n"},
      {"tasks-over-nodes", 3, "#SBATCH -N2 -n8 --ntasks-per-node=2\nsrun x\n",
       "#SBATCH -N2 -n4 --ntasks-per-node=2\nsrun x\n", "22.05"},
      {"tasks-per-node-ignored", 4, "#SBATCH -N1 -n4\nsrun -n4 --ntasks-per-node=2 x\n",
       "#SBATCH -N1 -n4\nsrun -n4 --ntasks-per-node=4 x\n"},
      {"tasks-uneven", 3, "#SBATCH -N2 -n3 --ntasks-per-node=2\nsrun x\n",
       "#SBATCH -N2 -n4 --ntasks-per-node=2\nsrun x\n"},
      {"fewer-tasks-than-nodes", 3, "#SBATCH -N2 -n1\nsrun x\n", "#SBATCH -N2 -n2\nsrun x\n"},
      {"cpus-per-gpu-with-cpus-per-task", 3, "#SBATCH --gpus=1 --cpus-per-gpu=2 -c2\n", "#SBATCH --gpus=1 -c2\n"},
      {"ntasks-per-gpu-conflict", 3, "#SBATCH --gpus=1 --ntasks-per-gpu=2 --ntasks-per-node=2\nsrun x\n",
       "#SBATCH --gpus=1 --ntasks-per-gpu=1\nsrun x\n"},
      {"ntasks-per-gpu-overrides", 3, "#SBATCH --gpus=4 --ntasks-per-gpu=2 -n4\nmpirun x\n",
       "#SBATCH --gpus=4 --ntasks-per-gpu=1 -n4\nmpirun x\n"},
      {"ntasks-per-gpu-pending", 3, "#SBATCH --gpus=4 --ntasks-per-gpu=1 -c2\nmpirun x\n",
       "#SBATCH --gpus=4 --ntasks-per-gpu=1\nmpirun x\n", "24.05"},
      {"gpus-not-multiple", 3, "#SBATCH -N2 --gpus=3 --gpus-per-node=2\nsrun x\n",
       "#SBATCH -N2 --gpus=4 --gpus-per-node=2\nsrun x\n"},
      {"gpus-not-multiple", 3, "#SBATCH -N2 --gpus=8 --gpus-per-node=2\nsrun x\n",
       "#SBATCH -N2-4 --gpus=8 --gpus-per-node=2\nsrun x\n"},
      {"gpus-tasks-mismatch", 3, "#SBATCH --gpus=4 --gpus-per-task=1 -n2\nmpirun x\n",
       "#SBATCH --gpus=2 --gpus-per-task=1 -n2\nmpirun x\n"},
      {"gpus-per-task-mismatch", 3, "#SBATCH -N1 -n8 --gpus-per-task=1 --gpus-per-node=4\nmpirun x\n",
       "#SBATCH -N1 -n4 --gpus-per-task=1 --gpus-per-node=4\nmpirun x\n"},
      {"gpus-per-task-mismatch", 3, "#SBATCH -n2 --gpus-per-task=1 --gpus-per-node=4\nmpirun x\n",
       "#SBATCH -n8 --gpus-per-task=1 --gpus-per-node=4\nmpirun x\n"},
      {"gpus-per-task-mismatch", 3, "#SBATCH -N1 --gpus-per-task=2 --gpus-per-node=4\nmpirun x\n",
       "#SBATCH -N1 --gpus-per-task=2 --gpus-per-node=2\nmpirun x\n"},
      {"gpus-per-task-mismatch", 3, "#SBATCH -n3 --gpus-per-task=2 --gpus-per-node=3\nmpirun x\n",
       "#SBATCH -n3 --gpus-per-task=2 --gpus-per-node=2\nmpirun x\n"},
      {"gpus-per-task-mismatch", 3, "#SBATCH -n2 --gpus-per-task=1 --gpus-per-node=4\nmpirun x\n",
       "#SBATCH -n6 --gpus-per-task=1 --gpus-per-node=4\nmpirun x\n"},
      {"gpus-per-task-mismatch", 3, "#SBATCH -N2 --gpus-per-task=1 --gpus-per-node=2\nmpirun x\n",
       "#SBATCH -N2 -n4 --gpus-per-task=1 --gpus-per-node=2\nmpirun x\n", "24.05"},
      {"gres-with-gpus-per-node", 3, "#SBATCH --gres=gpu:2 --gpus-per-node=2\n",
       "#SBATCH --gres=nvme:9 --gpus-per-node=2\n", "26.05"},
      {"gres-differs", 3, "#SBATCH --gres=gpu:2 --gpus-per-node=1\n", "#SBATCH --gres=gpu:1 --gpus-per-node=1\n",
       "22.05"},
      {"gres-name", 3, "#SBATCH --gres=gpus:2\n", "#SBATCH --gres=gpu:2\n"},
      {"per-gpu-without-gpus", 3, "#SBATCH --cpus-per-gpu=2\n", "#SBATCH --cpus-per-gpu=2 -G1\n"},
      {"per-gpu-without-gpus", 3, "#SBATCH --cpus-per-gpu=2\n", "#SBATCH --cpus-per-gpu=2 -G1\n", "24.11"},
      {"exclusive-with-oversubscribe", 3, "#SBATCH --exclusive -s\n", "#SBATCH --exclusive\n", "23.02"},
      {"core-and-thread-spec", 3, "#SBATCH -S1 --thread-spec=1\n", "#SBATCH -S1\n"},
      {"quiet-and-verbose", 3, "#SBATCH -Q -v\n", "#SBATCH -v\n"},
      {"requeue-contradiction", 3, "#SBATCH --requeue --no-requeue\n", "#SBATCH --requeue\n"},
      {"time-min-over-time", 3, "#SBATCH --time-min=20:00\n", "#SBATCH --time-min=5:00\n"},
      {"hint-ignored", 3, "#SBATCH --hint=nomultithread --threads-per-core=1\n", "#SBATCH --hint=nomultithread\n"},
      {"hint-with-sockets", 3, "#SBATCH --hint=nomultithread --cores-per-socket=2\n", "#SBATCH --hint=nomultithread\n",
       "25.11"},
      {"ntasks-per-core-over-threads", 3, "#SBATCH --ntasks-per-core=4 --threads-per-core=2\n",
       "#SBATCH --ntasks-per-core=2 --threads-per-core=2\n", "23.02"},
      {"segment-not-divisor", 3, "#SBATCH -N5 --segment=2\nsrun x\n", "#SBATCH -N4 --segment=2\nsrun x\n", "26.05"},
      {"arbitrary-with-nodes", 3, "#SBATCH -N2 -m arbitrary -w n1,n2\nsrun x\n", "#SBATCH -N2 -m block\nsrun x\n",
       "24.05"},
      {"array-output-collides", 3, "#SBATCH --array=0-9 -o out-%A.txt\n", "#SBATCH --array=0-9 -o out-%A_%a.txt\n"},
      {"array-output-collides", 3, "#SBATCH --array=0-9 -o %%a.txt\n", "#SBATCH --array=0-9 -o out-%3a.txt\n"},
      {"array-output-collides", 3, "#SBATCH --array=0-9 -o out-%b.txt\n", "#SBATCH --array=0-9 -o None\n", "23.11"},
      {"array-output-collides", 3, "#SBATCH --array=0-10 -o out-%b.txt\n", "#SBATCH --array=0-9 -o out-%b.txt\n",
       "24.11"},
      {"gpus-per-task-isolates", 4, "#SBATCH -N1 -n4 --gpus-per-task=1\nsrun python t.py\n",
       "#SBATCH -N1 -n4 --gpus-per-task=1\nsrun --gpu-bind=none python t.py\n"},
      {"task-sharing-in-sbatch", 3, "#SBATCH --gres-flags=allow-task-sharing\n",
       "srun --gres-flags=allow-task-sharing x\n", "25.05"},
      {"task-sharing-too-old", 3, "srun --gres-flags=allow-task-sharing x\n", "srun --gres-flags=enforce-binding x\n",
       "23.02"},
      {"cpus-per-gpu-in-steps", 4, "#SBATCH -G1 --cpus-per-gpu=4\nsrun x\n",
       "#SBATCH -G1 --cpus-per-gpu=4\nsrun -c4 x\n", "23.02"},
      {"bad-gpu-bind", 3, "#SBATCH -G1 --gpu-bind=nearest\n", "#SBATCH -G1 --gpu-bind=closest\n"},
      {"gpu-map-mismatch", 4, "#SBATCH -N1 -n4 --gpus-per-node=4\nsrun --gpu-bind=map_gpu:0,1 x\n",
       "#SBATCH -N1 -n4 --gpus-per-node=4\nsrun --gpu-bind=map_gpu:0,1,2,3 x\n"},
      {"visible-devices-replaced", 4, "#SBATCH --gres=gpu:1\nexport CUDA_VISIBLE_DEVICES=0,1\n",
       "#SBATCH --gres=gpu:2\nexport CUDA_VISIBLE_DEVICES=0,1\n"},
      {"rocr-with-hip", 3, "srun bash -c 'ROCR_VISIBLE_DEVICES=$SLURM_LOCALID HIP_VISIBLE_DEVICES=$SLURM_LOCALID x'\n",
       "srun bash -c 'ROCR_VISIBLE_DEVICES=$SLURM_LOCALID x'\n"},
      {"workers-and-gpus", 4, "#SBATCH --gpus-per-node=2\ntorchrun --nproc_per_node 4 t.py\n",
       "#SBATCH --gpus-per-node=4\ntorchrun --nproc_per_node 4 t.py\n"},
      {"missing-srun", 4, "#SBATCH -n4\npython t.py\n", "#SBATCH -n4\nsrun python t.py\n"},
      {"launcher-on-one-node", 4, "#SBATCH -N2\ntorchrun --nnodes 2 t.py\n",
       "#SBATCH -N2\nsrun torchrun --nnodes 2 t.py\n"},
      {"launcher-per-task", 4, "#SBATCH -N1 --ntasks-per-node=4\nsrun torchrun --nproc-per-node=4 t.py\n",
       "#SBATCH -N1 --ntasks-per-node=1\nsrun torchrun --nproc-per-node=4 t.py\n"},
      {"srun-mpirun", 4, "#SBATCH -n4\nsrun mpirun x\n", "#SBATCH -n4\nsrun -n1 mpirun x\n"},
      {"srun-without-program", 3, "srun -n1\n", "srun -n1 x\n"},
      {"step-over-job", 4, "#SBATCH -N2\nsrun -N3 x\n", "#SBATCH -N2\nsrun -N2 x\n"},
      {"step-elsewhere", 4, "#SBATCH -w n[1-2]\nsrun -w n9 x\n", "#SBATCH -w n[1-2]\nsrun -w n2 x\n"},
      {"step-elsewhere", 4, "#SBATCH --gres=gpu:a100:2\nsrun --gres=gpu:h100:1 x\n",
       "#SBATCH --gres=gpu:a100:2\nsrun --gres=gpu:a100:1 x\n"},
      {"step-cpus-per-task", 4, "#SBATCH -c4\nsrun --exact x\n",
       "#SBATCH -c4\nexport SRUN_CPUS_PER_TASK=4\nsrun --exact x\n", "22.05"},
      {"step-cpus-per-task", 4, "#SBATCH -c4\nsrun --cpu-bind=cores x\n", "#SBATCH -c4\nsrun -c4 --cpu-bind=cores x\n",
       "23.02"},
      {"step-cpus-per-task", 4, "#SBATCH -c4 --hint=nomultithread\nsrun x\n", "#SBATCH -c4\nsrun x\n", "23.02"},
      {"option-needs-another", 3, "#SBATCH --gpus-per-task=1\n", "#SBATCH --gpus-per-task=1 -n1\n"},
      {"option-needs-another", 3, "#SBATCH --gpus-per-task=1 -N1 -c8\n", "#SBATCH --gpus-per-task=1 -N1 -n1 -c8\n"},
      {"option-needs-another", 3, "#SBATCH --gpus-per-task=1 -N1-2\n", "#SBATCH --gpus-per-task=1 -N1\n"},
      {"option-needs-another", 3, "#SBATCH --gpus-per-socket=1\n", "#SBATCH --gpus-per-socket=1 -B 1:2\n"},
      {"option-needs-another", 3, "#SBATCH -m arbitrary\n", "#SBATCH -m arbitrary -w n1\n"},
      {"option-needs-another", 3, "#SBATCH --ntasks-per-gpu=2 -n3\nsrun x\n",
       "#SBATCH --ntasks-per-gpu=2 -n4\nsrun x\n"},
      {"gpus-fewer-than-nodes", 3, "#SBATCH --gpus=1 -N2\nsrun x\n", "#SBATCH --gpus=1 -N1-2\nsrun x\n"},
      {"nodelist-conflict", 3, "#SBATCH -w n1,n2 -N1\nsrun x\n", "#SBATCH -w n1,n2 -N1-2\nsrun x\n"},
      {"nodelist-conflict", 3, "#SBATCH -w n[1-2] -x n2\nsrun x\n", "#SBATCH -w n[1-2] -x n3\nsrun x\n"},
      {"array-with-hetjob", 3, "#SBATCH --array=1-2\n#SBATCH hetjob\n#SBATCH -n1\n",
       "#SBATCH -n1\n#SBATCH hetjob\n#SBATCH -n1\n"},
      {"overlap-with-exclusive", 3, "srun --overlap --exclusive x\n", "srun --overlap --exact x\n"},
      {"value-not-in-version", 3, "#SBATCH --exclusive=topo\n", "#SBATCH --exclusive=user\n", "22.05"},
      {"value-not-in-version", 3, "#SBATCH -N 1,2\nsrun x\n", "#SBATCH -N 1-2\nsrun x\n", "23.11"},
      {"value-not-in-version", 3, "#SBATCH --exclusive=allocation\n", "#SBATCH --exclusive=topo\n", "25.11"},
      {"single-dash", 3, "#SBATCH -output=x\n", "#SBATCH -oerror\n"},
      {"single-dash", 3, "#SBATCH -partition=main\n", "#SBATCH -pmain\n"},
      {"single-dash", 3, "#SBATCH -exclusive\n", "#SBATCH -e xclusive2\n"},
      {"tasks-shortened", 3, "#SBATCH -N2 --tasks=4\nsrun x\n", "#SBATCH -N2 --tasks-per-node=4\nsrun x\n"},
      {"wrap-with-script", 3, "sbatch --wrap=hostname job.sh\n", "sbatch --wrap='hostname job.sh'\n"},
      {"bad-value", 3, "sbatch -n 0 job.sh\n", "sbatch -n 1 job.sh\n"},
      {"bad-value", 3, "salloc -n x\n", "salloc -n 1\n"},
      {"bad-value", 3, "srun --signal=B:USR1@60 x\n", "srun --signal=USR1@60 x\n"},
      {"directive-word", 3, "#SBATCH --job-name=a\\ b\n", "#SBATCH --job-name=\"a\\ b\"\n"},
      {"gres-name", 3, "#SBATCH --gres=gpu_a100:1\n", "#SBATCH --gres=gpu:a100:1\n"},
      {"gpus-tasks-mismatch", 3, "#SBATCH --gpus=4 --gpus-per-task=2 -N1\nsrun x\n",
       "#SBATCH --gpus=4 --gpus-per-task=2 -N2\nmpirun x\n"},
      {"gpus-tasks-mismatch", 3, "#SBATCH --gpus=4 --gpus-per-task=3\nsrun x\n",
       "#SBATCH --gpus=4 --gpus-per-task=4\nsrun x\n"},
      {"tasks-uneven", 3, "#SBATCH -n10 --ntasks-per-node=4\nsrun x\n", "#SBATCH -n8 --ntasks-per-node=4\nsrun x\n"},
      {"tasks-uneven", 3, "#SBATCH -N1 -n2 --ntasks-per-node=4\nsrun x\n",
       "#SBATCH -N1 -n4 --ntasks-per-node=4\nsrun x\n"},
      {"exclusive-with-oversubscribe", 3, "#SBATCH --exclusive --oversubscribe\n", "#SBATCH --oversubscribe\n",
       "22.05"},
      {"background-without-wait", 5, "#SBATCH -n2\nwait\nsrun -n1 x &\n", "#SBATCH -n2\nsrun -n1 x &\nwait\n"},
      {"background-without-wait", 3, "srun x &\nexit 0\nwait\n", "srun x &\nwait\nexit 0\n"},
      {"background-without-wait", 3, "srun x &\n", "f() {\nwait\n}\nsrun x &\nf\n"},
      {"steps-in-turn", 4, "#SBATCH -n2 -N1 --gpus=2\nfor i in 1 2; do srun -n1 --exact x & done\nwait\n",
       "#SBATCH -n2 -N1 --gpus=2\nfor i in 1 2; do srun -n1 --exact --gpus=1 x & done\nwait\n"},
      {"trap-waits", 5, "#SBATCH --signal=B:USR1@60\ntrap 'echo' USR1\nsleep 100\n",
       "#SBATCH --signal=B:USR1@60\ntrap 'echo' USR1\nsleep 5\n"},
      {"step-over-job", 4, "#SBATCH -n1 -c2\nsrun -c4 x\n", "#SBATCH -n4 -N1\nsrun -n1 -c4 x\n"},
      {"step-over-job", 4, "#SBATCH -n4\nsrun -n4 -c2 x\n", "#SBATCH -n4 -N1 -c2\nsrun -n8 x\n"},
      {"step-over-job", 3, "srun -n1 -c8 x\n", "#SBATCH --exclusive\nsrun -n1 -c8 x\n"},
      {"step-over-job", 4, "#SBATCH -N2 -n4\nsrun -N1 x\n", "#SBATCH -N2 -n4\nsrun -N1 -n2 x\n"},
      {"step-over-job", 4, "#SBATCH -N2 --ntasks-per-node=2\nsrun -N1 -n4 x\n",
       "#SBATCH -N2 --ntasks-per-node=2\nsrun -N1 -n2 x\n"},
      {"step-over-job", 4, "#SBATCH -N2 --ntasks-per-node=2\nsrun -N1 x\n", "#SBATCH -N2\nsrun -N1 x\n"},
      {"step-over-job", 4, "#SBATCH --gpus=1\nsrun --gpus=2 x\n", "#SBATCH --gpus=1\nsrun --gpus=1 x\n"},
      {"step-over-job", 4, "#SBATCH -N2 --gpus-per-node=2\nsrun -N1 -n1 --gpus=3 x\n",
       "#SBATCH -N2 --gpus-per-node=2\nsrun -n2 --gpus=3 x\n"},
      {"step-over-job", 3, "srun -n2 x\n", "srun -n1 x\n"},
      {"step-over-job", 3, "srun --gpus=1 x\n", "#SBATCH --exclusive\nsrun --gpus=1 x\n"},
      {"step-over-job", 3, "srun --gres=gpu:1 x\n", "srun --gres=none x\n"},
      {"step-over-job", 4, "#SBATCH --gpus=2 -n4\nsrun --gpu-bind=none --gpus-per-task=1 x\n",
       "#SBATCH --gpus=4 -n4\nsrun --gpu-bind=none --gpus-per-task=1 x\n"},
      {"step-over-job", 4, "#SBATCH -N2 --gpus-per-node=1\nsrun --gpus=3 x\n",
       "#SBATCH -N2 --gpus-per-node=1\nsrun --gpus=2 x\n"},
      {"step-elsewhere", 4, "#SBATCH -w n1 -n1\nsrun -w n2 x\n", "#SBATCH -w n1 -n4\nsrun -w n2 x\n"},
      {"step-elsewhere", 4, "#SBATCH -w n1,n2 -N2\nsrun -x n1 x\n", "#SBATCH -w n1,n2 -N2\nsrun -x n1 -N1 -n1 x\n"},
      {"step-elsewhere", 4, "#SBATCH -N2\nsrun -r 2 -N1 x\n", "#SBATCH -N2\nsrun -r 1 -N1 x\n"},
      {"step-elsewhere", 4, "#SBATCH -n1\nsrun --het-group=1 x\n",
       "#SBATCH -n1\n#SBATCH hetjob\n#SBATCH -n1\nsrun --het-group=1 x\n"},
      {"step-elsewhere", 6, "#SBATCH -n1\n#SBATCH hetjob\n#SBATCH -n1\nsrun --het-group=0-2 x\n",
       "#SBATCH -n1\n#SBATCH hetjob\n#SBATCH -n1\nsrun --het-group=0,1 x\n"},
      {"step-elsewhere", 4, "#SBATCH -n2 -N1\nsrun -n1 x : -n1 y\n", "#SBATCH -n2 -N2\nsrun -n1 x : -n1 y\n"},
      {"tasks-per-node-ignored", 4, "#SBATCH -N2 -n4\nsrun --ntasks-per-node=1 x\n",
       "#SBATCH -N2 -n4\nsrun -n2 --ntasks-per-node=1 x\n"},
      {"tasks-per-node-ignored", 4, "#SBATCH -N2 --ntasks-per-node=2\nsrun --ntasks-per-node=4 x\n",
       "#SBATCH -N2 --ntasks-per-node=2\nsrun --ntasks-per-node=2 x\n"},
      {"tasks-per-node-ignored", 4, "#SBATCH -N2 --ntasks-per-node=2\nsrun -N2 --ntasks-per-node=1 x\n",
       "#SBATCH -N2\nsrun -N2 --ntasks-per-node=1 x\n", "22.05"},
      {"background-without-wait", 3, "srun x &\n", "srun x &\nwait\n"},
      {"steps-in-turn", 4, "#SBATCH -n2\nsrun -n1 a &\nsrun -n1 b &\nwait\n",
       "#SBATCH -n2\nsrun --exact -n1 a &\nsrun --exact -n1 b &\nwait\n"},
      {"background-without-wait", 3, "srun x &\necho started\ndate\n", "srun x &\nray job submit -- python -u p.py\n"},
      {"background-without-wait", 3, "torchrun t.py &\n", "srun x &\naccelerate launch t.py\n"},
      {"background-without-wait", 3, "srun x &\nsleep 5\n", "srun x &\nwhile kill -0 $!; do sleep 5; done\n"},
      {"signal-kills-script", 3, "#SBATCH --signal=B:USR1@60\nsrun x\n", "#SBATCH --signal=B:TERM@60\nsrun x\n"},
      {"signal-kills-script", 3, "#SBATCH --signal=B:10@60\nsource venv/bin/activate\nsrun x\n",
       "#SBATCH --signal=B:10@60\nsource handlers.sh\nsrun x\n"},
      {"signal-kills-script", 3, "#SBATCH --signal=B:USR2@60\ntrap 'true' USR1\nsrun x &\nwait\n",
       "#SBATCH --signal=B:USR2@60\ntrap 'true' USR1 SIGUSR2\nsrun x &\nwait\n"},
      {"signal-unheard", 3, "#SBATCH --signal=SIGUSR1@90\npython t.py\n",
       "#SBATCH --signal=SIGUSR1@90\nsrun python t.py\n"},
      {"signal-unheard", 3, "#SBATCH --signal=USR1@90\ntorchrun t.py\n", "#SBATCH --signal=USR1@90\n./run.sh\n"},
      {"requeue-call", 3, "trap 'scontrol requeue $SLURM_JOB_ID' TERM\n",
       "#SBATCH --open-mode=append\ntrap 'scontrol requeue $SLURM_JOB_ID' TERM\n"},
      {"requeue-call", 4, "#SBATCH --no-requeue --open-mode=append\nscontrol requeue $SLURM_JOB_ID\n",
       "#SBATCH --requeue --open-mode=append\nscontrol requeue $SLURM_JOB_ID # again\n"},
      {"launcher-without-rendezvous", 4, "#SBATCH -N2\nsrun torchrun --nnodes=2 --nproc-per-node=4 t.py\n",
       "#SBATCH -N2\nsrun torchrun --nnodes=2 --rdzv-backend=c10d --rdzv-endpoint=n1:29500 t.py\n"},
      {"launcher-without-rendezvous", 4, "#SBATCH -N2\nsrun python -m torch.distributed.run --nproc-per-node=4 t.py\n",
       "#SBATCH -N1\nsrun python -m torch.distributed.run --nproc-per-node=4 t.py\n"},
      {"launcher-without-rendezvous", 4,
       "#SBATCH -N2\nsrun torchrun --nnodes=2 --rdzv-backend=c10d --master-addr=n1 t.py\n",
       "#SBATCH -N2\nARGS=$(cat args)\nsrun torchrun --nnodes=2 $ARGS t.py\n"},
      {"launcher-without-rendezvous", 4, "#SBATCH -N2\nsrun torchrun --nnodes=2 --rdzv-endpoint=n1:29500 t.py\n",
       "#SBATCH -N2\nsrun torchrun --nnodes=2 --rdzv-endpoint=n1:29500 --node-rank=$R t.py\nR=1\n"},
      {"rendezvous-per-task", 4, "#SBATCH -N2\nsrun bash -c 'export MASTER_ADDR=$(hostname); ./t'\n",
       "#SBATCH -N2\nsrun bash -c \"export MASTER_ADDR=$(hostname); ./t\"\n"},
      {"rendezvous-per-task", 4, "#SBATCH -N2\nsrun bash -c \"torchrun --rdzv-endpoint=\\$(hostname):29500 t.py\"\n",
       "#SBATCH -N2\nsrun bash -c 'torchrun --rdzv-endpoint=$HEAD:29500 t.py'\n"},
      {"rendezvous-per-task", 4, "#SBATCH -N2\nsrun bash -c 'torchrun --rdzv-id=$RANDOM t.py'\n",
       "#SBATCH -N2\nsrun bash -c 'torchrun --rdzv-id=$SLURM_JOB_ID t.py'\n"},
      {"port-of-job-id", 3, "export MASTER_PORT=$SLURM_JOB_ID\n",
       "export MASTER_PORT=$((20000 + SLURM_JOB_ID % 20000))\n"},
      {"port-of-job-id", 4,
       "#SBATCH -N2\nsrun torchrun --nnodes=2 --rdzv-backend=c10d --rdzv-endpoint=n1:$SLURM_JOB_ID t.py\n",
       "#SBATCH -N2\nsrun torchrun --nnodes=2 --rdzv-backend=c10d --rdzv-endpoint=n1:29500 t.py\n"},
      {"rank-in-batch-shell", 4,
       "#SBATCH -N2\nA=\"--nnodes=2 --node-rank=$SLURM_NODEID --master-addr=n1\"\nsrun torchrun $A t.py\n",
       "#SBATCH -N2\nA=\"--nnodes=2 --node-rank=\\$SLURM_NODEID --master-addr=n1\"\nsrun bash -c \"torchrun $A "
       "t.py\"\n"},
      {"rank-in-batch-shell", 4,
       "#SBATCH -N2\nA=(--node-rank=$SLURM_NODEID --nnodes=2)\nsrun torchrun \"${A[@]}\" t.py\n",
       "#SBATCH -N2\nA=(--node-rank=$SLURM_NODEID --nnodes=2)\necho \"${A[@]}\"\n"},
      {"slurm-variable-not-set", 4, "#SBATCH -N2\nexport WORLD_SIZE=$SLURM_NTASKS\nsrun ./t\n",
       "#SBATCH -N2 --ntasks-per-node=1\nexport WORLD_SIZE=$SLURM_NTASKS\nsrun ./t\n"},
      {"slurm-variable-not-set", 4, "#SBATCH --gres=gpu:1\nif [ -z \"$SLURM_GPUS\" ]; then echo none; exit 1; fi\n",
       "#SBATCH --gpus=1\nif [ -z \"$SLURM_GPUS\" ]; then echo none; exit 1; fi\n"},
      {"gpu-variable-with-type", 4,
       "#SBATCH --gpus-per-node=a100:4\ntorchrun --nproc-per-node=$SLURM_GPUS_PER_NODE t.py\n",
       "#SBATCH --gpus-per-node=a100:4\ntorchrun --nproc-per-node=${SLURM_GPUS_PER_NODE##*:} t.py\n"},
      {"gres-type-and-count", 3, "#SBATCH --gres=gpu:a100:4 --gpus-per-node=4\n",
       "#SBATCH --gres=gpu:a100:4 --gpus-per-node=a100:4\n", "22.05"},
      {"one-cpu-for-gpus", 3, "#SBATCH -N2 --ntasks-per-node=4 --gpus-per-node=4\nsrun python t.py\n",
       "#SBATCH -N2 --ntasks-per-node=4 --gpus-per-node=4 --cpus-per-task=8\nsrun -c8 python t.py\n"},
      {"workers-and-gpus", 4,
       "#SBATCH --ntasks-per-node=1 --gpus-per-node=4 -c8\naccelerate launch --num_processes 1 t.py\n",
       "#SBATCH --ntasks-per-node=1 --gpus-per-node=4 -c8\naccelerate launch --num_processes 4 t.py\n"},
      {"misspelt-directive", 3, "#sbatch --nodes=2\n",
       "# Usage:\n#   sbatch --account=p -N 4 job.sh\n#sbatch -N4 job.sh\n"},
      {"pty-in-batch", 3, "srun --pty bash\n", "srun --pty ./x\n"},
      {"signal-not-to-shell", 3, "#SBATCH --signal=USR1@60\ntrap 'echo' USR1\nsrun x &\nwait\n",
       "#SBATCH --signal=B:USR1@60\ntrap 'echo' USR1\nsrun x &\nwait\n"},
      {"trap-waits", 5, "#SBATCH --signal=B:USR1@60\ntrap 'echo' USR1\nsrun x\n",
       "#SBATCH --signal=B:USR1@60\ntrap 'echo' USR1\nsrun x &\nwait\n"},
      {"bad-cpu-bind", 3, "srun --cpu-bind=foo x\n", "srun --cpu-bind=verbose,cores x\n"},
      {"bad-cpu-bind", 3, "srun --cpu-bind=off x\n", "srun --cpu-bind=cores,quiet x\n"},
      {"bad-cpu-list", 3, "srun --cpu-bind=mask_cpu:0xzz,v x\n", "srun --cpu-bind=mask_cpu:0x3,verbose x\n"},
      {"bad-cpu-list", 3, "srun --cpu-bind=mask_cpu:0xzz x\n", "srun --cpu-bind=mask_cpu:0xff x\n"},
      {"cpu-bind-rank", 3, "srun --cpu-bind=rank x\n", "srun --cpu-bind=cores x\n", "24.11"},
      {"mask-count", 4, "#SBATCH -N1 -n4\nsrun --cpu-bind=map_cpu:0,1 x\n",
       "#SBATCH -N1 -n2\nsrun --cpu-bind=map_cpu:0,1 x\n"},
      {"mask-overlap", 4, "#SBATCH -n2\nsrun --cpu-bind=mask_cpu:0x3,0x6 x\n",
       "#SBATCH -n2\nsrun --cpu-bind=mask_cpu:0x3,0xc x\n"},
      {"mask-smaller-than-cpus", 4, "#SBATCH -c4\nsrun --cpu-bind=mask_cpu:0x3 x\n",
       "#SBATCH -c2\nsrun --cpu-bind=mask_cpu:0x3 x\n"},
      {"slurm-variable-not-set", 3, "export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK\n",
       "export OMP_NUM_THREADS=${SLURM_CPUS_PER_TASK:-1}\n"},
      {"slurm-variable-not-set", 4, "#SBATCH -N2\nexport N=$SLURM_NTASKS\n",
       "#SBATCH -N2 --hint=nomultithread\nexport N=$SLURM_NTASKS\n"},
      {"slurm-variable-not-set", 4, "#SBATCH -n2 --gpus-per-task=2\nexport N=$SLURM_GPUS_PER_TASK\n",
       "#SBATCH -n2 --gpus-per-node=2\nexport N=$SLURM_GPUS_PER_NODE\n", "23.11"},
      {"unknown-slurm-variable", 3, "x=$SLURM_NTASK\n", "x=$SLURM_NTASKS\n"},
      {"unknown-slurm-variable", 3, "x=$SLURM_JOB_STDOUT\n", "x=$SLURM_JOB_SLUID\ny=$SLURM_JOB_NICS\n"},
      {"undefined-variable", 4, "a=1\necho $other_one\n",
       "for ((other_one = 0; other_one < 8; other_one++)); do echo $other_one; done\n"},
      {"undefined-variable", 4, "data_dir=/d\ncp $data_dri/x .\n", "data_dir=/d\ncp $data_dir/x .\n"},
      {"rank-in-batch-shell", 4, "#SBATCH -n4\nexport RANK=$SLURM_PROCID\nsrun x\n",
       "#SBATCH -n4\nsrun bash -c 'RANK=$SLURM_PROCID x'\n"},
      {"rank-in-batch-shell", 4,
       "#SBATCH -N2\nsrun torchrun --nnodes=2 --master-addr=n1 --node_rank=$SLURM_NODEID t.py\n",
       "#SBATCH -N2\nsrun bash -c \"torchrun --node_rank=\\$SLURM_NODEID t.py\"\n"},
      {"master-addr-localhost", 4, "#SBATCH -N2\nexport MASTER_ADDR=localhost\nsrun x\n",
       "#SBATCH -N1\nexport MASTER_ADDR=localhost\nsrun x\n"},
      {"too-many-threads", 4, "#SBATCH -c2\nexport OMP_NUM_THREADS=4\n", "#SBATCH -c4\nexport OMP_NUM_THREADS=4\n"},
      {"too-many-threads", 4, "#SBATCH -N1 -n8 -c1\nexport OMP_NUM_THREADS=8\nsrun ./a\n",
       "#SBATCH -N1 -n8 -c1\nexport OMP_NUM_THREADS=8\n./a\n"},
      {"too-many-workers", 4, "#SBATCH -c2\npython t.py --num-workers=4\n",
       "#SBATCH -c2 --exclusive\npython t.py --num-workers=4\n"},
      {"master-addr-localhost", 4, "#SBATCH -N2\nexport MASTER_ADDR=localhost\nsrun x\n",
       "#SBATCH -N2\nif [ $SLURM_NNODES = 1 ]; then export MASTER_ADDR=localhost; fi\n"
       "srun -N1 -n1 torchrun --rdzv-endpoint=localhost:1 a\n"},
      {"master-addr-localhost", 4,
       "#SBATCH -N2\nfor h in a b; do ssh $h torchrun --nnodes=2 --rdzv-endpoint=localhost:1 a; done\n",
       "#SBATCH -N2\ntorchrun --rdzv-endpoint=localhost:1 a\n"},
      {"too-many-workers", 4, "#SBATCH -c2\npython t.py --num-workers=4\n",
       "#SBATCH -N1 --ntasks-per-node=4 -c8\ntorchrun --nproc-per-node=4 t.py --num-workers 8\n"},
      {"too-many-workers", 4, "#SBATCH -c2\npython t.py --num-workers=4\n",
       "#SBATCH -c4\npython t.py --num-workers=4\n"},
      {"export-without-all", 3, "#SBATCH --export=NONE\nsrun x\n",
       "#SBATCH --export=NONE\nunset SLURM_EXPORT_ENV\nsrun x\n"},
      {"tasks-per-node-text", 4,
       "#SBATCH -N2\nsrun torchrun --nnodes=2 --rdzv-backend=c10d --rdzv-endpoint=n1:1 "
       "--nproc-per-node=$SLURM_TASKS_PER_NODE t.py\n",
       "#SBATCH -N2\nsrun torchrun --nproc-per-node=$SLURM_GPUS_ON_NODE t.py\n"},
  };
  return kCases;
}

TEST(SlurmCheck, EachRuleFindsItsMistakeAndNothingInTheNeighbour) {
  for (const auto& one : cases()) {
    SCOPED_TRACE(std::string(one.rule) + ": " + one.bad);
    const auto bad = findings_in(script_of(one.bad), one.version);
    const bool is_found = std::any_of(bad.begin(), bad.end(), [&](const Finding& finding) {
      return finding.rule == one.rule && finding.line == one.line && finding.severity != Severity::kNote &&
             !finding.message.empty() && !finding.source.empty() && !finding.slurm.empty();
    });
    EXPECT_TRUE(is_found) << shown(bad);
    for (const auto& finding : bad) {
      if (finding.severity == Severity::kNote) continue;
      EXPECT_EQ(finding.rule, one.rule) << shown(bad);
    }
    const auto good_version = std::string_view(one.rule) == "option-not-in-version" ? "25.05" : one.version;
    const auto good = findings_in(script_of(one.good), good_version);
    EXPECT_TRUE(std::none_of(good.begin(), good.end(), [&](const Finding& finding) {
      return finding.rule == one.rule && finding.severity != Severity::kNote;
    })) << shown(good);
  }
}

TEST(SlurmCheck, MakesTheFolderOfTheLogBelowThatOfTheJob) {
  const std::string lines = std::string(kHead) + "#SBATCH -D sub\n#SBATCH -o nowhere/%j.out\n";
  const auto missing = findings_in(lines, "22.05");
  ASSERT_EQ(missing.size(), 1U) << shown(missing);
  EXPECT_THAT(missing[0].message, HasSubstr("there is no folder sub/nowhere here"));
  EXPECT_THAT(missing[0].fix, HasSubstr("mkdir -p sub/nowhere"));
  const auto late = findings_in(lines + "mkdir nowhere\n", "22.05");  // the script runs in sub
  ASSERT_EQ(late.size(), 1U) << shown(late);
  EXPECT_EQ(late[0].rule, "log-folder-late");
  EXPECT_THAT(late[0].fix, HasSubstr("mkdir -p sub/nowhere"));
  const auto absolute = findings_in(std::string(kHead) + "#SBATCH -D sub -e /w/e\nmkdir /w\n", "22.05");
  ASSERT_EQ(absolute.size(), 1U) << shown(absolute);
  EXPECT_THAT(absolute[0].fix, HasSubstr("mkdir -p /w"));
}

TEST(SlurmCheck, RulesHaveUniqueNamesAndSources) {
  std::set<std::string> ids;
  for (const auto& rule : all_rules()) {
    EXPECT_TRUE(ids.insert(rule.id).second) << rule.id;
    EXPECT_GT(std::string(rule.source).size(), 8U) << rule.id;
    EXPECT_THAT(rule.source, testing::Not(HasSubstr("slurm.schedmd.com"))) << rule.id;  // the manual proves nothing
    EXPECT_FALSE(std::string(rule.fix).empty()) << rule.id;
  }
  EXPECT_GE(ids.size(), 80U);
}

TEST(SlurmCheck, KnowsWhichVersionsARuleHoldsFor) {
  const std::string both = script_of("#SBATCH --gres=gpu:1 --gpus-per-node=1\n");
  EXPECT_THAT(findings_in(both, "25.11"), IsEmpty());
  ASSERT_EQ(findings_in(both, "26.05").size(), 1U);
  EXPECT_EQ(findings_in(both, "26.05")[0].severity, Severity::kError);
  EXPECT_EQ(findings_in(both)[0].severity, Severity::kWarning);  // of some versions only
  const std::string pending = script_of("#SBATCH --gpus=4 --ntasks-per-gpu=1 -c2\nmpirun x\n");
  EXPECT_THAT(findings_in(pending, "25.05.1"), IsEmpty());
  EXPECT_EQ(findings_in(pending, "25.05.0").size(), 1U);
}

TEST(SlurmCheck, KnowsTheNodesOfLumi) {
  const std::string head =
      "#!/bin/bash\n#SBATCH -A project_465000001 -p standard-g -N1 --ntasks-per-node=8 --gpus-per-node=8 --mem=0\n";
  const auto rules = [&](const std::string& rest) {
    std::vector<std::string> result;
    for (const auto& finding : findings_in(head + rest)) {
      if (finding.severity != Severity::kNote) result.push_back(finding.rule);
    }
    return result;
  };
  const std::string run = " bash -c 'ROCR_VISIBLE_DEVICES=$SLURM_LOCALID x'\n";
  EXPECT_THAT(rules("#SBATCH -t 1:00:00\nsrun --cpu-bind=map_cpu:49,57,17,25,1,9,33,41" + run), IsEmpty());
  EXPECT_THAT(rules("#SBATCH -t 1:00:00\nsrun --cpu-bind=map_cpu:1,9,17,25,33,41,49,57" + run),
              ElementsAre("mask-misses-gpu"));
  EXPECT_THAT(rules("#SBATCH -t 1:00:00\nsrun --cpu-bind=map_cpu:48,57,17,25,1,9,33,41" + run),
              ElementsAre("mask-reserved-cpu"));
  EXPECT_THAT(rules("#SBATCH -t 1:00:00 -S1\nsrun --cpu-bind=map_cpu:48,57,17,25,1,9,33,41" + run), IsEmpty());
  EXPECT_THAT(rules("#SBATCH -t 3-0\nsrun x\n"), ElementsAre("time-over-limit"));
  EXPECT_THAT(rules("#SBATCH -t 1:00:00 -c8\nsrun -c8 x\n"), ElementsAre("cores-reserved"));
}

// One bad word does not make the options of all later lines absent; sbatch says nothing about them.
TEST(SlurmCheck, ReadsOnAfterAWordThatIsNoOption) {
  const auto found = findings_in(
      "#!/bin/bash\n#SBATCH --account=[budget code]\n#SBATCH --time=01:00:00 --mem=4G\n#SBATCH -N2 -n16 -c4\n"
      "export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK\nsrun -c4 ./a.out\n");
  ASSERT_EQ(found.size(), 1U) << shown(found);
  EXPECT_EQ(found[0].rule, "directive-word");
  EXPECT_EQ(found[0].line, 2);
}

// A question from a LUMI course: it is not --cpus-per-gpu that keeps GPUs from reaching each other.
TEST(SlurmCheck, TellsWhatDividesGpus) {
  const auto message = [](const std::string& text) {
    for (const auto& finding : findings_in(script_of(text))) {
      if (finding.rule == "cpus-per-gpu-reach") return finding.message;
    }
    return std::string();
  };
  EXPECT_THAT(message("#SBATCH -N1 -n4 --gpus-per-node=4 --cpus-per-gpu=7\nsrun ./a\n"),
              HasSubstr("divides CPUs alone"));
  EXPECT_THAT(message("#SBATCH -N1 -n4 --gpus-per-task=1 --cpus-per-gpu=7\nsrun ./a\n"),
              HasSubstr("it is --gpus-per-task and not --cpus-per-gpu"));
  EXPECT_EQ(message("#SBATCH -N1 -n1 --gpus-per-node=4 --cpus-per-gpu=7\nsrun ./a\n"), "");
  const auto shared = findings_in(script_of("#SBATCH -n2 --ntasks-per-gpu=2 --gres=gpu:1\nsrun python t.py\n"));
  EXPECT_THAT(shown(shared), testing::Not(HasSubstr("gpus-per-task-isolates")));  // both tasks have the one GPU
}

TEST(SlurmCheck, ReadsCommandLines) {
  const auto rules = [](const std::vector<std::string>& words) {
    const auto script = read_command_line(words);
    const auto program = words[0] == "srun" ? kSrun : kSbatch;
    std::vector<std::string> result;
    for (const auto& finding :
         check({.script = script, .version = {}, .site = nullptr, .program = program, .is_command_line = true})) {
      result.push_back(finding.rule);
    }
    return result;
  };
  EXPECT_THAT(rules({"sbatch", "-n=4", "job.sh"}), ElementsAre("space-at-equals"));
  EXPECT_THAT(rules({"sbatch", "-N2", "-n1", "job.sh"}), ElementsAre("fewer-tasks-than-nodes"));
  EXPECT_THAT(rules({"sbatch", "--export-file", "job.sh"}), ElementsAre("script-as-value"));
  EXPECT_THAT(rules({"sbatch", "job.sh", "--nodes=2"}), ElementsAre("option-after-script"));
  EXPECT_THAT(rules({"sbatch", "job.sh", "--lr=2"}), IsEmpty());
  const auto missing = [](const std::vector<std::string>& words) {
    const auto script = read_command_line(words);
    return check(
        {.script = script, .version = {}, .site = nullptr, .is_command_line = true, .is_script_missing = true});
  };
  EXPECT_THAT(missing({"sbatch", "-n1", "none.sh"}), SizeIs(1));
  EXPECT_THAT(missing({"sbatch", "-n1", ":", "-n2", "job.sh"}), IsEmpty()) << "the words after : are not looked at";
  EXPECT_THAT(rules({"srun", "-N1", "-n4", "--ntasks-per-node=2", "x"}), ElementsAre("tasks-per-node-ignored"));
  EXPECT_THAT(rules({"sbatch", "--wrap=hostname", "job.sh"}), ElementsAre("wrap-with-script"));
  EXPECT_THAT(rules({"sbatch", "-w", "n1,n2", "-N1", "job.sh"}), ElementsAre("nodelist-conflict"));
  EXPECT_THAT(rules({"srun", "-w", "n1,n2", "-N1", "x"}), IsEmpty());  // srun takes one of them
  EXPECT_THAT(rules({"srun", "-n2", "-N1", "--gpus-per-node=2", "--gpu-bind=map_gpu:0,5", "x"}),
              ElementsAre("gpu-map-mismatch"));
  EXPECT_THAT(rules({"srun", "-n2", "--gpus=2", "--gpu-bind=map_gpu:0,5", "x"}), ElementsAre("gpu-map-mismatch"));
  EXPECT_THAT(rules({"srun", "--mem_bind=local", "x"}), ElementsAre("unknown-option"));
  EXPECT_THAT(rules({"srun", "--array=1", "x"}), ElementsAre("option-of-other-program"));
  EXPECT_THAT(rules({"srun", "-n2", "x", "--nodes=many"}), IsEmpty());
}

TEST(SlurmCheck, WritesJsonAndSarif) {
  const std::vector<FileFindings> files = {{"job.sh", findings_in("hostname\n")}};
  const auto json = to_json(files);
  EXPECT_EQ(json["findings"][0]["rule"], "no-shebang");
  for (const auto* key : {"line", "severity", "message", "fix", "source", "slurm"})
    EXPECT_TRUE(json["findings"][0].contains(key)) << key;
  const auto sarif = to_sarif(files, "1");
  EXPECT_EQ(sarif["version"], "2.1.0");
  EXPECT_EQ(sarif["runs"][0]["results"][0]["ruleId"], "no-shebang");
  EXPECT_TRUE(has_problems(files));
}

}  // namespace
}  // namespace yoke::slurm::check
