// Values that sbatch and srun 22.05.8 refuse, and those that they take. tests/slurm/check_test.cpp compares with them.
#include "yoke/slurm/words/values.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "yoke/slurm/words/options.h"
#include "yoke/slurm/words/request.h"

namespace yoke::slurm::check {
namespace {

using Values = std::vector<std::pair<const char*, std::vector<std::string>>>;

TEST(SlurmCheckValues, RefusesWhatTheProgramsRefuse) {
  const Values refused = {
      {"begin",
       {"tomorow", "now+1h", "now+1month", "25:00", "4pm", "13:00pm", "2030-13-20", "13/20", "12", "monday", "now+",
        "now+1hourx", "Tomorrow", "2030-1-20", "10:5", "1hour", "utsx", "uts12", "-"}},
      {"deadline", {"tomorow"}},
      {"mail-type", {"ENDD", "END;FAIL", "TIME_LIMIT_95"}},
      {"dependency", {"afterokk:1", "afterok", "afterok:", "afterok:x", "foo", "afterok:1,"}},
      {"hint", {"x", "nomulti"}},
      {"distribution", {"blok", "block:foo", "plane=x", "plane", "plane:2", "block,foo", "b", "arbitrary:block"}},
      {"gres-flags", {"foo", "enforce", "enforce-binding,foo", "enforce-binding,disable-binding"}},
      {"signal", {"USR1@70000", "USR1@65536", "0", "@60", "B:", "WINCH"}},
      {"nodelist", {"n[1-", "n[", "n[]", "n]1", "n[2-1]", "n[1,2"}},
      {"exclude", {"n[", "x]"}},
      {"open-mode", {"x", "new"}},
      {"profile", {"x"}},
      {"cpu-freq",
       {"x", "verbose", "2400000-1000000", "low-high:foo", "foo-high", "high-performance", "high-low", "highm1-high",
        "low-2400000"}},
      {"kill-on-bad-exit", {"x", "-1"}},
      {"wait-all-nodes", {"3", "x"}},
      {"mem-bind", {"x", "map_mem", "map_mem:", "map_mem:z", "mask_mem:zz", "local,x"}},
      {"exclusive", {"foo", "no"}},
      {"switches", {"x", "0", "-1"}},
      {"nice", {"99999999999", "2147483646", "-2147483646"}},
      {"priority", {"-1", "4294967295"}},
      {"core-spec", {"x", "-1"}},
      {"thread-spec", {"x", "0"}},
      {"ntasks-per-core", {"0", "x"}},
      {"threads-per-core", {"0", "1-2"}},
      {"extra-node-info", {"x", "1:x"}},
      {"gpu-freq", {"x", "foo=high", "memory=x"}},
      {"gpus", {"2.5", "-1", "a100:x"}},
      {"gres",
       {"gpu:-1", "gpu:1:a100", "gpu:2.5", "gpu:2,", ",gpu:2", "gpu::2", "gpu:", "gpu:a100:2:3", "gpu:a100:2,gpu:1",
        "gpu:1,gpu:a100:1"}},
      {"nodes", {"0", "2-1", "two"}},
      {"resv-ports", {"a"}},
      {"het-group", {"a"}},
      {"array", {"x", "10-1", "1-", "1-10:0", "1--4", "1:2", "5,1:1"}},
      {"acctg-freq", {"x", "task=x", "foo=30"}},
      {"delay-boot", {"x"}},
      {"tmp", {"x", "1.5G"}},
      {"propagate", {"x", "STACK,FOO"}},
      {"get-user-env", {"x"}},
      {"kill-on-invalid-dep", {"x"}},
      {"no-kill", {"x"}},
      {"send-libs", {"x"}},
      {"accel-bind", {"x"}},
      {"wait", {"x", "-1"}},
      {"relative", {"x"}},
      {"jobid", {"x"}},
  };
  for (const auto& [option, values] : refused) {
    for (const auto& value : values) {
      const auto problem = problem_of_value(option, value, false);
      EXPECT_TRUE(problem && problem->is_refused && !problem->advice.empty()) << option << " " << value;
    }
  }
}

TEST(SlurmCheckValues, TakesWhatTheProgramsTake) {
  const Values taken = {
      {"begin",
       {"tomorrow",
        "now+1hour",
        "now+60",
        "now + 1 hour",
        "now-1hour",
        "now+90seconds",
        "now",
        "16:00",
        "16:00:00",
        "noon",
        "midnight",
        "teatime",
        "fika",
        "elevenses",
        "today",
        "2030-01-20T12:34:00",
        "2010-01-20T12:34:00",
        "2030-01-20",
        "2030-01-20 12:34",
        "01/20/30",
        "1/2/30",
        "01.20.30",
        "012030",
        "0120",
        "01/20",
        "01/20/30-16:00",
        "tomorrow 12:00",
        "tomorrowT12:00",
        "12:00 tomorrow",
        "uts1893456000",
        "10:00am",
        "10:00 PM",
        "12:00pm"}},
      {"mail-type", {"end,fail", "ALL", "NONE", "INVALID_DEPEND", "STAGE_OUT", "TIME_LIMIT_80,END"}},
      {"dependency",
       {"afterok:1", "after:1+5", "singleton", "afterok:1?afterany:2", "afterok:1,afterany:2", "afterok:1:2",
        "aftercorr:1", "afterok:1_2", "afterok:1_*", "1", "AFTEROK:1", "expand:1"}},
      {"hint", {"nomultithread", "NOMULTITHREAD", "compute_bound"}},
      {"distribution",
       {"block", "BLOCK", "block:cyclic", "block:cyclic:fcyclic", "plane=4", "*", "*:block", "block,Pack",
        "cyclic:*:block", "arbitrary", "pack"}},
      {"gres-flags", {"enforce-binding", "disable-binding", "allow-task-sharing"}},
      {"signal", {"USR1@65535", "B:USR1@60", "BR:USR1@60", "10", "SIGUSR1", "USR1@"}},
      {"nodelist", {"n1", "n[1-2]", "n[01-10,12],m3", "rack[1-2]node[1-4]", "n1,,n2", "./hosts["}},
      {"open-mode", {"append", "a", "truncate", "APPEND"}},
      {"profile", {"all", "task,energy", "Energy,Lustre"}},
      {"cpu-freq",
       {"high", "low", "highm1", "2400000", "1000000-2400000", "performance", "low-high:ondemand", "high-highm1",
        "2400000-low"}},
      {"wait-all-nodes", {"0", "1"}},
      {"mem-bind",
       {"local", "none", "map_mem:0,1", "mask_mem:0x3,0xc", "verbose,local", "map_mem:0,1,verbose", "LOCAL"}},
      {"exclusive", {"user", "mcs", "USER", "topo"}},
      {"switches", {"1", "1@1:00"}},
      {"nice", {"100", "-100", "2147483645"}},
      {"priority", {"100", "TOP", "0"}},
      {"core-spec", {"0"}},
      {"extra-node-info", {"1:2:1", "*", "2:*"}},
      {"gpu-freq", {"high", "low,memory=high", "medium,verbose", "900"}},
      {"gpus", {"0", "a100", "a100:2", "a100:1,v100:1", "3g.20gb:1"}},
      {"gres",
       {"gpu", "gpu:2", "gpu:a100:2", "gpu:1g.5gb:1", "gpu:4090:1", "none", "gpu:1,nvme:2k", "gpu:2(S:0-1)",
        "gpu:a100:2,gpu:a100:1", "gpu:2,gpu", "gres:gpu:1"}},
      {"nodes", {"1-2", "2", "1k", "1,2"}},
      {"het-group", {"0", "0,1", "0-2"}},
      {"array", {"0", "0-", "1-10:2", "1-4,", ",1", "1,1", "[1-4]%2", "1-4%2,6", "0-9:3,20"}},
      {"acctg-freq", {"30", "task=30,energy=0"}},
      {"delay-boot", {"5", "1:00:00"}},
      {"propagate", {"NONE", "STACK,MEMLOCK"}},
      {"kill-on-invalid-dep", {"yes", "NO"}},
      {"jobid", {"12", "12_3"}},
      {"comment", {"anything"}},
  };
  for (const auto& [option, values] : taken) {
    for (const auto& value : values) EXPECT_FALSE(problem_of_value(option, value, false)) << option << " " << value;
  }
  EXPECT_FALSE(problem_of_value("dependency", "afterokk:1", true));  // srun in a job does not look at it
}

TEST(SlurmCheckValues, FindsWholeWordsAlone) {
  EXPECT_TRUE(has_word("mem mem-per-cpu", "mem"));
  EXPECT_TRUE(has_word("mem mem-per-cpu", "mem-per-cpu"));
  for (const auto* word : {"", "me", "per", "mem mem-per-cpu", "cpu"})
    EXPECT_FALSE(has_word("mem mem-per-cpu", word)) << word;
}

TEST(SlurmCheckRequest, FindsOneOfSeveralOptions) {
  const std::vector<OptionWord> words = {
      {.text = "-N2", .line = 3}, {.text = "--tasks-per-node=4", .line = 4}, {.text = "--nodes=3", .line = 5}};
  const Request request(parse_options(kSbatch, words));
  EXPECT_EQ(request.value("nodes"), "3") << "the last one counts";
  EXPECT_EQ(request.value("ntasks-per-node"), "4") << "both names are one option";
  EXPECT_FALSE(request.has("tasks-per-node"));
  EXPECT_TRUE(request.has_any("gres nodes"));
  EXPECT_TRUE(request.has_any("ntasks-per-node gres"));
  EXPECT_FALSE(request.has_any("node nodelist gres"));
  EXPECT_FALSE(request.has_any(""));
  EXPECT_EQ(request.line_of("gres nodes ntasks-per-node"), 5);
  EXPECT_EQ(request.line_of("gres"), 0);
}

TEST(SlurmCheckValues, TellsWhatIsIgnored) {
  const Values ignored = {{"mail-type", {"END,FAILL"}},
                          {"array", {"1-10%x", "1-10%", "1-10%0", "1-5%3%2", "1-10,%2"}},
                          {"nice", {"x"}},
                          {"priority", {"x"}}};
  for (const auto& [option, values] : ignored) {
    for (const auto& value : values) {
      const auto problem = problem_of_value(option, value, false);
      EXPECT_TRUE(problem && !problem->is_refused && !problem->advice.empty()) << option << " " << value;
    }
  }
}

}  // namespace
}  // namespace yoke::slurm::check
