// yoke/contract/variables.h -- the environment variables of yoke: their names, and what they mean. No other file of the
// product spells a name out, except in messages and in tools/python (variables_test.cpp).
#pragma once

namespace yoke::variable {

// Variables that a user may set.

/// The folder with the locks of claims, for tests. Where a site has limits, it must be the site's own folder.
inline constexpr const char* kClaimDir = "YOKE_CLAIM_DIR";
/// The file in place of /etc/yoke/config.toml, for tests. Only root may set it where that file exists.
inline constexpr const char* kSiteConfig = "YOKE_SITE_CONFIG";
/// The secret of the nodes of a job, in place of the user's token file. Ranks do not get it.
inline constexpr const char* kJobToken = "YOKE_JOB_TOKEN";
/// The folder for samples of Slurm jobs, which all nodes must share; "0": nothing is sampled.
inline constexpr const char* kSlurmSamples = "YOKE_SLURM_SAMPLES";
/// "cpu": a program does not use GPUs. Other values have no effect.
inline constexpr const char* kDevice = "YOKE_DEVICE";
/// The file of a plug to load in place of the one beside libyoke_dist.so.
inline constexpr const char* kPlug = "YOKE_PLUG";
/// "0": collectives of CPU tensors use Gloo. Otherwise ranks of one host share memory for them.
inline constexpr const char* kSharedMemory = "YOKE_SHARED_MEMORY";
/// "libtorch": all operators use libtorch's kernels. Otherwise training programs have some of yoke's own on a CPU.
inline constexpr const char* kKernels = "YOKE_KERNELS";
/// The folder of a torch, which has lib/libtorch_cpu.so. The build looks there first, and so does `yoke doctor`.
inline constexpr const char* kTorchDir = "YOKE_TORCH_DIR";
/// The folder for what scripts/setup downloads, in place of .deps in the repository.
inline constexpr const char* kDepsDir = "YOKE_DEPS_DIR";
/// `import yoke` in Python: the path of the command, in place of the one that was installed with the module.
inline constexpr const char* kCommand = "YOKE_COMMAND";

// Variables by which the command tells a program something. A program that does not know them loses nothing else.

/// `yoke run` to rank 0, if it serves the store: a socket that is bound to MASTER_PORT and does not listen yet
/// (RankEnv::master_listen_fd).
inline constexpr const char* kMasterListenFd = "YOKE_MASTER_LISTEN_FD";
/// `yoke run` to ranks: set if their output appears on a terminal, although they write to a pipe.
inline constexpr const char* kTerminal = "YOKE_TERMINAL";
/// `yoke claim --share` to the program: the memory that it may use of each device that it sees, in bytes. It is a
/// request: yoke's own programs limit libtorch's allocator by it, and others may read it.
inline constexpr const char* kDeviceMemory = "YOKE_DEVICE_MEMORY_BYTES";
/// The guardian to the program from which ranks are forked: the descriptor of their connection (preload.h).
inline constexpr const char* kPreloadFd = "YOKE_PRELOAD_FD";
/// `yoke profile -- CMD` to the programs of CMD: the name of its socket (profile_protocol.h). "off": the program does
/// not listen for `yoke profile --pid`.
inline constexpr const char* kProfile = "YOKE_PROFILE";
/// `yoke run` to ranks: the file in which they report how many steps of the training they have made (progress.h).
inline constexpr const char* kProgress = "YOKE_PROGRESS";
/// `yoke run --replace` to ranks: the number of the replacement that this process is, in the order of their starts; "0"
/// if it was started with the others.
inline constexpr const char* kReplacement = "YOKE_REPLACEMENT";
/// `yoke run --replace` to ranks: the path before the names of the two files in which the rank keeps what no other rank
/// has of the training's state (yoke/train/checkpoint/kept_states.h). They outlive the rank until the job ends.
inline constexpr const char* kRankState = "YOKE_RANK_STATE";
/// `yoke run --replace --spares` to ranks of several hosts: each is to have a copy of that on another host, because a
/// spare may take the place of its own. "spare": this host has done so; "1": it has not.
inline constexpr const char* kStateCopies = "YOKE_STATE_COPIES";
/// `yoke tune` and `yoke plan` to ranks: the folder for their step times (step_times.h).
inline constexpr const char* kStepTimes = "YOKE_STEP_TIMES";
/// `yoke plan --neighbours` to a copy of a program: the path of its FIFO, in a folder that has one FIFO for each copy
/// and nothing else. At the end of a step, a copy writes a byte to the FIFO of each other copy, and then waits until it
/// has read as many bytes from its own as the others have steps to end.
inline constexpr const char* kLockStep = "YOKE_LOCK_STEP";
/// `yoke tune batch --worst-case` to ranks: "1" in runs that measure memory, in which the program uses its longest
/// samples.
inline constexpr const char* kTuneWorstCase = "YOKE_TUNE_WORST_CASE";

// Variables by which parts of the command tell each other something.

/// To `yoke agent`: the address under which the other nodes of the job reach this one.
inline constexpr const char* kNodeAddress = "YOKE_NODE_ADDRESS";
/// `yoke alloc` to the keeper in the allocation: the path of the allocation's file.
inline constexpr const char* kAllocFile = "YOKE_ALLOC_FILE";
/// The keeper to the resident agents of an allocation: their secret. An agent removes the variable, so no rank sees it.
inline constexpr const char* kAllocSecret = "YOKE_ALLOC_SECRET";
/// Before the name of a variable that srun must not read: the launchers of its step give the variable its name back.
inline constexpr const char* kOuterPrefix = "YOKE_OUTER_";
/// Before the name of a variable for a container: its first program, container-init, sets the variable there. So the
/// client of an engine can have a value for the container in its environment, although it reads the name for itself.
inline constexpr const char* kContainerSetPrefix = "YOKE_CONTAINER_SET_";

}  // namespace yoke::variable
